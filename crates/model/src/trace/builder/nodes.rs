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
    inherited: Option<(ToolCallRecord, String)>,
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
    ) -> Option<ToolCallRecord> {
        let Some(node) = self.calls.remove(&id) else {
            if self.is_workflow {
                self.inherited = Some((record, content.to_owned()));
                return None;
            }
            return Some(record);
        };
        self.answered.insert(node, (record, content.to_owned()));
        None
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
                if let Some(answered) = self.nodes.inherited.take() {
                    self.nodes.answered.entry(node.clone()).or_insert(answered);
                }
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
