//! The settings of masking, and literal secrets in definitions.

use std::sync::{Arc, LazyLock};

use aho_corasick::BuildError;
use regex::Regex;

use crate::SecretMask;
use crate::detectors::assignment;
use crate::rules::{RuleSearch, RuleSource, SecretRule, built_in_rules, email_rule};
use crate::scan::{SecretMatch, TextExtent};

/// Masking besides known secrets.
#[derive(Debug, Clone, Default)]
pub struct RedactionSettings {
    /// Masks e-mail addresses.
    pub emails: bool,
    /// Patterns whose matches are masked.
    pub patterns: Vec<Regex>,
    /// More rules. A rule replaces the built-in rule of the same name.
    pub rules: Vec<Arc<SecretRule>>,
    /// The names of built-in rules that are off.
    pub disabled_rules: Vec<String>,
}

impl PartialEq for RedactionSettings {
    fn eq(&self, other: &Self) -> bool {
        let texts = |redaction: &Self| -> Vec<String> {
            redaction.patterns.iter().map(|regex| regex.as_str().to_owned()).collect()
        };
        self.emails == other.emails
            && texts(self) == texts(other)
            && self.rules == other.rules
            && self.disabled_rules == other.disabled_rules
    }
}

impl RedactionSettings {
    pub(crate) fn search(&self) -> Result<RuleSearch, BuildError> {
        let is_on = |rule: &&Arc<SecretRule>| {
            !self.disabled_rules.iter().any(|id| id == rule.id())
                && !self.rules.iter().any(|own| own.id() == rule.id())
        };
        let built_in = built_in_rules().iter().filter(is_on).cloned().collect();
        let emails = self.emails.then(|| Arc::clone(email_rule()));
        let patterns = self.patterns.iter().map(|pattern| {
            let source = RuleSource {
                id: "pattern".to_owned(),
                regex: format!("(?u:{})", pattern.as_str()),
                ..RuleSource::default()
            };
            Arc::new(SecretRule::unchecked(source))
        });
        let others = self.rules.iter().cloned().chain(emails).chain(patterns).collect();
        RuleSearch::new(built_in, others)
    }
}

/// The mask of the built-in rules.
static BUILT_IN: LazyLock<Option<SecretMask>> =
    LazyLock::new(|| SecretMask::new([], &RedactionSettings::default()).ok());

/// True if the value of a variable is a secret, by its name or by its form. References such as
/// `${NAME}` are not.
pub fn is_literal_secret(name: &str, value: &str) -> bool {
    let literal = without_references(value);
    let looks_secret = || {
        let mask = BUILT_IN.as_ref();
        mask.is_some_and(|mask| mask.mask_text(&literal) != literal.as_str())
    };
    assignment::is_secret_value(name, literal.trim()) || looks_secret()
}

/// True if a text contains a secret that a built-in rule describes.
pub fn contains_token(text: &str) -> bool {
    let mut is_there = false;
    if let Some(mask) = BUILT_IN.as_ref() {
        let found = |found: SecretMatch| is_there |= found.span.is_some();
        mask.matchers.rules.find_all(text.as_bytes(), TextExtent::Complete, found);
    }
    is_there
}

/// The text without `${NAME}`.
fn without_references(text: &str) -> String {
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((_, behind)) = after.split_once('}') else { break };
        literal.push_str(before);
        rest = behind;
    }
    literal + rest
}
