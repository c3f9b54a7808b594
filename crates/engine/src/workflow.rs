//! Decides which nodes of a workflow run next.
//!
//! A node's end, its route and its checkpoint are one commit. Ready nodes start on the State that
//! this commit leaves, through `AdvanceWorkflow`. Conditions end at once and are decided one by
//! one, so that each has its own checkpoint.

mod begin;
mod joining;
mod preview;
mod route;

pub use preview::preview_answers;

use polity_definition::WorkflowNodeKind;
use polity_model::event::{Event, NodeChange, NodeOutput, ResultRef, ToolChange};
use polity_model::failure::ErrorCode;
use polity_model::ids::{CheckpointId, ToolCallId};
use polity_model::machine::tool_call::CallState;
use polity_model::name::Name;
use polity_model::state::State;
use serde_json::Value;

use crate::decide::call_batch::{CallBatch, CallView};
use crate::decide::outcomes::answer_open_calls;
use crate::decide::{Decision, Effect};
use crate::state::{NodeOutcome, TaskState, WorkflowProgress, WorkflowRun};

use self::route::route;

/// A decision about a workflow, under construction.
pub(crate) struct WorkflowDecision<'a> {
    batch: CallBatch<'a>,
    run: &'a WorkflowRun,
    /// The progress after the events so far.
    progress: WorkflowProgress,
    /// The nodes that these events finish, with their outputs.
    ended: Vec<(usize, String)>,
    /// The reason for failing the task, if there is one.
    failure: Option<(ErrorCode, String)>,
}

/// The outcome of an attempt to ask a person.
enum AskOutcome {
    /// A review was opened.
    Asked,
    /// No node has a question.
    NothingToAsk,
    /// The question could not be rendered, and its node failed.
    Failed,
}

/// A node that has finished, with its output.
pub(crate) struct FinishedNode<'a> {
    pub(crate) node: usize,
    pub(crate) output: &'a str,
    pub(crate) stored: NodeOutput,
    pub(crate) routing_key: Option<String>,
    /// The State after a person's answer and the person's message, if a person was asked.
    pub(crate) answer: Option<(&'a State, Option<&'a str>)>,
}

impl<'a> WorkflowDecision<'a> {
    pub(crate) fn new(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Self {
        let progress = run.progress().clone();
        Self { batch, run, progress, ended: Vec::new(), failure: None }
    }

    /// Starts the first node if every tool of the workflow is available.
    pub(crate) fn start(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Decision {
        let mut workflow = Self::new(batch, run);
        match workflow.missing_tool() {
            Some(why) => workflow.fail_task(ErrorCode::ToolsUnavailable, why),
            None => workflow.begin_ready(),
        }
        workflow.conclude()
    }

    /// Starts the ready nodes.
    pub(crate) fn begin(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Decision {
        let mut workflow = Self::new(batch, run);
        workflow.begin_ready();
        workflow.conclude()
    }

    /// Continues from the states of the calls after the events so far.
    pub(crate) fn continue_run(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Decision {
        let answered: Vec<_> = batch.events().iter().filter_map(answer_of).collect();
        let mut workflow = Self::new(batch, run);
        for (call_id, content, is_error) in answered {
            let Some(node) = run.node_of(call_id) else { continue };
            if is_error {
                let code = workflow.batch.error_code().unwrap_or(ErrorCode::ToolFailed);
                let why = content.strip_prefix("error: ").unwrap_or(&content);
                workflow.fail_node(node, code, why);
            } else {
                workflow.finish(FinishedNode {
                    node,
                    output: &content,
                    stored: NodeOutput::Answer,
                    routing_key: None,
                    answer: None,
                });
            }
        }
        workflow.conclude()
    }

    fn name(&self, node: usize) -> &'a Name {
        self.run.plan().nodes()[node].name()
    }

    /// The call of a node, including calls that these events have started.
    fn call_of(&self, node: usize) -> Option<ToolCallId> {
        let name = self.name(node);
        let begun = self.batch.events().iter().rev().find_map(|event| {
            let Event::NodeChanged { node, change: NodeChange::Start { call } } = event else {
                return None;
            };
            (node == name).then(|| call.as_ref().map(|call| call.id))
        });
        begun.unwrap_or_else(|| self.run.node_run(node).call)
    }

    /// The output of a node, including nodes that these events have finished.
    fn output(&self, node: usize) -> Option<&str> {
        let ended = self.ended.iter().rev().find(|(ended, _)| *ended == node);
        ended.map(|(_, output)| output.as_str()).or_else(|| self.run.output(node))
    }

    fn changed(&mut self, node: usize, change: NodeChange) {
        let node = self.name(node).clone();
        self.batch.push(Event::NodeChanged { node, change });
    }

    /// Returns true if a transition was legal. An illegal one is a bug: it is not recorded, and the
    /// task fails.
    fn moved<E: std::fmt::Display>(&mut self, moved: Result<(), E>) -> bool {
        match moved {
            Ok(()) => true,
            Err(error) => {
                self.failure.get_or_insert((ErrorCode::SystemError, error.to_string()));
                false
            }
        }
    }

    /// Finishes a node: decides its route and takes a checkpoint.
    pub(crate) fn finish(&mut self, ended: FinishedNode<'_>) {
        let FinishedNode { node, output, stored, routing_key, answer } = ended;
        if let Err(why) = self.check_outputs(node, output) {
            return self.fail_node(node, ErrorCode::InvalidOutput, &why);
        }
        let at = self.batch.ctx().now;
        let after = NodeOutcome {
            node,
            output,
            routing_key: routing_key.as_deref(),
            state: answer.map(|(state, _)| state),
            at,
        };
        // Another node may have finished in the same commit, such as the last branch of this one.
        let before = (!self.ended.is_empty()).then(|| self.batch.state_after_events()).transpose();
        let taken = match before {
            Ok(before) => {
                let run = before.as_ref().and_then(TaskState::workflow_run).unwrap_or(self.run);
                let said = answer.and_then(|(_, said)| said);
                route(run, &self.progress, &after).map_err(|error| error.into_failure(said))
            }
            Err(broken) => Err((ErrorCode::SystemError, broken.to_string())),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err((code, why)) => return self.fail_node(node, code, &why),
        };
        let plan = self.run.plan();
        let to = taken.iter().map(|link| plan.nodes()[plan.links()[*link].to].name().clone());
        let to = to.collect();
        let is_human = matches!(plan.nodes()[node].node.kind, WorkflowNodeKind::Human { .. });
        let edge = plan.edge_back(&taken);
        let moved = self.progress.finish(plan, node, &taken);
        if !self.moved(moved) {
            return;
        }
        self.changed(node, NodeChange::Finish { output: stored, routing_key, to, edge });
        self.ended.push((node, output.to_owned()));
        // A reviewed node has its checkpoint already.
        if !is_human {
            self.checkpoint(node, false);
        }
        self.join(node, Ok(output));
    }

    /// Fails a node. A parallel node may tolerate it; otherwise the task fails.
    pub(crate) fn fail_node(&mut self, node: usize, code: ErrorCode, error: &str) {
        let moved = self.progress.fail(self.run.plan(), node);
        if !self.moved(moved) {
            return;
        }
        self.changed(node, NodeChange::Fail { code, error: error.to_owned() });
        match self.run.plan().nodes()[node].branch_of {
            Some(_) => self.join(node, Err((code, error))),
            None => self.fail_task(code, format!("{}: {error}", self.name(node))),
        }
    }

    /// Allows a node to run after a person's approval.
    pub(crate) fn allow(&mut self, node: usize) {
        let moved = self.progress.allow(node);
        self.moved(moved);
    }

    fn fail_task(&mut self, code: ErrorCode, error: String) {
        self.failure.get_or_insert((code, error));
    }

    /// Checks that a node with several declared outputs has them all.
    fn check_outputs(&self, node: usize, output: &str) -> Result<(), String> {
        let names = &self.run.plan().nodes()[node].node.outputs;
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

    fn checkpoint(&mut self, node: usize, awaiting_human: bool) -> CheckpointId {
        let id = CheckpointId::from_random_bytes(self.batch.ctx().entropy.id_bytes());
        let sequence = self.batch.next_checkpoint();
        let node = self.name(node).to_string();
        self.batch.push(Event::CheckpointTaken {
            checkpoint_id: id,
            sequence,
            node,
            awaiting_human,
            message_count: None,
        });
        id
    }

    /// Decides the next step after the events so far.
    pub(crate) fn conclude(mut self) -> Decision {
        while self.failure.is_none() {
            if self.has_ready() {
                return self.batch.into_decision([Effect::AdvanceWorkflow]);
            }
            if self.batch.has_calls_in_progress() {
                return self.batch.into_decision([]);
            }
            if self.batch.call_states().contains(&CallState::InDoubt) {
                break;
            }
            match self.ask_next() {
                AskOutcome::Asked => return self.batch.into_decision([]),
                AskOutcome::NothingToAsk => break,
                // The failure may have made other nodes ready.
                AskOutcome::Failed => {}
            }
        }
        if let Some((code, error)) = self.failure.take() {
            return self.fail(code, error);
        }
        let state = self.batch.state();
        let doubt = self.batch.call_states().iter().position(|call| *call == CallState::InDoubt);
        if let Some(call) = doubt.and_then(|index| CallView::of(state, index)) {
            return self.batch.into_review(call, true);
        }
        if self.batch.call_states().contains(&CallState::Waiting) {
            self.batch.push(Event::TaskPaused);
            return self.batch.into_decision([]);
        }
        if self.progress.is_settled() {
            self.complete()
        } else {
            let error = "nothing is left that could go on, and not every node has ended".to_owned();
            self.fail(ErrorCode::SystemError, error)
        }
    }

    fn has_ready(&self) -> bool {
        let ready = self.progress.ready(self.run.plan());
        ready.iter().any(|node| !self.asks(*node))
    }

    /// True if a ready node needs a person first.
    fn asks(&self, node: usize) -> bool {
        let planned = &self.run.plan().nodes()[node];
        let is_human = matches!(planned.node.kind, WorkflowNodeKind::Human { .. });
        is_human || (planned.pauses && !self.progress.is_allowed(node))
    }

    fn fail(mut self, code: ErrorCode, error: String) -> Decision {
        let state = self.batch.state();
        let has_answer = !self.ended.is_empty() || state.last_answer().is_some();
        let partial_result = has_answer.then_some(ResultRef::LastAnswer);
        self.batch.answer_new_calls("the task failed");
        let mut events = self.batch.take_events();
        answer_open_calls(state, "the task failed", &mut events);
        events.push(Event::TaskFailed { code, error, partial_result });
        Decision { events, effects: Vec::new() }
    }

    /// Completes the task. The result is the output of the last node, or of all end nodes.
    fn complete(mut self) -> Decision {
        let plan = self.run.plan();
        let mut ends: Vec<usize> = (0..plan.nodes().len())
            .filter(|node| plan.is_end(*node) && self.progress.is_done(*node))
            .collect();
        ends.sort_by_key(|node| plan.nodes()[*node].rank);
        if ends.is_empty() {
            // The node after the last output was skipped.
            let done = (0..plan.nodes().len()).filter(|node| self.progress.is_done(*node));
            ends.extend(done.max_by_key(|node| plan.nodes()[*node].rank));
        }
        let result = match ends.as_slice() {
            [end] if self.ended.last().is_some_and(|(newest, _)| newest == end) => {
                ResultRef::LastAnswer
            }
            ends => {
                let outputs: Vec<&str> = ends.iter().filter_map(|end| self.output(*end)).collect();
                ResultRef::Text(outputs.join("\n\n"))
            }
        };
        self.batch.push(Event::TaskCompleted { result });
        self.batch.into_decision([])
    }
}

/// The answer in an event: the call, its content, and true if it is an error.
fn answer_of(event: &Event) -> Option<(ToolCallId, String, bool)> {
    let Event::ToolChanged { call_id, change: ToolChange::Answer { content, is_error, .. } } =
        event
    else {
        return None;
    };
    Some((*call_id, content.clone(), *is_error))
}
