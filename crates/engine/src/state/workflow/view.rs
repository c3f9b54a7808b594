//! Read access to a workflow's run, for conditions, templates and people.

use std::borrow::Cow;

use jiff::Timestamp;
use polity_definition::EvaluationScope;
use polity_definition::{WorkflowNode, WorkflowNodeKind};
use polity_model::ids::ToolCallId;
use polity_model::message::{Message, MessageHistory};
use polity_model::state::State;
use serde_json::{Map, Value};

use super::WorkflowRun;

/// The outcome of a node, before it is durable.
pub(crate) struct NodeOutcome<'a> {
    /// The node.
    pub(crate) node: usize,
    /// Its output.
    pub(crate) output: &'a str,
    /// Its routing key.
    pub(crate) routing_key: Option<&'a str>,
    /// The State after a person's answer, if a person was asked.
    pub(crate) state: Option<&'a State>,
    /// The time of the outcome.
    pub(crate) at: Timestamp,
}

impl WorkflowRun {
    /// The node with the newest message on the paths to a node; none for the input.
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

    /// The scope of a node's conditions and templates before it runs.
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

    /// The message that the outcome would add.
    pub(crate) fn message_after(&self, after: &NodeOutcome<'_>) -> Option<Message> {
        let kind = &self.plan.nodes()[after.node].node.kind;
        message_of(kind, self.runs[after.node].call, after.output, after.at)
    }

    /// The scope of the conditions on a node's edges when it ends.
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

    /// The current State, copied to be stored or shown.
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

    /// The number of messages in the State.
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }
}

/// True if a node's output is a message and not only a routing choice.
pub(super) fn says_something(kind: &WorkflowNodeKind) -> bool {
    match kind {
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Tool { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Parallel { .. } => true,
        WorkflowNodeKind::Condition { .. } | WorkflowNodeKind::Human { .. } => false,
    }
}

/// The message that a node adds. A person's message is added with the answer.
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

/// The metadata that a node writes: its output under its one declared name, or the fields of its
/// output under several.
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

/// Parses a JSON object or list, so that its parts can be referenced.
fn as_value(output: &str) -> Value {
    let text = output.trim();
    if text.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(text)
    {
        return value;
    }
    Value::String(output.to_owned())
}
