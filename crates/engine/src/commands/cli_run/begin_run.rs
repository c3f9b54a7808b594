//! A place is free for a program that waited for one, or waiting is over without one. The runtime
//! drives it, which has looked at the line and holds the place.

use polity_model::event::{Event, ExecutionChange};
use polity_model::failure::ErrorCode;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;

use crate::decide::cli_run::cli_agent;
use crate::decide::outcomes::{cancel_task, execution_event};
use crate::decide::preconditions::unexpected_command;
use crate::decide::{CommandRejection, Decision, DecisionContext, Effect};
use crate::state::TaskState;

/// The wait for a place is over.
#[derive(Debug, Clone)]
pub struct BeginRun {
    /// How it ended.
    pub wait: SlotWait,
}

/// How a wait for a place ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotWait {
    /// With a place.
    Place,
    /// The line is as long as it may be.
    Full {
        /// How many wait already.
        waiting: usize,
    },
    /// It took longer than it may.
    TooLong,
    /// Places cannot be taken at all.
    Broken {
        /// Why not.
        message: String,
    },
}

impl BeginRun {
    pub(crate) fn decide(
        &self,
        state: &TaskState,
        _: &DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        let (Some(cli), Some(execution), TaskStatus::Running) =
            (cli_agent(state), state.execution(), state.status())
        else {
            return Err(unexpected_command(state, "BeginRun"));
        };
        if execution.state != ExecutionState::Idle || execution.is_over() {
            return Err(unexpected_command(state, "BeginRun"));
        }
        if state.cancel_requested() {
            return Ok(cancel_task(state, Vec::new()));
        }
        let agent = &execution.agent;
        let error = match &self.wait {
            SlotWait::Place => {
                let (agent, max_retries) = (agent.clone(), cli.max_retries);
                let start = ExecutionChange::Start { agent, max_retries };
                return Ok(Decision {
                    events: vec![execution_event(execution.id, start)],
                    effects: vec![Effect::RunCliAgent],
                });
            }
            SlotWait::Full { waiting } => format!(
                "{waiting} runs wait already where {agent} runs, and its queue_limit is {}: try \
                 again later, or raise the limit",
                cli.queue_limit
            ),
            SlotWait::TooLong => format!(
                "{agent} waited {} seconds for a place, which is its queue_timeout_seconds: see \
                 what runs with `polity agent status {agent}`",
                cli.queue_timeout_seconds
            ),
            SlotWait::Broken { message } => message.clone(),
        };
        let code = match self.wait {
            SlotWait::Place | SlotWait::Full { .. } | SlotWait::TooLong => ErrorCode::LimitQueue,
            SlotWait::Broken { .. } => ErrorCode::SystemError,
        };
        let failed = Event::TaskFailed { code, error, partial_result: None };
        Ok(Decision { events: vec![failed], effects: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::{labels, program_queued, program_running, test_context, with};

    fn begin(wait: SlotWait, state: &TaskState) -> Result<Decision, CommandRejection> {
        BeginRun { wait }.decide(state, &test_context())
    }

    #[test]
    fn with_a_place_the_program_is_run() {
        let decision = begin(SlotWait::Place, &program_queued()).unwrap();
        assert_eq!(decision.effects, [Effect::RunCliAgent]);
        let state = with(program_queued(), decision.events);
        assert_eq!(state.execution().unwrap().state, ExecutionState::Starting);
    }

    #[test]
    fn without_one_the_task_fails_and_names_the_limit() {
        for (wait, limit) in [
            (SlotWait::Full { waiting: 10 }, "queue_limit is 10"),
            (SlotWait::TooLong, "queue_timeout_seconds"),
        ] {
            let decision = begin(wait, &program_queued()).unwrap();
            let task = with(program_queued(), decision.events).snapshot();
            assert_eq!(task.error_code, Some(ErrorCode::LimitQueue));
            assert!(task.error.unwrap().contains(limit));
        }
    }

    #[test]
    fn who_asked_for_the_end_gets_it() {
        let state = with(program_queued(), vec![Event::CancelRequested]);
        let decision = begin(SlotWait::Place, &state).unwrap();
        assert_eq!(labels(&decision), ["task_cancelled"]);
    }

    #[test]
    fn one_that_runs_does_not_begin() {
        let refused = begin(SlotWait::Place, &program_running());
        assert!(matches!(refused, Err(CommandRejection::UnexpectedCommand { .. })), "{refused:?}");
    }
}
