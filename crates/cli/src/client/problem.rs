//! Errors of a server as errors of a command.

use polity_definition::DefinitionProblem;
use polity_host::ReportKind;
use serde::Deserialize;

use crate::error::CliError;

/// The problem details of an answer.
#[derive(Debug, Deserialize)]
struct ProblemAnswer {
    code: String,
    detail: String,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    problems: Vec<DefinitionProblem>,
}

/// The error of an answer that is not a success.
pub(super) fn error_of(server: &str, status: u16, body: &[u8]) -> CliError {
    let Ok(problem) = serde_json::from_slice::<ProblemAnswer>(body) else {
        return unknown_answer(server, status);
    };
    let kind = kind_of(&problem.code, status);
    let message = match &problem.field {
        Some(field) => format!("{} (field \"{field}\")", problem.detail),
        None => problem.detail,
    };
    let is_refused = problem.code == "unauthorized";
    let error = CliError::new(problem.code, kind, message).with_problems(problem.problems);
    if is_refused {
        return error.hint(
            "set POLITY_TOKEN to a token of this server; `polity token create` in its home makes one",
        );
    }
    match problem.hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The error of an answer that no server of Polity gives.
fn unknown_answer(server: &str, status: u16) -> CliError {
    let error = CliError::new(
        "server_error",
        ReportKind::Failed,
        format!("{server} answered with status {status} and no problem details"),
    );
    error.hint(match status {
        300..400 => {
            "redirects are not followed, because the token is for this address only: name \
                     the final URL"
        }
        _ => "is it a Polity server? `polity serve` prints its URL",
    })
}

/// The kind of a problem, which decides on the exit code. It is the kind that the same error has
/// without a server.
fn kind_of(code: &str, status: u16) -> ReportKind {
    match code {
        "usage" | "unknown_agent" | "unsupported" | "cassette" | "invalid_definition"
        | "agent_disabled" | "not_ready" | "untrusted" | "invalid_request" | "bad_request" => {
            ReportKind::Usage
        }
        "awaiting_human" => ReportKind::AwaitingHuman,
        "timeout" => ReportKind::TimedOut,
        "budget" => ReportKind::OverLimit,
        limit if limit.starts_with("limit_") => ReportKind::OverLimit,
        _ if status == 413 => ReportKind::OverLimit,
        _ => ReportKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_keep_code_hint_and_exit_code() {
        let error = |status, body: &str| error_of("http://host", status, body.as_bytes());
        let unknown = error(404, r#"{"code": "unknown_agent", "detail": "no", "hint": "look"}"#);
        assert_eq!((unknown.code(), unknown.message()), ("unknown_agent", "no"));
        assert_eq!((unknown.kind(), unknown.hint_text()), (ReportKind::Usage, Some("look")));
        let limit = error(413, r#"{"code": "limit_input_bytes", "detail": "long"}"#);
        assert_eq!(limit.kind(), ReportKind::OverLimit);
        let refused = error(401, r#"{"code": "unauthorized", "detail": "no token", "hint": "x"}"#);
        assert_eq!(refused.kind(), ReportKind::Failed);
        assert!(refused.hint_text().unwrap().contains("POLITY_TOKEN"));
        for (status, hint) in [(301, "redirects"), (502, "is it a Polity server?")] {
            let foreign = error(status, "<html>");
            assert_eq!(foreign.code(), "server_error");
            assert!(foreign.hint_text().unwrap().contains(hint));
        }
    }
}
