//! Starts the run of a queued CLI agent, or fails its task. The runtime drives it when the wait for
//! a concurrency slot ends, with or without a slot. A task that holds a slot from the start skips
//! this command. The three failures name the setting that limits the queue.

use polity_model::event::{Event, ExecutionChange};
use polity_model::failure::ErrorCode;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;

use crate::decide::cli_run::cli_agent;
use crate::decide::outcomes::{cancel_task, execution_event};
use crate::decide::preconditions::unexpected_command;
use crate::decide::{Decision, DecisionContext, DecisionResult, Effect};
use crate::state::TaskState;

/// The wait for a slot is over.
#[derive(Debug, Clone)]
pub struct BeginRun {
    /// The outcome of the wait.
    pub wait: SlotWait,
}

/// The outcome of a wait for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotWait {
    /// The task holds a slot.
    Acquired,
    /// The queue is full, and the agent refuses more.
    Full {
        /// The agent's `queue_limit`.
        limit: u32,
    },
    /// The wait exceeded the agent's queue timeout.
    TooLong {
        /// The agent's `queue_timeout_seconds`.
        seconds: u64,
    },
    /// Slots cannot be acquired at all.
    Unavailable {
        /// The cause.
        message: String,
    },
}

impl BeginRun {
    pub(crate) fn decide(&self, state: &TaskState, _: &DecisionContext) -> DecisionResult {
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
            SlotWait::Acquired => {
                let (agent, max_retries) = (agent.clone(), cli.max_retries);
                let start = ExecutionChange::Start { agent, max_retries };
                return Ok(Decision {
                    events: vec![execution_event(execution.id, start)],
                    effects: vec![Effect::RunCliAgent],
                });
            }
            SlotWait::Full { limit } => format!(
                "the queue of {agent} is full, and its queue_limit is {limit}: try again later, \
                 raise the limit, or set queue_full to wait"
            ),
            SlotWait::TooLong { seconds } => format!(
                "{agent} waited {seconds} seconds for a slot, which is its queue_timeout_seconds: \
                 see what runs with `polity agent status {agent}`"
            ),
            SlotWait::Unavailable { message } => message.clone(),
        };
        let code = match self.wait {
            SlotWait::Acquired | SlotWait::Full { .. } | SlotWait::TooLong { .. } => {
                ErrorCode::LimitQueue
            }
            SlotWait::Unavailable { .. } => ErrorCode::SystemError,
        };
        let failed = Event::TaskFailed { code, error, partial_result: None };
        Ok(Decision { events: vec![failed], effects: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn begin(wait: SlotWait, state: &TaskState) -> DecisionResult {
        BeginRun { wait }.decide(state, &test_context())
    }

    #[test]
    fn acquired_slot_starts_the_run() {
        let decision = begin(SlotWait::Acquired, &run_queued()).unwrap();
        assert_eq!(decision.effects, [Effect::RunCliAgent]);
        let state = with(run_queued(), decision.events);
        assert_eq!(state.execution().unwrap().state, ExecutionState::Starting);
    }

    #[test]
    fn failure_names_the_queue_limit() {
        let error = |wait| {
            let decision = begin(wait, &run_queued()).unwrap();
            let task = with(run_queued(), decision.events).snapshot();
            assert_eq!(task.error_code, Some(ErrorCode::LimitQueue));
            task.error.unwrap()
        };
        insta::assert_snapshot!(
            error(SlotWait::Full { limit: 10 }),
            @"the queue of coder is full, and its queue_limit is 10: try again later, raise the limit, or set queue_full to wait"
        );
        insta::assert_snapshot!(
            error(SlotWait::TooLong { seconds: 1800 }),
            @"coder waited 1800 seconds for a slot, which is its queue_timeout_seconds: see what runs with `polity agent status coder`"
        );
    }

    #[test]
    fn requested_cancel_is_carried_out() {
        let state = with(run_queued(), vec![Event::CancelRequested]);
        let decision = begin(SlotWait::Acquired, &state).unwrap();
        assert_eq!(labels(&decision), ["task_cancelled"]);
    }

    #[test]
    fn running_run_is_refused() {
        assert_rejected!(begin(SlotWait::Acquired, &run_running()), UnexpectedCommand);
    }
}
