//! Continues a task whose former owner died. The new owner drives it right after its claim. Model
//! calls are repeated, because they have no outside effect. Tool calls are repeated if they are
//! repeatable; otherwise a person decides, as for a message whose acceptance is unknown. Remote
//! tasks are followed, backoffs continue, and a requested cancel is carried out.

use polity_model::event::Event;
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;

use crate::commands::StartTask;
use crate::decide::cli_run::{cli_agent, start_or_queue};
use crate::decide::continuation::resume_calls;
use crate::decide::outcomes::{call_model, cancel_task, lost_model_call};
use crate::decide::preconditions::unexpected_command;
use crate::decide::remote_task::{remote_agent, resume_remote};
use crate::decide::{CommandRejection, Decision, DecisionContext, DecisionResult, Effect};
use crate::state::TaskState;

/// The former owner died.
#[derive(Debug, Clone, Copy)]
pub struct ResumeTask;

impl ResumeTask {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let task = state.id();
        match state.status() {
            TaskStatus::Pending => StartTask.decide(state, ctx),
            // A person may have answered one of its sub-agents.
            TaskStatus::AwaitingHuman if state.is_paused() => {
                resume_calls(state, ctx, [Event::TaskResumed])
            }
            TaskStatus::AwaitingHuman => Err(CommandRejection::AwaitingHuman { task }),
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                Err(CommandRejection::Finished { task, status })
            }
            TaskStatus::Running if state.cancel_requested() => Ok(cancel_task(state, Vec::new())),
            TaskStatus::Running if cli_agent(state).is_some() => resume_run(state, ctx),
            TaskStatus::Running if remote_agent(state).is_some() => resume_remote(state, ctx),
            TaskStatus::Running => match (state.doing(), state.retry_at()) {
                (LoopState::BackingOff, Some(until)) => Ok(Decision {
                    events: vec![Event::TaskResumed],
                    effects: vec![Effect::WaitUntil(until)],
                }),
                (LoopState::Idle | LoopState::Reasoning | LoopState::BackingOff, _) => {
                    let lost = lost_model_call(state, "the process ended during the call");
                    let events = [Event::TaskResumed].into_iter().chain(lost).collect();
                    Ok(call_model(state, ctx, events, []))
                }
                (LoopState::Acting, _) => resume_calls(state, ctx, [Event::TaskResumed]),
                // The consequences of an answer are in the same commit as the answer.
                (LoopState::Asking | LoopState::Answered | LoopState::Over, _) => {
                    Err(unexpected_command(state, "ResumeTask"))
                }
            },
        }
    }
}

/// Recovers a started run; otherwise queues the run or continues its backoff.
fn resume_run(state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
    let resumed = vec![Event::TaskResumed];
    let Some(cli) = cli_agent(state) else { return Err(unexpected_command(state, "ResumeTask")) };
    let execution = state.execution().map(|execution| execution.state);
    let effect = match (execution, state.retry_at()) {
        // The run is queued, or a person asked for a retry.
        (None | Some(ExecutionState::Idle), _) => {
            return Ok(start_or_queue(state, cli, ctx, resumed));
        }
        (Some(ExecutionState::Starting | ExecutionState::Running), _) => Effect::RecoverRun,
        (Some(ExecutionState::Failed), Some(until)) => Effect::WaitUntil(until),
        // An execution ends and is cleaned up within one commit.
        (Some(_), _) => return Err(unexpected_command(state, "ResumeTask")),
    };
    Ok(Decision { events: resumed, effects: vec![effect] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn resume(state: &TaskState) -> Result<(Vec<&'static str>, Vec<Effect>), CommandRejection> {
        let decision = ResumeTask.decide(state, &mut test_context())?;
        Ok((decision.events.iter().map(Event::label).collect(), decision.effects))
    }

    #[test]
    fn model_call_is_repeated() {
        let labels = vec!["task_resumed", "model_failed", "model_called"];
        let expected = (labels, vec![Effect::CallModel]);
        assert_eq!(resume(&running()), Ok(expected));
    }

    #[test]
    fn backoff_continues() {
        let state = backing_off();
        let until = state.retry_at().unwrap();
        assert_eq!(resume(&state), Ok((vec!["task_resumed"], vec![Effect::WaitUntil(until)])));
    }

    #[test]
    fn pending_task_starts() {
        assert_eq!(resume(&pending()).unwrap().0[0], "task_started");
    }

    #[test]
    fn requested_cancel_is_carried_out() {
        let state = with(running(), vec![Event::CancelRequested]);
        let (labels, effects) = resume(&state).unwrap();
        assert_eq!(labels.last(), Some(&"task_cancelled"));
        assert_eq!(effects, []);
    }

    #[test]
    fn finished_task_is_refused() {
        assert_rejected!(resume(&cancelled()), Finished);
    }

    #[test]
    fn only_repeatable_calls_are_repeated() {
        let state = turn_with_calls(&["files/read", "files/write", "files/delete"]);
        let decision = ResumeTask.decide(&state, &mut test_context()).unwrap();
        assert_eq!(labels(&decision), ["task_resumed", "tool_called", "tool_doubted"]);
        assert!(matches!(decision.effects.as_slice(), [Effect::CallTool { .. }]));
        // Without other open calls, the call in doubt is reviewed at once.
        let state = turn_with_calls(&["files/write"]);
        let decision = ResumeTask.decide(&state, &mut test_context()).unwrap();
        assert_eq!(
            labels(&decision),
            ["task_resumed", "tool_doubted", "checkpoint_taken", "review_opened"]
        );
        assert_eq!(decision.effects, []);
    }
}
