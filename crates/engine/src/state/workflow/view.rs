//! What can be seen of a run: by conditions and templates, and by people.

use std::borrow::Cow;

use jiff::Timestamp;
use polity_definition::EvaluationScope;
use polity_definition::{WorkflowNode, WorkflowNodeKind};
use polity_model::ids::ToolCallId;
use polity_model::message::{Message, MessageHistory};
use polity_model::state::State;
use serde_json::{Map, Value};

use super::WorkflowRun;

/// What a node that ends adds to the State, before that is durable.
pub(crate) struct NodeOutcome<'a> {
    /// The node.
    pub(crate) node: usize,
    /// What came out of it.
    pub(crate) output: &'a str,
    /// The routing key that it gives.
    pub(crate) routing_key: Option<&'a str>,
    /// What a person said and changed, if one was asked.
    pub(crate) state: Option<&'a State>,
    /// When.
    pub(crate) at: Timestamp,
}

impl WorkflowRun {
    /// The node whose output is the newest message on the ways that led to a node; none if it is the
    /// input.
    pub(super) fn last_before(&self, node: usize) -> Option<usize> {
        let planned = &self.plan.nodes()[node];
        if let Some(parallel) = planned.branch_of {
            return self.last_before(parallel);
        }
        let led_from = self.progress.led_from(&self.plan, node).into_iter();
        led_from
            .max_by_key(|from| self.plan.nodes()[*from].rank)
            .and_then(|from| self.runs[from].last)
    }

    fn last(&self, node: Option<usize>) -> &str {
        let output = node.and_then(|node| self.output(node));
        output.unwrap_or_else(|| self.input())
    }

    /// The task's input.
    pub fn input(&self) -> &str {
        self.messages.first().map(Message::content).unwrap_or_default()
    }

    /// What conditions and templates of a node see before it runs.
    pub(crate) fn scope(&self, node: usize) -> EvaluationScope<'_> {
        let last = self.last_before(node);
        EvaluationScope {
            input: self.input(),
            last: self.last(last),
            messages: &self.messages,
            newest: None,
            next_action: self.next_action.as_deref(),
            current_agent: self.current_agent.as_str(),
            routing_key: self.routing_key.as_deref(),
            metadata: Cow::Borrowed(&self.metadata),
            outputs: self.outputs(),
        }
    }

    fn outputs(&self) -> Vec<(&str, &str)> {
        let nodes = self.plan.nodes().iter().zip(&self.runs);
        nodes
            .filter_map(|(node, run)| Some((node.name().as_str(), run.output.as_deref()?)))
            .collect()
    }

    /// What the node would add to the conversation.
    pub(crate) fn message_after(&self, after: &NodeOutcome<'_>) -> Option<Message> {
        let kind = &self.plan.nodes()[after.node].node.kind;
        message_of(kind, self.runs[after.node].call, after.output, after.at)
    }

    /// What the conditions of a node's edges see when it ends.
    pub(crate) fn scope_after<'a>(
        &'a self,
        after: &'a NodeOutcome<'a>,
        newest: Option<&'a Message>,
    ) -> EvaluationScope<'a> {
        let node = &self.plan.nodes()[after.node].node;
        let state = after.state;
        let mut metadata = Cow::Borrowed(state.map_or(&self.metadata, |state| &state.metadata));
        for (name, value) in written(node, after.output) {
            metadata.to_mut().insert(name, value);
        }
        let mut outputs = self.outputs();
        outputs.retain(|(name, _)| *name != node.name.as_str());
        outputs.push((node.name.as_str(), after.output));
        let says = says_something(&node.kind);
        let routing_key = match state {
            Some(state) => state.routing_key.as_deref(),
            None => self.routing_key.as_deref(),
        };
        EvaluationScope {
            input: self.input(),
            last: if says { after.output } else { self.last(self.last_before(after.node)) },
            messages: state.map_or(&self.messages, |state| state.messages.messages()),
            newest,
            next_action: self.next_action.as_deref(),
            current_agent: self.current_agent.as_str(),
            routing_key: after.routing_key.or(routing_key),
            metadata,
            outputs,
        }
    }

    /// The State at this moment, copied out to be stored or shown.
    pub fn state(&self) -> State {
        let mut messages = MessageHistory::default();
        messages.extend(self.messages.iter().cloned());
        State {
            messages,
            next_action: self.next_action.clone(),
            current_agent: self.current_agent.clone(),
            routing_key: self.routing_key.clone(),
            metadata: self.metadata.clone(),
        }
    }

    /// The metadata of the State.
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.metadata
    }

    /// How many messages the State has.
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }
}

/// Whether a node's output is something that was said, and not only a choice of the way.
pub(super) fn says_something(kind: &WorkflowNodeKind) -> bool {
    match kind {
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Tool { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Parallel { .. } => true,
        WorkflowNodeKind::Condition { .. } | WorkflowNodeKind::Human { .. } => false,
    }
}

/// What a node adds to the conversation. What a person says joins it with the person's answer.
pub(super) fn message_of(
    kind: &WorkflowNodeKind,
    call: Option<ToolCallId>,
    output: &str,
    timestamp: Timestamp,
) -> Option<Message> {
    let content = || output.to_owned();
    match (kind, call) {
        (WorkflowNodeKind::Agent { .. } | WorkflowNodeKind::Workflow { .. }, _) => {
            let tool_calls = Vec::new();
            Some(Message::Assistant { content: content(), tool_calls, timestamp })
        }
        (WorkflowNodeKind::Tool { .. }, Some(tool_call_id)) => {
            let content = content();
            Some(Message::Tool { tool_call_id, content, is_error: false, timestamp })
        }
        (
            WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. },
            _,
        ) => None,
    }
}

/// What a node writes into the metadata: its output under the one name that it declares, or the
/// fields of its output under several.
pub(super) fn written(node: &WorkflowNode, output: &str) -> Vec<(String, Value)> {
    match node.outputs.as_slice() {
        [] => Vec::new(),
        [name] => vec![(name.as_str().to_owned(), as_value(output))],
        names => {
            let Ok(Value::Object(fields)) = serde_json::from_str(output) else {
                return Vec::new();
            };
            let fields = fields.into_iter();
            fields.filter(|(name, _)| names.iter().any(|known| known.as_str() == name)).collect()
        }
    }
}

/// A text that is a JSON object or list is kept as one, so that its parts can be named.
fn as_value(output: &str) -> Value {
    let text = output.trim();
    if text.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(text)
    {
        return value;
    }
    Value::String(output.to_owned())
}
