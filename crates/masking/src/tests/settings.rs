//! Masking that the settings add.

use std::sync::Arc;

use super::mask;
use crate::{AllowlistSource, RedactionSettings, RuleSource, SecretMask, SecretRule};

#[test]
fn masks_emails_and_patterns_if_configured() {
    let text = "ada@example.org paid with 4111111111111111\nand \u{fc}ber 12345";
    assert_eq!(mask().mask_text(text), text);
    let patterns = vec![
        regex::Regex::new("[0-9]{16}").unwrap(),
        regex::Regex::new("^and \u{fc}b.r").unwrap(),
        regex::Regex::new("x*").unwrap(),
    ];
    let redaction = RedactionSettings { emails: true, patterns, ..RedactionSettings::default() };
    let mask = SecretMask::new([], &redaction).unwrap();
    assert_eq!(mask.mask_text(text), "*** paid with ***1111\n*** 12345");
}

fn rule(source: RuleSource) -> Arc<SecretRule> {
    Arc::new(SecretRule::new(source).unwrap())
}

fn own(id: &str, regex: &str, keywords: &[&str]) -> RuleSource {
    RuleSource {
        id: id.to_owned(),
        regex: regex.to_owned(),
        keywords: Some(keywords.iter().map(|keyword| (*keyword).to_owned()).collect()),
        ..RuleSource::default()
    }
}

fn with_rules(rules: Vec<Arc<SecretRule>>) -> SecretMask {
    SecretMask::new([], &RedactionSettings { rules, ..RedactionSettings::default() }).unwrap()
}

#[test]
fn rules_of_the_settings_mask_their_groups() {
    let allowlists = Some(vec![AllowlistSource {
        regexes: Some(vec!["^emp-0+$".to_owned()]),
        stopwords: Some(vec!["example".to_owned()]),
        ..AllowlistSource::default()
    }]);
    let mask = with_rules(vec![
        rule(RuleSource { allowlists, ..own("staff", r"\bemp-[a-z0-9]{4,}", &["EMP-"]) }),
        rule(own("door", "door (?:code|pin):? ([0-9]+)", &["door"])),
        rule(RuleSource { entropy: Some(2.5), ..own("random", "id=([a-z0-9]{8})", &["id="]) }),
        rule(RuleSource { secret_group: Some(2), ..own("pair", "(u[0-9]+)/(p[0-9]+)", &[]) }),
    ]);
    for (text, expected) in [
        (
            "emp-a1b2 and temp-a1b2, emp-0000 or emp-example",
            "*** and temp-a1b2, emp-0000 or emp-example",
        ),
        (
            "the Door, the door code: 4711, door pin 12",
            "the Door, the door code: ***, door pin ***",
        ),
        ("id=aaaaaaaa id=a1b2c3d4", "id=aaaaaaaa id=***"),
        ("u1/p2 u3/p4", "u1/*** u3/***"),
    ] {
        assert_eq!(mask.mask_text(text), expected);
    }
}

#[test]
fn rules_with_overlapping_keywords_all_match() {
    let mask = with_rules(vec![
        rule(own("a", "ab[0-9]{3}", &["ab"])),
        rule(own("b", "abc[0-9]{3}", &["abc"])),
        rule(own("c", "bc[0-9]{4}", &["bc"])),
        rule(own("d", "token-[0-9]{4}", &["token"])),
    ]);
    for (text, expected) in [
        ("ab123 abc123 abc1234", "*** *** ***"),
        // The detector of names still sees the same word.
        ("token-1234, token=hunter22", "***, token=***"),
    ] {
        assert_eq!(mask.mask_text(text), expected);
    }
}

#[test]
fn built_in_rules_can_be_replaced_and_disabled() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let text = format!("key {token}");
    assert_eq!(mask().mask_text(&text), "key ***a1B2");
    let disabled_rules = vec!["github".to_owned()];
    let settings = RedactionSettings { disabled_rules, ..RedactionSettings::default() };
    assert_eq!(SecretMask::new([], &settings).unwrap().mask_text(&text), text);
    let mask = with_rules(vec![rule(own("github", "ghx_[a-z]{4}", &["ghx_"]))]);
    assert_eq!(mask.mask_text(&format!("{text} ghx_abcd")), format!("{text} ***"));
}
