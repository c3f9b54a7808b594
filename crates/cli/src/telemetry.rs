//! Traces for OpenTelemetry: the journal of the tasks that this process performs, told as spans
//! and sent to a receiver. Only where the environment names one; else nothing is started.
//!
//! ```text
//! runtime ──events──> teller ──spans that have ended──> outbox ──batches──> receiver
//! └─ the process's own ─┘└────────────── a thread of its own ─────────────┘
//! ```
//! Nothing waits for the receiver but the end of the process, and that not for long. What is open
//! when the process ends is told by whoever goes on with the task, for the journal still has it.

#[cfg(feature = "otel")]
mod convention;
#[cfg(feature = "otel")]
mod model;
#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod on;
#[cfg(feature = "otel")]
mod outbox;
#[cfg(feature = "otel")]
mod settings;
#[cfg(feature = "otel")]
mod span;
#[cfg(feature = "otel")]
mod task;
#[cfg(feature = "otel")]
mod teller;

#[cfg(not(feature = "otel"))]
pub(crate) use off::Telemetry;
#[cfg(feature = "otel")]
pub(crate) use on::Telemetry;
