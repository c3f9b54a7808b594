//! The nodes of a workflow, for the trace: one named step each.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{TraceBuilder, elapsed_ms};
use crate::event::{NodeChange, NodeOutput, PinKind, TaskCreated};
use crate::ids::ToolCallId;
use crate::name::Name;
use crate::trace::{STEP_MESSAGE_CHARACTERS_MAX, StepStatus, ToolCallRecord, shorten};
use crate::value::json_text;

/// The nodes that have started.
#[derive(Debug, Clone, Default)]
pub(super) struct TracedNodes {
    /// The node of each call.
    calls: BTreeMap<ToolCallId, Name>,
    /// The start of each node.
    began: BTreeMap<Name, Timestamp>,
    /// The answered call of each node, until the node itself ends.
    answered: BTreeMap<Name, (ToolCallRecord, String)>,
    /// True if a workflow performs the task.
    is_workflow: bool,
    /// The answer to a call that a retry has inherited. The end of its node follows.
    inherited: Option<InheritedAnswer>,
}

/// The answer to a call of a node that started in the task that a retry continues.
#[derive(Debug, Clone)]
struct InheritedAnswer {
    record: ToolCallRecord,
    content: String,
    /// The start of the call in this task.
    began: Option<Timestamp>,
}

impl TracedNodes {
    /// No nodes yet.
    pub(super) fn new(created: &TaskCreated) -> Self {
        let is_workflow = created
            .pins
            .iter()
            .any(|pin| pin.kind == PinKind::Workflow && pin.name == created.assigned_agent);
        Self { is_workflow, ..Self::default() }
    }

    /// Stores the answer to a node's call for the node's step. Returns the record if the call
    /// belongs to no node.
    pub(super) fn keep(
        &mut self,
        id: ToolCallId,
        record: ToolCallRecord,
        content: &str,
        began: Option<Timestamp>,
    ) -> Option<ToolCallRecord> {
        let Some(node) = self.calls.remove(&id) else {
            if self.is_workflow {
                self.inherited =
                    Some(InheritedAnswer { record, content: content.to_owned(), began });
                return None;
            }
            return Some(record);
        };
        self.answered.insert(node, (record, content.to_owned()));
        None
    }

    /// Gives the inherited answer to the node that ends with it.
    fn take_inherited(&mut self, node: &Name) {
        let Some(InheritedAnswer { record, content, began }) = self.inherited.take() else {
            return;
        };
        self.answered.entry(node.clone()).or_insert((record, content));
        if let Some(began) = began {
            self.began.entry(node.clone()).or_insert(began);
        }
    }

    /// Marks a node as waiting for a person.
    pub(super) fn asks(&mut self, node: &Name, at: Timestamp) {
        self.began.insert(node.clone(), at);
    }
}

impl TraceBuilder {
    pub(super) fn apply_node(&mut self, at: Timestamp, node: &Name, change: &NodeChange) {
        let (status, message) = match change {
            NodeChange::Start { call, map } => {
                self.nodes.began.insert(node.clone(), at);
                if let Some(map) = map {
                    self.maps.begin(node, map, at);
                }
                if let Some(call) = call {
                    self.nodes.calls.insert(call.id, node.clone());
                    self.calls.add(call);
                }
                return;
            }
            NodeChange::StartItem { item, call } => return self.start_item(node, *item, call),
            NodeChange::FinishItems { first, outputs } => {
                return self.finish_items(at, node, *first, outputs);
            }
            NodeChange::FailItem { item, code, error } => {
                return self.fail_item(at, node, *item, *code, error);
            }
            NodeChange::Finish { output, routing_key, .. } => {
                let items = self.maps.end(node);
                self.nodes.take_inherited(node);
                let output = match output {
                    NodeOutput::Items => Cow::from(items.unwrap_or_default()),
                    NodeOutput::Text(text) => Cow::from(text),
                    NodeOutput::Json(value) => json_text(value),
                    NodeOutput::Answer => {
                        let answered = self.nodes.answered.get(node);
                        Cow::from(answered.map_or("", |(_, content)| content.as_str()))
                    }
                };
                let routed = routing_key.as_ref().filter(|key| **key != output);
                let routed = routed.map(|key| format!("{key}: ")).unwrap_or_default();
                let message = format!("{routed}{output}");
                (StepStatus::Info, shorten(&message, STEP_MESSAGE_CHARACTERS_MAX))
            }
            NodeChange::Fail { code, error, to, .. } => {
                self.nodes.take_inherited(node);
                let items = self.maps.end(node).map(|items| format!(" (items: {items})"));
                let items = items.unwrap_or_default();
                match to {
                    Some(to) => {
                        (StepStatus::Warning, format!("{code}: {error}{items}; goes on with {to}"))
                    }
                    None => (StepStatus::Error, format!("{code}: {error}{items}")),
                }
            }
            NodeChange::Drop => {
                self.maps.end(node);
                (StepStatus::Warning, "dropped: another branch finished first".to_owned())
            }
        };
        let began = self.nodes.began.remove(node);
        let answered = self.nodes.answered.remove(node);
        self.step(at, node.as_str(), status, message);
        let Some(step) = self.trace.steps.last_mut() else { return };
        step.node = Some(node.clone());
        step.duration_ms = began.map_or(0, |began| elapsed_ms(began, at));
        if let Some((record, _)) = answered {
            step.name_agent(&record);
            step.tool_calls.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use serde_json::{Value, json};

    use super::*;
    use crate::event::{JournalPosition, RecordedEvent, StreamId, StreamSequence};
    use crate::ids::TaskId;

    /// Events of a task, each at a number of milliseconds.
    fn builder(events: &[(i64, Value)]) -> TraceBuilder {
        let task = TaskId::from_random_bytes([1; 16]);
        let mut events = events.iter().map(|(milliseconds, event)| RecordedEvent {
            position: JournalPosition(1),
            stream: StreamId::Task(task),
            sequence: StreamSequence(1),
            at: Timestamp::UNIX_EPOCH + milliseconds.milliseconds(),
            event: serde_json::from_value(event.clone()).unwrap(),
        });
        let mut builder = TraceBuilder::begin(task, &events.next().unwrap()).unwrap();
        events.for_each(|event| builder.apply(&event));
        builder
    }

    #[test]
    fn node_that_a_retry_continued_has_the_duration_of_its_call() {
        let call_id = ToolCallId::from_random_bytes([2; 16]);
        let changed =
            |change: Value| json!({"type": "tool_changed", "call_id": call_id, "change": change});
        let called = changed(json!({"on": "call", "tool": "kit/echo", "repeatable": true}));
        let failure = json!({"category": "transient", "message": "lost"});
        let failed = changed(json!({
            "on": "fail", "failure": failure, "duration_ms": 10, "retry_at": "1970-01-01T00:00:00.2Z",
        }));
        for (is_error, end) in [
            (false, json!({"on": "finish", "output": "answer"})),
            (true, json!({"on": "fail", "code": "tool_failed", "error": "no"})),
        ] {
            let answered = changed(json!({
                "on": "answer", "content": "said", "duration_ms": 300, "is_error": is_error,
            }));
            let builder = builder(&[
                (
                    0,
                    json!({
                        "type": "task_created", "description": "x", "assigned_agent": "flow",
                        "pins": [{"kind": "workflow", "name": "flow", "digest": "0".repeat(64)}],
                    }),
                ),
                (100, called.clone()),
                (110, failed.clone()),
                (200, called.clone()),
                (500, answered),
                (500, json!({"type": "node_changed", "node": "each", "change": end})),
            ]);
            let step = builder.finish().steps.pop().unwrap();
            assert_eq!((step.duration_ms, step.tool_calls.len()), (400, 1), "{step:?}");
        }
    }
}
