//! HTTP for model calls: connection reuse, streamed responses, size limits and errors without
//! secrets.

use std::time::Duration;

use polity_model::usage::Usage;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};

use super::error::{ErrorRemedy, ModelCallError};
use super::price::TokenEstimate;
use crate::environment::EnvSource;
use crate::http::{HttpClients, parse_retry_after, read_error_body, root_cause};

/// The largest accepted response; real answers are far smaller.
pub(super) const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The largest part of an error response that is read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The longest wait for the end of a finished stream. A connection is reused only if its response
/// was read to the end.
const END_TIMEOUT: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct HttpTransport {
    clients: HttpClients,
}

impl HttpTransport {
    /// Sends a request and waits for the response headers.
    pub(super) async fn post(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        body: Vec<u8>,
        environment: &EnvSource,
    ) -> Result<ResponseStream, ModelCallError> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let client = self.clients.client_for(url, environment).map_err(|error| {
            ModelCallError::permanent(format!("HTTP cannot be set up: {}", root_cause(error)))
        })?;
        let sent = client.post(url.clone()).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| {
            let (what, remedy, usage) = if error.is_connect() {
                ("cannot be reached", ErrorRemedy::Endpoint, Usage::default())
            } else {
                ("the call was broken off", ErrorRemedy::None, Usage::UNKNOWN)
            };
            ModelCallError::transient(format!("{what}: {}", root_cause(error)))
                .with_remedy(remedy)
                .with_usage(usage, TokenEstimate::default())
        })?;
        let status = response.status().as_u16();
        let mut stream = ResponseStream { response, bytes: 0 };
        if !(200..300).contains(&status) {
            let wait = parse_retry_after(stream.response.headers());
            let body = read_error_body(&mut stream.response, ERROR_BYTES_MAX).await;
            return Err(ModelCallError::from_status(status, &body, wait));
        }
        stream.require_event_stream().await
    }
}

/// A response body that is still arriving.
#[derive(Debug)]
pub(super) struct ResponseStream {
    response: Response,
    bytes: usize,
}

impl ResponseStream {
    /// Returns the next chunk, or `None` at the end.
    pub(super) async fn next(
        &mut self,
    ) -> Result<Option<impl AsRef<[u8]> + use<>>, ModelCallError> {
        let chunk = self
            .response
            .chunk()
            .await
            .map_err(|error| ModelCallError::interrupted(&root_cause(error)))?;
        if let Some(chunk) = &chunk {
            self.bytes += chunk.len();
        }
        if self.bytes > RESPONSE_BYTES_MAX {
            return Err(ModelCallError::permanent(format!(
                "the answer has more than {RESPONSE_BYTES_MAX} bytes, which is the limit"
            )));
        }
        Ok(chunk)
    }

    /// Reads the rest of a finished stream, within a short timeout.
    pub(super) async fn drain(mut self) {
        let rest = async { while let Ok(Some(_)) = self.next().await {} };
        // On a timeout the connection is closed.
        let _ = tokio::time::timeout(END_TIMEOUT, rest).await;
    }

    /// Rejects HTML and JSON documents, which a streaming endpoint does not send.
    async fn require_event_stream(mut self) -> Result<Self, ModelCallError> {
        let kind = self.response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !["text/html", "application/json"].contains(&kind.as_str()) {
            return Ok(self);
        }
        let status = self.response.status().as_u16();
        let body = read_error_body(&mut self.response, ERROR_BYTES_MAX).await;
        let ModelCallError { message, .. } = ModelCallError::from_status(status, &body, None);
        let message = format!("answered with {kind}, not with events: {message}");
        // A server that does not stream may have answered; a web page has no model.
        let usage = if kind == "text/html" { Usage::default() } else { Usage::UNKNOWN };
        let error = ModelCallError::permanent(message).with_remedy(ErrorRemedy::Endpoint);
        Err(error.with_usage(usage, TokenEstimate::default()))
    }
}
