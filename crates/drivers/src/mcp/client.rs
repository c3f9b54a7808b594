//! The client side of a connection: answers to server requests and notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorCode, ErrorData, Implementation, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};

use crate::secrets::SecretSet;

/// The handler of one connection. It refuses sampling and roots and declines elicitation; all but
/// roots are defaults of `ClientHandler`.
#[derive(Debug, Clone)]
pub(super) struct McpClientHandler {
    pub(super) server: String,
    /// Set when the server reports changed tools.
    pub(super) changed: ToolsChangedFlag,
    /// The secrets given to the server.
    pub(super) secrets: SecretSet,
}

/// True if a server's tools have changed since they were listed.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolsChangedFlag(Arc<AtomicBool>);

impl ToolsChangedFlag {
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns the flag and resets it.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl ClientHandler for McpClientHandler {
    #[expect(deprecated, reason = "older servers still ask")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "roots are not supported", None))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.note();
    }

    #[expect(deprecated, reason = "older servers still tell")]
    async fn on_logging_message(
        &self,
        message: rmcp::model::LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let said = self.secrets.redact(&message.data.to_string());
        tracing::debug!(server = self.server, "{said}");
    }

    fn get_info(&self) -> ClientConfig {
        let polity = Implementation::new("polity", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), polity)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
