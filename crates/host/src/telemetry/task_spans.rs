//! Builds the spans of one task from its events.

use std::collections::BTreeMap;

use jiff::Timestamp;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SpanData;
use polity_engine::driver::TracedStepKind;
use polity_model::event::{
    Event, ExecutionChange, NodeChange, RecordedEvent, StreamSequence, ToolChange,
};
use polity_model::failure::ErrorCode;
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::name::Name;
use polity_model::tool::ToolName;
use polity_model::usage::Usage;

use super::convention;
use super::model_attributes::{AssigneeAttributes, ModelAttributes};
use super::span::{OpenSpan, SpanOperation};

/// The trace and parent span of a task's spans.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanOrigin {
    /// The trace of the task at the top.
    pub(super) trace: TraceId,
    /// The span that opened the task, or an invalid id.
    pub(super) parent: SpanId,
}

/// The open spans of a task.
#[derive(Debug)]
pub(super) struct TaskSpans {
    id: TaskId,
    origin: SpanOrigin,
    agent: Name,
    assignee: AssigneeAttributes,
    /// The newest event that was applied.
    seen: StreamSequence,
    work_period: Option<WorkPeriod>,
    chat: Option<OpenSpan>,
    calls: BTreeMap<ToolCallId, (OpenSpan, ToolName)>,
    /// The node of each call of a workflow.
    nodes: BTreeMap<ToolCallId, Name>,
}

/// The work on a task from its claim until it ends, awaits a review or is released. A crash does not
/// end it: the next owner continues it.
#[derive(Debug)]
struct WorkPeriod {
    span: OpenSpan,
    usage: Usage,
}

/// The end of a work period.
#[derive(Debug, Clone, Copy)]
struct WorkOutcome {
    status: &'static str,
    error: Option<ErrorCode>,
}

impl TaskSpans {
    /// A task without applied events.
    pub(super) fn new(
        id: TaskId,
        origin: SpanOrigin,
        agent: Name,
        assignee: AssigneeAttributes,
    ) -> Self {
        let seen = StreamSequence::default();
        let (calls, nodes) = (BTreeMap::new(), BTreeMap::new());
        Self { id, origin, agent, assignee, seen, work_period: None, chat: None, calls, nodes }
    }

    /// The trace and span of a step under way.
    pub(super) fn context_of(&self, step: TracedStepKind) -> Option<(TraceId, SpanId)> {
        let span = match step {
            TracedStepKind::Work => self.work_period.as_ref().map(|period| period.span),
            TracedStepKind::ModelCall => self.chat,
            TracedStepKind::ToolCall(id) => self.calls.get(&id).map(|(span, _)| *span),
        };
        span.map(|span| (self.origin.trace, span.id))
    }

    /// The newest event that was applied.
    pub(super) fn seen(&self) -> StreamSequence {
        self.seen
    }

    /// True during a work period.
    pub(super) fn is_open(&self) -> bool {
        self.work_period.is_some()
    }

    /// The origin of the spans of a part that a running call has opened.
    pub(super) fn origin_below(&self, call: ToolCallId) -> Option<SpanOrigin> {
        let (span, _) = self.calls.get(&call)?;
        Some(SpanOrigin { trace: self.origin.trace, parent: span.id })
    }

    /// Applies the task's next event and appends the spans that end with it.
    pub(super) fn apply(&mut self, recorded: &RecordedEvent, ended: &mut Vec<SpanData>) {
        self.seen = recorded.sequence;
        let at = recorded.at;
        match &recorded.event {
            Event::TaskCreated(_) | Event::TaskClaimed { .. } => self.begin(recorded),
            Event::TaskResumed => {
                self.end_chat(at, Vec::new(), Some(convention::INTERRUPTED), ended);
            }
            Event::ModelCalled { .. } => {
                self.chat = Some(self.open(SpanOperation::Chat, recorded));
            }
            Event::ModelAnswered { message, usage, is_cut, withheld, .. } => {
                self.add_usage(usage);
                let reason = match (withheld, is_cut, message.tool_calls().is_empty()) {
                    (Some(_), _, _) => "content_filter",
                    (None, true, _) => "length",
                    (None, false, true) => "stop",
                    (None, false, false) => "tool_call",
                };
                let reasons = Value::Array(Array::String(vec![StringValue::from(reason)]));
                let mut attributes = usage_attributes(usage);
                attributes.push(KeyValue::new(convention::FINISH_REASONS, reasons));
                self.end_chat(at, attributes, None, ended);
            }
            Event::ModelFailed { failure, of_tools, usage, .. } => {
                self.add_usage(usage);
                // The journaled call ended before it reached the model.
                let error = if *of_tools {
                    ErrorCode::ToolsUnavailable.label()
                } else {
                    failure.category.label()
                };
                let attributes = if usage.is_zero() { Vec::new() } else { usage_attributes(usage) };
                self.end_chat(at, attributes, Some(error), ended);
            }
            Event::ToolChanged { call_id, change } => {
                self.apply_to_call(*call_id, change, recorded, ended);
            }
            Event::ExecutionChanged { change: ExecutionChange::Report { usage, .. }, .. } => {
                self.add_usage(usage);
            }
            Event::NodeChanged { node, change } => self.apply_to_node(node, change),
            Event::ReviewOpened { .. } | Event::TaskPaused => {
                self.end(at, WorkOutcome { status: "awaiting_human", error: None }, ended);
            }
            Event::TaskReleased => {
                self.end(at, WorkOutcome { status: "released", error: None }, ended);
            }
            Event::TaskCompleted { .. } => {
                self.finish(recorded, WorkOutcome { status: "completed", error: None }, ended);
            }
            Event::TaskFailed { code, .. } => {
                self.finish(recorded, WorkOutcome { status: "failed", error: Some(*code) }, ended);
            }
            Event::TaskCancelled => {
                self.finish(recorded, WorkOutcome { status: "cancelled", error: None }, ended);
            }
            // These events neither start nor end an operation.
            Event::TaskStarted
            | Event::RunShared { .. }
            | Event::CancelRequested
            | Event::CompensationStarted { .. }
            | Event::CompensationFailed { .. }
            | Event::TaskImported
            | Event::TaskTrusted { .. }
            | Event::ExecutionChanged { .. }
            | Event::HistoryShortened { .. }
            | Event::StateSet { .. }
            | Event::ReviewAnswered { .. }
            | Event::MessageAdded { .. }
            | Event::CheckpointTaken { .. }
            | Event::AgentEnabled
            | Event::AgentDisabled { .. }
            | Event::ScheduleChanged { .. } => {}
        }
    }

    fn add_usage(&mut self, usage: &Usage) {
        if let Some(work_period) = &mut self.work_period {
            work_period.usage += *usage;
        }
    }

    /// A node is a span only through its call.
    fn apply_to_node(&mut self, node: &Name, change: &NodeChange) {
        match change {
            NodeChange::Start { call: Some(call), .. } | NodeChange::StartItem { call, .. } => {
                self.nodes.insert(call.id, node.clone());
            }
            NodeChange::Start { call: None, .. }
            | NodeChange::FinishItems { .. }
            | NodeChange::FailItem { .. }
            | NodeChange::Finish { .. }
            | NodeChange::Fail { .. }
            | NodeChange::Drop => {}
        }
    }

    fn apply_to_call(
        &mut self,
        id: ToolCallId,
        change: &ToolChange,
        recorded: &RecordedEvent,
        ended: &mut Vec<SpanData>,
    ) {
        let at = recorded.at;
        match change {
            // No call runs during a review.
            ToolChange::Hold { .. } => {}
            ToolChange::Call { tool, .. } => {
                // After a crash, a second call may start without an answer to the first.
                self.end_call(id, at, Some(convention::INTERRUPTED), ended);
                let span = self.open(SpanOperation::ExecuteTool, recorded);
                self.calls.insert(id, (span, tool.clone()));
            }
            ToolChange::Fail { failure, .. } => {
                self.end_call(id, at, Some(failure.category.label()), ended);
            }
            ToolChange::Wait => self.end_call(id, at, None, ended),
            ToolChange::Doubt => self.end_call(id, at, Some(convention::IN_DOUBT), ended),
            ToolChange::Answer { is_error, .. } => {
                self.end_call(id, at, is_error.then_some(convention::TOOL_ERROR), ended);
                self.nodes.remove(&id);
            }
        }
    }

    /// Starts a work period, unless that of a dead process is still open.
    fn begin(&mut self, recorded: &RecordedEvent) {
        if self.work_period.is_none() {
            let (id, parent) = (self.id, self.origin.parent);
            let operation = self.assignee.operation();
            let span = OpenSpan::new(operation, id, recorded.sequence, parent, recorded.at);
            self.work_period = Some(WorkPeriod { span, usage: Usage::default() });
        }
    }

    fn open(&self, operation: SpanOperation, recorded: &RecordedEvent) -> OpenSpan {
        OpenSpan::new(operation, self.id, recorded.sequence, self.within(), recorded.at)
    }

    /// The parent of new spans.
    fn within(&self) -> SpanId {
        self.work_period.as_ref().map_or(self.origin.parent, |work_period| work_period.span.id)
    }

    /// The task is over, and so is all that was under way. A task that waited has no work period:
    /// its end gets one of its own.
    fn finish(
        &mut self,
        recorded: &RecordedEvent,
        outcome: WorkOutcome,
        ended: &mut Vec<SpanData>,
    ) {
        let at = recorded.at;
        self.begin(recorded);
        let error = outcome.error.map_or(outcome.status, ErrorCode::label);
        self.end_chat(at, Vec::new(), Some(error), ended);
        let under_way: Vec<_> = self.calls.keys().copied().collect();
        for id in under_way {
            self.end_call(id, at, Some(error), ended);
        }
        self.end(at, outcome, ended);
    }

    /// No one works on the task any more.
    fn end(&mut self, at: Timestamp, outcome: WorkOutcome, ended: &mut Vec<SpanData>) {
        let Some(WorkPeriod { span, usage }) = self.work_period.take() else { return };
        let mut attributes = self.attributes();
        // The spans of its parts have the usage of a workflow.
        if !matches!(self.assignee, AssigneeAttributes::Workflow) {
            attributes.extend(usage_attributes(&usage));
        }
        attributes.push(KeyValue::new(convention::TASK_STATUS, outcome.status));
        let (trace, error) = (self.origin.trace, outcome.error.map(ErrorCode::label));
        ended.push(span.end(trace, Some(self.agent.as_str()), at, attributes, error));
    }

    fn end_chat(
        &mut self,
        at: Timestamp,
        mut attributes: Vec<KeyValue>,
        error: Option<&'static str>,
        ended: &mut Vec<SpanData>,
    ) {
        let Some(span) = self.chat.take() else { return };
        attributes.extend(self.attributes());
        let model = self.assignee.model();
        attributes.extend(model.into_iter().flat_map(ModelAttributes::call_attributes));
        let name = model.and_then(|model| model.name.as_deref());
        ended.push(span.end(self.origin.trace, name, at, attributes, error));
    }

    fn end_call(
        &mut self,
        id: ToolCallId,
        at: Timestamp,
        error: Option<&'static str>,
        ended: &mut Vec<SpanData>,
    ) {
        let Some((span, tool)) = self.calls.remove(&id) else { return };
        let mut attributes = vec![
            KeyValue::new(self.assignee.name_attribute(), self.agent.to_string()),
            KeyValue::new(convention::CONVERSATION_ID, self.id.to_string()),
            KeyValue::new(convention::TOOL_NAME, tool.to_string()),
            KeyValue::new(convention::TOOL_CALL_ID, id.to_string()),
            KeyValue::new(convention::TOOL_TYPE, convention::TOOL_TYPE_FUNCTION),
        ];
        let node = self.nodes.get(&id);
        attributes
            .extend(node.map(|node| KeyValue::new(convention::WORKFLOW_NODE, node.to_string())));
        ended.push(span.end(self.origin.trace, Some(tool.as_str()), at, attributes, error));
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![
            KeyValue::new(self.assignee.name_attribute(), self.agent.to_string()),
            KeyValue::new(convention::CONVERSATION_ID, self.id.to_string()),
        ];
        attributes.extend(self.assignee.attributes());
        attributes
    }
}

/// The token counts; none if a call did not report them, because an attribute is a fact.
fn usage_attributes(usage: &Usage) -> Vec<KeyValue> {
    if usage.tokens_unknown {
        return Vec::new();
    }
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    vec![
        KeyValue::new(convention::INPUT_TOKENS, count(usage.input_tokens)),
        KeyValue::new(convention::OUTPUT_TOKENS, count(usage.output_tokens)),
    ]
}
