//! Records the result of the task that this one duplicates. The runtime drives it when the original
//! ends or is no longer waited for. A result of the original becomes the result of this task.
//! Without one, the task waits for another original or runs its own agent.

use polity_model::event::{Event, ResultRef};
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;

use crate::decide::cli_run::{cli_agent, start_or_queue};
use crate::decide::outcomes::cancel_task;
use crate::decide::preconditions::unexpected_command;
use crate::decide::{Decision, DecisionContext, DecisionResult};
use crate::state::TaskState;

/// The original has ended, or is no longer waited for.
#[derive(Debug, Clone)]
pub struct RecordDuplicate {
    /// The result of the original, if there is one.
    pub result: Option<String>,
}

impl RecordDuplicate {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (Some(cli), Some(_), TaskStatus::Running) =
            (cli_agent(state), state.task().shared_with(), state.status())
        else {
            return Err(unexpected_command(state, "RecordDuplicate"));
        };
        if state.cancel_requested() {
            return Ok(cancel_task(state, Vec::new()));
        }
        let Some(result) = &self.result else {
            return Ok(start_or_queue(state, cli, ctx, Vec::new()));
        };
        let (content, timestamp) = (result.clone(), ctx.now);
        let message = Message::Assistant { content, tool_calls: Vec::new(), timestamp };
        let events = vec![
            Event::MessageAdded { message },
            Event::TaskCompleted { result: ResultRef::LastAnswer },
        ];
        Ok(Decision { events, effects: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use polity_model::ids::TaskId;

    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn original() -> TaskId {
        TaskId::from_random_bytes([9; 16])
    }

    #[test]
    fn result_of_the_original_is_used() {
        let state = with(run_queued(), vec![Event::RunShared { with: original() }]);
        let command = RecordDuplicate { result: Some("done".into()) };
        let decision = command.decide(&state, &mut test_context()).unwrap();
        let task = with(state.clone(), decision.events).snapshot();
        assert_eq!((task.result.as_deref(), task.shared_with), (Some("done"), Some(original())));
        let state = with(state, vec![Event::CancelRequested]);
        let decision = command.decide(&state, &mut test_context()).unwrap();
        assert_eq!(labels(&decision), ["task_cancelled"]);
        assert_rejected!(command.decide(&run_running(), &mut test_context()), UnexpectedCommand);
    }

    #[test]
    fn runs_itself_if_the_original_has_no_result() {
        let state = with(run_queued(), vec![Event::RunShared { with: original() }]);
        let command = RecordDuplicate { result: None };
        let decision = command.decide(&state, &mut test_context()).unwrap();
        assert_eq!(decision.effects, [Effect::WaitForSlot]);
    }
}
