//! Starts nodes: renders their inputs and opens reviews.

use std::time::Duration;

use jiff::SignedDuration;
use polity_definition::EvaluationError;
use polity_definition::{Template, WorkflowNodeKind};
use polity_model::event::{Event, NodeChange, NodeOutput};
use polity_model::failure::ErrorCode;
use polity_model::ids::ToolCallId;
use polity_model::message::ToolCall;
use polity_model::review::ReviewSubject;
use polity_model::session::TASK_DESCRIPTION_ARGUMENT;
use polity_model::tool::ToolName;
use serde_json::{Map, Value};

use super::{AskOutcome, FinishedNode, WorkflowDecision};

type NodeError = (ErrorCode, String);

impl WorkflowDecision<'_> {
    /// Starts the ready nodes. A node that becomes ready because another ended at once waits for
    /// the next command.
    pub(super) fn begin_ready(&mut self) {
        let (mut together, mut met) = (Vec::new(), Vec::new());
        loop {
            let ready = self.progress.ready(self.run.plan());
            if self.ended.is_empty() {
                together.clone_from(&ready);
            }
            let Some(node) = self.next_of(&ready, &together, &met) else { return };
            met.push(node);
            let limit = self.run.plan().max_iterations();
            if self.progress.runs() >= limit.get() {
                let why = format!(
                    "the workflow has run {limit} nodes, the most that its max_iterations allows"
                );
                return self.fail_task(ErrorCode::LimitIterations, why);
            }
            if let Err((code, why)) = self.begin_node(node) {
                self.fail_node(node, code, &why);
            }
            if self.failure.is_some() {
                return;
            }
        }
    }

    /// The next unvisited node of those that were ready together. Conditions come last, because
    /// they end at once.
    fn next_of(&self, ready: &[usize], together: &[usize], met: &[usize]) -> Option<usize> {
        let plan = self.run.plan();
        let is_next =
            |node: &&usize| together.contains(*node) && !met.contains(*node) && !self.asks(**node);
        let is_condition = |node: &&usize| {
            matches!(plan.nodes()[**node].node.kind, WorkflowNodeKind::Condition { .. })
        };
        ready.iter().filter(is_next).min_by_key(is_condition).copied()
    }

    fn begin_node(&mut self, node: usize) -> Result<(), NodeError> {
        let plan = self.run.plan();
        let planned = &plan.nodes()[node].node;
        match &planned.kind {
            WorkflowNodeKind::Agent { agent, input, .. } => {
                let name = ToolName::of_sub_agent(agent);
                let arguments = self.described(node, input.as_ref())?;
                self.call(node, &name, arguments);
            }
            WorkflowNodeKind::Workflow { workflow, input } => {
                let name = ToolName::of_sub_agent(workflow);
                let arguments = self.described(node, input.as_ref())?;
                self.call(node, &name, arguments);
            }
            WorkflowNodeKind::Tool { tool, arguments } => {
                let rendered = arguments.render(&self.run.scope(node));
                let arguments = rendered.map_err(|error| cannot_evaluate(&error))?;
                self.check_tool(tool, &arguments)?;
                self.call(node, tool, arguments);
            }
            WorkflowNodeKind::Condition { expression } => {
                let value = expression
                    .evaluate(&self.run.scope(node))
                    .map_err(|error| cannot_evaluate(&error))?;
                let text = match value {
                    Value::String(text) => text,
                    other @ (Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_)) => other.to_string(),
                };
                self.finish(FinishedNode {
                    node,
                    output: &text,
                    stored: NodeOutput::Text(text.clone()),
                    routing_key: Some(text.clone()),
                    answer: None,
                });
            }
            WorkflowNodeKind::Parallel { .. } => {
                let moved = self.progress.start(node);
                if self.moved(moved) {
                    self.changed(node, NodeChange::Start { call: None });
                }
                self.join_ended(node);
            }
            // A review is opened when nothing else is in progress.
            WorkflowNodeKind::Human { .. } => {}
        }
        Ok(())
    }

    /// The input of an agent or sub-workflow: the newest message, unless the node has a template.
    fn described(
        &self,
        node: usize,
        input: Option<&Template>,
    ) -> Result<Map<String, Value>, NodeError> {
        let scope = self.run.scope(node);
        let text = match input {
            Some(template) => template.render(&scope).map_err(|error| cannot_evaluate(&error))?,
            None => scope.last.to_owned(),
        };
        if text.trim().is_empty() {
            return Err((ErrorCode::ConditionFailed, "what it is given is empty".to_owned()));
        }
        Ok(Map::from_iter([(TASK_DESCRIPTION_ARGUMENT.to_owned(), Value::from(text))]))
    }

    /// Returns a tool that a node calls and that its reachable server does not have.
    pub(super) fn missing_tool(&mut self) -> Option<String> {
        let plan = self.run.plan();
        let toolbox = &self.batch.ctx().toolbox;
        plan.nodes().iter().find_map(|planned| match &planned.node.kind {
            WorkflowNodeKind::Tool { tool, .. } => {
                let is_there = toolbox.find(tool.server(), tool.tool()).is_some()
                    || toolbox.unavailable(tool.server()).is_some();
                (!is_there).then(|| format!("{}: there is no tool {tool}", planned.name()))
            }
            WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Workflow { .. } => None,
        })
    }

    fn check_tool(
        &mut self,
        tool: &ToolName,
        arguments: &Map<String, Value>,
    ) -> Result<(), NodeError> {
        let toolbox = &self.batch.ctx().toolbox;
        let Some(known) = toolbox.find(tool.server(), tool.tool()) else {
            let why = match toolbox.unavailable(tool.server()) {
                Some(why) => why.to_owned(),
                None => format!("there is no tool {tool}"),
            };
            return Err((ErrorCode::ToolsUnavailable, why));
        };
        known.check_arguments(arguments).map_err(|problem| {
            let why = format!(
                "the arguments of {tool} do not fit its input schema, and it was not called: \
                 {problem}"
            );
            (ErrorCode::ToolFailed, why)
        })
    }

    /// Starts the call that performs a node.
    fn call(&mut self, node: usize, tool: &ToolName, arguments: Map<String, Value>) {
        let id = ToolCallId::from_random_bytes(self.batch.ctx().entropy.id_bytes());
        let call = ToolCall {
            id,
            server: tool.server().to_owned(),
            tool: tool.tool().to_owned(),
            arguments,
            signature: None,
        };
        let moved = self.progress.start(node);
        if !self.moved(moved) {
            return;
        }
        self.changed(node, NodeChange::Start { call: Some(call) });
        let plan = self.run.plan();
        let timeout = plan.timeout_seconds(node).map(|limit| Duration::from_secs(limit.get()));
        self.batch.call_new(id, tool, plan.nodes()[node].node.idempotent, timeout);
    }

    /// Renders a node's template over the State after the events so far.
    fn rendered_now(&mut self, node: usize, template: &Template) -> Result<String, NodeError> {
        let state = self.batch.state_after_events();
        let state = state.map_err(|broken| (ErrorCode::SystemError, broken.to_string()))?;
        let run = state.workflow_run().unwrap_or(self.run);
        template.render(&run.scope(node)).map_err(|error| cannot_evaluate(&error))
    }

    /// Opens the review of the first ready node that has a question.
    pub(super) fn ask_next(&mut self) -> AskOutcome {
        let plan = self.run.plan();
        let Some(node) = self.progress.ready(plan).into_iter().find(|node| self.asks(*node)) else {
            return AskOutcome::NothingToAsk;
        };
        let planned = &plan.nodes()[node];
        let name = planned.name().clone();
        let (subject, question, seconds, default_action) = match &planned.node.kind {
            WorkflowNodeKind::Human { question, deadline_seconds, default_action } => {
                match self.rendered_now(node, question) {
                    Ok(question) => {
                        // The earlier of the review's deadline and the node's time limit.
                        let limit = plan.timeout_seconds(node);
                        let is_late =
                            deadline_seconds.is_none_or(|own| limit.is_some_and(|l| l < own));
                        let (seconds, action) = if is_late {
                            (limit, None)
                        } else {
                            (*deadline_seconds, *default_action)
                        };
                        let seconds = seconds.map(std::num::NonZeroU64::get);
                        (ReviewSubject::Node { node: name }, question, seconds, action)
                    }
                    Err((code, why)) => {
                        self.fail_node(node, code, &why);
                        return AskOutcome::Failed;
                    }
                }
            }
            kind @ (WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Workflow { .. }) => {
                let what = what(kind);
                let question =
                    format!("may {} go on with {name}, which {what}?", self.run.workflow());
                (ReviewSubject::Checkpoint { node: name }, question, None, None)
            }
        };
        let moved = self.progress.ask(node);
        if !self.moved(moved) {
            return AskOutcome::Failed;
        }
        let now = self.batch.ctx().now;
        let deadline = seconds.map(|seconds| {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(jiff::Timestamp::MAX)
        });
        let checkpoint_id = self.checkpoint(node, true);
        self.batch.push(Event::ReviewOpened {
            checkpoint_id,
            subject,
            question,
            deadline,
            default_action,
        });
        AskOutcome::Asked
    }
}

fn cannot_evaluate(error: &EvaluationError) -> NodeError {
    (ErrorCode::ConditionFailed, error.to_string())
}

/// The node's work in words.
fn what(kind: &WorkflowNodeKind) -> String {
    match kind {
        WorkflowNodeKind::Agent { agent, .. } => format!("gives work to {agent}"),
        WorkflowNodeKind::Tool { tool, .. } => format!("calls {tool}"),
        WorkflowNodeKind::Condition { expression } => format!("evaluates {}", expression.as_str()),
        WorkflowNodeKind::Human { .. } => "asks a person".to_owned(),
        WorkflowNodeKind::Parallel { branches, .. } => {
            let names: Vec<_> = branches.iter().map(ToString::to_string).collect();
            format!("runs {} at once", names.join(", "))
        }
        WorkflowNodeKind::Workflow { workflow, .. } => format!("runs the workflow {workflow}"),
    }
}
