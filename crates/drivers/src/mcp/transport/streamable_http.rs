//! Streamable HTTP, with a workaround for servers that forget sessions.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::super::MESSAGE_BYTES_MAX;
use super::http_error::{StreamableError, strip_url};

type StreamableHeaders = HashMap<HeaderName, HeaderValue>;

/// An HTTP client that detects rejected sessions.
///
/// A server should answer 404 to an unknown session. Some answer 400 with an error that does not
/// name the request, whose caller would then wait forever. Within a session, such an error is
/// treated as its end: a new session starts, and the rejected request is sent again.
#[derive(Debug, Clone)]
pub(crate) struct StreamableClient(pub(crate) Client);

impl StreamableHttpClient for StreamableClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: StreamableHeaders,
    ) -> Result<StreamableHttpPostResponse, StreamableError> {
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        let has_session = session.is_some();
        let limit = MESSAGE_BYTES_MAX;
        let posted = self.0.post_message_with_max_sse_event_size(
            uri,
            message,
            session,
            authorization,
            headers,
            limit,
        );
        match posted.await.map_err(strip_url)? {
            StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _)
                if is_request && error.id.is_none() =>
            {
                if has_session {
                    return Err(StreamableHttpError::SessionExpired);
                }
                let why = error.error.message;
                Err(StreamableHttpError::UnexpectedServerResponse(why))
            }
            other => Ok(other),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        authorization: Option<String>,
        headers: StreamableHeaders,
    ) -> Result<(), StreamableError> {
        let deleted = self.0.delete_session(uri, session, authorization, headers).await;
        deleted.map_err(strip_url)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: StreamableHeaders,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableError> {
        let limit = MESSAGE_BYTES_MAX;
        self.0
            .get_stream_with_max_sse_event_size(
                uri,
                session,
                last_event,
                authorization,
                headers,
                limit,
            )
            .await
            .map_err(strip_url)
    }
}
