//! The errors of a model call: whether to retry, whether to shorten the conversation, the requested
//! delay and the fix.

use std::time::Duration;

use polity_model::failure::ErrorCategory;
use polity_model::usage::{Usage, estimate_tokens};
use serde_json::Value;

use super::price::TokenEstimate;

/// The longest provider message that an error repeats.
const MESSAGE_CHARACTERS_MAX: usize = 500;

/// Phrases with which providers report that a conversation exceeds the context window.
const CONTEXT_FULL_MARKERS: [&str; 11] = [
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

/// The smallest context window that servers are usually started with. A shorter request does not
/// exceed one.
const CONTEXT_TOKENS_MIN: u64 = 512;

/// Substrings of error types that a retry does not fix.
const PERMANENT_ERROR_TYPES: [&str; 9] = [
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

/// An error of a call, before the endpoint is added to its message.
#[derive(Debug, PartialEq)]
pub(super) struct ModelCallError {
    pub(super) category: ErrorCategory,
    pub(super) message: String,
    pub(super) context_full: bool,
    pub(super) retry_after: Option<Duration>,
    pub(super) remedy: ErrorRemedy,
    /// The HTTP status, if the server answered with an error status.
    pub(super) status: Option<u16>,
    /// True if the provider's content filter refused the request.
    pub(super) is_filtered: bool,
    /// The usage up to the error; zero if the model did not read the request.
    pub(super) usage: Usage,
    /// The estimate of the tokens that were not reported.
    pub(super) estimate: TokenEstimate,
}

/// The setting that the user should check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorRemedy {
    /// None, or the message names it.
    None,
    Endpoint,
    EndpointOrModel,
    Key,
}

impl ModelCallError {
    /// An error that a retry may fix.
    pub(super) fn transient(message: String) -> Self {
        Self::new(ErrorCategory::Transient, message)
    }

    /// An error that a retry does not fix.
    pub(super) fn permanent(message: String) -> Self {
        Self::new(ErrorCategory::Permanent, message)
    }

    fn new(category: ErrorCategory, message: String) -> Self {
        Self {
            category,
            message,
            context_full: false,
            retry_after: None,
            remedy: ErrorRemedy::None,
            status: None,
            is_filtered: false,
            usage: Usage::default(),
            estimate: TokenEstimate::default(),
        }
    }

    /// Adds the usage up to the error, with the estimate of what was not reported.
    pub(super) fn with_usage(self, usage: Usage, estimate: TokenEstimate) -> Self {
        let usage = Usage { estimate: estimate.without_cost(), ..usage };
        Self { usage, estimate, ..self }
    }

    /// Adds the setting to check.
    pub(super) fn with_remedy(self, remedy: ErrorRemedy) -> Self {
        Self { remedy, ..self }
    }

    /// The answer filled the context window.
    pub(super) fn context_exhausted() -> Self {
        let message = "the answer does not fit into the model's context window any more";
        Self { context_full: true, ..Self::permanent(message.to_owned()) }
    }

    /// The stream ended before the answer was complete.
    pub(super) fn interrupted(why: &str) -> Self {
        Self::transient(format!("the stream ended before the answer was complete: {why}"))
    }

    /// The stream ended before its first event. The server failed after it had accepted the request.
    pub(super) fn no_events(request_bytes: usize) -> Self {
        Self::transient("the server ended its answer without a single event".to_owned())
            .with_remedy(ErrorRemedy::Endpoint)
            .suspecting_context(request_bytes)
    }

    /// Adds the suspicion that a request exceeds the context window, unless it is short.
    pub(super) fn suspecting_context(self, request_bytes: usize) -> Self {
        let tokens = estimate_tokens(request_bytes);
        if tokens < CONTEXT_TOKENS_MIN {
            return self;
        }
        let message = format!(
            "{}; some servers do so if the conversation, here about {tokens} tokens, exceeds their \
             context window",
            self.message
        );
        Self { message, context_full: true, remedy: ErrorRemedy::None, ..self }
    }

    /// The provider gave up its answer.
    pub(super) fn broken_off(reason: &str) -> Self {
        Self::transient(format!("the model broke its answer off: {reason}"))
    }

    /// A stream event that is not the expected JSON.
    pub(super) fn invalid_json(error: &serde_json::Error, data: &[u8]) -> Self {
        let data = shorten_message(&String::from_utf8_lossy(data));
        Self::transient(format!("the stream had an event that cannot be read: {error}: {data}"))
    }

    /// An error event in a stream that began with a success status.
    pub(super) fn from_stream_event(error: &Value) -> Self {
        let provider_error = ProviderError::from_json(error);
        let category = match provider_error.status {
            Some(status) => status_category(status),
            None if provider_error.is_permanent() => ErrorCategory::Permanent,
            None => ErrorCategory::Transient,
        };
        let message = format!("an error within the stream: {}", provider_error.summary());
        Self {
            context_full: provider_error.is_context_full(),
            retry_after: provider_error.retry_after,
            ..Self::new(category, message)
        }
    }

    /// A response with an error status.
    pub(super) fn from_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let provider_error = ProviderError::from_body(body);
        let known = provider_error.is_some();
        let provider_error = provider_error.unwrap_or_else(|| ProviderError::from_text(body));
        let is_too_long = status == 413
            || (matches!(status, 400 | 422 | 500) && provider_error.is_context_full());
        // An account without credit gets the same status as one over its rate limit.
        let category = if is_too_long || provider_error.kind.contains("insufficient_quota") {
            ErrorCategory::Permanent
        } else {
            status_category(status)
        };
        let remedy = match status {
            401 | 403 => ErrorRemedy::Key,
            // Gemini has no status of its own for a wrong key.
            400 if provider_error.message.to_lowercase().contains("api key") => ErrorRemedy::Key,
            404 if known => ErrorRemedy::EndpointOrModel,
            300..=399 | 404 | 405 => ErrorRemedy::Endpoint,
            _ => ErrorRemedy::None,
        };
        let message = match provider_error.summary() {
            summary if summary.is_empty() => format!("status {status}"),
            summary => format!("status {status}: {summary}"),
        };
        Self {
            context_full: is_too_long,
            retry_after: retry_after.or(provider_error.retry_after),
            remedy,
            status: Some(status),
            is_filtered: status == 400 && provider_error.is_filtered(),
            ..Self::new(category, message)
        }
    }
}

/// Transient if a retry may fix an HTTP status, else permanent.
pub(super) fn status_category(status: u16) -> ErrorCategory {
    match status {
        408 | 409 | 425 | 429 | 500..=599 => ErrorCategory::Transient,
        _ => ErrorCategory::Permanent,
    }
}

/// An error as the provider reports it.
#[derive(Debug)]
struct ProviderError {
    message: String,
    /// The `type`, `code` and `status` fields, in lower case.
    kind: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl ProviderError {
    /// The error in a body, if it is in one of the usual fields.
    fn from_body(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        // Gemini wraps the answer in a list unless events were requested.
        let body = body.get(0).unwrap_or(&body);
        let error = ["error", "message", "detail"].iter().find_map(|key| body.get(key));
        error.filter(|error| !error.is_null()).map(Self::from_json)
    }

    /// An error object or plain text.
    fn from_json(error: &Value) -> Self {
        let message = error.as_str().or_else(|| error.get("message")?.as_str());
        let message = message.map_or_else(|| error.to_string(), str::to_owned);
        let kinds = ["type", "code", "status"].iter().filter_map(|key| error.get(key)?.as_str());
        let kind = kinds.collect::<Vec<_>>().join(" ").to_lowercase();
        let status = error.get("code").and_then(Value::as_u64);
        let status = status.and_then(|code| u16::try_from(code).ok());
        Self { message, kind, status, retry_after: parse_retry_delay(error) }
    }

    fn from_text(body: &[u8]) -> Self {
        let (message, kind) = (String::from_utf8_lossy(body).into_owned(), String::new());
        Self { message, kind, status: None, retry_after: None }
    }

    fn summary(&self) -> String {
        shorten_message(&self.message)
    }

    fn is_permanent(&self) -> bool {
        PERMANENT_ERROR_TYPES.iter().any(|part| self.kind.contains(part))
    }

    /// True for the filter's own codes, such as Azure's.
    fn is_filtered(&self) -> bool {
        let codes = ["content_filter", "content_policy_violation", "responsibleaipolicyviolation"];
        codes.iter().any(|code| self.kind.contains(code))
    }

    fn is_context_full(&self) -> bool {
        let message = self.message.to_lowercase();
        CONTEXT_FULL_MARKERS.iter().any(|text| self.kind.contains(text) || message.contains(text))
    }
}

/// Gemini's requested delay, in the error details: `"retryDelay": "34.2s"`.
fn parse_retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The text on one line, cut to the length limit.
pub(super) fn shorten_message(text: &str) -> String {
    let mut short = String::new();
    for word in text.split_whitespace() {
        if !short.is_empty() {
            short.push(' ');
        }
        short.push_str(word);
        if let Some((end, _)) = short.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
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

    const TRANSIENT: ErrorCategory = ErrorCategory::Transient;
    const PERMANENT: ErrorCategory = ErrorCategory::Permanent;

    #[test]
    fn status_decides_error_category() {
        for (statuses, category) in [
            (&[408, 409, 425, 429, 500, 502, 503, 504, 529][..], TRANSIENT),
            (&[301, 400, 401, 403, 404, 405, 413, 422][..], PERMANENT),
        ] {
            for status in statuses {
                let error = ModelCallError::from_status(*status, b"", None);
                assert_eq!(error.category, category, "{status}");
                assert_eq!(error.message, format!("status {status}"));
            }
        }
        let quota = br#"{"error":{"message":"pay","type":"insufficient_quota"}}"#;
        assert_eq!(ModelCallError::from_status(429, quota, None).category, PERMANENT);
    }

    #[test]
    fn recognizes_full_context_of_every_provider() {
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
            let error = ModelCallError::from_status(status, body.as_bytes(), None);
            assert!(error.context_full && error.category == PERMANENT, "{body}: {error:?}");
        }
        let too_fast =
            br#"{"error":{"message":"tokens per minute: reduce the length of the messages"}}"#;
        assert!(!ModelCallError::from_status(429, too_fast, None).context_full);
    }

    #[test]
    fn stream_errors_are_transient_unless_typed_permanent() {
        for (error, category) in [
            (json!({"type": "overloaded_error", "message": "Overloaded"}), TRANSIENT),
            (json!({"type": "server_error", "message": "oh"}), TRANSIENT),
            (json!({"code": 503, "status": "UNAVAILABLE", "message": "oh"}), TRANSIENT),
            (json!("anything"), TRANSIENT),
            (json!({"type": "invalid_request_error", "message": "no"}), PERMANENT),
            (json!({"code": 403, "status": "PERMISSION_DENIED", "message": "no"}), PERMANENT),
        ] {
            assert_eq!(ModelCallError::from_stream_event(&error).category, category, "{error}");
        }
    }

    #[test]
    fn only_a_long_request_may_exceed_the_context() {
        let short = ModelCallError::no_events(1_000);
        assert_eq!((short.context_full, short.remedy), (false, ErrorRemedy::Endpoint));
        let long = ModelCallError::no_events(10_000);
        assert_eq!((long.context_full, long.remedy), (true, ErrorRemedy::None));
        assert!(long.message.contains("about 2500 tokens"), "{long:?}");
        assert_eq!((short.category, long.category), (TRANSIENT, TRANSIENT));
    }

    #[test]
    fn content_filters_are_recognized_by_their_codes() {
        let azure = br#"{"error":{"message":"The response was filtered","code":"content_filter"}}"#;
        assert!(ModelCallError::from_status(400, azure, None).is_filtered);
        let other = br#"{"error":{"message":"no content_filter here","code":"invalid"}}"#;
        assert!(!ModelCallError::from_status(400, other, None).is_filtered);
    }

    #[test]
    fn parses_retry_delay_of_gemini() {
        let body = br#"{"error":{"code":429,"message":"quota","details":[
            {"@type":"type.googleapis.com/google.rpc.Help"},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
        let error = ModelCallError::from_status(429, body, None);
        assert_eq!(error.retry_after, Some(Duration::from_millis(34_500)));
        let from_header = ModelCallError::from_status(429, body, Some(Duration::from_secs(1)));
        assert_eq!(from_header.retry_after, Some(Duration::from_secs(1)));
    }

    #[test]
    fn status_decides_remedy() {
        let body = |message: &str| format!(r#"{{"error":{{"message":"{message}"}}}}"#);
        for (status, body, remedy) in [
            (401, body("no"), ErrorRemedy::Key),
            (400, body("API key not valid. Please pass a valid API key."), ErrorRemedy::Key),
            (400, body("no"), ErrorRemedy::None),
            (404, body("no such model"), ErrorRemedy::EndpointOrModel),
            (404, "404 page not found".to_owned(), ErrorRemedy::Endpoint),
            (302, String::new(), ErrorRemedy::Endpoint),
        ] {
            let error = ModelCallError::from_status(status, body.as_bytes(), None);
            assert_eq!(error.remedy, remedy, "{body}");
        }
    }

    #[test]
    fn provider_messages_become_one_short_line() {
        assert_eq!(shorten_message(" a\n\n b\t"), "a b");
        let long = shorten_message(&"ö".repeat(2000));
        assert_eq!(long.chars().count(), MESSAGE_CHARACTERS_MAX + 1);
    }
}
