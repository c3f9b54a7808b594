//! One call of one tool.

use polity_engine::driver::{ToolFailure, ToolReply, current_traceparent};
use polity_model::failure::AttemptFailure;
use polity_model::tool::ToolName;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, ErrorCode, ErrorData, GetMeta, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::{RoleClient, ServiceError};
use serde_json::{Map, Value};

use super::connection::McpConnection;
use super::transport::{MessageLimit, SentFlag, SseTransportError, StreamableError, error_chain};
use super::{permanent, tool_result, transient};

/// Calls a tool once. Dropping the future sends a cancellation to the server. The result contains
/// no secret that the server was given.
pub(super) async fn call_tool(
    connection: &McpConnection,
    tool: &ToolName,
    arguments: &Map<String, Value>,
    bytes_max: usize,
) -> Result<ToolReply, ToolFailure> {
    let reply = call_unredacted(connection, tool, arguments, bytes_max).await;
    let reply = reply.map(|reply| connection.secrets.redact_reply(reply));
    reply.map_err(|failed| ToolFailure {
        failure: connection.secrets.redact_failure(&failed.failure),
        ..failed
    })
}

async fn call_unredacted(
    connection: &McpConnection,
    tool: &ToolName,
    arguments: &Map<String, Value>,
    bytes_max: usize,
) -> Result<ToolReply, ToolFailure> {
    let _in_use = connection.start_request();
    let sent = SentFlag::default();
    let name = tool.tool().to_owned();
    let params = CallToolRequestParams::new(name).with_arguments(arguments.clone());
    let mut request = CallToolRequest::new(params);
    request.extensions.insert(sent.clone());
    let mut request = ClientRequest::CallToolRequest(request);
    if let Some(traceparent) = current_traceparent() {
        request.get_meta_mut().set_traceparent(&*traceparent);
    }
    match send_request(&connection.peer, request).await {
        Ok(ServerResult::CallToolResult(result)) => Ok(tool_result::to_reply(result, bytes_max)),
        Ok(ServerResult::InputRequiredResult(_)) => {
            let why = "it asks for input in the middle of the call, which is not supported";
            Err(failure(failed(tool, why), false))
        }
        Ok(_) => Err(failure(failed(tool, "its answer is not the result of a tool"), true)),
        Err(ServiceError::McpError(error)) => Err(refused(tool, &error)),
        Err(ServiceError::TransportSend(error)) => Err(not_sent(connection, tool, &error).await),
        Err(ServiceError::TransportClosed) => Err(lost(connection, tool, sent.is_sent()).await),
        Err(other) => Err(failure(failed(tool, &other.to_string()), sent.is_sent())),
    }
}

async fn send_request(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
) -> Result<ServerResult, ServiceError> {
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await?;
    let mut waiting = PendingCall { peer, id: Some(handle.id.clone()) };
    let answer = handle.await_response().await;
    waiting.id = None;
    answer
}

/// A request without an answer. Dropping it notifies the server.
struct PendingCall<'p> {
    peer: &'p Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Outside a runtime, everything is being shut down.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let why = Some("no one waits for the result any more".to_owned());
        let params = CancelledNotificationParam::new(Some(id), why);
        let notification = CancelledNotification::new(params);
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let message = ClientNotification::CancelledNotification(notification);
            // A lost connection has already cancelled the call.
            let _ = peer.send_notification(message).await;
        });
    }
}

fn failure(failure: AttemptFailure, maybe_done: bool) -> ToolFailure {
    ToolFailure { failure, maybe_done, timed_out: false }
}

fn failed(tool: &ToolName, why: &str) -> AttemptFailure {
    permanent(format!("the call of {tool} failed: {why}"))
}

/// Maps a protocol error.
fn refused(tool: &ToolName, error: &ErrorData) -> ToolFailure {
    if error.code == MessageLimit::ERROR_CODE {
        return failure(failed(tool, &error.message), true);
    }
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
        return failure(failed(tool, &why), false);
    }
    // Other errors may occur after the tool has started to work.
    failure(transient(format!("the call of {tool} failed: {why}")), true)
}

/// Maps an error while sending the request.
async fn not_sent(
    connection: &McpConnection,
    tool: &ToolName,
    error: &DynamicTransportError,
) -> ToolFailure {
    connection.retire();
    let error = error.error.as_ref();
    let maybe_done = if let Some(error) = error.downcast_ref::<SseTransportError>() {
        !error.is_before_sending()
    } else if let Some(error) = error.downcast_ref::<StreamableError>() {
        match error {
            StreamableHttpError::Client(error) => !error.is_connect(),
            StreamableHttpError::AuthRequired(_)
            | StreamableHttpError::InsufficientScope(_)
            | StreamableHttpError::SessionExpired => false,
            _ => true,
        }
    } else {
        // On a pipe, a message without its line end is not processed.
        false
    };
    let (server, why) = (tool.server(), error_chain(error));
    let details = connection.exit_details().await;
    let message = if maybe_done {
        format!("the call of {tool} was cut off: {why}{details}")
    } else {
        format!("the call of {tool} did not reach MCP server \"{server}\": {why}{details}")
    };
    failure(transient(message), maybe_done)
}

/// Maps a lost connection.
async fn lost(connection: &McpConnection, tool: &ToolName, was_sent: bool) -> ToolFailure {
    connection.retire();
    let when = if was_sent { "during" } else { "before" };
    let details = connection.exit_details().await;
    let server = tool.server();
    let message = format!("MCP server \"{server}\" was lost {when} the call of {tool}{details}");
    failure(transient(message), was_sent)
}
