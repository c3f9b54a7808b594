//! What a server may ask of its client, and what it may tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorCode, ErrorData, Implementation, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};

use crate::secrets::Secrets;

/// The client of one connection. It offers nothing: requests for sampling and roots are refused,
/// requests for input declined. Both are how `ClientHandler` begins, but for the roots.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) server: String,
    /// Set when the server says that its tools have changed.
    pub(super) changed: Changed,
    /// What the server must not repeat.
    pub(super) secrets: Secrets,
}

/// Whether a server's tools have changed since they were listed.
#[derive(Debug, Clone, Default)]
pub(super) struct Changed(Arc<AtomicBool>);

impl Changed {
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether they have; from now on they have not.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl ClientHandler for Client {
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
        let said = self.secrets.removed_from(&message.data.to_string());
        tracing::debug!(server = self.server, "{said}");
    }

    fn get_info(&self) -> ClientConfig {
        let polity = Implementation::new("polity", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), polity)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
