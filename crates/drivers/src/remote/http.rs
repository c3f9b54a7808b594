//! HTTP for A2A calls: no request is sent twice and every response has a size limit.

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use serde_json::Value;

use super::encode::A2aRequest;
use super::error::RemoteError;
use crate::environment::EnvSource;
use crate::http::{HttpClients, add_trace_context, parse_retry_after, read_error_body, root_cause};
use crate::json_size::{JSON_VALUES_MAX, has_too_many_values};
use crate::sse::{SseEvent, SseParser};

/// The largest accepted card.
pub(super) const CARD_BYTES_MAX: u64 = 1 << 20;

/// The largest part of an error response that is read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json, application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The reason for leaving a stream.
enum StreamStop {
    /// The caller needs no more events.
    Done,
    /// An event is invalid.
    Failed(RemoteError),
}

/// The connections of the process and the response limit.
#[derive(Debug)]
pub(super) struct RemoteHttp {
    pub(super) clients: HttpClients,
    pub(super) environment: EnvSource,
    pub(super) output_bytes: u64,
}

impl RemoteHttp {
    pub(super) async fn fetch_card(
        &self,
        url: &Url,
        headers: &HeaderMap,
    ) -> Result<Vec<u8>, RemoteError> {
        // A server with cards for several versions returns the newest.
        let request = A2aRequest { url: url.clone(), body: None, version: "1.0" };
        let response = self.send(request, headers, ANY_JSON).await?;
        let most = format!("{CARD_BYTES_MAX} bytes, the most that a card may have");
        read_body(response, CARD_BYTES_MAX, &most).await
    }

    /// Sends a request and reads the whole response.
    pub(super) async fn call(
        &self,
        request: A2aRequest,
        headers: &HeaderMap,
    ) -> Result<Value, RemoteError> {
        let response = self.send(request, headers, ANY_JSON).await?;
        let body = read_body(response, self.output_bytes, &self.limit()).await?;
        parse_json(&body, "it is not JSON")
    }

    /// Sends a request and passes each event of the response to `is_done`, until that returns true
    /// or the stream ends.
    pub(super) async fn stream_events(
        &self,
        request: A2aRequest,
        headers: &HeaderMap,
        mut is_done: impl FnMut(Value) -> Result<bool, RemoteError>,
    ) -> Result<(), RemoteError> {
        let mut response = self.send(request, headers, EVENTS).await?;
        let mut parser = SseParser::default();
        let mut bytes = 0u64;
        let mut on_event =
            |event: SseEvent<'_>| match parse_json(event.data, "an event is not JSON")
                .and_then(&mut is_done)
            {
                Ok(true) => Err(StreamStop::Done),
                Ok(false) => Ok(()),
                Err(error) => Err(StreamStop::Failed(error)),
            };
        while let Some(chunk) = next_chunk(&mut response).await? {
            bytes += chunk.as_ref().len() as u64;
            if bytes > self.output_bytes {
                return Err(RemoteError::TooLarge(self.limit()));
            }
            match parser.push(chunk.as_ref(), &mut on_event) {
                Ok(()) => {}
                Err(StreamStop::Done) => return Ok(()),
                Err(StreamStop::Failed(error)) => return Err(error),
            }
        }
        match parser.finish(&mut on_event) {
            Err(StreamStop::Failed(error)) => Err(error),
            Ok(()) | Err(StreamStop::Done) => Ok(()),
        }
    }

    fn limit(&self) -> String {
        format!("limits.output_bytes allows, which is {}", self.output_bytes)
    }

    /// Sends a request and waits for the response headers.
    async fn send(
        &self,
        request: A2aRequest,
        headers: &HeaderMap,
        accept: HeaderValue,
    ) -> Result<Response, RemoteError> {
        let A2aRequest { url, body, version } = request;
        let client = self.clients.client_for(&url, &self.environment);
        let client = client.map_err(|error| RemoteError::Unreachable(root_cause(error)))?;
        let builder = match body {
            None => client.get(url),
            Some(body) => client.post(url).header(CONTENT_TYPE, JSON).body(body.to_string()),
        };
        let mut headers = headers.clone();
        add_trace_context(&mut headers);
        let builder = builder.headers(headers).header(ACCEPT, accept).header(VERSION, version);
        let mut response = builder.send().await.map_err(|error| {
            let is_unheard = error.is_connect() || error.is_builder();
            let why = root_cause(error);
            if is_unheard { RemoteError::Unreachable(why) } else { RemoteError::Lost(why) }
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let wait = parse_retry_after(response.headers());
        let body = read_error_body(&mut response, ERROR_BYTES_MAX).await;
        Err(RemoteError::from_status(response.status().as_u16(), &body, wait))
    }
}

fn parse_json(text: &[u8], otherwise: &str) -> Result<Value, RemoteError> {
    if has_too_many_values(text) {
        let most = format!("{JSON_VALUES_MAX} JSON values, the most that an answer may have");
        return Err(RemoteError::TooLarge(most));
    }
    serde_json::from_slice(text)
        .map_err(|error| RemoteError::Unreadable(format!("{otherwise}: {error}")))
}

async fn next_chunk(
    response: &mut Response,
) -> Result<Option<impl AsRef<[u8]> + use<>>, RemoteError> {
    response.chunk().await.map_err(|error| RemoteError::Lost(root_cause(error)))
}

async fn read_body(
    mut response: Response,
    bytes_max: u64,
    limit: &str,
) -> Result<Vec<u8>, RemoteError> {
    let mut body = Vec::new();
    while let Some(chunk) = next_chunk(&mut response).await? {
        if (body.len() + chunk.as_ref().len()) as u64 > bytes_max {
            return Err(RemoteError::TooLarge(limit.to_owned()));
        }
        body.extend_from_slice(chunk.as_ref());
    }
    Ok(body)
}
