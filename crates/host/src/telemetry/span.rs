//! Span ids and span data.
//!
//! Every id follows from the journal, so a process that resumes a task continues the same spans and
//! only needs to know which are open.

use std::sync::LazyLock;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use polity_model::event::StreamSequence;
use polity_model::ids::TaskId;
use sha2::{Digest, Sha256};

use super::convention;

/// The operation of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanOperation {
    /// A period of work on a task in this process.
    InvokeAgent,
    /// A period of work on a task that an agent on another server performs.
    InvokeRemoteAgent,
    /// A period of work on the task of a workflow.
    InvokeWorkflow,
    /// A call to a model.
    Chat,
    /// An attempt to call a tool.
    ExecuteTool,
}

impl SpanOperation {
    /// The operation as the conventions spell it.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::InvokeAgent | Self::InvokeRemoteAgent => "invoke_agent",
            Self::InvokeWorkflow => "invoke_workflow",
            Self::Chat => "chat",
            Self::ExecuteTool => "execute_tool",
        }
    }

    fn kind(self) -> SpanKind {
        match self {
            Self::Chat | Self::InvokeRemoteAgent => SpanKind::Client,
            Self::InvokeAgent | Self::InvokeWorkflow | Self::ExecuteTool => SpanKind::Internal,
        }
    }
}

/// The trace of a task at the top.
pub(super) fn trace_id(root: TaskId) -> TraceId {
    TraceId::from_bytes(*root.as_bytes())
}

/// The id of the span that begins with this event.
pub(super) fn span_id(operation: SpanOperation, task: TaskId, sequence: StreamSequence) -> SpanId {
    let digest = Sha256::new()
        .chain_update(task.as_bytes())
        .chain_update(operation.label())
        .chain_update(sequence.0.to_be_bytes())
        .finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    SpanId::from_bytes(id)
}

/// The `traceparent` of a span, as W3C Trace Context defines it: every span here is sampled.
pub(super) fn traceparent(trace: TraceId, span: SpanId) -> String {
    format!("00-{trace}-{span}-01")
}

/// An open span.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenSpan {
    pub(super) operation: SpanOperation,
    pub(super) id: SpanId,
    pub(super) parent: SpanId,
    pub(super) since: Timestamp,
}

impl OpenSpan {
    /// The id of the span that begins with this event.
    pub(super) fn new(
        operation: SpanOperation,
        task: TaskId,
        sequence: StreamSequence,
        parent: SpanId,
        since: Timestamp,
    ) -> Self {
        Self { operation, id: span_id(operation, task, sequence), parent, since }
    }

    /// Ends the span. An error is exported only as its type, because messages may hold private data.
    pub(super) fn end(
        self,
        trace: TraceId,
        subject: Option<&str>,
        until: Timestamp,
        mut attributes: Vec<KeyValue>,
        error: Option<&'static str>,
    ) -> SpanData {
        static SCOPE: LazyLock<InstrumentationScope> = LazyLock::new(|| {
            InstrumentationScope::builder("polity").with_version(env!("CARGO_PKG_VERSION")).build()
        });
        let label = self.operation.label();
        attributes.push(KeyValue::new(convention::OPERATION_NAME, label));
        attributes.extend(error.map(|error| KeyValue::new(convention::ERROR_TYPE, error)));
        let state = TraceState::default();
        SpanData {
            span_context: SpanContext::new(trace, self.id, TraceFlags::SAMPLED, false, state),
            parent_span_id: self.parent,
            parent_span_is_remote: false,
            span_kind: self.operation.kind(),
            name: subject.map_or(label.into(), |subject| format!("{label} {subject}").into()),
            start_time: SystemTime::from(self.since),
            // A clock may be set back between two events.
            end_time: SystemTime::from(until.max(self.since)),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: error.map_or(Status::Unset, Status::error),
            instrumentation_scope: SCOPE.clone(),
        }
    }
}
