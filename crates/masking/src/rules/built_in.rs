//! The rules that Polity ships.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::{RuleSource, SecretRule};

/// The rules, as a user would write them.
const RULES: &str = include_str!("built_in.yaml");

/// An e-mail address, roughly; it matches rather too much than too little.
const EMAIL: &str = r"[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}";

#[derive(Deserialize)]
struct RulesFile {
    rules: Vec<RuleSource>,
}

static BUILT_IN: LazyLock<Vec<Arc<SecretRule>>> = LazyLock::new(|| {
    // A test reads the file, so that the fallback is never needed.
    let file = serde_saphyr::from_str::<RulesFile>(RULES);
    let sources = file.map(|file| file.rules).unwrap_or_default();
    sources.into_iter().map(|source| Arc::new(SecretRule::unchecked(source))).collect()
});

static EMAILS: LazyLock<Arc<SecretRule>> = LazyLock::new(|| {
    Arc::new(SecretRule::unchecked(RuleSource {
        id: "email".to_owned(),
        regex: EMAIL.to_owned(),
        keywords: Some(vec!["@".to_owned()]),
        ..RuleSource::default()
    }))
});

/// The rules that are always on.
pub fn built_in_rules() -> &'static [Arc<SecretRule>] {
    &BUILT_IN
}

/// The rule for e-mail addresses.
pub(crate) fn email_rule() -> &'static Arc<SecretRule> {
    &EMAILS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn built_in_rules_are_valid() {
        let file: RulesFile = serde_saphyr::from_str(RULES).unwrap();
        assert_eq!(file.rules.len(), built_in_rules().len());
        let mut ids = HashSet::new();
        for source in file.rules {
            let id = source.id.clone();
            assert!(ids.insert(id.clone()), "{id} is there twice");
            assert!(source.description.is_some(), "{id} has no description");
            let keywords = source.keywords.clone().unwrap_or_default();
            assert!(keywords.iter().all(|keyword| keyword.len() > 2), "{id}: too short a keyword");
            let rule = SecretRule::new(source).unwrap_or_else(|error| panic!("{id}: {error}"));
            // Otherwise a prompt on an incomplete line would not be shown.
            assert!(!keywords.is_empty() && !rule.holds_lines(), "{id} holds lines back");
        }
        SecretRule::new(email_rule().source().clone()).unwrap();
    }
}
