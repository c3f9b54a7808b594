//! Starts a pending task. The scheduler drives it in the owning process when a worker is free.
//! `ResumeTask` falls back to it for a task that had not started. The first effect depends on the
//! assignee: a workflow's nodes, a run, a message or a model call.

use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::execution::RETRIES_UNLIMITED;
use polity_model::ids::ExecutionId;
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;

use crate::decide::call_batch::CallBatch;
use crate::decide::cli_run::{ask_about_earlier_run, cli_agent, is_repeatable, start_or_queue};
use crate::decide::continuation::{resume_calls, resume_open_calls};
use crate::decide::outcomes::{call_model, ended_execution, execution_event, final_checkpoint};
use crate::decide::preconditions::unexpected_command;
use crate::decide::remote_task::{remote_agent, send_message};
use crate::decide::{CommandRejection, Decision, DecisionContext, DecisionResult, llm};
use crate::state::TaskState;
use crate::workflow::WorkflowDecision;

/// The scheduler starts the task.
#[derive(Debug, Clone, Copy)]
pub struct StartTask;

impl StartTask {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        match state.status() {
            TaskStatus::Pending => {}
            TaskStatus::Running => return Err(unexpected_command(state, "StartTask")),
            TaskStatus::AwaitingHuman => {
                return Err(CommandRejection::AwaitingHuman { task: state.id() });
            }
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                return Err(CommandRejection::Finished { task: state.id(), status });
            }
        }
        // A fork or retry in the middle of a turn starts with the open calls of that turn.
        if let Some(run) = state.workflow_run() {
            let mut batch = CallBatch::of_state(state, ctx)?;
            batch.push(Event::TaskStarted);
            WorkflowDecision::announce_maps(&mut batch, run);
            resume_open_calls(&mut batch, state)?;
            return Ok(WorkflowDecision::start(batch, run));
        }
        if let Some(cli) = cli_agent(state) {
            if let Some(run) = state.task().order().doubted_run
                && !is_repeatable(cli)
            {
                return Ok(ask_about_earlier_run(state, run, ctx, vec![Event::TaskStarted]));
            }
            return Ok(start_or_queue(state, cli, ctx, vec![Event::TaskStarted]));
        }
        if remote_agent(state).is_some() {
            return Ok(send_message(state, ctx, vec![Event::TaskStarted]));
        }
        // Each model call has its own retries; the execution has their sum.
        let llm = llm(state)?;
        let per_call = llm.max_retries.unwrap_or(RETRIES_UNLIMITED);
        let max_retries = per_call.saturating_mul(llm.max_iterations.get());
        let agent = llm.identity.name.clone();
        let id = ExecutionId::from_random_bytes(ctx.entropy.id_bytes());
        let execution = [
            execution_event(id, ExecutionChange::Start { agent, max_retries }),
            execution_event(id, ExecutionChange::RUN),
        ];
        if state.calls().open().next().is_some() {
            let first = std::iter::once(Event::TaskStarted).chain(execution);
            return resume_calls(state, ctx, first);
        }
        if state.is_retry()
            && let Some(Message::Assistant { content, .. }) = state.messages().last()
        {
            // The answer came when the task was cancelled or had used up its budget.
            let result = ResultRef::Text(content.clone());
            let events = std::iter::once(Event::TaskStarted).chain(execution);
            let ended = ended_execution(id, ExecutionChange::Complete);
            let checkpoint = final_checkpoint(state, ctx);
            let ended = ended.into_iter().chain([checkpoint, Event::TaskCompleted { result }]);
            return Ok(Decision { events: events.chain(ended).collect(), effects: Vec::new() });
        }
        Ok(call_model(state, ctx, vec![Event::TaskStarted], execution))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;

    #[test]
    fn pending_task_calls_its_model() {
        let decision = StartTask.decide(&pending(), &mut test_context()).unwrap();
        let labels: Vec<_> = decision.events.iter().map(Event::label).collect();
        assert_eq!(
            labels,
            ["task_started", "execution_changed", "execution_changed", "model_called"]
        );
        assert_eq!(decision.effects, [Effect::CallModel]);
    }

    #[test]
    fn started_task_is_refused() {
        assert_rejected!(StartTask.decide(&running(), &mut test_context()), UnexpectedCommand);
        assert_rejected!(StartTask.decide(&cancelled(), &mut test_context()), Finished);
        // Another worker of the process has opened a review.
        assert_rejected!(
            StartTask.decide(&turn_with_calls(&["files/delete"]), &mut test_context()),
            AwaitingHuman
        );
    }
}
