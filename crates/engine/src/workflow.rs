//! Decides which nodes of a workflow run next.
//!
//! A node's end, its route and its checkpoint are one commit. Ready nodes start on the State that
//! this commit leaves, through `AdvanceWorkflow`. Conditions end at once and are decided one by
//! one, so that each has its own checkpoint.

mod begin;
mod compensation;
#[cfg(test)]
#[path = "workflow/compensation_tests.rs"]
mod compensation_tests;
mod joining;
mod map;
mod preview;
mod route;
mod scripts;

pub(crate) use compensation::cancel_workflow;
pub use preview::preview_answers;
pub(crate) use scripts::check_result;

use std::collections::BTreeMap;

use polity_definition::WorkflowNodeKind;
use polity_model::event::{
    CompensationCause, Event, NodeChange, NodeOutput, ResultRef, ToolChange,
};
use polity_model::failure::ErrorCode;
use polity_model::ids::{CheckpointId, ToolCallId};
use polity_model::machine::tool_call::CallState;
use polity_model::name::Name;
use polity_model::state::State;

use crate::decide::call_batch::{CallBatch, CallView};
use crate::decide::outcomes::answer_open_calls;
use crate::decide::{Decision, Effect};
use crate::script_output::ScriptOutput;
use crate::state::{NodeOutcome, TaskState, WorkflowProgress, WorkflowRun, check_outputs};

use self::map::MapDecision;
use self::route::{error_link, route};

/// A decision about a workflow, under construction.
pub(crate) struct WorkflowDecision<'a> {
    batch: CallBatch<'a>,
    run: &'a WorkflowRun,
    /// The progress after the events so far.
    progress: WorkflowProgress,
    /// The nodes that these events finish, with their outputs.
    ended: Vec<(usize, String)>,
    /// The reason for failing the task, if there is one.
    failure: Option<CompensationCause>,
    /// True if these events catch a failure.
    has_caught: bool,
    /// The maps that these events have changed.
    maps: BTreeMap<usize, MapDecision>,
    /// The number of items that these events have ended without a call.
    inline_items: usize,
    /// True if more items can end without a call.
    has_more_items: bool,
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

/// The failure of a node that has done its work.
struct LateFailure {
    /// The edge whose condition could not be evaluated.
    edge: Option<usize>,
    output: NodeOutput,
}

/// A node that has finished, with its output.
pub(crate) struct FinishedNode<'a> {
    pub(crate) node: usize,
    pub(crate) output: &'a str,
    pub(crate) stored: NodeOutput,
    pub(crate) routing_key: Option<String>,
    /// The State after a person's answer and the person's message, if a person was asked.
    pub(crate) answer: Option<(&'a State, Option<&'a str>)>,
    /// The parts of the output, if it is a script's.
    pub(crate) script: Option<&'a ScriptOutput>,
}

impl<'a> FinishedNode<'a> {
    /// A node whose output is the answer to its call.
    fn answered(node: usize, output: &'a str, stored: NodeOutput) -> Self {
        Self { node, output, stored, routing_key: None, answer: None, script: None }
    }
}

impl<'a> WorkflowDecision<'a> {
    pub(crate) fn new(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Self {
        let progress = run.progress().clone();
        Self {
            batch,
            run,
            progress,
            ended: Vec::new(),
            failure: None,
            has_caught: false,
            maps: BTreeMap::new(),
            inline_items: 0,
            has_more_items: false,
        }
    }

    /// Starts the first node if every tool of the workflow is available. A retry first finishes the
    /// nodes whose answers it has inherited.
    pub(crate) fn start(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Decision {
        let mut workflow = Self::new(batch, run);
        let answered = run.answered_nodes();
        match workflow.missing_tool() {
            Some(why) => workflow.fail_task(None, ErrorCode::ToolsUnavailable, why),
            None if answered.is_empty() => workflow.begin_ready(),
            None => {
                for (node, output) in answered {
                    // The answer is an event of the earlier task.
                    workflow.finish_answered(node, output, NodeOutput::Text(output.to_owned()));
                }
            }
        }
        workflow.conclude()
    }

    /// Starts the ready nodes.
    pub(crate) fn begin(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Decision {
        let mut workflow = Self::new(batch, run);
        workflow.begin_ready();
        if run.is_ending() {
            workflow.begin_compensation();
        }
        workflow.conclude()
    }

    /// Continues from the states of the calls after the events so far.
    pub(crate) fn continue_run(batch: CallBatch<'a>, run: &'a WorkflowRun) -> Decision {
        let answered: Vec<_> = batch.events().iter().filter_map(answer_of).collect();
        let mut workflow = Self::new(batch, run);
        for (call_id, content, is_error) in answered {
            let Some(node) = run.node_of(call_id) else { continue };
            if let Some(item) = run.item_of(call_id) {
                workflow.end_item(node, item, &content, is_error);
            } else if is_error {
                let code = workflow.batch.error_code().unwrap_or(ErrorCode::ToolFailed);
                let why = content.strip_prefix("error: ").unwrap_or(&content);
                workflow.fail_node(node, code, why);
            } else {
                workflow.finish_answered(node, &content, NodeOutput::Answer);
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
            let Event::NodeChanged { node, change: NodeChange::Start { call, .. } } = event else {
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

    fn is_map(&self, node: usize) -> bool {
        self.run.plan().nodes()[node].is_map()
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
                self.fail_task(None, ErrorCode::SystemError, error.to_string());
                false
            }
        }
    }

    /// Finishes a node: decides its route and takes a checkpoint.
    pub(crate) fn finish(&mut self, ended: FinishedNode<'_>) {
        let FinishedNode { node, output, stored, routing_key, answer, script } = ended;
        let checked = match script {
            Some(script) => self.check_script_outputs(node, script),
            None => check_outputs(&self.run.plan().nodes()[node].node, output),
        };
        if let Err(why) = checked {
            let failure = LateFailure { edge: None, output: stored };
            return self.fail_node_late(node, ErrorCode::InvalidOutput, &why, failure);
        }
        let at = self.batch.ctx().now;
        let updates = script.map(|script| &script.state_updates).filter(|all| !all.is_empty());
        // Another node may have finished in the same commit, such as the last branch of this one.
        let before = (!self.ended.is_empty()).then(|| self.batch.state_after_events()).transpose();
        let mut failed_edge = None;
        let taken = before.map_err(|broken| (ErrorCode::SystemError, broken.to_string())).and_then(
            |before| {
                let run = before.as_ref().and_then(TaskState::workflow_run).unwrap_or(self.run);
                let said = answer.and_then(|(_, said)| said);
                let new_state = updates.map(|updates| run.state_after(node, updates, at));
                let new_state = new_state.transpose().map_err(|error| {
                    let why = format!("the state_updates of the script: {error}");
                    (ErrorCode::InvalidOutput, why)
                })?;
                let after = NodeOutcome {
                    node,
                    output,
                    value: script.map(|script| &script.value),
                    routing_key: routing_key.as_deref(),
                    state: answer.map(|(state, _)| state).or(new_state.as_ref()),
                    at,
                };
                route(run, &self.progress, &after).map_err(|error| {
                    failed_edge = error.edge();
                    error.into_failure(said)
                })
            },
        );
        let taken = match taken {
            Ok(taken) => taken,
            Err((code, why)) => {
                let failure = LateFailure { edge: failed_edge, output: stored };
                return self.fail_node_late(node, code, &why, failure);
            }
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
        let state_updates = updates.cloned().unwrap_or_default();
        let finish = NodeChange::Finish { output: stored, routing_key, to, edge, state_updates };
        self.changed(node, finish);
        self.ended.push((node, output.to_owned()));
        // A reviewed node has its checkpoint already, and nobody goes back to a compensation.
        if !is_human && !self.run.is_ending() {
            self.checkpoint(node, false);
        }
        self.join(node, Ok(output));
    }

    /// Fails a node. An error edge may catch it, and a parallel node may tolerate it; otherwise the
    /// task fails.
    pub(crate) fn fail_node(&mut self, node: usize, code: ErrorCode, error: &str) {
        self.fail_with(node, code, error, None);
    }

    /// Fails a node that has done its work.
    fn fail_node_late(&mut self, node: usize, code: ErrorCode, error: &str, late: LateFailure) {
        self.fail_with(node, code, error, Some(late));
    }

    fn fail_with(&mut self, node: usize, code: ErrorCode, error: &str, late: Option<LateFailure>) {
        self.abandon_items(node, "another item failed");
        let plan = self.run.plan();
        let edge = late.as_ref().and_then(|late| late.edge);
        let link = error_link(plan, &self.progress, node, edge);
        let moved = self.progress.fail(plan, node, link);
        if !self.moved(moved) {
            return;
        }
        let to = link.map(|link| plan.nodes()[plan.links()[link].to].name().clone());
        let edge = link.and_then(|link| u32::try_from(plan.links()[link].edge?).ok());
        let is_needed = link.is_some() || plan.nodes()[node].compensation.is_some();
        let output = late.filter(|_| is_needed).map(|late| late.output);
        let error_text = error.to_owned();
        self.changed(node, NodeChange::Fail { code, error: error_text, to, edge, output });
        self.has_caught |= link.is_some();
        match plan.nodes()[node].branch_of {
            Some(_) => self.join(node, Err((code, error))),
            // A failure at the end of the workflow is recorded, and the rest goes on.
            None if link.is_some() || self.run.is_ending() => {}
            None => self.fail_task(Some(node), code, format!("{}: {error}", self.name(node))),
        }
    }

    /// Allows a node to run after a person's approval.
    pub(crate) fn allow(&mut self, node: usize) {
        let moved = self.progress.allow(node);
        self.moved(moved);
    }

    fn fail_task(&mut self, node: Option<usize>, code: ErrorCode, error: String) {
        if self.failure.is_none() {
            self.failure = Some(self.cause(node, code, error));
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
        self.advance_maps();
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
        if let Some(failure) = self.failure.take() {
            return self.fail(failure);
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
        if self.run.is_ending() {
            return self.conclude_ending();
        }
        if self.progress.is_settled() {
            self.complete()
        } else {
            let error = "nothing is left that could go on, and not every node has ended".to_owned();
            let failure = self.cause(None, ErrorCode::SystemError, error);
            self.fail(failure)
        }
    }

    fn has_ready(&self) -> bool {
        let ready = self.progress.ready(self.run.plan());
        self.has_more_items || ready.iter().any(|node| !self.asks(*node))
    }

    /// True if a ready node needs a person first.
    fn asks(&self, node: usize) -> bool {
        let planned = &self.run.plan().nodes()[node];
        let is_human = matches!(planned.node.kind, WorkflowNodeKind::Human { .. });
        is_human || (planned.pauses && !self.progress.is_allowed(node))
    }

    fn fail(mut self, failure: CompensationCause) -> Decision {
        if self.run.is_ending() {
            return self.cut_ending(&failure.error);
        }
        if let Some(decision) = self.start_ending(&failure) {
            return decision;
        }
        let CompensationCause { code, error, .. } = failure;
        let state = self.batch.state();
        // The output of a map is no answer, because it is not stored in one place.
        let is_answer = |(node, _): &(usize, String)| !self.is_map(*node);
        let has_answer = self.ended.iter().any(is_answer) || state.last_answer().is_some();
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
            [end]
                if !self.is_map(*end)
                    && self.ended.last().is_some_and(|(newest, _)| newest == end) =>
            {
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
