//! The state that all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polity_definition::Home;
use polity_host::{Host, HostContext};

use crate::auth::{CallerRates, FailureThrottle, TokenSet};
use crate::http::{AllowedHosts, Problem, RunningKeys};
use crate::operation::definitions::LiveDefinitions;
use crate::operation::event_hub::EventHub;
use crate::operation::metrics::ServerMetrics;

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
    is_draining: AtomicBool,
}

impl ServerState {
    pub(crate) fn new(
        context: HostContext,
        host: Host,
        definitions: LiveDefinitions,
        tokens: TokenSet,
        hub: EventHub,
    ) -> Self {
        let public_url =
            definitions.get().settings.server.public_url.as_ref().map(ToString::to_string);
        let rates = CallerRates::new(definitions.get().settings.server.rate_limits);
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
            is_draining: AtomicBool::new(false),
        }
    }

    /// The definitions, as the files have them.
    pub(crate) fn home(&self) -> Arc<Home> {
        self.definitions.get()
    }

    /// The reason why the definitions in the files are not used.
    pub(crate) fn definition_failure(&self) -> Option<String> {
        self.definitions.failure()
    }

    /// Refuses new work from now on.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.host.runtime().drain();
    }

    /// True once new work is refused.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Refuses work while the server shuts down.
    pub(crate) fn expect_open(&self) -> Result<(), Problem> {
        if self.is_draining() {
            return Err(Problem::unavailable("draining", "the server is shutting down")
                .hint("nothing was started; try again when it is back"));
        }
        Ok(())
    }
}
