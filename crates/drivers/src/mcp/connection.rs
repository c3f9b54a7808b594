//! One connection to a server, from the handshake to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_definition::{McpServerDefinition, McpTransport};
use polity_engine::driver::Tool;
use polity_model::failure::AttemptFailure;
use reqwest::Url;
use rmcp::model::{ClientRequest, PingRequest, ProtocolVersion, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{RoleClient, ServiceError};
use tokio::time::Instant;

use super::client::{Changed, Client};
use super::http::with_causes;
use super::link::{LateAnswer, Link, PROBE_TIMEOUT};
use super::sse::Sse;
use super::stdio::{Garbage, Stdio};
use super::streamable::Streamable;
use super::{McpOptions, environment, permanent, transient};
use crate::http;
use crate::process::{ChildProcess, ProcessCommand};
use crate::secrets::Secrets;

/// A connection that was not used for so long is tried with a ping before it is used again.
const PING_AFTER_IDLE: Duration = Duration::from_secs(30);

/// How long a server may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the end of a connection may take before its process is ended regardless.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for a process to end that has closed its output.
const END_WAIT: Duration = Duration::from_secs(1);

/// One connection to a server.
pub(super) struct Connection {
    /// The server's name.
    pub(super) server: String,
    /// Sends requests.
    pub(super) peer: Peer<RoleClient>,
    /// Whether the tools have changed since they were listed.
    pub(super) changed: Changed,
    /// The tools as they were listed.
    pub(super) tools: tokio::sync::Mutex<Option<Arc<[Arc<Tool>]>>>,
    /// What the server was given and must not be shown.
    pub(super) secrets: Secrets,
    service: tokio::sync::Mutex<RunningService<RoleClient, Client>>,
    child: Option<ChildProcess>,
    opened: Instant,
    retired: AtomicBool,
    used: Mutex<Used>,
}

struct Used {
    at_once: usize,
    last: Instant,
}

/// A request is under way for as long as this is kept.
pub(super) struct InUse<'c>(&'c Connection);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut used = self.0.used();
        used.at_once -= 1;
        used.last = Instant::now();
    }
}

impl Connection {
    /// Starts the server, or connects to it.
    pub(super) async fn open(
        definition: &McpServerDefinition,
        options: &McpOptions,
    ) -> Result<Self, AttemptFailure> {
        let server = definition.name.as_str();
        match &definition.transport {
            McpTransport::Stdio { command, args, env } => {
                let (program, secrets) =
                    environment::program(server, command.as_str(), args, env, options)?;
                let started = Self::start(server, &program, &secrets, options).await;
                started.map_err(|failure| secrets.removed_from_failure(&failure))
            }
            McpTransport::Sse { url } => {
                let client = http_client(server, url.as_str(), options)?;
                // This transport is older than the newer era, so no one need be asked.
                let opening = async {
                    let sse = Sse::open(server, client, url.as_str()).await;
                    let sse = sse.map_err(|error| Trouble::Lost(error.to_string()))?;
                    let link = Link::new(sse, PROBE_TIMEOUT, LateAnswer::default());
                    let lifecycle = ClientLifecycleMode::Initialize;
                    handshake(server, link, lifecycle, Secrets::default()).await
                };
                Self::connected(server, opening, url.as_str(), options).await
            }
            McpTransport::StreamableHttp { url } => {
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                let client = Streamable(http_client(server, url.as_str(), options)?);
                let transport = StreamableHttpClientTransport::with_client(client, config);
                let link = Link::new(transport, PROBE_TIMEOUT, LateAnswer::default());
                let opening = handshake(server, link, both_eras(), Secrets::default());
                Self::connected(server, opening, url.as_str(), options).await
            }
        }
    }

    /// Starts a server and shakes hands with it.
    async fn start(
        server: &str,
        program: &ProcessCommand,
        secrets: &Secrets,
        options: &McpOptions,
    ) -> Result<Self, AttemptFailure> {
        let mut probe_timeout = PROBE_TIMEOUT;
        loop {
            let started = options.launcher.start(program).map_err(|error| {
                transient(format!("MCP server \"{server}\" cannot be started: {error}"))
            })?;
            let (child, garbage) = (started.child.clone(), Garbage::new(secrets.clone()));
            let late = LateAnswer::default();
            let stdio = Stdio::new(server, started, garbage.clone());
            let link = Link::new(stdio, probe_timeout, late.clone());
            let opening = handshake(server, link, both_eras(), secrets.clone());
            match in_time(opening, options.start_timeout).await {
                Ok(made) => return Ok(Self::new(server, made, Some(child))),
                // It speaks only the newer era, and was too slow to say so. Now it gets the time.
                Err(_) if late.came() && probe_timeout < options.start_timeout => {
                    probe_timeout = options.start_timeout;
                }
                Err(trouble) => {
                    let signs = signs_of_failed_start(&child, &garbage, secrets, &trouble).await;
                    return Err(trouble.told(server, &signs));
                }
            }
        }
    }

    /// Shakes hands over a connection to `url`.
    async fn connected(
        server: &str,
        opening: impl Future<Output = Result<Made, Trouble>>,
        url: &str,
        options: &McpOptions,
    ) -> Result<Self, AttemptFailure> {
        match in_time(opening, options.start_timeout).await {
            Ok(made) => Ok(Self::new(server, made, None)),
            Err(trouble) => {
                let at = Url::parse(url).map(|url| format!(" (at {})", http::shown_url(&url)));
                Err(trouble.told(server, &at.unwrap_or_default()))
            }
        }
    }

    fn new(server: &str, made: Made, child: Option<ChildProcess>) -> Self {
        let Made { service, changed, secrets } = made;
        let peer = service.peer().clone();
        follow_changes(&peer, &changed);
        Self {
            server: server.to_owned(),
            peer,
            changed,
            tools: tokio::sync::Mutex::new(None),
            secrets,
            service: tokio::sync::Mutex::new(service),
            child,
            opened: Instant::now(),
            retired: AtomicBool::new(false),
            used: Mutex::new(Used { at_once: 0, last: Instant::now() }),
        }
    }

    /// The version of the protocol that was agreed on.
    pub(super) fn protocol_version(&self) -> String {
        let info = self.peer.peer_info();
        info.map(|info| info.protocol_version.to_string()).unwrap_or_default()
    }

    /// Whether requests can be sent, as far as is known.
    pub(super) fn is_alive(&self) -> bool {
        !self.retired.load(Ordering::SeqCst) && !self.peer.is_transport_closed()
    }

    /// Whether the server is still there. It is asked only after a long silence, and not while it
    /// is busy: it may be one that does one thing at a time.
    pub(super) async fn answers(&self) -> bool {
        let rests = {
            let used = self.used();
            used.at_once == 0 && used.last.elapsed() >= PING_AFTER_IDLE
        };
        let knows_ping =
            self.peer.peer_info().is_some_and(|info| info.protocol_version.has_initialize());
        if !rests || !knows_ping {
            return true;
        }
        let _in_use = self.in_use();
        let ping = self.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        let answer = tokio::time::timeout(PING_TIMEOUT, ping).await;
        // An error is an answer, too.
        let answered = matches!(answer, Ok(Ok(_) | Err(ServiceError::McpError(_))));
        if !answered {
            self.retire();
        }
        answered
    }

    /// Counts a request as under way.
    pub(super) fn in_use(&self) -> InUse<'_> {
        self.used().at_once += 1;
        InUse(self)
    }

    fn used(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no one use it any more: it has failed.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    /// How long it has been there.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// How the server ended and what it last said, to be added to an error; empty for one that is
    /// no process of ours.
    pub(super) async fn last_signs(&self) -> String {
        match &self.child {
            Some(child) => signs_of_end(child, &self.secrets).await,
            None => String::new(),
        }
    }

    /// Ends the connection, and the process if there is one.
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

/// A handshake that was made.
struct Made {
    service: RunningService<RoleClient, Client>,
    changed: Changed,
    secrets: Secrets,
}

/// A handshake that was not made.
enum Trouble {
    /// There was no answer in this time.
    Silence(Duration),
    /// The connection was lost, or could not be made.
    Lost(String),
    /// The server does not want to talk to us.
    Refused(String),
}

impl Trouble {
    fn told(&self, server: &str, signs: &str) -> AttemptFailure {
        let name = format!("MCP server \"{server}\"");
        match self {
            Self::Silence(limit) => {
                let seconds = limit.as_secs_f64();
                transient(format!("{name} did not answer within {seconds} seconds{signs}"))
            }
            Self::Lost(why) => transient(format!("{name} cannot be reached: {why}{signs}")),
            Self::Refused(why) => permanent(format!("{name} refused the handshake: {why}{signs}")),
        }
    }
}

async fn in_time(
    opening: impl Future<Output = Result<Made, Trouble>>,
    limit: Duration,
) -> Result<Made, Trouble> {
    tokio::time::timeout(limit, opening).await.unwrap_or(Err(Trouble::Silence(limit)))
}

fn both_eras() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
}

async fn handshake<T: Transport<RoleClient> + 'static>(
    server: &str,
    link: Link<T>,
    lifecycle: ClientLifecycleMode,
    secrets: Secrets,
) -> Result<Made, Trouble> {
    let changed = Changed::default();
    let client =
        Client { server: server.to_owned(), changed: changed.clone(), secrets: secrets.clone() };
    match Box::pin(client.serve_with_lifecycle(link, lifecycle)).await {
        Ok(service) => Ok(Made { service, changed, secrets }),
        Err(error) => Err(trouble(error)),
    }
}

fn trouble(error: ClientInitializeError) -> Trouble {
    let authorization = error.is_authorization_required();
    match error {
        _ if authorization => {
            Trouble::Refused("it asks for authorization, which is not supported".to_owned())
        }
        ClientInitializeError::ConnectionClosed(_) => {
            Trouble::Lost("it closed the connection during the handshake".to_owned())
        }
        ClientInitializeError::TransportError { error, .. } => {
            Trouble::Lost(with_causes(error.error.as_ref()))
        }
        ClientInitializeError::JsonRpcError(error) => Trouble::Refused(error.message.into_owned()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => trouble(*fallback),
        other => Trouble::Refused(other.to_string()),
    }
}

fn http_client(
    server: &str,
    url: &str,
    options: &McpOptions,
) -> Result<reqwest::Client, AttemptFailure> {
    http::client(url.starts_with("https:"), &options.environment).map_err(|error| {
        let why = with_causes(&error.without_url());
        permanent(format!("MCP server \"{server}\" cannot be connected to: {why}"))
    })
}

/// In the newer era a server tells of changes only to those who ask for it.
fn follow_changes(peer: &Peer<RoleClient>, changed: &Changed) {
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

/// What can be seen of a program with which no handshake could be made.
async fn signs_of_failed_start(
    child: &ChildProcess,
    garbage: &Garbage,
    secrets: &Secrets,
    trouble: &Trouble,
) -> String {
    let signs = match garbage.seen() {
        None => String::new(),
        Some((1, line)) => {
            format!("; it printed a line on stdout that is no MCP message: {line}")
        }
        Some((count, first)) => {
            let messages = format!("{count} lines on stdout that are no MCP messages");
            format!("; it printed {messages}, the first: {first}")
        }
    };
    match trouble {
        Trouble::Lost(_) => signs + &signs_of_end(child, secrets).await,
        Trouble::Silence(_) | Trouble::Refused(_) => {
            signs + &last_words(&child.stderr_tail().current_lines(), secrets)
        }
    }
}

/// How a program ended that is ending, and what it last said.
async fn signs_of_end(child: &ChildProcess, secrets: &Secrets) -> String {
    let status = tokio::time::timeout(END_WAIT, child.wait()).await.ok().flatten();
    let ended = match status {
        Some(status) => format!("; it ended with {status}"),
        None => "; its process has not ended".to_owned(),
    };
    ended + &last_words(&child.stderr_tail().final_lines().await, secrets)
}

fn last_words(words: &str, secrets: &Secrets) -> String {
    if words.is_empty() {
        return String::new();
    }
    // Only the end of stderr is kept, and a part of it may not have arrived yet.
    format!("; its last words on stderr:\n{}", secrets.removed_from_piece(words))
}
