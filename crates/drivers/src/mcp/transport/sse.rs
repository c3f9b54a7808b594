//! The oldest HTTP transport. The server keeps one event stream open for its messages; the first
//! event is the URL for messages to it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use super::super::MESSAGE_BYTES_MAX;
use super::http_error::error_chain;
use super::json_repair::parse_message;
use super::loss_reason::LossReason;
use super::message_limit::MessageLimit;
use super::trace_header::traceparent_header;
use crate::http::{TRACEPARENT, redact_url};
use crate::sse::SseParser;

/// An error of the transport.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SseTransportError {
    /// The connection failed.
    #[error("{}", error_chain(.0))]
    Http(reqwest::Error),
    /// The server answered with an error status.
    #[error("the server answered with HTTP {0}")]
    Status(StatusCode),
    /// The stream ended before the endpoint event.
    #[error("the stream ended before its first event, which should be \"endpoint\"")]
    NoEndpoint,
    /// The endpoint is not a URL.
    #[error("the server does not say properly where to send messages: {0}")]
    BadEndpoint(String),
    /// The endpoint is on another origin.
    #[error("the server wants messages sent to \"{0}\", which is not on the same server")]
    ForeignEndpoint(String),
    /// An event exceeds a limit.
    #[error("{0}")]
    TooLarge(MessageLimit),
    /// The message cannot be serialized.
    #[error("the message cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the connection is closed")]
    Closed,
}

impl SseTransportError {
    /// True if the server cannot have received the request.
    pub(crate) fn is_before_sending(&self) -> bool {
        match self {
            Self::Http(error) => error.is_connect(),
            other => matches!(other, Self::Json(_) | Self::Closed),
        }
    }
}

impl From<reqwest::Error> for SseTransportError {
    fn from(error: reqwest::Error) -> Self {
        // The URL may contain a key.
        Self::Http(error.without_url())
    }
}

pub(crate) struct SseTransport {
    server: String,
    client: Client,
    endpoint: Url,
    stream: Option<Response>,
    parser: SseParser,
    events: VecDeque<SseTransportEvent>,
    loss: LossReason,
}

struct SseTransportEvent {
    name: String,
    data: String,
}

impl SseTransport {
    /// Opens the stream and waits for the endpoint.
    pub(crate) async fn open(
        server: &str,
        client: Client,
        url: &str,
        loss: LossReason,
    ) -> Result<Self, SseTransportError> {
        let request = client.get(url).header(ACCEPT, "text/event-stream");
        let response = check_status(request.send().await?)?;
        let base = response.url().clone();
        let mut this = Self {
            server: server.to_owned(),
            client,
            endpoint: base.clone(),
            stream: Some(response),
            parser: SseParser::default(),
            events: VecDeque::new(),
            loss,
        };
        while let Some(event) = this.next_event().await? {
            if event.name == "endpoint" {
                this.endpoint = resolve_endpoint(&base, &event.data)?;
                return Ok(this);
            }
        }
        Err(SseTransportError::NoEndpoint)
    }

    /// Returns the next event. Cancel safe.
    async fn next_event(&mut self) -> Result<Option<SseTransportEvent>, SseTransportError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            let Some(chunk) = stream.chunk().await? else { return Ok(None) };
            let events = &mut self.events;
            let parsed: Result<(), Infallible> = self.parser.push(&chunk, |event| {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let (name, data) = (text(event.name), text(event.data));
                events.push_back(SseTransportEvent { name, data });
                Ok(())
            });
            let Ok(()) = parsed;
            if self.parser.pending_bytes() > MESSAGE_BYTES_MAX {
                return Err(SseTransportError::TooLarge(MessageLimit::Bytes));
            }
        }
    }
}

/// Resolves the endpoint. It must be on the same origin: messages may contain secrets, which a
/// stream must not redirect elsewhere.
fn resolve_endpoint(base: &Url, endpoint: &str) -> Result<Url, SseTransportError> {
    let url = base.join(endpoint.trim());
    let url = url.map_err(|error| SseTransportError::BadEndpoint(error.to_string()))?;
    if url.origin() == base.origin() {
        Ok(url)
    } else {
        // The query may contain a session id, which is a secret.
        Err(SseTransportError::ForeignEndpoint(redact_url(&url)))
    }
}

fn check_status(response: Response) -> Result<Response, SseTransportError> {
    let status = response.status();
    if status.is_success() { Ok(response) } else { Err(SseTransportError::Status(status)) }
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseTransportError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), SseTransportError>> + Send + 'static {
        let open = self.stream.is_some();
        let mut request = self.client.post(self.endpoint.clone());
        if let Some(traceparent) = traceparent_header(&message) {
            request = request.header(TRACEPARENT, traceparent);
        }
        async move {
            if !open {
                return Err(SseTransportError::Closed);
            }
            let body = serde_json::to_vec(&message)?;
            let request = request.header(CONTENT_TYPE, "application/json").body(body);
            check_status(request.send().await?).map(drop)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let event = match self.next_event().await {
                Ok(event) => event?,
                Err(error) => {
                    tracing::warn!(server = self.server, "the stream was lost: {error}");
                    if let SseTransportError::TooLarge(limit) = error {
                        self.loss.set(limit.to_string());
                    }
                    return None;
                }
            };
            if event.name != "message" {
                continue;
            }
            match parse_message(event.data.as_bytes()) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => tracing::warn!(server = self.server, "an event is no message"),
                Err(limit) => {
                    self.loss.set(limit.to_string());
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), SseTransportError> {
        self.stream = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_must_be_on_the_same_origin() {
        let base = Url::parse("http://localhost:3001/sse").unwrap();
        for (endpoint, expected) in [
            ("/message?sessionId=7", Some("http://localhost:3001/message?sessionId=7")),
            ("message", Some("http://localhost:3001/message")),
            (" http://localhost:3001/x\n", Some("http://localhost:3001/x")),
            ("http://localhost:3002/x", None),
            ("https://localhost:3001/x", None),
            ("//example.com/x", None),
            ("file:///etc/passwd", None),
            ("http://", None),
        ] {
            let url = resolve_endpoint(&base, endpoint).ok().map(String::from);
            assert_eq!(url.as_deref(), expected, "{endpoint}");
        }
    }
}
