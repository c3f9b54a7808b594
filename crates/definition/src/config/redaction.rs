//! `redaction` of the settings: patterns and rules for text to mask.

use std::sync::Arc;

use polity_masking::{RedactionSettings, RuleSource, SecretRule, built_in_rules};
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::regex_reason;

/// The largest compiled form of a pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 10 << 20;

/// Additional masking, besides known secrets.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RedactionFile {
    /// Masks e-mail addresses.
    #[schemars(extend("default" = false))]
    emails: Option<bool>,
    /// Regular expressions whose matches are masked.
    #[schemars(extend("default" = []), inner(regex(pattern = ".")))]
    patterns: Option<Vec<String>>,
    /// Rules for secrets, in the form that gitleaks uses. A rule replaces the built-in rule of the
    /// same name.
    #[schemars(extend("default" = []))]
    rules: Option<Vec<RuleSource>>,
    /// The names of built-in rules that are off.
    #[schemars(extend("default" = []))]
    disabled_rules: Option<Vec<String>>,
}

impl RedactionFile {
    pub(super) fn check(self, path: &FieldPath, checker: &mut FileChecker) -> RedactionSettings {
        let disabled_rules = self.disabled_rules.unwrap_or_default();
        for (index, id) in disabled_rules.iter().enumerate() {
            let known = || built_in_rules().iter().map(|rule| rule.id());
            if !known().any(|known| known == id) {
                let place = path.field("disabled_rules").index(index);
                let finding = FindingText::new(format!("{place}: there is no rule \"{id}\""));
                checker.report(&place, finding.one_of(id, known()));
            }
        }
        RedactionSettings {
            emails: self.emails.unwrap_or(false),
            patterns: check_patterns(self.patterns, &path.field("patterns"), checker),
            rules: check_rules(self.rules, &path.field("rules"), checker),
            disabled_rules,
        }
    }
}

fn check_patterns(
    written: Option<Vec<String>>,
    path: &FieldPath,
    checker: &mut FileChecker,
) -> Vec<Regex> {
    let mut patterns = Vec::new();
    for (index, text) in written.unwrap_or_default().iter().enumerate() {
        match RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build() {
            Ok(regex) => patterns.push(regex),
            Err(error) => {
                let place = path.index(index);
                let reason = regex_reason(&error);
                let message = format!("{place}: not a regular expression: {reason}");
                checker.report(&place, FindingText::new(message).found(text));
            }
        }
    }
    patterns
}

fn check_rules(
    written: Option<Vec<RuleSource>>,
    path: &FieldPath,
    checker: &mut FileChecker,
) -> Vec<Arc<SecretRule>> {
    let mut rules: Vec<Arc<SecretRule>> = Vec::new();
    for (index, source) in written.unwrap_or_default().into_iter().enumerate() {
        let place = path.index(index);
        if rules.iter().any(|rule| rule.id() == source.id) {
            let message = format!("two rules have the id \"{}\"", source.id);
            let finding = FindingText::new(message).found(&source.id);
            checker.report(&place.field("id"), finding);
        }
        match SecretRule::new(source) {
            Ok(rule) => rules.push(Arc::new(rule)),
            Err(error) => {
                let place = place.field(error.field);
                checker.report(&place, FindingText::new(format!("{place}: {error}")));
            }
        }
    }
    rules
}
