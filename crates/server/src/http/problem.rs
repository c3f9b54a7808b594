//! Errors as problem details (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use polity_definition::DefinitionProblem;
use polity_host::{ErrorReport, HostError, ReportKind};
use schemars::JsonSchema;
use serde::Serialize;

/// The media type of problem details.
const MEDIA_TYPE: &str = "application/problem+json";

/// The time after which a client may try again.
const RETRY_TIME: Duration = Duration::from_secs(10);

/// An error that a client sees.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<ProblemDetails>);

/// The document of an error.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemDetails {
    /// A stable address of the kind of problem.
    #[serde(rename = "type")]
    kind: String,
    /// The kind of problem, in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// The stable code of the problem.
    code: Cow<'static, str>,
    /// The error, with what was found.
    detail: String,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The way to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The problems of definition files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    problems: Vec<DefinitionProblem>,
    /// The number of seconds after which a new attempt makes sense.
    #[serde(skip)]
    retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
    ) -> Self {
        let code = code.into();
        Self(Box::new(ProblemDetails {
            kind: format!("urn:polity:problem:{code}"),
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            code,
            detail: detail.into(),
            field: None,
            hint: None,
            problems: Vec::new(),
            retry_after: None,
        }))
    }

    /// A request that cannot be read.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// A request that can be read and makes no sense.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", detail)
    }

    /// A repeated request whose first attempt has no answer yet.
    pub(crate) fn in_progress() -> Self {
        let detail = "a request with this Idempotency-Key is still being handled";
        Self::new(StatusCode::CONFLICT, "request_in_progress", detail)
            .hint("repeat it with ?wait=30s to wait for the same work")
    }

    /// Another request with a key that was used.
    pub(crate) fn key_reused() -> Self {
        let detail = "this Idempotency-Key was used for another request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
            .field("Idempotency-Key")
            .hint("use a new key for each request")
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).hint(
            "send \"Authorization: Bearer TOKEN\"; `polity token create` makes a token, and the \
             local one is in data/server.token of the home",
        )
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// An address with too many failed attempts.
    pub(crate) fn blocked(rest: Duration) -> Self {
        let detail = "too many requests with a wrong token came from this address";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "blocked", detail).retry_after(rest)
    }

    /// A caller that is faster than a setting allows.
    pub(crate) fn rate_limited(setting: &str, wait: Duration) -> Self {
        let detail = format!("more requests than {setting} of the server allows");
        // A client that waits for whole seconds must not come too early.
        let wait = wait + Duration::from_nanos(999_999_999);
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(wait)
    }

    /// A server that takes no new work.
    pub(crate) fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(RETRY_TIME)
    }

    /// The document of the problem.
    pub(crate) fn into_details(self) -> ProblemDetails {
        *self.0
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    fn retry_after(mut self, time: Duration) -> Self {
        self.0.retry_after = Some(time);
        self
    }

    /// Names the field of the request that is wrong.
    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }
}

/// The status of an error report.
fn status_of(report: &ErrorReport) -> StatusCode {
    match report.code() {
        "not_found" | "unknown_agent" => StatusCode::NOT_FOUND,
        // The scenario sets these limits.
        "limit_turns" | "limit_agents" | "limit_max_agents" => StatusCode::CONFLICT,
        "conflict" | "exists" | "awaiting_human" | "agent_disabled" | "untrusted" => {
            StatusCode::CONFLICT
        }
        "limit_input_bytes" => StatusCode::PAYLOAD_TOO_LARGE,
        "disk_full" | "store_busy" | "not_writable" => StatusCode::SERVICE_UNAVAILABLE,
        "unsupported" => StatusCode::NOT_IMPLEMENTED,
        "tool_failed" | "tools_unavailable" => StatusCode::BAD_GATEWAY,
        _ => match report.kind() {
            ReportKind::Usage | ReportKind::OverLimit => StatusCode::UNPROCESSABLE_ENTITY,
            ReportKind::AwaitingHuman => StatusCode::CONFLICT,
            ReportKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            ReportKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

impl From<ErrorReport> for Problem {
    fn from(report: ErrorReport) -> Self {
        let status = status_of(&report);
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(code = report.code(), error = report.message(), "request failed");
        }
        let mut problem = Self::new(status, report.code().to_owned(), report.message());
        problem.0.hint = report.hint_text().map(str::to_owned);
        problem.0.problems = report.problems().to_vec();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem = problem.retry_after(RETRY_TIME);
        }
        problem
    }
}

impl From<HostError> for Problem {
    fn from(error: HostError) -> Self {
        ErrorReport::from(error).into()
    }
}

impl From<polity_engine::runtime::EngineError> for Problem {
    fn from(error: polity_engine::runtime::EngineError) -> Self {
        ErrorReport::from(error).into()
    }
}

impl From<polity_store::StoreError> for Problem {
    fn from(error: polity_store::StoreError) -> Self {
        ErrorReport::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // The fields of a problem are texts and numbers, which can always be written.
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(rest) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(rest.as_secs().max(1)));
        }
        response
    }
}
