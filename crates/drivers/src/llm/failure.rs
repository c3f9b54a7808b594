//! What goes wrong with a call, and what that means: whether it may pass, whether a shorter
//! conversation would do, how long to wait, and what to do about it.

use std::time::Duration;

use polity_model::failure::ErrorCategory;
use serde_json::Value;

/// The most characters of a provider's own words that an error repeats.
const WORDS_CHARACTERS_MAX: usize = 500;

/// What providers say when a conversation is longer than their model can read.
const CONTEXT_FULL: [&str; 11] = [
    "context_length_exceeded",
    "context length",
    "context window",
    "context limit",
    "context size",
    "exceed_context_size",
    "prompt is too long",
    "input is too long",
    "exceeds the maximum number of tokens",
    "reduce the length of the messages",
    "request_too_large",
];

/// Parts of the names of errors that do not pass by themselves.
const LASTING: [&str; 9] = [
    "invalid",
    "authentication",
    "permission",
    "not_found",
    "too_large",
    "billing",
    "insufficient_quota",
    "unsupported",
    "context_length",
];

/// Why a call brought no answer, before it is said which call that was.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) category: ErrorCategory,
    pub(super) message: String,
    pub(super) context_full: bool,
    pub(super) retry_after: Option<Duration>,
    pub(super) remedy: Remedy,
    /// The status that the server answered with, if that is what went wrong.
    pub(super) status: Option<u16>,
}

/// What to do about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Nothing, or the message says it.
    None,
    /// See whether the address is right.
    Endpoint,
    /// See whether the address and the model's name are right.
    EndpointOrModel,
    /// See whether the key is right.
    Key,
}

impl Fault {
    /// A fault that may pass.
    pub(super) fn passing(message: String) -> Self {
        Self::new(ErrorCategory::Transient, message)
    }

    /// A fault that stays.
    pub(super) fn lasting(message: String) -> Self {
        Self::new(ErrorCategory::Permanent, message)
    }

    fn new(category: ErrorCategory, message: String) -> Self {
        Self {
            category,
            message,
            context_full: false,
            retry_after: None,
            remedy: Remedy::None,
            status: None,
        }
    }

    /// The same, with what to do about it.
    pub(super) fn remedy(self, remedy: Remedy) -> Self {
        Self { remedy, ..self }
    }

    /// The conversation is longer than the model can read.
    pub(super) fn context_full(message: &str) -> Self {
        Self { context_full: true, ..Self::lasting(message.to_owned()) }
    }

    /// The provider did not let the model answer.
    pub(super) fn withheld(reason: &str) -> Self {
        Self::lasting(format!("the provider withheld the answer: {}", shorten(reason)))
    }

    /// An event that is no JSON, or not what it should be.
    pub(super) fn invalid_json(error: &serde_json::Error, data: &[u8]) -> Self {
        let data = shorten(&String::from_utf8_lossy(data));
        Self::passing(format!("the stream had an event that cannot be read: {error}: {data}"))
    }

    /// An error that came within a stream, after it had begun well.
    pub(super) fn in_stream(error: &Value) -> Self {
        let complaint = Complaint::of(error);
        let category = match complaint.status {
            Some(status) => category_of_status(status),
            None if complaint.is_lasting() => ErrorCategory::Permanent,
            None => ErrorCategory::Transient,
        };
        Self {
            context_full: complaint.is_context_full(),
            retry_after: complaint.retry_after,
            ..Self::new(category, format!("an error within the stream: {}", complaint.words()))
        }
    }

    /// An answer with a status that says failure.
    pub(super) fn of_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let complaint = Complaint::in_body(body);
        let known = complaint.is_some();
        let complaint = complaint.unwrap_or_else(|| Complaint::text(body));
        let is_too_long = match status {
            400 | 413 | 422 | 500 => complaint.is_context_full() || status == 413,
            _ => false,
        };
        // An account without credit is told with the status of one that is only too fast.
        let category = if is_too_long || complaint.kind.contains("insufficient_quota") {
            ErrorCategory::Permanent
        } else {
            category_of_status(status)
        };
        let remedy = match status {
            401 | 403 => Remedy::Key,
            // Gemini has no status of its own for a wrong key.
            400 if complaint.message.to_lowercase().contains("api key") => Remedy::Key,
            404 if known => Remedy::EndpointOrModel,
            300..=399 | 404 | 405 => Remedy::Endpoint,
            _ => Remedy::None,
        };
        let message = match complaint.words() {
            words if words.is_empty() => format!("status {status}"),
            words => format!("status {status}: {words}"),
        };
        Self {
            context_full: is_too_long,
            retry_after: retry_after.or(complaint.retry_after),
            remedy,
            status: Some(status),
            ..Self::new(category, message)
        }
    }
}

/// Which HTTP statuses may go away by themselves.
pub(super) fn category_of_status(status: u16) -> ErrorCategory {
    match status {
        408 | 409 | 425 | 429 | 500..=599 => ErrorCategory::Transient,
        _ => ErrorCategory::Permanent,
    }
}

/// An error in a provider's words.
#[derive(Debug)]
struct Complaint {
    message: String,
    /// Its names for programs, in lower case.
    kind: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl Complaint {
    /// The error of a body, if it has one in any of the usual places.
    fn in_body(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        // Gemini puts the answer into a list unless events were asked for.
        let body = body.get(0).unwrap_or(&body);
        let usual = ["error", "message", "detail"];
        usual.iter().find_map(|key| body.get(key)).filter(|error| !error.is_null()).map(Self::of)
    }

    /// An error object, or a mere text.
    fn of(error: &Value) -> Self {
        let message = match error {
            Value::String(message) => message.clone(),
            other => match other.get("message").and_then(Value::as_str) {
                Some(message) => message.to_owned(),
                None => other.to_string(),
            },
        };
        let kinds = ["type", "code", "status"].iter().filter_map(|key| error.get(key)?.as_str());
        let kind = kinds.collect::<Vec<_>>().join(" ").to_lowercase();
        let status = error.get("code").and_then(Value::as_u64);
        let status = status.and_then(|code| u16::try_from(code).ok());
        Self { message, kind, status, retry_after: retry_delay(error) }
    }

    fn text(body: &[u8]) -> Self {
        let (message, kind) = (String::from_utf8_lossy(body).into_owned(), String::new());
        Self { message, kind, status: None, retry_after: None }
    }

    fn words(&self) -> String {
        shorten(&self.message)
    }

    fn is_lasting(&self) -> bool {
        LASTING.iter().any(|part| self.kind.contains(part))
    }

    fn is_context_full(&self) -> bool {
        let message = self.message.to_lowercase();
        CONTEXT_FULL.iter().any(|words| self.kind.contains(words) || message.contains(words))
    }
}

/// Gemini says within the error how long to wait: `"retryDelay": "34.2s"`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Words of others on one line, no longer than an error should be.
pub(super) fn shorten(text: &str) -> String {
    let mut short = String::new();
    for word in text.split_whitespace() {
        if !short.is_empty() {
            short.push(' ');
        }
        short.push_str(word);
        if let Some((end, _)) = short.char_indices().nth(WORDS_CHARACTERS_MAX) {
            short.truncate(end);
            short.push('…');
            break;
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PASSES: ErrorCategory = ErrorCategory::Transient;
    const STAYS: ErrorCategory = ErrorCategory::Permanent;

    #[test]
    fn a_status_says_whether_to_try_again() {
        for (statuses, category) in [
            (&[408, 409, 425, 429, 500, 502, 503, 504, 529][..], PASSES),
            (&[301, 400, 401, 403, 404, 405, 413, 422][..], STAYS),
        ] {
            for status in statuses {
                let fault = Fault::of_status(*status, b"", None);
                assert_eq!(fault.category, category, "{status}");
                assert_eq!(fault.message, format!("status {status}"));
            }
        }
        let quota = br#"{"error":{"message":"pay","type":"insufficient_quota"}}"#;
        assert_eq!(Fault::of_status(429, quota, None).category, STAYS);
    }

    #[test]
    fn every_provider_is_understood_when_the_conversation_is_too_long() {
        for (status, body) in [
            (400, r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error",
                "message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request too large"}}"#,
            ),
            (
                400,
                r#"[{"error":{"code":400,"status":"INVALID_ARGUMENT","message":
                "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}]"#,
            ),
            (400, r#"{"error":"the request exceeds the available context size"}"#),
            (400, r#"{"message":"This model's maximum context length is 4096 tokens."}"#),
        ] {
            let fault = Fault::of_status(status, body.as_bytes(), None);
            assert!(fault.context_full && fault.category == STAYS, "{body}: {fault:?}");
        }
        let too_fast =
            br#"{"error":{"message":"tokens per minute: reduce the length of the messages"}}"#;
        assert!(!Fault::of_status(429, too_fast, None).context_full);
    }

    #[test]
    fn errors_within_a_stream_pass_unless_they_say_otherwise() {
        for (error, category) in [
            (json!({"type": "overloaded_error", "message": "Overloaded"}), PASSES),
            (json!({"type": "server_error", "message": "oh"}), PASSES),
            (json!({"code": 503, "status": "UNAVAILABLE", "message": "oh"}), PASSES),
            (json!("anything"), PASSES),
            (json!({"type": "invalid_request_error", "message": "no"}), STAYS),
            (json!({"code": 403, "status": "PERMISSION_DENIED", "message": "no"}), STAYS),
        ] {
            assert_eq!(Fault::in_stream(&error).category, category, "{error}");
        }
    }

    #[test]
    fn gemini_says_in_the_error_how_long_to_wait() {
        let body = br#"{"error":{"code":429,"message":"quota","details":[
            {"@type":"type.googleapis.com/google.rpc.Help"},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
        let fault = Fault::of_status(429, body, None);
        assert_eq!(fault.retry_after, Some(Duration::from_millis(34_500)));
        let from_header = Fault::of_status(429, body, Some(Duration::from_secs(1)));
        assert_eq!(from_header.retry_after, Some(Duration::from_secs(1)));
    }

    #[test]
    fn what_to_check_follows_from_the_status() {
        let said = |message: &str| format!(r#"{{"error":{{"message":"{message}"}}}}"#);
        for (status, body, remedy) in [
            (401, said("no"), Remedy::Key),
            (400, said("API key not valid. Please pass a valid API key."), Remedy::Key),
            (400, said("no"), Remedy::None),
            (404, said("no such model"), Remedy::EndpointOrModel),
            (404, "404 page not found".to_owned(), Remedy::Endpoint),
            (302, String::new(), Remedy::Endpoint),
        ] {
            assert_eq!(Fault::of_status(status, body.as_bytes(), None).remedy, remedy, "{body}");
        }
    }

    #[test]
    fn words_of_others_are_one_short_line() {
        assert_eq!(shorten(" a\n\n b\t"), "a b");
        let long = shorten(&"ö".repeat(2000));
        assert_eq!(long.chars().count(), WORDS_CHARACTERS_MAX + 1);
    }
}
