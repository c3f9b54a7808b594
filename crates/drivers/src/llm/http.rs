//! HTTP as model calls need it: connections that are used again, answers that are read as they
//! come, limits, and no secrets on the way.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};

use super::failure::{Fault, Remedy};
use crate::environment::Environment;
use crate::http::{Clients, reason, retry_after};

/// The largest answer. Nothing that a model says comes near it.
pub(super) const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How much is read of an answer that tells of an error.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// How long to wait for the end of an answer that has said all. A connection is used again only if
/// its answer was read to the end.
const END_TIMEOUT: Duration = Duration::from_millis(250);

/// The connections of a process.
#[derive(Debug, Default)]
pub(super) struct Http {
    clients: Clients,
}

impl Http {
    /// Sends a request and waits for the beginning of its answer.
    pub(super) async fn post(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        body: Vec<u8>,
        environment: &Environment,
    ) -> Result<Incoming, Fault> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let client = self
            .clients
            .of(url, environment)
            .map_err(|error| Fault::lasting(format!("HTTP cannot be set up: {}", reason(error))))?;
        let sent = client.post(url.clone()).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| {
            let remedy = if error.is_connect() { Remedy::Endpoint } else { Remedy::None };
            let what =
                if error.is_connect() { "cannot be reached" } else { "the call was broken off" };
            Fault::passing(format!("{what}: {}", reason(error))).remedy(remedy)
        })?;
        let status = response.status().as_u16();
        let mut incoming = Incoming { response, bytes: 0 };
        if !(200..300).contains(&status) {
            let wait = retry_after(incoming.response.headers());
            let body = incoming.beginning().await;
            return Err(Fault::of_status(status, &body, wait));
        }
        incoming.must_be_events().await
    }
}

/// An answer that is still coming.
#[derive(Debug)]
pub(super) struct Incoming {
    response: Response,
    bytes: usize,
}

impl Incoming {
    /// The next piece; nothing at the end.
    pub(super) async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, Fault> {
        let piece = self.response.chunk().await.map_err(|error| cut(&reason(error)))?;
        if let Some(piece) = &piece {
            self.bytes += piece.len();
        }
        if self.bytes > RESPONSE_BYTES_MAX {
            return Err(Fault::lasting(format!(
                "the answer has more than {RESPONSE_BYTES_MAX} bytes, which is the limit"
            )));
        }
        Ok(piece)
    }

    /// Reads to the end of an answer that has said all, without waiting for long.
    pub(super) async fn end(mut self) {
        let rest = async { while let Ok(Some(_)) = self.next().await {} };
        // A server that does not end its answer loses the connection, and nothing else.
        let _ = tokio::time::timeout(END_TIMEOUT, rest).await;
    }

    /// The beginning of the body, or as much of it as comes.
    async fn beginning(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while let Ok(Some(piece)) = self.next().await {
            body.extend_from_slice(piece.as_ref());
            if body.len() > ERROR_BYTES_MAX {
                body.truncate(ERROR_BYTES_MAX);
                break;
            }
        }
        body
    }

    /// Refuses pages and documents: who answers with one is no model that streams.
    async fn must_be_events(mut self) -> Result<Self, Fault> {
        let kind = self.response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/html" | "application/json" => {
                let status = self.response.status().as_u16();
                let body = self.beginning().await;
                let Fault { message, .. } = Fault::of_status(status, &body, None);
                Err(Fault::lasting(format!("answered with {kind}, not with events: {message}"))
                    .remedy(Remedy::Endpoint))
            }
            _ => Ok(self),
        }
    }
}

/// The connection ended before the answer did.
pub(super) fn cut(why: &str) -> Fault {
    Fault::passing(format!("the stream ended before the answer was complete: {why}"))
}
