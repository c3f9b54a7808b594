//! Read access to a workflow's run, for conditions, templates and people.

use std::borrow::Cow;

use jiff::Timestamp;
use polity_definition::{
    DeclaredOutput, EvaluationScope, OutputType, Text, WorkflowNode, WorkflowNodeKind,
};
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
    /// Its output as a JSON value, if it is a script's.
    pub(crate) value: Option<&'a Value>,
    /// Its routing key.
    pub(crate) routing_key: Option<&'a str>,
    /// The State after a person's answer or the updates of a script.
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
        let scope = EvaluationScope {
            input: self.input(),
            last: self.last(last),
            messages: &self.messages,
            newest: None,
            next_action: self.next_action.as_deref(),
            current_agent: self.current_agent.as_str(),
            routing_key: self.routing_key.as_deref(),
            metadata: Cow::Borrowed(&self.metadata),
            outputs: self.outputs(),
            error: self.error.as_ref(),
            item: None,
        };
        self.compensation_scope(node, scope)
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
        for (name, value) in written(node, after.output, after.value) {
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
            next_action: match state {
                Some(state) => state.next_action.as_deref(),
                None => self.next_action.as_deref(),
            },
            current_agent: self.current_agent.as_str(),
            routing_key: after.routing_key.or(routing_key),
            metadata,
            outputs,
            error: self.error.as_ref(),
            item: None,
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
            error: self.error.clone(),
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
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Script { .. }
        | WorkflowNodeKind::Map { .. } => true,
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
        (
            WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Workflow { .. }
            | WorkflowNodeKind::Script { .. },
            _,
        ) => {
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
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Map { .. },
            _,
        ) => None,
    }
}

/// The metadata that a node writes: its output under its one declared name, or the fields of its
/// output under several.
pub(super) fn written(
    node: &WorkflowNode,
    output: &str,
    value: Option<&Value>,
) -> Vec<(String, Value)> {
    // The output of a script is a JSON value, which keeps its type.
    let is_script = matches!(node.kind, WorkflowNodeKind::Script { .. });
    match node.outputs.as_slice() {
        [] => Vec::new(),
        [declared] => {
            let value = match (value, declared.output_type) {
                (Some(value), _) => value.clone(),
                (None, OutputType::Text) if !is_script => Value::String(output.to_owned()),
                // Other texts have failed the node.
                (None, OutputType::Text | OutputType::Json) => {
                    serde_json::from_str(output).unwrap_or_default()
                }
            };
            vec![(declared.name.as_str().to_owned(), value)]
        }
        names => {
            let Ok(Value::Object(fields)) = serde_json::from_str(output) else {
                return Vec::new();
            };
            let fields = fields.into_iter();
            fields
                .filter(|(name, _)| names.iter().any(|known| known.name.as_str() == name))
                .collect()
        }
    }
}

/// Checks that the output of a node has what it declares.
pub(crate) fn check_outputs(node: &WorkflowNode, output: &str) -> Result<(), String> {
    let declared = &node.outputs;
    let names: Vec<&Text> = declared.iter().map(|output| &output.name).collect();
    if let [DeclaredOutput { name, output_type: OutputType::Json }] = declared.as_slice() {
        let parsed = serde_json::from_str::<Value>(output);
        return parsed.map(|_| ()).map_err(|error| {
            format!("its output must be JSON, because outputs has \"{name}: json\": {error}")
        });
    }
    if names.len() < 2 {
        return Ok(());
    }
    let Ok(Value::Object(fields)) = serde_json::from_str(output) else {
        return Err(format!(
            "its output must be a JSON object with {}, because it declares more than one output",
            names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ));
    };
    match names.iter().find(|name| !fields.contains_key(name.as_str())) {
        Some(name) => Err(format!("its output has no field \"{name}\", which it declares")),
        None => Ok(()),
    }
}
