//! The state that all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polity_definition::Home;
use polity_host::{Host, HostContext};
use tokio::sync::watch;

use crate::auth::{CallerRates, FailureThrottle, TokenSet};
use crate::http::{AllowedHosts, Problem, RunningKeys};
use crate::operation::definitions::LiveDefinitions;
use crate::operation::event_hub::EventHub;
use crate::operation::metrics::ServerMetrics;
use crate::operation::resource_guard::ResourceGuard;
use crate::operation::simulation_runs::SimulationRuns;

/// An open home with everything that requests need.
pub(crate) struct ServerState {
    pub(crate) context: HostContext,
    pub(crate) host: Host,
    definitions: LiveDefinitions,
    pub(crate) tokens: TokenSet,
    pub(crate) throttle: FailureThrottle,
    pub(crate) rates: CallerRates,
    pub(crate) hosts: AllowedHosts,
    pub(crate) hub: EventHub,
    pub(crate) metrics: ServerMetrics,
    pub(crate) running_keys: RunningKeys,
    pub(crate) resources: ResourceGuard,
    pub(crate) simulations: SimulationRuns,
    is_draining: AtomicBool,
    /// True once event streams end.
    closing: watch::Sender<bool>,
}

impl ServerState {
    pub(crate) fn new(
        context: HostContext,
        host: Host,
        definitions: LiveDefinitions,
        tokens: TokenSet,
        hub: EventHub,
    ) -> Self {
        let settings = definitions.get().settings.server.clone();
        let public_url = settings.public_url.as_ref().map(ToString::to_string);
        let rates = CallerRates::new(settings.rate_limits);
        let resources = ResourceGuard::new(context.folder().data(), &settings);
        Self {
            context,
            host,
            hosts: AllowedHosts::new(public_url.as_deref()),
            definitions,
            tokens,
            throttle: FailureThrottle::default(),
            rates,
            hub,
            metrics: ServerMetrics::default(),
            running_keys: RunningKeys::default(),
            resources,
            simulations: SimulationRuns::default(),
            is_draining: AtomicBool::new(false),
            closing: watch::Sender::new(false),
        }
    }

    /// The definitions, as the files have them.
    pub(crate) fn home(&self) -> Arc<Home> {
        self.definitions.get()
    }

    /// The definitions, after a change that this process has made.
    pub(crate) fn changed_home(&self) -> Arc<Home> {
        self.definitions.get_now()
    }

    /// The definitions as they were read last, without a look at the files.
    pub(crate) fn loaded_home(&self) -> Arc<Home> {
        self.definitions.loaded()
    }

    /// The reason why the definitions in the files are not used.
    pub(crate) fn definition_failure(&self) -> Option<String> {
        self.definitions.failure()
    }

    /// Refuses new work from now on.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.host.runtime().drain();
        self.simulations.close();
    }

    /// True once new work is refused.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Ends the streams of events.
    pub(crate) fn close_streams(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until the streams of events end.
    pub(crate) async fn streams_closed(&self) {
        // The sender lives as long as the state.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Refuses work while the server shuts down, or if disk or memory are short.
    pub(crate) fn expect_open(&self) -> Result<(), Problem> {
        if self.is_draining() {
            return Err(Problem::unavailable("draining", "the server is shutting down")
                .hint("nothing was started; try again when it is back"));
        }
        match self.resources.shortage() {
            Some(shortage) => Err(shortage.problem()),
            None => Ok(()),
        }
    }
}
