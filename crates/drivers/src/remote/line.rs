//! HTTP as calls of other agents need it: nothing is sent twice, nothing is read without end.

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use serde_json::Value;

use super::fault::Fault;
use super::speech::Request;
use crate::environment::Environment;
use crate::http::{Clients, reason, retry_after};
use crate::sse::EventReader;

/// The largest card, in bytes.
pub(super) const CARD_BYTES_MAX: u64 = 1 << 20;

/// How much is read of an answer that tells of an error.
const ERROR_BYTES_MAX: usize = 64 * 1024;

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json, application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Why a stream is listened to no more.
enum Over {
    /// All that matters has been told.
    Heard,
    /// It cannot be understood.
    Broken(Fault),
}

/// The connections of a process, and the most that is read of one answer.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) clients: Clients,
    pub(super) environment: Environment,
    pub(super) output_bytes: u64,
}

impl Line {
    /// Gets the card at an address.
    pub(super) async fn card(&self, url: &Url, headers: &HeaderMap) -> Result<Vec<u8>, Fault> {
        // A server that has cards for several versions gives the newest.
        let request = Request { url: url.clone(), body: None, version: "1.0" };
        let response = self.ask(request, headers, ANY_JSON).await?;
        let most = format!("{CARD_BYTES_MAX} bytes, the most that a card may have");
        whole(response, CARD_BYTES_MAX, &most).await
    }

    /// Asks, and reads the whole answer.
    pub(super) async fn json(&self, request: Request, headers: &HeaderMap) -> Result<Value, Fault> {
        let response = self.ask(request, headers, ANY_JSON).await?;
        let body = whole(response, self.output_bytes, &self.limit()).await?;
        serde_json::from_slice(&body)
            .map_err(|error| Fault::Unreadable(format!("it is not JSON: {error}")))
    }

    /// Asks, and tells each event of the answer until `tell` has heard enough, or the stream ends.
    pub(super) async fn events(
        &self,
        request: Request,
        headers: &HeaderMap,
        mut tell: impl FnMut(Value) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let mut response = self.ask(request, headers, EVENTS).await?;
        let mut reader = EventReader::default();
        let mut bytes = 0u64;
        let mut hear = |data: &[u8]| {
            let json = serde_json::from_slice(data)
                .map_err(|error| Fault::Unreadable(format!("an event is not JSON: {error}")));
            match json.and_then(&mut tell) {
                Ok(true) => Err(Over::Heard),
                Ok(false) => Ok(()),
                Err(fault) => Err(Over::Broken(fault)),
            }
        };
        while let Some(piece) = next(&mut response).await? {
            bytes += piece.as_ref().len() as u64;
            if bytes > self.output_bytes {
                return Err(Fault::TooLarge(self.limit()));
            }
            match reader.push(piece.as_ref(), &mut hear) {
                Ok(()) => {}
                Err(Over::Heard) => return Ok(()),
                Err(Over::Broken(fault)) => return Err(fault),
            }
        }
        match reader.finish(&mut hear) {
            Ok(()) | Err(Over::Heard) => Ok(()),
            Err(Over::Broken(fault)) => Err(fault),
        }
    }

    fn limit(&self) -> String {
        format!("limits.output_bytes allows, which is {}", self.output_bytes)
    }

    /// Sends a request and waits for the beginning of its answer.
    async fn ask(
        &self,
        request: Request,
        headers: &HeaderMap,
        accept: HeaderValue,
    ) -> Result<Response, Fault> {
        let Request { url, body, version } = request;
        let client = self.clients.of(&url, &self.environment);
        let client = client.map_err(|error| Fault::Unreachable(reason(error)))?;
        let asked = match body {
            None => client.get(url),
            Some(body) => client.post(url).header(CONTENT_TYPE, JSON).body(body.to_string()),
        };
        let asked = asked.headers(headers.clone()).header(ACCEPT, accept).header(VERSION, version);
        let mut response = asked.send().await.map_err(|error| {
            let is_unheard = error.is_connect() || error.is_builder();
            let why = reason(error);
            if is_unheard { Fault::Unreachable(why) } else { Fault::Lost(why) }
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let wait = retry_after(response.headers());
        let mut body = Vec::new();
        // As much as comes will do: the status is what counts.
        while body.len() < ERROR_BYTES_MAX
            && let Ok(Some(piece)) = next(&mut response).await
        {
            body.extend_from_slice(piece.as_ref());
        }
        body.truncate(ERROR_BYTES_MAX);
        Err(Fault::of_status(response.status().as_u16(), &body, wait))
    }
}

async fn next(response: &mut Response) -> Result<Option<impl AsRef<[u8]> + use<>>, Fault> {
    response.chunk().await.map_err(|error| Fault::Lost(reason(error)))
}

/// The whole body, if it is not larger than it may be.
async fn whole(mut response: Response, bytes_max: u64, limit: &str) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(piece) = next(&mut response).await? {
        body.extend_from_slice(piece.as_ref());
        if body.len() as u64 > bytes_max {
            return Err(Fault::TooLarge(limit.to_owned()));
        }
    }
    Ok(body)
}
