//! Rules: descriptions of secrets as data, in the form that gitleaks uses.
//!
//! `built_in` has the rules that Polity ships, `compiled` a rule that is ready to match, `search`
//! the search of a text for all rules.

mod built_in;
mod compiled;
mod search;

use schemars::JsonSchema;
use serde::Deserialize;

pub use self::built_in::built_in_rules;
pub(crate) use self::built_in::email_rule;
pub use self::compiled::{RuleError, SecretRule};
pub(crate) use self::search::RuleSearch;

/// A rule that describes one kind of secret.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RuleSource {
    /// The name of the rule. A rule replaces the built-in rule of the same name.
    pub id: String,
    /// The kind of secret, for people.
    pub description: Option<String>,
    /// The regular expression, matched within one line. Its first group that is not empty is the
    /// secret; without groups, the whole match. Classes such as `\w` are ASCII.
    pub regex: String,
    /// The number of the group that is the secret, instead of the first that is not empty.
    pub secret_group: Option<usize>,
    /// The least entropy of a secret, in bits per character.
    pub entropy: Option<f64>,
    /// Texts of which one is on the line, in any case. Without keywords, every line is matched,
    /// which is slow.
    #[schemars(extend("default" = []))]
    pub keywords: Option<Vec<String>>,
    /// Texts that are no secrets although they match.
    #[schemars(extend("default" = []))]
    pub allowlists: Option<Vec<AllowlistSource>>,
}

/// Texts that are no secrets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AllowlistSource {
    /// The kind of text, for people.
    pub description: Option<String>,
    /// The text that the regular expressions are matched with.
    #[schemars(extend("default" = RegexTarget::Secret))]
    pub regex_target: Option<RegexTarget>,
    /// Regular expressions of harmless texts.
    #[schemars(extend("default" = []))]
    pub regexes: Option<Vec<String>>,
    /// Texts that no secret contains, in any case.
    #[schemars(extend("default" = []))]
    pub stopwords: Option<Vec<String>>,
}

/// The text that an allowlist is matched with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegexTarget {
    /// The secret.
    #[default]
    Secret,
    /// The whole match.
    Match,
    /// The line.
    Line,
}
