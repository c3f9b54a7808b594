//! The OTLP exporter, which runs while a host is open.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::SpanExporter as _;
use polity_drivers::EnvSource;
use polity_drivers::http;
use polity_engine::driver::TraceContexts;
use polity_engine::runtime::LiveEvent;
use polity_model::ids::InstanceId;
use polity_store::Store;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot};

use super::settings::{TelemetrySettings, TelemetrySettingsError};
use super::span_builder::SpanBuilder;
use super::span_queue::{SpanDelivery, deliver, span_queue};
use super::trace_contexts::JournalTraceContexts;
use crate::context::HostContext;
use crate::warning::HostWarning;

/// The default service name.
const SERVICE_NAME: &str = "polity";

/// The timeout for the last spans at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Builds and sends spans until it is closed, if the environment names a receiver.
pub(crate) struct TelemetryExport {
    context: HostContext,
    sender: Option<SpanSender>,
}

struct SpanSender {
    /// The receiver's URL without credentials.
    receiver: String,
    stop: oneshot::Sender<()>,
    delivered: oneshot::Receiver<SpanDelivery>,
}

/// An error that disables telemetry.
#[derive(Debug, thiserror::Error)]
enum TelemetryStartError {
    #[error(transparent)]
    TelemetrySettings(#[from] TelemetrySettingsError),
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
    #[error(transparent)]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    #[error(transparent)]
    Store(#[from] polity_store::StoreError),
    #[error("its thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl TelemetryExport {
    /// The trace contexts for calls of this process, if the environment names a receiver.
    pub(crate) fn trace_contexts(
        context: &HostContext,
        store: &Arc<dyn Store>,
        instance: InstanceId,
    ) -> Option<Arc<dyn TraceContexts>> {
        // Settings that are not valid are reported when the export starts.
        let settings = TelemetrySettings::read(context.environment()).ok().flatten();
        settings.map(|_| -> Arc<dyn TraceContexts> {
            Arc::new(JournalTraceContexts::new(store, instance))
        })
    }

    /// Starts the export. An error becomes a warning.
    pub(crate) async fn start(
        context: &HostContext,
        live: broadcast::Receiver<LiveEvent>,
        store: &Arc<dyn Store>,
        instance: InstanceId,
    ) -> Self {
        let started = SpanSender::start(live, store, instance, context.environment()).await;
        let sender = started.unwrap_or_else(|error| {
            context.warn(HostWarning::Telemetry(format!("no spans are sent: {error}")));
            None
        });
        Self { context: context.clone(), sender }
    }

    /// Sends the remaining spans, up to a timeout.
    pub(crate) async fn close(self) {
        let Some(SpanSender { receiver, stop, delivered }) = self.sender else { return };
        // A thread that has ended by itself needs no stop signal.
        let _ = stop.send(());
        let problem = match tokio::time::timeout(FLUSH_TIMEOUT, delivered).await {
            Ok(Ok(SpanDelivery { lost: 0, .. })) => return,
            Ok(Ok(SpanDelivery { lost, reason })) => {
                let reason = reason.unwrap_or_else(|| "it is too slow".to_owned());
                let spans = if lost == 1 { "span was" } else { "spans were" };
                format!("{lost} {spans} not sent to {receiver}: {reason}")
            }
            Ok(Err(_)) => format!("spans were not sent to {receiver}: the sender has ended"),
            Err(_) => format!(
                "{receiver} did not take the last spans within {} seconds",
                FLUSH_TIMEOUT.as_secs()
            ),
        };
        self.context.warn(HostWarning::Telemetry(problem));
    }
}

impl SpanSender {
    async fn start(
        live: broadcast::Receiver<LiveEvent>,
        store: &Arc<dyn Store>,
        instance: InstanceId,
        environment: &EnvSource,
    ) -> Result<Option<Self>, TelemetryStartError> {
        let Some(settings) = TelemetrySettings::read(environment)? else { return Ok(None) };
        let exporter = exporter(&settings, environment)?;
        // A separate thread, so that reading the journal and batching spans do not delay tasks.
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (report, delivered) = oneshot::channel();
        let last = store.last_position().await?;
        let span_builder = SpanBuilder::new(Arc::clone(store), instance, last);
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || {
            let delivery = executor.block_on(send(live, span_builder, &exporter, stopped));
            // After the timeout no one receives the result.
            let _ = report.send(delivery);
        })?;
        Ok(Some(Self { receiver: http::redact_url(&settings.endpoint), stop, delivered }))
    }
}

fn exporter(
    settings: &TelemetrySettings,
    environment: &EnvSource,
) -> Result<opentelemetry_otlp::SpanExporter, TelemetryStartError> {
    let is_secure = settings.endpoint.scheme() == "https";
    let client = http::build_client(is_secure, environment)
        .map_err(|error| TelemetryStartError::Client(error.to_string()))?;
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(settings.endpoint.as_str())
        .build()?;
    let resource = Resource::builder_empty()
        .with_service_name(SERVICE_NAME)
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(
            settings.service_name.clone().map(|name| KeyValue::new("service.name", name)),
        )
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

/// Builds and sends spans until the stop signal, including those of earlier events.
async fn send(
    live: broadcast::Receiver<LiveEvent>,
    span_builder: SpanBuilder,
    exporter: &opentelemetry_otlp::SpanExporter,
    stopped: oneshot::Receiver<()>,
) -> SpanDelivery {
    let (mut span_queue, spans) = span_queue();
    let told = async {
        listen(live, span_builder, stopped, |spans| span_queue.put(spans)).await;
        span_queue.close()
    };
    let (unplaced, mut delivery) = tokio::join!(told, deliver(exporter, spans));
    delivery.lost += unplaced;
    delivery
}

async fn listen(
    mut live: broadcast::Receiver<LiveEvent>,
    mut span_builder: SpanBuilder,
    mut stopped: oneshot::Receiver<()>,
    mut put: impl FnMut(Vec<opentelemetry_sdk::trace::SpanData>),
) {
    loop {
        tokio::select! {
            // Events that have happened come before the stop signal.
            biased;
            news = live.recv() => match news {
                Ok(LiveEvent::Event(recorded)) => put(span_builder.apply(&recorded).await),
                // Streamed model output is not exported.
                Ok(LiveEvent::Text { .. }) => {}
                Err(RecvError::Lagged(_)) => put(span_builder.catch_up().await),
                Err(RecvError::Closed) => return,
            },
            // A dropped sender also ends the loop. Parts that ended with their task had no live event.
            _ = &mut stopped => return put(span_builder.catch_up().await),
        }
    }
}
