//! The errors of a call to another server, and their meaning for the work.

use std::time::Duration;

use polity_model::failure::{AttemptFailure, ErrorCategory};
use serde_json::Value;

/// JSON-RPC and A2A error codes with a special meaning.
mod code {
    pub(super) const INTERNAL: i64 = -32603;
    pub(super) const TASK_NOT_FOUND: i64 = -32001;
    pub(super) const INVALID_AGENT_RESPONSE: i64 = -32006;
    pub(super) const VERSION_NOT_SUPPORTED: i64 = -32009;
}

/// The longest server message that an error repeats.
const MESSAGE_CHARACTERS_MAX: usize = 300;

/// An error of a call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum RemoteError {
    /// The server is unreachable and has received nothing.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The connection was lost after data had been sent.
    #[error("the call was broken off: {0}")]
    Lost(String),
    /// The server answered with an error status.
    #[error("it answered with status {status}{}", message_suffix(message))]
    Status { status: u16, message: String, retry_after: Option<Duration> },
    /// The server answered with a protocol error.
    #[error("it answered with error {code}: {}", truncate_message(message))]
    Rpc { code: i64, message: String },
    /// The answer is not valid.
    #[error("what it answered cannot be read: {0}")]
    Unreadable(String),
    /// The answer exceeds a limit, which the text names.
    #[error("its answer is larger than {0}")]
    TooLarge(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SendFailure {
    /// The server did not accept it, or it failed.
    Failed(AttemptFailure, Option<Duration>),
    /// The server may have accepted it.
    InDoubt(String),
}

impl RemoteError {
    /// An error from a response with an error status.
    pub(super) fn from_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let fields = [&json["error"]["message"], &json["detail"], &json["message"], &json["title"]];
        let said = fields.into_iter().chain([&json["error"]]).find_map(Value::as_str);
        let message = match said {
            Some(said) => said.to_owned(),
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        // JSON-RPC servers may send a protocol error with an error status.
        match (json["jsonrpc"].as_str(), json["error"]["code"].as_i64()) {
            (Some(_), Some(code)) => Self::Rpc { code, message },
            (Some(_) | None, _) => Self::Status { status, message, retry_after },
        }
    }

    /// Maps the error of a send. Only an error which proves that the message was not accepted is
    /// transient.
    pub(super) fn to_send_failure(&self, token: Option<&str>) -> SendFailure {
        let failed =
            |category| SendFailure::Failed(self.to_failure(category, token), self.retry_after());
        match self {
            Self::Unreachable(_) => failed(ErrorCategory::Transient),
            Self::Status { status, .. } => match status {
                408 | 429 | 503 => failed(ErrorCategory::Transient),
                500 => failed(ErrorCategory::AgentError),
                // A gateway does not know whether the server accepted the message.
                501.. => SendFailure::InDoubt(self.to_string()),
                ..500 => failed(ErrorCategory::Permanent),
            },
            Self::Rpc { code, .. } => match *code {
                code::INTERNAL | code::INVALID_AGENT_RESPONSE => failed(ErrorCategory::AgentError),
                _ => failed(ErrorCategory::Permanent),
            },
            // The server accepted it, and its answer cannot be read.
            Self::TooLarge(_) => failed(ErrorCategory::Permanent),
            Self::Lost(_) | Self::Unreadable(_) => SendFailure::InDoubt(self.to_string()),
        }
    }

    /// True if a repeated read may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Lost(_) => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..),
            Self::Rpc { code, .. } => *code == code::INTERNAL,
            Self::Unreadable(_) | Self::TooLarge(_) => false,
        }
    }

    /// True if the server does not know the task.
    pub(super) fn is_unknown_task(&self) -> bool {
        matches!(
            self,
            Self::Status { status: 404, .. } | Self::Rpc { code: code::TASK_NOT_FOUND, .. }
        )
    }

    /// The delay that the server requests.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        if let Self::Status { retry_after, .. } = self { *retry_after } else { None }
    }

    /// Converts to a failure with a hint at the fix.
    pub(super) fn to_failure(
        &self,
        category: ErrorCategory,
        token: Option<&str>,
    ) -> AttemptFailure {
        let what = self.to_string();
        let message = match self.remedy(token) {
            Some(remedy) => format!("{what}; {remedy}"),
            None => what,
        };
        AttemptFailure { category, message }
    }

    fn remedy(&self, token: Option<&str>) -> Option<String> {
        let remedy = match self {
            Self::Unreachable(_) => "check card_url, and whether the server runs",
            Self::Status { status: 401 | 403, .. } => match token {
                Some(variable) => return Some(format!("set {variable} to a token that it takes")),
                None => "give the agent's file an auth with the token that it wants",
            },
            Self::Status { status: 300..=399, .. } => {
                "give the address that it leads to as card_url"
            }
            Self::Rpc { code: code::VERSION_NOT_SUPPORTED, .. } => {
                "the card offers a version that the server does not speak"
            }
            _ => return None,
        };
        Some(remedy.to_owned())
    }
}

/// The message, cut to the length limit.
fn truncate_message(message: &str) -> String {
    message.chars().take(MESSAGE_CHARACTERS_MAX).collect()
}

fn message_suffix(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {}", truncate_message(message)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_is_retried_only_if_certainly_not_accepted() {
        let status = |status| RemoteError::from_status(status, b"no", None);
        let rpc = |code| RemoteError::Rpc { code, message: "no".into() };
        let lost = RemoteError::Lost("reset".into());
        let cases = [
            (RemoteError::Unreachable("refused".into()), Some(ErrorCategory::Transient)),
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
            (RemoteError::Unreadable("no JSON".into()), None),
            (RemoteError::TooLarge("a limit".into()), Some(ErrorCategory::Permanent)),
        ];
        for (error, expected) in cases {
            let found = match error.to_send_failure(None) {
                SendFailure::Failed(failure, _) => Some(failure.category),
                SendFailure::InDoubt(_) => None,
            };
            assert_eq!(found, expected, "{error:?}");
        }
    }

    #[test]
    fn extracts_error_message_of_a_server() {
        for (body, expected) in [
            (r#"{"error": {"code": 404, "message": "no task"}}"#, "no task"),
            (r#"{"detail": "no task"}"#, "no task"),
            (r#"{"error": "no task"}"#, "no task"),
            ("no task\n", "no task"),
        ] {
            let error = RemoteError::from_status(404, body.as_bytes(), None);
            assert_eq!(error.to_string(), format!("it answered with status 404: {expected}"));
            assert!(error.is_unknown_task());
        }
        let body = br#"{"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "gone"}}"#;
        assert!(RemoteError::from_status(400, body, None).is_unknown_task());
    }

    #[test]
    fn status_401_names_the_token_variable() {
        let refused = RemoteError::from_status(401, b"", None);
        let with = |token| refused.to_failure(ErrorCategory::Permanent, token).message;
        insta::assert_snapshot!(with(Some("TOKEN")), @"it answered with status 401; set TOKEN to a token that it takes");
        assert!(with(None).contains("auth"));
    }
}
