//! Goes on with a task whose former owner is gone. The new owner drives it right after its claim.
//! What was in flight is decided here: a model call has no effect outside, so it is made again; a
//! tool call is made again if it may be, and is put before a person if not, and so is a message to
//! another server; what that works on is followed; a wait for the next try
//! goes on; a cancel that was asked for is carried out.

use polity_model::event::Event;
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;

use crate::commands::StartTask;
use crate::decide::cli_run::{cli_agent, start_or_queue};
use crate::decide::continuation::resume_calls;
use crate::decide::outcomes::{call_model, cancel_task};
use crate::decide::preconditions::unexpected_command;
use crate::decide::remote_task::{remote_agent, resume_remote};
use crate::decide::{CommandRejection, Decision, DecisionContext, Effect};
use crate::state::TaskState;

/// The former owner is gone.
#[derive(Debug, Clone, Copy)]
pub struct ResumeTask;

impl ResumeTask {
    pub(crate) fn decide(
        self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        let task = state.id();
        match state.status() {
            TaskStatus::Pending => StartTask.decide(state, ctx),
            // Its sub-agents are looked after again: a person may have answered one of them.
            TaskStatus::AwaitingHuman if state.is_paused() => {
                resume_calls(state, ctx, [Event::TaskResumed])
            }
            TaskStatus::AwaitingHuman => Err(CommandRejection::AwaitingHuman { task }),
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                Err(CommandRejection::Finished { task, status })
            }
            TaskStatus::Running if state.cancel_requested() => Ok(cancel_task(state, Vec::new())),
            TaskStatus::Running if cli_agent(state).is_some() => resume_program(state, ctx),
            TaskStatus::Running if remote_agent(state).is_some() => resume_remote(state, ctx),
            TaskStatus::Running => match (state.doing(), state.retry_at()) {
                (LoopState::BackingOff, Some(until)) => Ok(Decision {
                    events: vec![Event::TaskResumed],
                    effects: vec![Effect::WaitUntil(until)],
                }),
                (LoopState::Idle | LoopState::Reasoning | LoopState::BackingOff, _) => {
                    Ok(call_model(state, ctx, vec![Event::TaskResumed], []))
                }
                (LoopState::Acting, _) => resume_calls(state, ctx, [Event::TaskResumed]),
                // What follows from an answer is in the commit that has the answer.
                (LoopState::Asking | LoopState::Answered | LoopState::Over, _) => {
                    Err(unexpected_command(state, "ResumeTask"))
                }
            },
        }
    }
}

/// A program that was running is looked for; one that was not gets its place, or its next try.
fn resume_program(
    state: &TaskState,
    ctx: &mut DecisionContext,
) -> Result<Decision, CommandRejection> {
    let resumed = vec![Event::TaskResumed];
    let Some(cli) = cli_agent(state) else { return Err(unexpected_command(state, "ResumeTask")) };
    let effect = match state.execution() {
        None => return Ok(start_or_queue(state, cli, ctx, resumed)),
        Some(execution) => match (execution.state, state.retry_at()) {
            // It is in line, or a person has said that it is to be run again.
            (ExecutionState::Idle, _) => return Ok(start_or_queue(state, cli, ctx, resumed)),
            (ExecutionState::Starting | ExecutionState::Running, _) => Effect::RecoverRun,
            (ExecutionState::Failed, Some(until)) => Effect::WaitUntil(until),
            // It ends, and is put in order, within one commit.
            (
                ExecutionState::Failed
                | ExecutionState::Completed
                | ExecutionState::Timeout
                | ExecutionState::Cancelled
                | ExecutionState::Cleanup,
                _,
            ) => return Err(unexpected_command(state, "ResumeTask")),
        },
    };
    Ok(Decision { events: resumed, effects: vec![effect] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::{
        self, backing_off, labels, pending, running, test_context, turn_with_calls,
    };

    fn resume(state: &TaskState) -> Result<(Vec<&'static str>, Vec<Effect>), CommandRejection> {
        let decision = ResumeTask.decide(state, &mut test_context())?;
        Ok((decision.events.iter().map(Event::label).collect(), decision.effects))
    }

    #[test]
    fn a_call_in_flight_is_made_again() {
        let expected = (vec!["task_resumed", "model_called"], vec![Effect::CallModel]);
        assert_eq!(resume(&running()), Ok(expected));
    }

    #[test]
    fn a_wait_goes_on_until_its_own_time() {
        let state = backing_off();
        let until = state.retry_at().unwrap();
        assert_eq!(resume(&state), Ok((vec!["task_resumed"], vec![Effect::WaitUntil(until)])));
    }

    #[test]
    fn a_task_that_had_not_begun_begins() {
        assert_eq!(resume(&pending()).unwrap().0[0], "task_started");
    }

    #[test]
    fn a_cancel_that_was_asked_for_is_carried_out() {
        let state = fixtures::with(running(), vec![Event::CancelRequested]);
        let (labels, effects) = resume(&state).unwrap();
        assert_eq!(labels.last(), Some(&"task_cancelled"));
        assert_eq!(effects, []);
    }

    #[test]
    fn what_is_over_is_not_resumed() {
        assert!(matches!(resume(&fixtures::cancelled()), Err(CommandRejection::Finished { .. })));
    }

    #[test]
    fn a_tool_call_in_flight_is_made_again_only_if_it_may_be() {
        let state = turn_with_calls(&["files/read", "files/write", "files/delete"]);
        let decision = ResumeTask.decide(&state, &mut test_context()).unwrap();
        assert_eq!(labels(&decision), ["task_resumed", "tool_called", "tool_doubted"]);
        assert!(matches!(decision.effects.as_slice(), [Effect::CallTool { .. }]));
        // Alone, the one in doubt is put before a person at once.
        let state = turn_with_calls(&["files/write"]);
        let decision = ResumeTask.decide(&state, &mut test_context()).unwrap();
        assert_eq!(
            labels(&decision),
            ["task_resumed", "tool_doubted", "checkpoint_taken", "review_opened"]
        );
        assert_eq!(decision.effects, []);
    }
}
