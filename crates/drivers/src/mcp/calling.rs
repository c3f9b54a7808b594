//! One call of one tool.

use polity_engine::driver::{ToolFailure, ToolReply};
use polity_model::failure::AttemptFailure;
use polity_model::tool::ToolName;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, ErrorCode, ErrorData, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::{RoleClient, ServiceError};
use serde_json::{Map, Value};

use super::connection::Connection;
use super::http::{HttpError, with_causes};
use super::link::Sent;
use super::sse::SseError;
use super::{content, permanent, transient};

/// Calls a tool once. Dropping the future tells the server that no one waits any more. What comes
/// of it is told without the secrets that the server was given.
pub(super) async fn call(
    connection: &Connection,
    tool: &ToolName,
    arguments: &Map<String, Value>,
    bytes_max: usize,
) -> Result<ToolReply, ToolFailure> {
    let reply = replied(connection, tool, arguments, bytes_max).await;
    let reply = reply.map(|reply| connection.secrets.removed_from_reply(reply));
    reply.map_err(|ToolFailure { failure, maybe_done, timed_out }| {
        let failure = connection.secrets.removed_from_failure(&failure);
        ToolFailure { failure, maybe_done, timed_out }
    })
}

async fn replied(
    connection: &Connection,
    tool: &ToolName,
    arguments: &Map<String, Value>,
    bytes_max: usize,
) -> Result<ToolReply, ToolFailure> {
    let _in_use = connection.in_use();
    let sent = Sent::default();
    let name = tool.tool().to_owned();
    let params = CallToolRequestParams::new(name).with_arguments(arguments.clone());
    let mut request = CallToolRequest::new(params);
    request.extensions.insert(sent.clone());
    match answered(&connection.peer, ClientRequest::CallToolRequest(request)).await {
        Ok(ServerResult::CallToolResult(result)) => Ok(content::reply(result, bytes_max)),
        Ok(ServerResult::InputRequiredResult(_)) => {
            let why = "it asks for input in the middle of the call, which is not supported";
            Err(ToolFailure { failure: failed(tool, why), maybe_done: false, timed_out: false })
        }
        Ok(_) => {
            let why = "its answer is not the result of a tool";
            Err(ToolFailure { failure: failed(tool, why), maybe_done: true, timed_out: false })
        }
        Err(ServiceError::McpError(error)) => Err(refused(tool, &error)),
        Err(ServiceError::TransportSend(error)) => Err(not_sent(connection, tool, &error).await),
        Err(ServiceError::TransportClosed) => Err(lost(connection, tool, sent.is_sent()).await),
        Err(other) => {
            let failure = failed(tool, &other.to_string());
            Err(ToolFailure { failure, maybe_done: sent.is_sent(), timed_out: false })
        }
    }
}

async fn answered(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
) -> Result<ServerResult, ServiceError> {
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await?;
    let mut waiting = Waiting { peer, id: Some(handle.id.clone()) };
    let answer = handle.await_response().await;
    waiting.id = None;
    answer
}

/// Waits for an answer. If it is dropped before, the server is told.
struct Waiting<'p> {
    peer: &'p Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Outside of a runtime everything is being torn down, and the server with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let why = Some("no one waits for the result any more".to_owned());
        let params = CancelledNotificationParam::new(Some(id), why);
        let notification = CancelledNotification::new(params);
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let message = ClientNotification::CancelledNotification(notification);
            // A connection that is lost has cancelled the call already.
            let _ = peer.send_notification(message).await;
        });
    }
}

fn failed(tool: &ToolName, why: &str) -> AttemptFailure {
    permanent(format!("the call of {tool} failed: {why}"))
}

/// The server answered with an error of the protocol.
fn refused(tool: &ToolName, error: &ErrorData) -> ToolFailure {
    let why = format!("{} ({})", error.message, error.code.0);
    let before_work = matches!(
        error.code,
        ErrorCode::PARSE_ERROR
            | ErrorCode::INVALID_REQUEST
            | ErrorCode::METHOD_NOT_FOUND
            | ErrorCode::INVALID_PARAMS
            | ErrorCode::RESOURCE_NOT_FOUND
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::HEADER_MISMATCH
    );
    if before_work {
        return ToolFailure { failure: failed(tool, &why), maybe_done: false, timed_out: false };
    }
    // Anything else went wrong in the server, which may have been at work already.
    let failure = transient(format!("the call of {tool} failed: {why}"));
    ToolFailure { failure, maybe_done: true, timed_out: false }
}

/// The request could not be handed over as a whole.
async fn not_sent(
    connection: &Connection,
    tool: &ToolName,
    error: &DynamicTransportError,
) -> ToolFailure {
    connection.retire();
    let error = error.error.as_ref();
    let maybe_done = if let Some(error) = error.downcast_ref::<SseError>() {
        !error.is_before_sending()
    } else if let Some(error) = error.downcast_ref::<HttpError>() {
        match error {
            StreamableHttpError::Client(error) => !error.is_connect(),
            StreamableHttpError::AuthRequired(_)
            | StreamableHttpError::InsufficientScope(_)
            | StreamableHttpError::SessionExpired => false,
            _ => true,
        }
    } else {
        // A pipe: without the end of its line, a message is none.
        false
    };
    let (server, why) = (tool.server(), with_causes(error));
    let signs = connection.last_signs().await;
    let message = if maybe_done {
        format!("the call of {tool} was cut off: {why}{signs}")
    } else {
        format!("the call of {tool} did not reach MCP server \"{server}\": {why}{signs}")
    };
    ToolFailure { failure: transient(message), maybe_done, timed_out: false }
}

/// The connection was lost.
async fn lost(connection: &Connection, tool: &ToolName, was_sent: bool) -> ToolFailure {
    connection.retire();
    let when = if was_sent { "during" } else { "before" };
    let signs = connection.last_signs().await;
    let server = tool.server();
    let message = format!("MCP server \"{server}\" was lost {when} the call of {tool}{signs}");
    ToolFailure { failure: transient(message), maybe_done: was_sent, timed_out: false }
}
