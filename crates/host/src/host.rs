//! A process that performs work: runtime, store, drivers, notifications and telemetry together.

use std::sync::Arc;

use polity_definition::Home;
use polity_drivers::mcp::McpTools;
use polity_engine::clock::SystemClock;
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_engine::runtime::{Runtime, RuntimeDeps};
use polity_model::ids::InstanceId;
use polity_store::{DedicatedThread, Lease, LeaseError, Leases, Store};

use crate::context::HostContext;
use crate::drivers::DriverSet;
use crate::error::HostError;
use crate::queries::HomeQueries;
use crate::review_notifier::ReviewNotifier;
use crate::telemetry::TelemetryExport;

/// An open home on which this process performs work. The process is registered as alive until the
/// host is closed or dropped.
pub struct Host {
    runtime: Runtime,
    queries: HomeQueries,
    servers: Option<Arc<McpTools>>,
    telemetry: TelemetryExport,
    notifier: Option<ReviewNotifier>,
    _lease: Arc<dyn Lease>,
}

impl Host {
    /// Opens a host with the real drivers. Must be called within a Tokio runtime.
    pub async fn open(context: &HostContext, home: &Home) -> Result<Self, HostError> {
        Self::open_with(context, home, DriverSet::live(context, home)?).await
    }

    /// Opens a host with the given drivers. Must be called within a Tokio runtime.
    pub async fn open_with(
        context: &HostContext,
        home: &Home,
        drivers: DriverSet,
    ) -> Result<Self, HostError> {
        let store: Arc<dyn Store> = Arc::new(context.open_writer(home)?);
        let leases = context.leases();
        let io = |error: LeaseError| {
            HostError::io("write", &context.folder().instances(), std::io::Error::other(error))
        };
        if let Err(error) = leases.remove_ended().await {
            // Lock files of dead processes do no harm, and another process may be able to remove them.
            tracing::warn!(%error, "cannot remove the leases of ended processes");
        }
        let id = InstanceId::from_random_bytes(SystemEntropy.seed());
        let lease: Arc<dyn Lease> = leases.acquire(id).await.map_err(io)?.into();
        let DriverSet { models, tools, programs, remotes, slots, servers, notifies } = drivers;
        let runtime = Runtime::start(RuntimeDeps {
            store: Arc::clone(&store),
            models,
            tools,
            programs,
            remotes,
            slots,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            leases: Arc::new(leases),
            lease: Arc::clone(&lease),
            // Each command has its own Tokio runtime.
            dedicated_thread: DedicatedThread::claim(),
            limits: home.settings.limits,
            trace_contexts: TelemetryExport::trace_contexts(context, &store, id),
        })
        .await?;
        let telemetry = TelemetryExport::start(context, runtime.subscribe(), &store, id).await;
        let queries = context.queries_on(store);
        let settings = home.settings.on_review.clone();
        let notifier = if notifies {
            ReviewNotifier::start(context, settings, &runtime, &queries)?
        } else {
            None
        };
        Ok(Self { runtime, queries, servers, telemetry, notifier, _lease: lease })
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The tools of the home's MCP servers; none in a replay.
    pub fn tools(&self) -> Option<&Arc<McpTools>> {
        self.servers.as_ref()
    }

    /// Queries on the store that the runtime commits to.
    pub fn queries(&self) -> &HomeQueries {
        &self.queries
    }

    /// Shuts down MCP servers, sends the last spans and delivers outstanding notifications.
    /// Completion of `abort` gives up the notifications.
    pub async fn close(self, abort: impl Future<Output = ()>) {
        let Self { runtime, queries, servers, telemetry, notifier, _lease } = self;
        drop(runtime);
        let shutdown = async {
            if let Some(servers) = servers {
                servers.shutdown().await;
            }
        };
        let notified = async {
            if let Some(notifier) = notifier {
                notifier.close(abort).await;
            }
        };
        tokio::join!(shutdown, telemetry.close(), notified);
        drop(queries);
    }
}
