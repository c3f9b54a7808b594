//! OpenTelemetry traces of the tasks that this process performs, if the environment names a
//! receiver.
//!
//! ```text
//! runtime ──events──> SpanBuilder ──finished spans──> SpanQueue ──batches──> receiver
//! └─ caller's threads ─┘└───────────────────── telemetry thread ────────────────────┘
//! ```
//! Only the end of the process waits for the receiver, with a timeout. The process that resumes an
//! interrupted task sends the spans that were open, because they follow from the journal.

#[cfg(feature = "otel")]
mod convention;
#[cfg(not(feature = "otel"))]
mod disabled;
#[cfg(feature = "otel")]
mod exporter;
#[cfg(feature = "otel")]
mod model_attributes;
#[cfg(feature = "otel")]
mod settings;
#[cfg(feature = "otel")]
mod span;
#[cfg(feature = "otel")]
mod span_builder;
#[cfg(feature = "otel")]
mod span_queue;
#[cfg(feature = "otel")]
mod task_spans;
#[cfg(feature = "otel")]
mod trace_contexts;

#[cfg(not(feature = "otel"))]
pub(crate) use disabled::DisabledTelemetry as TelemetryExport;
#[cfg(feature = "otel")]
pub(crate) use exporter::TelemetryExport;
