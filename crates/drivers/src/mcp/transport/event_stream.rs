//! The events of a streamable HTTP response, each of bounded size.

use std::collections::VecDeque;
use std::convert::Infallible;

use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::Response;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::super::MESSAGE_BYTES_MAX;
use super::loss_reason::LossReason;
use super::message_limit::MessageLimit;
use crate::json_size::has_too_many_values;
use crate::sse::{SseParser, StreamPosition};

/// A response that is still arriving.
pub(super) struct EventStream {
    /// None after the end, or after an event over the limit.
    response: Option<Response>,
    parser: SseParser,
    events: VecDeque<Sse>,
    /// The request that the stream answers.
    request: Option<RequestId>,
    loss: LossReason,
}

impl EventStream {
    pub(super) fn new(response: Response, request: Option<RequestId>, loss: LossReason) -> Self {
        let (parser, events) = (SseParser::default(), VecDeque::new());
        Self { response: Some(response), parser, events, request, loss }
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, Result<Sse, SseError>> {
        stream::unfold(self, |mut this| async { this.next().await.map(|event| (event, this)) })
            .boxed()
    }

    async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return match self.check(&event) {
                    Ok(()) => Some(Ok(event)),
                    Err(limit) => Some(self.end_at(limit)),
                };
            }
            let chunk = match self.response.as_mut()?.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    self.response = None;
                    return None;
                }
                Err(error) => {
                    self.response = None;
                    return Some(Err(SseError::Body(Box::new(error.without_url()))));
                }
            };
            let events = &mut self.events;
            let Ok(()) = self.parser.push(&chunk, |event| {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let (event, data) = (Some(text(event.name)), Some(text(event.data)));
                events.push_back(Sse { event, data, ..Sse::default() });
                Ok::<(), Infallible>(())
            });
            if let Some(StreamPosition { id, retry_ms }) = self.parser.take_position() {
                self.events.push_back(Sse { id, retry: retry_ms, ..Sse::default() });
            }
            if self.events.is_empty() && self.parser.pending_bytes() > MESSAGE_BYTES_MAX {
                return Some(self.end_at(MessageLimit::Bytes));
            }
        }
    }

    fn check(&self, event: &Sse) -> Result<(), MessageLimit> {
        let data = event.data.as_deref().unwrap_or_default();
        if data.len() > MESSAGE_BYTES_MAX {
            Err(MessageLimit::Bytes)
        } else if has_too_many_values(data.as_bytes()) {
            Err(MessageLimit::Values)
        } else {
            Ok(())
        }
    }

    /// Ends the stream. A request gets an error response; without one the connection is lost,
    /// because the same event would come again.
    fn end_at(&mut self, limit: MessageLimit) -> Result<Sse, SseError> {
        self.response = None;
        self.events.clear();
        let answer = self.request.take().map(|id| serde_json::to_string(&limit.to_error(id)));
        if let Some(Ok(answer)) = answer {
            return Ok(Sse { data: Some(answer), ..Sse::default() });
        }
        self.loss.set(limit.to_string());
        Err(SseError::Body(Box::new(limit)))
    }
}
