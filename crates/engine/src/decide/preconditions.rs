//! Checks that a command fits the current state of its task.

use polity_model::ids::ToolCallId;
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::task::TaskStatus;
use polity_model::machine::tool_call::CallState;

use crate::decide::CommandRejection;
use crate::state::{TaskState, TurnCall};

/// Checks that the task did not come from an archive, or that a person trusts it.
pub(crate) fn expect_trust(state: &TaskState) -> Result<(), CommandRejection> {
    // An ended task runs nothing; forks check by themselves.
    if state.needs_trust() && !state.status().is_final() {
        return Err(CommandRejection::NeedsTrust { task: state.id() });
    }
    Ok(())
}

/// Checks that the task waits for its model.
pub(crate) fn expect_reasoning(
    state: &TaskState,
    command: &'static str,
) -> Result<(), CommandRejection> {
    if state.doing() == LoopState::Reasoning && state.status() == TaskStatus::Running {
        Ok(())
    } else {
        Err(unexpected_command(state, command))
    }
}

/// Checks that the call is running.
pub(crate) fn expect_running_call<'a>(
    state: &'a TaskState,
    id: ToolCallId,
    command: &'static str,
) -> Result<(usize, &'a TurnCall), CommandRejection> {
    state
        .calls()
        .index(id)
        .zip(state.calls().get(id))
        .filter(|(_, call)| call.state == CallState::Running)
        .ok_or_else(|| unexpected_command(state, command))
}

pub(crate) fn unexpected_command(state: &TaskState, command: &'static str) -> CommandRejection {
    let (task, status, doing) = (state.id(), state.status(), state.doing());
    if status.is_final() {
        return CommandRejection::Finished { task, status };
    }
    CommandRejection::UnexpectedCommand { task, status, doing, command }
}
