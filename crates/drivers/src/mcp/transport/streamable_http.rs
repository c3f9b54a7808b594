//! The HTTP client of streamable HTTP: bounded bodies, and sessions that a server forgets.
//!
//! `rmcp` opens and recovers sessions; this client makes its requests. It reads no body without a
//! limit. An answer over the limit becomes an error response to its request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::watch;

use super::super::MESSAGE_BYTES_MAX;
use super::event_stream::EventStream;
use super::http_error::{StreamableError, strip_url};
use super::json_repair::parse_message;
use super::loss_reason::LossReason;
use super::message_limit::MessageLimit;
use super::trace_header::traceparent_header;
use crate::http::{TRACEPARENT, read_error_body};

/// The number of failed reconnects to a stream after which the connection counts as lost.
const RECONNECTS_MAX: usize = 5;

/// The longest wait for the stream of a server that has accepted a request without an answer.
const STREAM_WAIT: Duration = Duration::from_secs(5);

/// The largest part of an error response that is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The longest excerpt of an answer in an error, in characters.
const SHOWN_CHARACTERS_MAX: usize = 300;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

type StreamableHeaders = HashMap<HeaderName, HeaderValue>;

/// An HTTP client that bounds answers and detects lost sessions.
///
/// A server should answer 404 to an unknown session. Some answer 400 with an error that does not
/// name the request, whose caller would then wait forever. Within a session, such an error is
/// treated as its end: a new session starts, and the rejected request is sent again.
#[derive(Debug, Clone)]
pub(crate) struct StreamableClient {
    http: Client,
    loss: LossReason,
    /// The reconnects that failed since the last stream was opened.
    reconnects_failed: Arc<AtomicUsize>,
    server_stream: watch::Sender<ServerStream>,
}

/// The stream for messages of the server that belong to no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerStream {
    NotAsked,
    Open,
    Refused,
}

impl StreamableClient {
    pub(crate) fn new(http: Client, loss: LossReason) -> Self {
        let server_stream = watch::Sender::new(ServerStream::NotAsked);
        Self { http, loss, reconnects_failed: Arc::default(), server_stream }
    }

    /// Maps the status of an accepted request. Its answer can come only over the server's stream.
    async fn accepted(
        &self,
        status: StatusCode,
    ) -> Result<StreamableHttpPostResponse, StreamableError> {
        let mut stream = self.server_stream.subscribe();
        let asked = stream.wait_for(|stream| *stream != ServerStream::NotAsked);
        let is_open = match tokio::time::timeout(STREAM_WAIT, asked).await {
            Ok(Ok(stream)) => *stream == ServerStream::Open,
            Ok(Err(_)) | Err(_) => false,
        };
        if is_open {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let why = format!(
            "HTTP {status} has no answer to the request, and the server offers no stream for it"
        );
        Err(StreamableHttpError::UnexpectedServerResponse(why.into()))
    }

    async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session: Option<&str>,
        authorization: Option<String>,
        headers: StreamableHeaders,
    ) -> Result<StreamableHttpPostResponse, StreamableError> {
        let body = serde_json::to_vec(message)?;
        let request = self.http.post(uri).header(CONTENT_TYPE, JSON).body(body);
        let response = send(request, session, authorization, headers).await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let ClientJsonRpcMessage::Request(request) = message else {
            return accept(response).await;
        };
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return self.accepted(status).await;
        }
        let kind = content_type(&response);
        if !status.is_success() {
            let is_probe = matches!(request.request, ClientRequest::DiscoverRequest(_));
            let probe = (is_probe && session.is_none()).then_some(&request.id);
            return refusal(response, &kind, probe).await;
        }
        let new_session = response.headers().get(SESSION).and_then(|id| id.to_str().ok());
        let new_session = new_session.map(str::to_owned);
        if kind.starts_with(EVENTS) {
            let events = EventStream::new(response, Some(request.id.clone()), self.loss.clone());
            return Ok(StreamableHttpPostResponse::Sse(events.into_stream(), new_session));
        }
        if !kind.starts_with(JSON) {
            return Err(StreamableHttpError::UnexpectedContentType(Some(kind)));
        }
        let message = match read_message(response).await? {
            Ok(message) => message,
            Err(limit) => limit.to_error(request.id.clone()),
        };
        Ok(StreamableHttpPostResponse::Json(message, new_session))
    }

    async fn open_stream(
        &self,
        uri: &str,
        session: Option<&str>,
        authorization: Option<String>,
        headers: StreamableHeaders,
    ) -> Result<Response, StreamableError> {
        let response = send(self.http.get(uri), session, authorization, headers).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if status.is_success() => {
                let kind = content_type(&response);
                if kind.starts_with(EVENTS) {
                    Ok(response)
                } else {
                    Err(StreamableHttpError::UnexpectedContentType(Some(kind)))
                }
            }
            _ => Err(status_error(&response)),
        }
    }

    /// Decides if a stream is worth another attempt. `rmcp` repeats attempts without end, while the
    /// caller of a tool waits.
    fn reconnect_error(&self, error: StreamableError, is_resumed: bool) -> StreamableError {
        let refused = match &error {
            StreamableHttpError::HttpStatus(error) => {
                (400..500).contains(&error.status) && !matches!(error.status, 408 | 429)
            }
            _ => false,
        };
        let give_up = if refused {
            if is_resumed {
                self.loss.set(format!("it does not know the session any more: {error}"));
            }
            true
        } else {
            let failed = self.reconnects_failed.fetch_add(1, Ordering::SeqCst) + 1;
            let is_lost = failed >= RECONNECTS_MAX;
            if is_lost {
                self.loss.set(format!("its stream could not be opened {failed} times in a row"));
            }
            is_lost
        };
        // The one error that ends a stream without another attempt.
        if give_up { StreamableHttpError::ServerDoesNotSupportSse } else { error }
    }
}

impl StreamableHttpClient for StreamableClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        mut headers: StreamableHeaders,
    ) -> Result<StreamableHttpPostResponse, StreamableError> {
        headers.extend(traceparent_header(&message).map(|value| (TRACEPARENT, value)));
        let posted = self.post(&uri, &message, session.as_deref(), authorization, headers).await;
        let posted = posted.map_err(strip_url)?;
        match (&message, &posted) {
            (
                ClientJsonRpcMessage::Request(request),
                StreamableHttpPostResponse::Json(answer, _),
            ) => match check_answer(&request.id, answer) {
                Ok(()) => Ok(posted),
                Err(AnswerMismatch::Error(_)) if session.is_some() => {
                    Err(StreamableHttpError::SessionExpired)
                }
                Err(AnswerMismatch::Error(why) | AnswerMismatch::Other(why)) => {
                    Err(StreamableHttpError::UnexpectedServerResponse(why))
                }
            },
            _ => Ok(posted),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        authorization: Option<String>,
        headers: StreamableHeaders,
    ) -> Result<(), StreamableError> {
        let request = self.http.delete(&*uri);
        // The session is over, whatever the server answers.
        send(request, Some(&session), authorization, headers).await.map(drop).map_err(strip_url)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        mut headers: StreamableHeaders,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableError> {
        if self.loss.get().is_some() {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let is_resumed = last_event.is_some();
        let note = |stream: ServerStream| {
            if !is_resumed {
                self.server_stream.send_replace(stream);
            }
        };
        if let Some(id) = last_event.and_then(|id| HeaderValue::try_from(id).ok()) {
            headers.insert(LAST_EVENT, id);
        }
        match self.open_stream(&uri, session.as_deref(), authorization, headers).await {
            Ok(response) => {
                self.reconnects_failed.store(0, Ordering::SeqCst);
                note(ServerStream::Open);
                Ok(EventStream::new(response, None, self.loss.clone()).into_stream())
            }
            Err(error) => {
                let error = self.reconnect_error(strip_url(error), is_resumed);
                if matches!(error, StreamableHttpError::ServerDoesNotSupportSse) {
                    note(ServerStream::Refused);
                }
                Err(error)
            }
        }
    }
}

/// Sends a request and waits for the response headers.
async fn send(
    request: RequestBuilder,
    session: Option<&str>,
    authorization: Option<String>,
    headers: StreamableHeaders,
) -> Result<Response, StreamableError> {
    let mut request = request.header(ACCEPT, [EVENTS, JSON].join(", "));
    request = request.headers(headers.into_iter().collect::<HeaderMap>());
    if let Some(session) = session {
        request = request.header(SESSION, session);
    }
    if let Some(token) = authorization {
        request = request.bearer_auth(token);
    }
    let response = request.send().await?;
    let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|text| text.to_str().ok());
    match (response.status(), challenge) {
        (StatusCode::UNAUTHORIZED, Some(challenge)) => {
            let error = AuthRequiredError::new(challenge.to_owned());
            Err(StreamableHttpError::AuthRequired(error))
        }
        (StatusCode::FORBIDDEN, Some(challenge)) => {
            let error = InsufficientScopeError::new(challenge.to_owned(), None);
            Err(StreamableHttpError::InsufficientScope(error))
        }
        _ => Ok(response),
    }
}

/// Maps the response to a message that expects no answer. A body is not read.
async fn accept(response: Response) -> Result<StreamableHttpPostResponse, StreamableError> {
    if response.status().is_success() {
        Ok(StreamableHttpPostResponse::Accepted)
    } else {
        let kind = content_type(&response);
        refusal(response, &kind, None).await.map(|_| StreamableHttpPostResponse::Accepted)
    }
}

/// Maps an error status. Its body may be a JSON-RPC error, which says more. The rejected probe of
/// the lifecycle becomes an answer to it, which the client understands.
async fn refusal(
    mut response: Response,
    kind: &str,
    probe: Option<&RequestId>,
) -> Result<StreamableHttpPostResponse, StreamableError> {
    let status = response.status();
    let is_auth = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Err(status_error(&response));
    }
    let body = read_error_body(&mut response, ERROR_BYTES_MAX).await;
    let error = match parse_message(&body) {
        Ok(Some(ServerJsonRpcMessage::Error(error))) if !is_auth => Some(error),
        _ => None,
    };
    let said = || {
        let said = String::from_utf8_lossy(&body);
        said.trim().chars().take(SHOWN_CHARACTERS_MAX).collect::<String>()
    };
    if let Some(id) = probe.filter(|_| status.is_client_error() && !is_auth) {
        let error = error.map_or_else(
            || {
                let why = format!("server/discover was rejected with HTTP {status}: {}", said());
                ErrorData::invalid_request(why, None)
            },
            |error| error.error,
        );
        let answer = ServerJsonRpcMessage::error(error, Some(id.clone()));
        return Ok(StreamableHttpPostResponse::Json(answer, None));
    }
    match error.filter(|_| kind.starts_with(JSON)) {
        Some(error) => Ok(StreamableHttpPostResponse::Json(
            ServerJsonRpcMessage::error(error.error, error.id),
            None,
        )),
        None if status.is_server_error() => Err(status_error(&response)),
        None => {
            let why = format!("HTTP {status}: {}", said());
            Err(StreamableHttpError::UnexpectedServerResponse(why.into()))
        }
    }
}

fn status_error(response: &Response) -> StreamableError {
    let wait = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
    HttpStatusError::new(response.status().as_u16(), wait.map(str::to_owned)).into()
}

fn content_type(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.unwrap_or_default().to_ascii_lowercase()
}

/// Reads a message up to the limit.
async fn read_message(
    mut response: Response,
) -> Result<Result<ServerJsonRpcMessage, MessageLimit>, StreamableError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MESSAGE_BYTES_MAX {
            return Ok(Err(MessageLimit::Bytes));
        }
        body.extend_from_slice(&chunk);
    }
    match parse_message(&body) {
        Ok(Some(message)) => Ok(Ok(message)),
        Ok(None) => {
            let body = String::from_utf8_lossy(&body);
            let said: String = body.trim().chars().take(SHOWN_CHARACTERS_MAX).collect();
            let why = format!("it is not a JSON-RPC message: {said}");
            Err(StreamableHttpError::UnexpectedServerResponse(why.into()))
        }
        Err(limit) => Ok(Err(limit)),
    }
}

/// An answer to no request, or to another one. The caller would wait for its own forever.
enum AnswerMismatch {
    Error(Cow<'static, str>),
    Other(Cow<'static, str>),
}

fn check_answer(asked: &RequestId, answer: &ServerJsonRpcMessage) -> Result<(), AnswerMismatch> {
    // Some servers write a number as a text.
    let is_same = |id: &RequestId| id.to_string() == asked.to_string();
    match answer {
        ServerJsonRpcMessage::Error(error) if !error.id.as_ref().is_some_and(is_same) => {
            Err(AnswerMismatch::Error(error.error.message.clone()))
        }
        ServerJsonRpcMessage::Response(response) if !is_same(&response.id) => {
            Err(AnswerMismatch::Other("it answers another request".into()))
        }
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
            Err(AnswerMismatch::Other("it does not answer the request".into()))
        }
        ServerJsonRpcMessage::Error(_) | ServerJsonRpcMessage::Response(_) => Ok(()),
    }
}
