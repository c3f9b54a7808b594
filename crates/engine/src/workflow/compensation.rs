//! The end of a workflow that failed or was cancelled: `on_cancel` and compensations.
//!
//! Compensations run one at a time, newest finished node first. Each is a node of the plan with a
//! call of its own, so crashes, retries and doubts are handled as for every other node.

use polity_model::event::{CompensationCause, Event, NodeChange, NodeOutput, ToolChange};
use polity_model::failure::ErrorCode;
use polity_model::ids::ToolCallId;
use polity_model::machine::node::NodeState;
use polity_model::machine::task::TaskStatus;
use polity_model::machine::tool_call::CallState;
use polity_model::state::StateUpdates;

use super::WorkflowDecision;
use crate::decide::outcomes::answer_open_calls;
use crate::decide::{Decision, Effect};
use crate::state::{TaskState, TurnCall, WorkflowRun};

/// The reason in the error of a task whose compensations were stopped by a second cancel.
const CUT_BY_CANCEL: &str = "a second cancel stopped";

impl WorkflowDecision<'_> {
    /// Starts the compensation of the newest finished node, once nothing else is in progress.
    pub(super) fn begin_compensation(&mut self) {
        let is_busy = self.batch.call_states().iter().any(|call| *call != CallState::Answered)
            || !self.progress.ready(self.run.plan()).is_empty()
            || !self.progress.is_settled();
        let Some(node) = self.run.next_compensation().filter(|_| !is_busy) else { return };
        let moved = self.progress.restart(node);
        if !self.moved(moved) {
            return;
        }
        if let Err((code, why)) = self.begin_node(node) {
            self.fail_node(node, code, &why);
        }
    }

    /// Goes on with the next compensation, or ends the task.
    pub(super) fn conclude_ending(mut self) -> Decision {
        let after = match self.batch.state_after_events() {
            Ok(after) => after,
            Err(broken) => return self.cut_ending(&broken.to_string()),
        };
        match after.workflow_run() {
            Some(run) if run.next_compensation().is_some() => {
                self.batch.into_decision([Effect::AdvanceWorkflow])
            }
            Some(run) => {
                let mut events = self.batch.take_events();
                events.extend(run.end_events(None));
                Decision { events, effects: Vec::new() }
            }
            None => self.cut_ending("the workflow is gone"),
        }
    }

    /// Ends the task although compensations remain.
    pub(super) fn cut_ending(mut self, why: &str) -> Decision {
        let state = self.batch.state();
        self.batch.answer_new_calls("the task ended");
        let mut events = self.batch.take_events();
        answer_open_calls(state, "the task ended", &mut events);
        events.extend(self.run.end_events(Some(why)));
        Decision { events, effects: Vec::new() }
    }

    /// Starts the compensations after a failure; none if there is nothing to undo.
    pub(super) fn start_ending(&mut self, failure: &CompensationCause) -> Option<Decision> {
        let plan = self.run.plan();
        if !plan.has_compensations() || self.batch.state().status() != TaskStatus::Running {
            return None;
        }
        let after = self.batch.state_after_events().ok()?;
        after.workflow_run()?.next_compensation()?;
        self.batch.answer_new_calls("the task failed");
        let open = open_calls(self.batch.state(), self.batch.events());
        let mut events = self.batch.take_events();
        answer_open_calls(self.batch.state(), "the task failed", &mut events);
        events.push(Event::CompensationStarted { failure: Some(failure.clone()) });
        let abandoned = open.into_iter().map(|call_id| Effect::AbandonCall { call_id });
        Some(Decision { events, effects: abandoned.chain([Effect::AdvanceWorkflow]).collect() })
    }

    /// The cause of the task's failure.
    pub(super) fn cause(
        &self,
        node: Option<usize>,
        code: ErrorCode,
        error: String,
    ) -> CompensationCause {
        CompensationCause { code, error, node: node.map(|node| self.name(node).clone()) }
    }
}

/// Decides about a cancel of a workflow that has something to run before it ends, or that runs it
/// already. None if the task ends at once like every other.
pub(crate) fn cancel_workflow(state: &TaskState, events: &[Event]) -> Option<Decision> {
    let run = state.workflow_run()?;
    let mut events = events.to_vec();
    if run.is_ending() {
        answer_open_calls(state, "the compensation was cancelled", &mut events);
        events.extend(run.end_events(Some(CUT_BY_CANCEL)));
        return Some(Decision { events, effects: Vec::new() });
    }
    // Nothing of it has run, or nothing of it may run.
    if state.status() == TaskStatus::Pending || state.needs_trust() {
        return None;
    }
    finish_answered(run, &mut events);
    let finishes = |event: &Event| {
        matches!(event, Event::NodeChanged { change: NodeChange::Finish { .. }, .. })
    };
    let has_work = run.plan().on_cancel().is_some()
        || run.next_compensation().is_some()
        || events.iter().any(finishes);
    if !has_work {
        return None;
    }
    let open = open_calls(state, &events);
    answer_open_calls(state, "the task was cancelled", &mut events);
    events.push(Event::CompensationStarted { failure: None });
    let abandoned = open.into_iter().map(|call_id| Effect::AbandonCall { call_id });
    Some(Decision { events, effects: abandoned.chain([Effect::AdvanceWorkflow]).collect() })
}

/// Finishes the nodes whose calls have just succeeded, so that they are undone too.
fn finish_answered(run: &WorkflowRun, events: &mut Vec<Event>) {
    let answered: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            Event::ToolChanged {
                call_id,
                change: ToolChange::Answer { is_error: false, item: None, .. },
            } => run.node_of(*call_id),
            _ => None,
        })
        .filter(|node| run.progress().node(*node) == NodeState::Running)
        .filter(|node| run.plan().nodes()[*node].compensation.is_some())
        .collect();
    events.extend(answered.into_iter().map(|node| Event::NodeChanged {
        node: run.plan().nodes()[node].name().clone(),
        change: NodeChange::Finish {
            output: NodeOutput::Answer,
            routing_key: None,
            to: Vec::new(),
            edge: None,
            state_updates: StateUpdates::default(),
        },
    }));
}

/// The calls in progress that these events do not answer.
fn open_calls(state: &TaskState, events: &[Event]) -> Vec<ToolCallId> {
    let is_answered = |id| {
        events.iter().any(|event| {
            matches!(event, Event::ToolChanged { call_id, change: ToolChange::Answer { .. } }
                if *call_id == id)
        })
    };
    state.calls().open().map(TurnCall::id).filter(|id| !is_answered(*id)).collect()
}
