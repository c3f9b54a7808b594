//! The transports of MCP connections: stdio, server-sent events and streamable HTTP.

mod event_stream;
mod http_error;
mod json_repair;
mod loss_reason;
mod message_limit;
mod probe;
mod sse;
mod stdio;
mod streamable_http;
mod trace_header;

pub(super) use http_error::{StreamableError, error_chain};
#[cfg(feature = "fuzz")]
pub(crate) use json_repair::parse_message;
pub(super) use loss_reason::LossReason;
pub(super) use message_limit::MessageLimit;
pub(super) use probe::{LateProbeAnswer, PROBE_TIMEOUT, ProbedTransport, SentFlag};
pub(super) use sse::{SseTransport, SseTransportError};
pub(super) use stdio::{StdioTransport, StdoutNoise};
pub(super) use streamable_http::StreamableClient;
