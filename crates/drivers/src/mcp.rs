//! The tool driver: lists and calls the tools of MCP servers.
//!
//! A server is started, or connected to, when one of its tools is first needed. All callers share
//! the connection; a lost one is reopened. `server` decides when to connect, `connection` performs
//! the handshake over a `transport`, `tool_listing` turns a server's tools into a toolbox, `tool_call`
//! makes one call, and `tool_result` renders its result as text.
//!
//! The client supports both lifecycles of the protocol: `initialize`, and the newer
//! `server/discover`. `transport::probe` bounds the wait for an answer to the latter.

mod client;
mod connection;
mod server;
mod server_program;
mod server_url;
mod tool_call;
mod tool_listing;
mod tool_result;
mod transport;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::{McpServerDefinition, McpTransport, nearest};
use polity_engine::driver::{
    BoxFuture, CallSite, NotReady, ToolDriver, ToolFailure, ToolReply, ToolRequest, Toolbox,
    ToolsUnavailable,
};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::tool::ToolPattern;

use server::McpServer;
#[cfg(feature = "fuzz")]
pub(crate) use transport::parse_message;

use crate::environment::EnvSource;
use crate::process::{DATA_FOLDER, HomeProgramCheck, ProcessLauncher};

/// The default limit of one tool result, in bytes; longer ones are truncated.
pub const TOOL_RESULT_BYTES_MAX: usize = 10_000_000;

/// The default limit for a server's start and first answer.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The default wait of a model call for a server that only has fallback tools.
pub const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest message from a server, in bytes. It is far above the limit of a result, so that a
/// long result does not cost the connection.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The options of [`McpTools`].
#[derive(Clone)]
pub struct McpOptions {
    /// The home folder, the working directory of servers.
    pub home: PathBuf,
    /// The source of environment variables.
    pub environment: EnvSource,
    /// The largest tool result, in bytes.
    pub output_bytes_max: usize,
    /// The limit for a server's start and first answer.
    pub start_timeout: Duration,
    /// The longest wait for a server that only has fallback tools. A slower start continues in the
    /// background and is not awaited again before it succeeds.
    pub reserve_timeout: Duration,
    /// The launcher of server processes.
    pub launcher: ProcessLauncher,
    /// The data folder of the home, for the records of server processes.
    pub data: PathBuf,
    /// The check of servers whose executable is in the home.
    pub program_check: HomeProgramCheck,
}

impl McpOptions {
    /// Options with the default limits.
    pub fn new(home: PathBuf, environment: EnvSource, launcher: ProcessLauncher) -> Self {
        Self {
            data: home.join(DATA_FOLDER),
            program_check: HomeProgramCheck::default(),
            home,
            environment,
            output_bytes_max: TOOL_RESULT_BYTES_MAX,
            start_timeout: START_TIMEOUT,
            reserve_timeout: RESERVE_TIMEOUT,
            launcher,
        }
    }
}

/// The tools of a home's MCP servers. All calls must be made within one Tokio runtime. Dropping it
/// ends the servers; [`McpTools::shutdown`] also waits for their exit.
pub struct McpTools {
    servers: BTreeMap<String, Arc<McpServer>>,
    options: Arc<McpOptions>,
}

impl McpTools {
    /// Registers the servers. Nothing is started yet.
    pub fn new(
        servers: impl IntoIterator<Item = McpServerDefinition>,
        options: McpOptions,
    ) -> Self {
        let options = Arc::new(options);
        let servers = servers
            .into_iter()
            .map(|definition| {
                let name = definition.name.as_str().to_owned();
                (name, Arc::new(McpServer::new(definition, Arc::clone(&options))))
            })
            .collect();
        Self { servers, options }
    }

    /// The protocol version agreed with a server, which is started if needed.
    pub async fn protocol_version(&self, server: &str) -> Result<String, ToolsUnavailable> {
        let unavailable = |failure| ToolsUnavailable { failure };
        let server = self.server(server).map_err(unavailable)?;
        let connection = server.connection().await.map_err(unavailable)?;
        Ok(connection.protocol_version())
    }

    /// Ends all servers in parallel and waits for their exit.
    pub async fn shutdown(&self) {
        futures_util::future::join_all(self.servers.values().map(|server| server.shutdown())).await;
    }

    fn server(&self, name: &str) -> Result<&Arc<McpServer>, AttemptFailure> {
        self.servers.get(name).ok_or_else(|| {
            let near = nearest(name, self.servers.keys().map(String::as_str))
                .map(|near| format!("; did you mean \"{near}\"?"))
                .unwrap_or_default();
            permanent(format!("there is no MCP server \"{name}\" in config/mcp_servers.yaml{near}"))
        })
    }
}

impl ToolDriver for McpTools {
    fn ready(&self, patterns: &[ToolPattern]) -> Result<(), NotReady> {
        for pattern in patterns {
            self.server(pattern.server()).map_err(|failure| NotReady {
                message: failure.message,
                hint: "declare it in config/mcp_servers.yaml".to_owned(),
            })?;
        }
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        _call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        Box::pin(async move {
            let toolbox = tool_listing::build_toolbox(|name| self.server(name), patterns).await;
            toolbox.map(Arc::new).map_err(|failure| ToolsUnavailable { failure })
        })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        let ToolRequest { tool, arguments, limit, limited_by, .. } = request;
        Box::pin(async move {
            let never_made = |failure| ToolFailure { failure, maybe_done: false, timed_out: false };
            let server = self.server(tool.server()).map_err(never_made)?;
            let connection = server.connection().await.map_err(never_made)?;
            let bytes_max = self.options.output_bytes_max;
            let call = tool_call::call_tool(&connection, tool, arguments, bytes_max);
            tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
                let seconds = limit.as_secs();
                let whose = limited_by.map_or_else(
                    || "the tool's timeout_seconds".to_owned(),
                    |node| format!("the timeout_seconds of node {node}"),
                );
                let message = format!("no answer within {seconds} seconds, {whose}");
                Err(ToolFailure { failure: transient(message), maybe_done: true, timed_out: true })
            })
        })
    }
}

/// The values in a server's environment or address that may be secret.
pub(crate) fn secret_values(server: &McpServerDefinition, environment: &EnvSource) -> Vec<String> {
    match &server.transport {
        McpTransport::Stdio { env, .. } => server_program::secret_values(env, environment),
        McpTransport::Sse { url } | McpTransport::StreamableHttp { url } => {
            server_url::secret_values(url, environment)
        }
    }
}

fn permanent(message: String) -> AttemptFailure {
    AttemptFailure { category: ErrorCategory::Permanent, message }
}

fn transient(message: String) -> AttemptFailure {
    AttemptFailure { category: ErrorCategory::Transient, message }
}
