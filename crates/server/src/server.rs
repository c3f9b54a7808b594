//! A server: opens a home, serves it, and stops gracefully.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use polity_host::{Host, HostContext};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::api;
use crate::auth::{
    LOCAL_GRANT, TOKEN_CHARACTERS_MIN, TokenFile, TokenGrant, TokenSet, make_local_token,
    random_secret,
};
use crate::error::ServeError;
use crate::listener::{self, tls_acceptor};
use crate::operation::adoption::adopt_orphans;
use crate::operation::definitions::LiveDefinitions;
use crate::operation::event_hub::EventHub;
use crate::operation::retention::apply_retention;
use crate::operation::scheduling::run_schedules;
use crate::operation::server_lock::ServerLock;
use crate::operation::service_manager::{ServiceNotifier, passed_listener};
use crate::operation::task_times::record_task_times;
use crate::state::ServerState;
use crate::webhooks::{WebhookDelivery, open_webhooks};

/// The variable with a token for servers in containers.
const TOKEN_VARIABLE: &str = "POLITY_SERVER_TOKEN";

/// The time between two looks at the running tasks during a shutdown.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// The time that open connections have to end after the tasks.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Options of a server that override the settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerOptions {
    /// The address to listen on.
    pub listen: Option<SocketAddr>,
}

/// A server that listens.
pub struct Server {
    state: Arc<ServerState>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    webhooks: Vec<WebhookDelivery>,
    lock: ServerLock,
    url: String,
    drain_time: Duration,
}

impl Server {
    /// Opens a home and starts to listen. Must be called within a Tokio runtime.
    pub async fn open(context: &HostContext, options: ServerOptions) -> Result<Self, ServeError> {
        let (home, version) = context.definitions_and_version()?;
        let settings = home.settings.server.clone();
        let data = context.folder().data();
        let lock = ServerLock::acquire(&data)?;
        let passed = passed_listener(context.environment()).map_err(ServeError::PassedSocket)?;
        let configured = options.listen.unwrap_or(settings.listen);
        let address = passed.as_ref().and_then(|one| one.local_addr().ok()).unwrap_or(configured);
        let tokens = open_tokens(context, &settings, address)?;
        let tls = settings.tls.as_ref();
        let tls = tls.map(|tls| tls_acceptor(context.folder().root(), tls)).transpose()?;
        if tls.is_none() && !address.ip().is_loopback() {
            tracing::warn!("tokens travel unencrypted, unless a proxy adds TLS");
        }
        let listener = match passed {
            Some(passed) => TcpListener::from_std(passed),
            None => TcpListener::bind(address).await,
        };
        let listener = listener.map_err(|source| ServeError::Bind { address, source })?;
        let bound = listener.local_addr().unwrap_or(address);
        let host = Host::open(context, &home).await?;
        let store = Arc::clone(host.queries().store());
        let hub = EventHub::start(store).await.map_err(polity_host::HostError::from)?;
        let newest = host.queries().store().last_position().await;
        let newest = newest.map_err(polity_host::HostError::from)?;
        let webhooks =
            open_webhooks(&home.settings.webhooks, context.environment(), &data, newest)?;
        let definitions = LiveDefinitions::new(context.clone(), home, version);
        let state = ServerState::new(context.clone(), host, definitions, tokens, hub);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{bound}");
        lock.publish(&url)?;
        let drain_time = Duration::from_secs(settings.drain_seconds.into());
        Ok(Self { state: Arc::new(state), listener, tls, webhooks, lock, url, drain_time })
    }

    /// The URL at which the server answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves until `stop` completes, then lets running tasks end within `server.drain_seconds`.
    /// Tasks that are still running are resumed at the next start. Completion of `abort` ends the
    /// shutdown at once.
    pub async fn run(self, stop: impl Future<Output = ()>, abort: impl Future<Output = ()>) {
        let Self { state, listener, tls, webhooks, lock, drain_time, url } = self;
        let manager = Arc::new(ServiceNotifier::new(state.context.environment()));
        let mut background = JoinSet::new();
        background.spawn(record_task_times(Arc::downgrade(&state)));
        let (watched, watching) = (Arc::downgrade(&state), Arc::clone(&manager));
        let watchdog = tokio::spawn(async move { watching.watch(watched).await });
        background.spawn(adopt_orphans(Arc::downgrade(&state)));
        background.spawn(apply_retention(Arc::downgrade(&state)));
        for webhook in webhooks {
            background.spawn(webhook.run(Arc::downgrade(&state)));
        }
        background.spawn(run_schedules(Arc::downgrade(&state)));
        let (closing, closed) = watch::channel(false);
        let serving = tokio::spawn(listener::serve(listener, tls, api::router(&state), closed));
        manager.ready(&url);
        stop.await;
        tracing::info!("stopping: no new work is taken");
        manager.stopping();
        state.drain();
        tokio::pin!(abort);
        let is_aborted = tokio::select! {
            () = drained(&state, drain_time) => false,
            () = &mut abort => true,
        };
        background.shutdown().await;
        watchdog.abort();
        state.close_streams();
        // Receivers are gone only if the listener has ended by itself.
        let _ = closing.send(true);
        if let Ok(mut connections) = serving.await {
            let ended = async { while connections.join_next().await.is_some() {} };
            if tokio::time::timeout(CLOSE_TIME, ended).await.is_err() {
                connections.shutdown().await;
            }
        }
        state.host.runtime().stop_programs().await;
        if let Some(state) = Arc::into_inner(state) {
            let abort = async {
                if !is_aborted {
                    abort.await;
                }
            };
            state.host.close(abort).await;
        } else {
            tracing::warn!("a request is still being handled");
        }
        drop(lock);
    }
}

/// Waits until no task runs, or for the given time.
async fn drained(state: &ServerState, time: Duration) {
    let deadline = Instant::now() + time;
    let is_idle = || state.host.runtime().is_idle() && state.simulations.is_idle();
    while !is_idle() && Instant::now() < deadline {
        tokio::time::sleep(DRAIN_INTERVAL).await;
    }
}

/// The tokens that the server accepts. Refuses an address that others can reach without any.
fn open_tokens(
    context: &HostContext,
    settings: &polity_definition::ServerSettings,
    address: SocketAddr,
) -> Result<TokenSet, ServeError> {
    let data = context.folder().data();
    let mut fixed = Vec::new();
    if let Some(token) = context.environment().get(TOKEN_VARIABLE) {
        if token.chars().count() < TOKEN_CHARACTERS_MIN {
            return Err(ServeError::WeakToken { least: TOKEN_CHARACTERS_MIN });
        }
        fixed.push(TokenGrant::of_all("environment", &token));
    }
    let has_variable = !fixed.is_empty();
    if address.ip().is_loopback() && settings.local_token {
        let token = make_local_token(&data, random_secret())?;
        fixed.push(TokenGrant::of_all(LOCAL_GRANT, &token));
    }
    let configured = settings.tokens_file.as_ref().map(ToString::to_string);
    let file = TokenFile::of(context.folder().root(), &data, configured.as_deref());
    let tokens = TokenSet::open(file, fixed)?;
    if !address.ip().is_loopback() && !has_variable && tokens.is_empty() {
        return Err(ServeError::NoTokens { address });
    }
    Ok(tokens)
}
