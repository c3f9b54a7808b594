//! The oldest transport over HTTP: a stream of events that the server keeps open for its messages,
//! and an address for those to it, which is the first event.

mod events;

use std::collections::VecDeque;
use std::future::Future;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use self::events::{Event, Events};
use super::MESSAGE_BYTES_MAX;
use super::http::with_causes;
use crate::http::shown_url;

/// Why messages cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub(super) enum SseError {
    /// The server cannot be reached, or the connection was lost.
    #[error("{}", with_causes(.0))]
    Http(reqwest::Error),
    /// The server refused.
    #[error("the server answered with HTTP {0}")]
    Status(StatusCode),
    /// The stream ended before it said where to send messages.
    #[error("the stream ended before its first event, which should be \"endpoint\"")]
    NoEndpoint,
    /// The address for messages is none.
    #[error("the server does not say properly where to send messages: {0}")]
    BadEndpoint(String),
    /// The address for messages is another server's.
    #[error("the server wants messages sent to \"{0}\", which is not on the same server")]
    ForeignEndpoint(String),
    /// An event is longer than allowed.
    #[error("the server sent an event of more than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// The message cannot be written as JSON.
    #[error("the message cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    /// The connection was closed.
    #[error("the connection is closed")]
    Closed,
}

impl SseError {
    /// Whether the request cannot have reached the server.
    pub(super) fn is_before_sending(&self) -> bool {
        match self {
            Self::Http(error) => error.is_connect(),
            Self::Json(_) | Self::Closed => true,
            Self::Status(_)
            | Self::NoEndpoint
            | Self::BadEndpoint(_)
            | Self::ForeignEndpoint(_)
            | Self::TooLong => false,
        }
    }
}

impl From<reqwest::Error> for SseError {
    fn from(error: reqwest::Error) -> Self {
        // The address may hold a key.
        Self::Http(error.without_url())
    }
}

/// A transport over an open stream of events.
pub(super) struct Sse {
    server: String,
    client: Client,
    endpoint: Url,
    stream: Option<Response>,
    events: Events,
    read: VecDeque<Event>,
}

impl Sse {
    /// Opens the stream and learns where to send messages.
    pub(super) async fn open(server: &str, client: Client, url: &str) -> Result<Self, SseError> {
        let request = client.get(url).header(ACCEPT, "text/event-stream");
        let response = accepted(request.send().await?)?;
        let base = response.url().clone();
        let mut this = Self {
            server: server.to_owned(),
            client,
            endpoint: base.clone(),
            stream: Some(response),
            events: Events::default(),
            read: VecDeque::new(),
        };
        while let Some(event) = this.next_event().await? {
            if event.name == "endpoint" {
                this.endpoint = resolved(&base, &event.data)?;
                return Ok(this);
            }
        }
        Err(SseError::NoEndpoint)
    }

    /// The next event. May be abandoned and called again.
    async fn next_event(&mut self) -> Result<Option<Event>, SseError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(Some(event));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            let Some(chunk) = stream.chunk().await? else { return Ok(None) };
            self.read.extend(self.events.feed(&chunk));
            if self.events.unfinished_bytes() > MESSAGE_BYTES_MAX {
                return Err(SseError::TooLong);
            }
        }
    }
}

/// The address for messages. It must be on the server that was asked: messages may hold secrets,
/// and a stream must not be able to send them elsewhere.
fn resolved(base: &Url, endpoint: &str) -> Result<Url, SseError> {
    let url = base.join(endpoint.trim());
    let url = url.map_err(|error| SseError::BadEndpoint(error.to_string()))?;
    if url.origin() == base.origin() {
        Ok(url)
    } else {
        // It may name a session, which is as good as a key.
        Err(SseError::ForeignEndpoint(shown_url(&url)))
    }
}

fn accepted(response: Response) -> Result<Response, SseError> {
    let status = response.status();
    if status.is_success() { Ok(response) } else { Err(SseError::Status(status)) }
}

impl Transport<RoleClient> for Sse {
    type Error = SseError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), SseError>> + Send + 'static {
        let open = self.stream.is_some();
        let request = self.client.post(self.endpoint.clone());
        async move {
            if !open {
                return Err(SseError::Closed);
            }
            let body = serde_json::to_vec(&message)?;
            let request = request.header(CONTENT_TYPE, "application/json").body(body);
            accepted(request.send().await?).map(drop)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let event = match self.next_event().await {
                Ok(event) => event?,
                Err(error) => {
                    tracing::warn!(server = self.server, "the stream was lost: {error}");
                    return None;
                }
            };
            if event.name != "message" {
                continue;
            }
            match serde_json::from_str(&event.data) {
                Ok(message) => return Some(message),
                Err(error) => {
                    tracing::warn!(server = self.server, "an event is no message: {error}");
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), SseError> {
        self.stream = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_same_server_only() {
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
            let url = resolved(&base, endpoint).ok().map(String::from);
            assert_eq!(url.as_deref(), expected, "{endpoint}");
        }
    }
}
