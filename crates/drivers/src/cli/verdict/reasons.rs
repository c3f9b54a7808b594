//! What messages of failures commonly mean, whoever wrote them.

use std::sync::LazyLock;

use polity_model::failure::ErrorCategory;
use regex::Regex;

/// What a message means.
pub(super) struct Reason {
    pub(super) pattern: Regex,
    pub(super) category: ErrorCategory,
    /// What to do.
    pub(super) hint: &'static str,
}

/// Lasting reasons come first: a quota that is used up is told with the status of too many
/// requests.
const WRITTEN: [(&str, ErrorCategory, &str); 4] = [
    (
        r"(?i)insufficient.?quota|credit balance is too low|exceeded your current quota",
        ErrorCategory::Permanent,
        "its account has nothing left to spend: raise the limit there, or use another key",
    ),
    (
        r"(?i)\b401\b|\b403\b|unauthori[sz]ed|unauthenticated|(?:invalid|incorrect|missing|no) (?:x-)?api.?key|authentication.?(?:failed|error)|not logged in|please (?:log ?in|sign ?in|run /login)|invalid auth method",
        ErrorCategory::Permanent,
        "check its key: the variable must be set and be named in env_allow or envs, or the program \
         must be logged in",
    ),
    (
        r"(?i)(?:unknown|invalid|unsupported) model|model\b[^\n]{0,80}\b(?:not found|does not exist|not supported)|model_not_found",
        ErrorCategory::Permanent,
        "check the model that it is told to use",
    ),
    (
        r"(?i)\b429\b|\b(?:http|status|code|error)\b[^\n]{0,20}\b5\d\d\b|rate.?limit|too many requests|overloaded|high demand|stream disconnected|(?:could not|cannot|failed to) connect|connection (?:reset|refused|closed|error|aborted)|time(?:d[ -]?out|out\b)|econnreset|econnrefused|etimedout|eai_again|enotfound|temporarily unavailable|service unavailable|bad gateway|internal server error",
        ErrorCategory::Transient,
        "it may go well when it is tried again, which happens by itself up to max_retries if the \
         agent is idempotent or only reads",
    ),
];

/// What messages commonly mean; the first match counts.
pub(super) static COMMON: LazyLock<Vec<Reason>> = LazyLock::new(|| {
    let compiled = WRITTEN.iter().filter_map(|(pattern, category, hint)| {
        let pattern = Regex::new(pattern).ok()?;
        Some(Reason { pattern, category: *category, hint })
    });
    compiled.collect()
});

/// What to do about a failure of which no more is known.
pub(super) fn hint(category: ErrorCategory) -> &'static str {
    match category {
        ErrorCategory::Transient => {
            "it may go well when it is tried again, which happens by itself up to max_retries if \
             the agent is idempotent or only reads"
        }
        ErrorCategory::Permanent => {
            "trying again will not help: change the agent's file or what the program needs"
        }
        ErrorCategory::AgentError => {
            "read what the program says, and run it by hand with the same arguments if that is not \
             enough; error_rules say which of its failures pass"
        }
        ErrorCategory::SystemError => {
            "look at the machine: what is installed, how much memory is free, who ends processes"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_can_be_looked_for() {
        assert_eq!(COMMON.len(), WRITTEN.len());
    }
}
