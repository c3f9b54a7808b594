//! The nodes of a workflow, for the trace: one named step each.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{TraceBuilder, elapsed_ms};
use crate::event::{NodeChange, NodeOutput};
use crate::ids::ToolCallId;
use crate::name::Name;
use crate::trace::{STEP_MESSAGE_CHARACTERS_MAX, StepStatus, ToolCallRecord, shorten};

/// The nodes that have started.
#[derive(Debug, Clone, Default)]
pub(super) struct TracedNodes {
    /// The node of each call.
    calls: BTreeMap<ToolCallId, Name>,
    /// The start of each node.
    began: BTreeMap<Name, Timestamp>,
    /// The answered call of each node, until the node itself ends.
    answered: BTreeMap<Name, (ToolCallRecord, String)>,
}

impl TracedNodes {
    /// Stores the answer to a node's call for the node's step. Returns the record if the call
    /// belongs to no node.
    pub(super) fn keep(
        &mut self,
        id: ToolCallId,
        record: ToolCallRecord,
        content: &str,
    ) -> Option<ToolCallRecord> {
        let Some(node) = self.calls.remove(&id) else { return Some(record) };
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
            NodeChange::Start { call } => {
                self.nodes.began.insert(node.clone(), at);
                if let Some(call) = call {
                    self.nodes.calls.insert(call.id, node.clone());
                    self.calls.add(call);
                }
                return;
            }
            NodeChange::Finish { output, routing_key, .. } => {
                let output = match output {
                    NodeOutput::Text(text) => text.as_str(),
                    NodeOutput::Answer => self
                        .nodes
                        .answered
                        .get(node)
                        .map(|(_, content)| content.as_str())
                        .unwrap_or_default(),
                };
                let routed = routing_key.as_ref().filter(|key| *key != output);
                let routed = routed.map(|key| format!("{key}: ")).unwrap_or_default();
                let message = format!("{routed}{output}");
                (StepStatus::Info, shorten(&message, STEP_MESSAGE_CHARACTERS_MAX))
            }
            NodeChange::Fail { code, error } => (StepStatus::Error, format!("{code}: {error}")),
            NodeChange::Drop => {
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
            if record.server == crate::tool::SUB_AGENT_SERVER
                && let Ok(agent) = record.tool.parse()
            {
                step.agent = agent;
            }
            step.tool_calls.push(record);
        }
    }
}
