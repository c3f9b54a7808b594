//! The transports of MCP connections: stdio, server-sent events and streamable HTTP.

mod http_error;
mod json_repair;
mod probe;
mod sse;
mod stdio;
mod streamable_http;

pub(super) use http_error::{StreamableError, error_chain};
#[cfg(feature = "fuzz")]
pub(crate) use json_repair::parse_message;
pub(super) use probe::{LateProbeAnswer, PROBE_TIMEOUT, ProbedTransport, SentFlag};
pub(super) use sse::{SseTransport, SseTransportError};
pub(super) use stdio::{StdioTransport, StdoutNoise};
pub(super) use streamable_http::StreamableClient;
