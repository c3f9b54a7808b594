//! Patterns of error messages that are common to many programs.

use std::sync::LazyLock;

use polity_definition::ScriptProgram;
use polity_model::failure::ErrorCategory;
use regex::Regex;

/// A compiled pattern with its category and hint.
pub(crate) struct FailurePattern {
    pub(crate) pattern: Regex,
    pub(crate) category: ErrorCategory,
    pub(crate) hint: &'static str,
}

/// Permanent causes come first: an exhausted quota is reported with status 429, too.
const PATTERN_TABLE: [(&str, ErrorCategory, &str); 4] = [
    (
        r"(?i)insufficient.?quota|credit balance is too low|exceeded your current quota",
        ErrorCategory::Permanent,
        "its account has no credit left: raise the limit there, or use another key",
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
        "check the model setting",
    ),
    (
        r"(?i)\b429\b|\b(?:http|status|code|error)\b[^\n]{0,20}\b5\d\d\b|rate.?limit|too many requests|overloaded|high demand|stream disconnected|(?:could not|cannot|failed to) connect|connection (?:reset|refused|closed|error|aborted)|time(?:d[ -]?out|out\b)|econnreset|econnrefused|etimedout|eai_again|enotfound|temporarily unavailable|service unavailable|bad gateway|internal server error",
        ErrorCategory::Transient,
        "a retry may succeed; Polity retries up to max_retries times if the agent is idempotent or \
         read-only",
    ),
];

/// The compiled patterns; the first match counts.
pub(crate) static FAILURE_PATTERNS: LazyLock<Vec<FailurePattern>> = LazyLock::new(|| {
    let compiled = PATTERN_TABLE.iter().filter_map(|(pattern, category, hint)| {
        let pattern = Regex::new(pattern).ok()?;
        Some(FailurePattern { pattern, category: *category, hint })
    });
    compiled.collect()
});

/// The hint for a failure without a more specific one.
pub(crate) fn hint(category: ErrorCategory) -> &'static str {
    match category {
        ErrorCategory::Transient => {
            "a retry may succeed; Polity retries up to max_retries times if the agent is \
             idempotent or read-only"
        }
        ErrorCategory::Permanent => {
            "a retry will not help: change the agent's file or the program's setup"
        }
        ErrorCategory::AgentError => {
            "read the program's output, or run it by hand with the same arguments; set error_rules \
             to mark failures that may pass as transient"
        }
        ErrorCategory::SystemError => {
            "check the machine: installed programs, free memory, processes that kill others"
        }
    }
}

/// The hint for the failure of a workflow's script.
pub(crate) fn script_hint(script: &ScriptProgram, category: ErrorCategory) -> &'static str {
    match category {
        ErrorCategory::Transient => {
            "a retry may succeed; Polity retries up to max_retries times if the step is idempotent"
        }
        ErrorCategory::Permanent => "a retry will not help: change the step or the script's setup",
        ErrorCategory::AgentError => match script {
            ScriptProgram::File(_) => {
                "correct the script, and retry with --definitions current: a task keeps its own copy"
            }
            ScriptProgram::Command(_) => "correct the command of the step, or its program",
        },
        ErrorCategory::SystemError => {
            "check the machine: installed programs, free memory, processes that kill others"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(FAILURE_PATTERNS.len(), PATTERN_TABLE.len());
    }
}
