//! Streamable HTTP, with a remedy for servers that forget a session and do not say so properly.

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

use super::MESSAGE_BYTES_MAX;
use super::http::{HttpError, without_url};

type Headers = HashMap<HeaderName, HeaderValue>;

/// An HTTP client that recognises a refusal.
///
/// A server that does not know a session should answer 404. Some answer 400 with an error that does
/// not name the request, which would then be waited for for ever. With a session, that is taken for
/// its end: a new one is begun, and the request, which was refused unread, is sent again.
#[derive(Debug, Clone)]
pub(super) struct Streamable(pub(super) Client);

impl StreamableHttpClient for Streamable {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
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
        match posted.await.map_err(without_url)? {
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
        headers: Headers,
    ) -> Result<(), HttpError> {
        let deleted = self.0.delete_session(uri, session, authorization, headers).await;
        deleted.map_err(without_url)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
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
            .map_err(without_url)
    }
}
