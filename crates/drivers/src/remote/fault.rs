//! What may go wrong with a call to another server, and what that says about the work.

use std::time::Duration;

use polity_model::failure::{AttemptFailure, ErrorCategory};
use serde_json::Value;

/// The errors of JSON-RPC and of A2A that need a closer look.
mod code {
    pub(super) const INTERNAL: i64 = -32603;
    pub(super) const TASK_NOT_FOUND: i64 = -32001;
    pub(super) const INVALID_AGENT_RESPONSE: i64 = -32006;
    pub(super) const VERSION_NOT_SUPPORTED: i64 = -32009;
}

/// How much of what a server says about an error is repeated.
const SAID_CHARACTERS_MAX: usize = 300;

/// Why a call brought no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    /// The server could not be reached, so it has heard nothing.
    Unreachable(String),
    /// The connection ended after something had been sent.
    Lost(String),
    /// The server refused, or failed.
    Status { status: u16, message: String, retry_after: Option<Duration> },
    /// The server answered with an error of the protocol.
    Rpc { code: i64, message: String },
    /// The server answered something that is no answer.
    Unreadable(String),
    /// The answer is larger than it may be. Names the limit.
    TooLarge(String),
}

/// What is known about a message after its sending went wrong.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unsent {
    /// It was not taken, or it was and failed.
    Failed(AttemptFailure, Option<Duration>),
    /// It may have been taken.
    InDoubt(String),
}

impl Fault {
    /// An answer with a status that is no success.
    pub(super) fn of_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let fields = [&json["error"]["message"], &json["detail"], &json["message"], &json["title"]];
        let said = fields.into_iter().chain([&json["error"]]).find_map(Value::as_str);
        let message = match said {
            Some(said) => said.to_owned(),
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        // Servers of JSON-RPC may give an error of the protocol a status of its own.
        match (json["jsonrpc"].as_str(), json["error"]["code"].as_i64()) {
            (Some(_), Some(code)) => Self::Rpc { code, message },
            (Some(_) | None, _) => Self::Status { status, message, retry_after },
        }
    }

    /// What is known about a message whose sending ended so. Only what proves that the message was
    /// not taken is worth another try.
    pub(super) fn of_sending(&self, token: Option<&str>) -> Unsent {
        let failed = |category| Unsent::Failed(self.failure(category, token), self.retry_after());
        match self {
            Self::Unreachable(_) => failed(ErrorCategory::Transient),
            Self::Status { status, .. } => match status {
                408 | 429 | 503 => failed(ErrorCategory::Transient),
                500 => failed(ErrorCategory::AgentError),
                // Whoever stands before the server does not know what became of it.
                501.. => Unsent::InDoubt(self.to_string()),
                ..500 => failed(ErrorCategory::Permanent),
            },
            Self::Rpc { code, .. } => match *code {
                code::INTERNAL | code::INVALID_AGENT_RESPONSE => failed(ErrorCategory::AgentError),
                _ => failed(ErrorCategory::Permanent),
            },
            // It was taken, and no more of it can be had.
            Self::TooLarge(_) => failed(ErrorCategory::Permanent),
            Self::Lost(_) | Self::Unreadable(_) => Unsent::InDoubt(self.to_string()),
        }
    }

    /// Whether it may be otherwise in a while, where asking again does no harm.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Lost(_) => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..),
            Self::Rpc { code, .. } => *code == code::INTERNAL,
            Self::Unreadable(_) | Self::TooLarge(_) => false,
        }
    }

    /// Whether the server does not know the task that it was asked about.
    pub(super) fn is_unknown_task(&self) -> bool {
        match self {
            Self::Status { status, .. } => *status == 404,
            Self::Rpc { code, .. } => *code == code::TASK_NOT_FOUND,
            Self::Unreachable(_) | Self::Lost(_) | Self::Unreadable(_) | Self::TooLarge(_) => false,
        }
    }

    /// How long the server asks to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Unreachable(_)
            | Self::Lost(_)
            | Self::Rpc { .. }
            | Self::Unreadable(_)
            | Self::TooLarge(_) => None,
        }
    }

    /// The fault as a failure, with what to do about it.
    pub(super) fn failure(&self, category: ErrorCategory, token: Option<&str>) -> AttemptFailure {
        let what = self.to_string();
        let message = match self.remedy(token) {
            Some(remedy) => format!("{what}; {remedy}"),
            None => what,
        };
        AttemptFailure { category, message }
    }

    fn remedy(&self, token: Option<&str>) -> Option<String> {
        match self {
            Self::Unreachable(_) => Some("check card_url, and whether the server runs".to_owned()),
            Self::Status { status: 401 | 403, .. } => Some(match token {
                Some(variable) => format!("set {variable} to a token that it takes"),
                None => "give the agent's file an auth with the token that it wants".to_owned(),
            }),
            Self::Status { status: 300..=399, .. } => {
                Some("give the address that it leads to as card_url".to_owned())
            }
            Self::Rpc { code: code::VERSION_NOT_SUPPORTED, .. } => {
                Some("the card offers a version that the server does not speak".to_owned())
            }
            Self::Status { .. }
            | Self::Lost(_)
            | Self::Rpc { .. }
            | Self::Unreadable(_)
            | Self::TooLarge(_) => None,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it cannot be reached: {why}"),
            Self::Lost(why) => write!(f, "the call was broken off: {why}"),
            Self::Status { status, message, .. } if message.is_empty() => {
                write!(f, "it answered with status {status}")
            }
            Self::Status { status, message, .. } => {
                write!(f, "it answered with status {status}: {}", said(message))
            }
            Self::Rpc { code, message } => {
                write!(f, "it answered with error {code}: {}", said(message))
            }
            Self::Unreadable(why) => write!(f, "what it answered cannot be read: {why}"),
            Self::TooLarge(limit) => write!(f, "its answer is larger than {limit}"),
        }
    }
}

/// The beginning of what a server said.
fn said(message: &str) -> String {
    message.chars().take(SAID_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_proves_that_nothing_was_taken_is_tried_again() {
        let status = |status| Fault::of_status(status, b"no", None);
        let rpc = |code| Fault::Rpc { code, message: "no".into() };
        let lost = Fault::Lost("reset".into());
        let cases = [
            (Fault::Unreachable("refused".into()), Some(ErrorCategory::Transient)),
            (status(429), Some(ErrorCategory::Transient)),
            (status(503), Some(ErrorCategory::Transient)),
            (status(400), Some(ErrorCategory::Permanent)),
            (status(401), Some(ErrorCategory::Permanent)),
            (status(302), Some(ErrorCategory::Permanent)),
            (rpc(-32602), Some(ErrorCategory::Permanent)),
            (rpc(-32603), Some(ErrorCategory::AgentError)),
            (status(500), Some(ErrorCategory::AgentError)),
            (status(502), None),
            (status(504), None),
            (lost, None),
            (Fault::Unreadable("no JSON".into()), None),
            (Fault::TooLarge("a limit".into()), Some(ErrorCategory::Permanent)),
        ];
        for (fault, expected) in cases {
            let found = match fault.of_sending(None) {
                Unsent::Failed(failure, _) => Some(failure.category),
                Unsent::InDoubt(_) => None,
            };
            assert_eq!(found, expected, "{fault:?}");
        }
    }

    #[test]
    fn what_a_server_says_about_an_error_is_found() {
        for (body, expected) in [
            (r#"{"error": {"code": 404, "message": "no task"}}"#, "no task"),
            (r#"{"detail": "no task"}"#, "no task"),
            (r#"{"error": "no task"}"#, "no task"),
            ("no task\n", "no task"),
        ] {
            let fault = Fault::of_status(404, body.as_bytes(), None);
            assert_eq!(fault.to_string(), format!("it answered with status 404: {expected}"));
            assert!(fault.is_unknown_task());
        }
        let body = br#"{"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "gone"}}"#;
        assert!(Fault::of_status(400, body, None).is_unknown_task());
    }

    #[test]
    fn a_refusal_says_what_to_set() {
        let refused = Fault::of_status(401, b"", None);
        let with = |token| refused.failure(ErrorCategory::Permanent, token).message;
        assert_eq!(
            with(Some("TOKEN")),
            "it answered with status 401; set TOKEN to a token that it takes"
        );
        assert!(with(None).contains("auth"));
    }
}
