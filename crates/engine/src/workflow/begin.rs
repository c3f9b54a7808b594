//! Starts nodes: renders their inputs and opens reviews.

use jiff::SignedDuration;
use polity_definition::{EvaluationError, EvaluationScope, WorkflowNode};
use polity_definition::{ScriptProgram, Template, WorkflowNodeKind};
use polity_model::event::{Event, NodeChange, NodeOutput};
use polity_model::failure::ErrorCode;
use polity_model::ids::ToolCallId;
use polity_model::message::ToolCall;
use polity_model::review::ReviewSubject;
use polity_model::session::TASK_DESCRIPTION_ARGUMENT;
use polity_model::tool::ToolName;
use serde_json::{Map, Value};

use super::{AskOutcome, FinishedNode, WorkflowDecision};

pub(super) type NodeError = (ErrorCode, String);

impl WorkflowDecision<'_> {
    /// Starts the ready nodes. A node that becomes ready because another ended at once waits for
    /// the next command.
    pub(super) fn begin_ready(&mut self) {
        let (mut together, mut met) = (Vec::new(), Vec::new());
        loop {
            let ready = self.progress.ready(self.run.plan());
            if self.ended.is_empty() && !self.has_caught {
                together.clone_from(&ready);
            }
            let Some(node) = self.next_of(&ready, &together, &met) else { return };
            met.push(node);
            let limit = self.run.plan().max_iterations();
            if self.progress.runs() >= limit.get() && !self.run.is_ending() {
                let why = format!(
                    "the workflow has run {limit} nodes, the most that its max_iterations allows"
                );
                return self.fail_task(None, ErrorCode::LimitIterations, why);
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

    pub(super) fn begin_node(&mut self, node: usize) -> Result<(), NodeError> {
        let plan = self.run.plan();
        let planned = &plan.nodes()[node].node;
        match &planned.kind {
            WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Workflow { .. }
            | WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Script { .. } => {
                let run = self.run;
                let (tool, arguments) = self.step_call(planned, &run.scope(node))?;
                self.call(node, &tool, arguments);
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
                    script: None,
                });
            }
            WorkflowNodeKind::Parallel { .. } => {
                let moved = self.progress.start(node);
                if self.moved(moved) {
                    self.changed(node, NodeChange::Start { call: None, map: None });
                }
                self.join_ended(node);
            }
            WorkflowNodeKind::Map { .. } => self.begin_map(node)?,
            // A review is opened when nothing else is in progress.
            WorkflowNodeKind::Human { .. } => {}
        }
        Ok(())
    }

    /// The call that performs a step: a node, or an item of a map.
    pub(super) fn step_call(
        &mut self,
        step: &WorkflowNode,
        scope: &EvaluationScope<'_>,
    ) -> Result<(ToolName, Map<String, Value>), NodeError> {
        match &step.kind {
            WorkflowNodeKind::Agent { agent, input, .. } => {
                Ok((ToolName::of_sub_agent(agent), described(input.as_ref(), scope)?))
            }
            WorkflowNodeKind::Workflow { workflow, input } => {
                Ok((ToolName::of_sub_agent(workflow), described(input.as_ref(), scope)?))
            }
            WorkflowNodeKind::Tool { tool, arguments } => {
                let arguments = arguments.render(scope).map_err(|error| cannot_evaluate(&error))?;
                self.check_tool(tool, &arguments)?;
                Ok((tool.clone(), arguments))
            }
            WorkflowNodeKind::Script { .. } => self.script_call(step, scope),
            WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Map { .. } => {
                Err((ErrorCode::SystemError, format!("{} makes no call", step.name)))
            }
        }
    }

    /// Returns a tool that a node calls and that its reachable server does not have.
    pub(super) fn missing_tool(&mut self) -> Option<String> {
        let plan = self.run.plan();
        let toolbox = &self.batch.ctx().toolbox;
        let nodes = plan.nodes().iter().flat_map(|planned| {
            // The plan has compensations as nodes of its own.
            planned.node.with_inner().take_while(move |inner| inner.name == *planned.name())
        });
        nodes.into_iter().find_map(|node| match &node.kind {
            WorkflowNodeKind::Tool { tool, .. } => {
                let is_there = toolbox.find(tool.server(), tool.tool()).is_some()
                    || toolbox.unavailable(tool.server()).is_some();
                (!is_there).then(|| format!("{}: there is no tool {tool}", node.name))
            }
            WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Workflow { .. }
            | WorkflowNodeKind::Script { .. }
            | WorkflowNodeKind::Map { .. } => None,
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
        self.changed(node, NodeChange::Start { call: Some(call), map: None });
        self.batch.call_new(id, tool, node, None);
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
            | WorkflowNodeKind::Workflow { .. }
            | WorkflowNodeKind::Script { .. }
            | WorkflowNodeKind::Map { .. }) => {
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

/// The input of an agent or sub-workflow: the item of a map or the newest message, unless the step
/// has a template.
fn described(
    input: Option<&Template>,
    scope: &EvaluationScope<'_>,
) -> Result<Map<String, Value>, NodeError> {
    let text = match (input, scope.item) {
        (Some(template), _) => template.render(scope).map_err(|error| cannot_evaluate(&error))?,
        (None, Some(item)) => match item.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        },
        (None, None) => scope.last.to_owned(),
    };
    if text.trim().is_empty() {
        return Err((ErrorCode::ConditionFailed, "what it is given is empty".to_owned()));
    }
    Ok(Map::from_iter([(TASK_DESCRIPTION_ARGUMENT.to_owned(), Value::from(text))]))
}

pub(super) fn cannot_evaluate(error: &EvaluationError) -> NodeError {
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
        WorkflowNodeKind::Script { program: ScriptProgram::File(file), .. } => {
            format!("runs the script {file}")
        }
        WorkflowNodeKind::Script { program: ScriptProgram::Command(command), .. } => {
            format!("runs {}", command.program)
        }
        WorkflowNodeKind::Map { node, .. } => format!("for each item {}", what(&node.kind)),
    }
}
