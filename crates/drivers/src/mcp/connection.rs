//! One connection to a server: handshake, liveness and close.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_definition::{McpServerDefinition, McpTransport};
use polity_engine::driver::ToolSpec;
use polity_model::failure::AttemptFailure;
use reqwest::Url;
use rmcp::model::{ClientRequest, PingRequest, ProtocolVersion, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, RunningService,
};
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{RoleClient, ServiceError};
use tokio::time::Instant;

use super::client::{McpClientHandler, ToolsChangedFlag};
use super::server_url::ServerAddress;
use super::transport::{
    LateProbeAnswer, LossReason, PROBE_TIMEOUT, ProbedTransport, SseTransport, StdioTransport,
    StdoutNoise, StreamableClient, error_chain,
};
use super::{McpOptions, permanent, server_program, server_url, transient};
use crate::http;
use crate::process::{ChildProcess, ProcessCommand};
use crate::secrets::SecretSet;

/// The idle time after which a connection is pinged before use.
const PING_AFTER_IDLE: Duration = Duration::from_secs(30);

/// The longest wait for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest wait for a clean close before the process is ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest wait for the exit of a process that has closed its output.
const END_WAIT: Duration = Duration::from_secs(1);

/// The delay before the second reconnect to a stream; each is twice as long as the one before.
const RECONNECT_DELAY_FIRST: Duration = Duration::from_millis(250);

/// The longest delay between reconnects to a stream.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(30);

/// The most messages of a server that wait to be handled. Each may be large.
const QUEUED_MESSAGES_MAX: usize = 2;

pub(super) struct McpConnection {
    pub(super) server: String,
    pub(super) peer: Peer<RoleClient>,
    /// Set when the tools change after they were listed.
    pub(super) changed: ToolsChangedFlag,
    pub(super) tools: tokio::sync::Mutex<Option<Arc<[Arc<ToolSpec>]>>>,
    /// The secrets given to the server.
    pub(super) secrets: SecretSet,
    service: tokio::sync::Mutex<RunningService<RoleClient, McpClientHandler>>,
    child: Option<ChildProcess>,
    loss: LossReason,
    opened: Instant,
    retired: AtomicBool,
    activity: Mutex<ConnectionActivity>,
}

struct ConnectionActivity {
    active: usize,
    last: Instant,
}

/// Marks a request as active until it is dropped.
pub(super) struct RequestGuard<'c>(&'c McpConnection);

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.active -= 1;
        activity.last = Instant::now();
    }
}

impl McpConnection {
    /// Starts the server, or connects to it.
    pub(super) async fn open(
        definition: &McpServerDefinition,
        options: &McpOptions,
    ) -> Result<Self, AttemptFailure> {
        let server = definition.name.as_str();
        match &definition.transport {
            McpTransport::Stdio { command, args, env } => {
                let (program, secrets) =
                    server_program::build_program(server, command.as_str(), args, env, options)?;
                let started = Self::start(server, &program, &secrets, options).await;
                started.map_err(|failure| secrets.redact_failure(&failure))
            }
            McpTransport::Sse { url } => {
                let address = server_url::resolve(server, url, &options.environment)?;
                let client = build_http_client(server, &address.url, options)?;
                let loss = LossReason::default();
                // This transport predates the newer lifecycle.
                let opening = async {
                    let url = address.url.as_str();
                    let sse = SseTransport::open(server, client, url, loss.clone()).await;
                    let sse = sse.map_err(|error| HandshakeError::Lost(error.to_string()))?;
                    let lifecycle = ClientLifecycleMode::Initialize;
                    perform_handshake(server, probed(sse), lifecycle, address.secrets.clone()).await
                };
                Self::connect(server, opening, &address, loss.clone(), options).await
            }
            McpTransport::StreamableHttp { url } => {
                let address = server_url::resolve(server, url, &options.environment)?;
                let client = build_http_client(server, &address.url, options)?;
                let loss = LossReason::default();
                let client = StreamableClient::new(client, loss.clone());
                let config = streamable_config(&address.url);
                let transport = probed(StreamableHttpClientTransport::with_client(client, config));
                let secrets = address.secrets.clone();
                let opening = perform_handshake(server, transport, any_lifecycle(), secrets);
                Self::connect(server, opening, &address, loss, options).await
            }
        }
    }

    /// Starts a server process and performs the handshake.
    async fn start(
        server: &str,
        program: &ProcessCommand,
        secrets: &SecretSet,
        options: &McpOptions,
    ) -> Result<Self, AttemptFailure> {
        let mut probe_timeout = PROBE_TIMEOUT;
        loop {
            let started =
                options.launcher.start_service(program, &options.data).map_err(|error| {
                    transient(format!("MCP server \"{server}\" cannot be started: {error}"))
                })?;
            let (child, noise) = (started.child.clone(), StdoutNoise::new(secrets.clone()));
            let late_answer = LateProbeAnswer::default();
            let loss = LossReason::default();
            let stdio = StdioTransport::new(server, started, noise.clone(), loss.clone());
            let probed = ProbedTransport::new(stdio, probe_timeout, late_answer.clone());
            let opening = perform_handshake(server, probed, any_lifecycle(), secrets.clone());
            match with_timeout(opening, options.start_timeout).await {
                Ok(session) => return Ok(Self::new(server, session, Some(child), loss)),
                // The server supports only the newer lifecycle and is slow: retry with a longer
                // probe.
                Err(_) if late_answer.has_arrived() && probe_timeout < options.start_timeout => {
                    probe_timeout = options.start_timeout;
                }
                Err(error) => {
                    let details = start_failure_details(&child, &noise, secrets, &error).await;
                    return Err(error.to_failure(server, &(loss.details() + &details)));
                }
            }
        }
    }

    /// Performs the handshake over a connection to an address.
    async fn connect(
        server: &str,
        opening: impl Future<Output = Result<McpSession, HandshakeError>>,
        address: &ServerAddress,
        loss: LossReason,
        options: &McpOptions,
    ) -> Result<Self, AttemptFailure> {
        match with_timeout(opening, options.start_timeout).await {
            Ok(session) => Ok(Self::new(server, session, None, loss)),
            Err(error) => {
                let at = format!("{} (at {})", loss.details(), http::redact_url(&address.url));
                Err(address.secrets.redact_failure(&error.to_failure(server, &at)))
            }
        }
    }

    fn new(
        server: &str,
        session: McpSession,
        child: Option<ChildProcess>,
        loss: LossReason,
    ) -> Self {
        let McpSession { service, changed, secrets } = session;
        let peer = service.peer().clone();
        subscribe_to_changes(&peer, &changed);
        Self {
            server: server.to_owned(),
            peer,
            changed,
            tools: tokio::sync::Mutex::new(None),
            secrets,
            service: tokio::sync::Mutex::new(service),
            child,
            loss,
            opened: Instant::now(),
            retired: AtomicBool::new(false),
            activity: Mutex::new(ConnectionActivity { active: 0, last: Instant::now() }),
        }
    }

    pub(super) fn protocol_version(&self) -> String {
        let info = self.peer.peer_info();
        info.map(|info| info.protocol_version.to_string()).unwrap_or_default()
    }

    /// True unless the connection has failed.
    pub(super) fn is_alive(&self) -> bool {
        let is_lost = self.retired.load(Ordering::SeqCst) || self.loss.get().is_some();
        !is_lost && !self.peer.is_transport_closed()
    }

    /// True if the server responds. Pings it only after a long idle time, and never while it is
    /// busy: it may handle one request at a time.
    pub(super) async fn is_responsive(&self) -> bool {
        let is_idle = {
            let activity = self.activity();
            activity.active == 0 && activity.last.elapsed() >= PING_AFTER_IDLE
        };
        let knows_ping =
            self.peer.peer_info().is_some_and(|info| info.protocol_version.has_initialize());
        if !is_idle || !knows_ping {
            return true;
        }
        let _in_use = self.start_request();
        let ping = self.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        let answer = tokio::time::timeout(PING_TIMEOUT, ping).await;
        // An error response is a response.
        let answered = matches!(answer, Ok(Ok(_) | Err(ServiceError::McpError(_))));
        if !answered {
            self.retire();
        }
        answered
    }

    pub(super) fn start_request(&self) -> RequestGuard<'_> {
        self.activity().active += 1;
        RequestGuard(self)
    }

    fn activity(&self) -> std::sync::MutexGuard<'_, ConnectionActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the connection as failed, so that it is not used again.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// The reason of the loss, and the exit status and stderr tail of the server's process, to be
    /// appended to an error.
    pub(super) async fn exit_details(&self) -> String {
        let exit = match &self.child {
            Some(child) => exit_details(child, &self.secrets).await,
            None => String::new(),
        };
        self.loss.details() + &exit
    }

    /// Closes the connection and ends the process, if there is one.
    pub(super) async fn close(&self) {
        self.retire();
        let mut service = self.service.lock().await;
        if let Err(error) = service.close_with_timeout(CLOSE_TIMEOUT).await {
            tracing::warn!(server = self.server, %error, "the connection did not end well");
        }
        if let Some(child) = &self.child {
            child.end().await;
        }
    }
}

struct McpSession {
    service: RunningService<RoleClient, McpClientHandler>,
    changed: ToolsChangedFlag,
    secrets: SecretSet,
}

enum HandshakeError {
    /// The server did not answer in this time.
    Timeout(Duration),
    /// The connection failed.
    Lost(String),
    /// The server refused.
    Refused(String),
}

impl HandshakeError {
    fn to_failure(&self, server: &str, details: &str) -> AttemptFailure {
        let name = format!("MCP server \"{server}\"");
        match self {
            Self::Timeout(limit) => {
                let seconds = limit.as_secs_f64();
                transient(format!("{name} did not answer within {seconds} seconds{details}"))
            }
            Self::Lost(why) => transient(format!("{name} cannot be reached: {why}{details}")),
            Self::Refused(why) => {
                permanent(format!("{name} refused the handshake: {why}{details}"))
            }
        }
    }
}

async fn with_timeout(
    opening: impl Future<Output = Result<McpSession, HandshakeError>>,
    limit: Duration,
) -> Result<McpSession, HandshakeError> {
    tokio::time::timeout(limit, opening).await.unwrap_or(Err(HandshakeError::Timeout(limit)))
}

fn probed<T>(transport: T) -> ProbedTransport<T> {
    ProbedTransport::new(transport, PROBE_TIMEOUT, LateProbeAnswer::default())
}

fn any_lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
}

async fn perform_handshake<T: Transport<RoleClient> + 'static>(
    server: &str,
    probed: ProbedTransport<T>,
    lifecycle: ClientLifecycleMode,
    secrets: SecretSet,
) -> Result<McpSession, HandshakeError> {
    let changed = ToolsChangedFlag::default();
    let client = McpClientHandler {
        server: server.to_owned(),
        changed: changed.clone(),
        secrets: secrets.clone(),
    };
    match Box::pin(client.serve_with_lifecycle(probed, lifecycle)).await {
        Ok(service) => Ok(McpSession { service, changed, secrets }),
        Err(error) => Err(classify_error(error)),
    }
}

fn classify_error(error: ClientInitializeError) -> HandshakeError {
    let authorization = error.is_authorization_required();
    match error {
        _ if authorization => {
            HandshakeError::Refused("it asks for authorization, which is not supported".to_owned())
        }
        ClientInitializeError::ConnectionClosed(_) => {
            HandshakeError::Lost("it closed the connection during the handshake".to_owned())
        }
        ClientInitializeError::TransportError { error, .. } => {
            HandshakeError::Lost(error_chain(error.error.as_ref()))
        }
        ClientInitializeError::JsonRpcError(error) => {
            HandshakeError::Refused(error.message.into_owned())
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => classify_error(*fallback),
        other => HandshakeError::Refused(other.to_string()),
    }
}

/// The settings of streamable HTTP: few messages in memory, and reconnects at a bounded rate.
fn streamable_config(url: &Url) -> StreamableHttpClientTransportConfig {
    let mut reconnects = ExponentialBackoff::default();
    reconnects.base_duration = RECONNECT_DELAY_FIRST;
    reconnects.max_delay = Some(RECONNECT_DELAY_MAX);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
    config.retry_config = Arc::new(reconnects);
    config.channel_buffer_capacity = QUEUED_MESSAGES_MAX;
    config
}

fn build_http_client(
    server: &str,
    url: &Url,
    options: &McpOptions,
) -> Result<reqwest::Client, AttemptFailure> {
    http::build_client(url.scheme() == "https", &options.environment).map_err(|error| {
        let why = error_chain(&error.without_url());
        permanent(format!("MCP server \"{server}\" cannot be connected to: {why}"))
    })
}

/// Subscribes to tool changes, as the newer lifecycle requires.
fn subscribe_to_changes(peer: &Peer<RoleClient>, changed: &ToolsChangedFlag) {
    let tells = peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize()
            && tools.is_some_and(|tools| tools.list_changed == Some(true))
    });
    if !tells {
        return;
    }
    let (peer, changed) = (peer.clone(), changed.clone());
    tokio::spawn(async move {
        let wanted = SubscriptionFilter::builder().tools_list_changed().build();
        let Ok(mut subscription) = peer.listen(wanted).await else { return };
        while let Ok(Some(_)) = subscription.next().await {
            changed.note();
        }
    });
}

/// The output of a process whose handshake failed.
async fn start_failure_details(
    child: &ChildProcess,
    noise: &StdoutNoise,
    secrets: &SecretSet,
    error: &HandshakeError,
) -> String {
    let details = match noise.seen() {
        None => String::new(),
        Some((1, line)) => {
            format!("; it printed a line on stdout that is no MCP message: {line}")
        }
        Some((count, first)) => {
            let messages = format!("{count} lines on stdout that are no MCP messages");
            format!("; it printed {messages}, the first: {first}")
        }
    };
    match error {
        HandshakeError::Lost(_) => details + &exit_details(child, secrets).await,
        HandshakeError::Timeout(_) | HandshakeError::Refused(_) => {
            details + &stderr_details(&child.stderr_tail().current_lines(), secrets)
        }
    }
}

/// The exit status and stderr tail of an ending process.
async fn exit_details(child: &ChildProcess, secrets: &SecretSet) -> String {
    let status = tokio::time::timeout(END_WAIT, child.wait()).await.ok().flatten();
    let ended = match status {
        Some(status) => format!("; it ended with {status}"),
        None => "; its process has not ended".to_owned(),
    };
    ended + &stderr_details(&child.stderr_tail().final_lines().await, secrets)
}

fn stderr_details(words: &str, secrets: &SecretSet) -> String {
    if words.is_empty() {
        return String::new();
    }
    // Only the end of stderr is kept, and it may still be incomplete.
    format!("; its last words on stderr:\n{}", secrets.redact_fragment(words))
}
