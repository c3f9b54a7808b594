//! Tools of MCP servers.
//!
//! A server is started, or connected to, when one of its tools is first needed. The connection is
//! shared by all who call its tools, and made anew when it is lost. `server` knows when; `connection`
//! knows how, over the transports `stdio`, `sse` and streamable HTTP; `listing` turns what a server
//! offers into tools, `calling` makes one call, and `content` turns its result into text.
//!
//! Two eras of the protocol are spoken: the one that opens with `initialize`, and the one that
//! opens with `server/discover`. `link` keeps the probe for the latter short.

mod calling;
mod client;
mod connection;
mod content;
mod environment;
mod http;
mod lenient;
mod link;
mod listing;
mod server;
mod sse;
mod stdio;
mod streamable;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::{McpServerDefinition, McpTransport, nearest};
use polity_engine::driver::{
    BoxFuture, NotReady, Place, ToolFailure, ToolReply, ToolRequest, Toolbox, Tools,
    ToolsUnavailable,
};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::tool::ToolPattern;

use server::Server;

use crate::environment::Environment;
use crate::process::ProcessLauncher;

/// The longest result of one tool call that is passed on, in bytes; the rest is cut off.
pub const TOOL_RESULT_BYTES_MAX: usize = 10_000_000;

/// How long a server may take to start and to answer for the first time.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a model call waits for a server that is only held in reserve.
pub const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest message that a server may send, in bytes. It is far more than is passed on of a
/// result, so that a long one does not cost the connection.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// What servers are started with.
#[derive(Clone)]
pub struct McpOptions {
    /// The home folder, in which servers are started.
    pub home: PathBuf,
    /// Looks up an environment variable.
    pub environment: Environment,
    /// The longest result of one tool call that is passed on, in bytes.
    pub output_bytes_max: usize,
    /// How long a server may take to start and to answer for the first time.
    pub start_timeout: Duration,
    /// How long to wait for the tools of a server that is only held in reserve. One that takes
    /// longer goes on in the background, and is not waited for again before it has answered.
    pub reserve_timeout: Duration,
    /// How servers are started.
    pub launcher: ProcessLauncher,
}

impl McpOptions {
    /// Options with the default limits.
    pub fn new(home: PathBuf, environment: Environment, launcher: ProcessLauncher) -> Self {
        Self {
            home,
            environment,
            output_bytes_max: TOOL_RESULT_BYTES_MAX,
            start_timeout: START_TIMEOUT,
            reserve_timeout: RESERVE_TIMEOUT,
            launcher,
        }
    }
}

/// The tools of the MCP servers that a home declares. All of them must be called within one Tokio
/// runtime. When it is dropped its servers are ended; [`McpTools::shutdown`] waits for that.
pub struct McpTools {
    servers: BTreeMap<String, Arc<Server>>,
    options: Arc<McpOptions>,
}

impl McpTools {
    /// Knows these servers. Nothing is started yet.
    pub fn new(
        servers: impl IntoIterator<Item = McpServerDefinition>,
        options: McpOptions,
    ) -> Self {
        let options = Arc::new(options);
        let servers = servers
            .into_iter()
            .map(|definition| {
                let name = definition.name.as_str().to_owned();
                (name, Arc::new(Server::new(definition, Arc::clone(&options))))
            })
            .collect();
        Self { servers, options }
    }

    /// The version of the protocol that is spoken with a server, which is started if need be.
    pub async fn protocol_version(&self, server: &str) -> Result<String, ToolsUnavailable> {
        let unavailable = |failure| ToolsUnavailable { failure };
        let server = self.server(server).map_err(unavailable)?;
        let connection = server.connection().await.map_err(unavailable)?;
        Ok(connection.protocol_version())
    }

    /// Ends all servers, in parallel, and waits until they are gone.
    pub async fn shutdown(&self) {
        futures_util::future::join_all(self.servers.values().map(|server| server.shutdown())).await;
    }

    fn server(&self, name: &str) -> Result<&Arc<Server>, AttemptFailure> {
        self.servers.get(name).ok_or_else(|| {
            let near = nearest(name, self.servers.keys().map(String::as_str))
                .map(|near| format!("; did you mean \"{near}\"?"))
                .unwrap_or_default();
            permanent(format!("there is no MCP server \"{name}\" in config/mcp_servers.yaml{near}"))
        })
    }
}

impl Tools for McpTools {
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
        _place: Place<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        Box::pin(async move {
            let toolbox = listing::toolbox(|name| self.server(name), patterns).await;
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
            let call = calling::call(&connection, tool, arguments, bytes_max);
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

/// What a server is given that may be secret.
pub(crate) fn secrets_of(server: &McpServerDefinition, environment: &Environment) -> Vec<String> {
    match &server.transport {
        McpTransport::Stdio { env, .. } => environment::secrets_of(env, environment),
        McpTransport::Sse { .. } | McpTransport::StreamableHttp { .. } => Vec::new(),
    }
}

fn permanent(message: String) -> AttemptFailure {
    AttemptFailure { category: ErrorCategory::Permanent, message }
}

fn transient(message: String) -> AttemptFailure {
    AttemptFailure { category: ErrorCategory::Transient, message }
}
