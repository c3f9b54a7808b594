//! Rules that the commands of remote agents share.
//!
//! The journal records a message before it is sent, and the remote task as soon as its id is known.
//! Each message is an execution: starting while it is sent, running while the server works.

use polity_definition::RemoteAgent;
use polity_model::event::{Event, ExecutionChange};
use polity_model::ids::ExecutionId;
use polity_model::machine::execution::ExecutionState;
use polity_model::name::Name;

use crate::decide::cli_run::{RunDoubt, fail_over_budget, open_doubt_review};
use crate::decide::outcomes::execution_event;
use crate::decide::preconditions::unexpected_command;
use crate::decide::{Decision, DecisionContext, DecisionResult, Effect};
use crate::state::TaskState;

/// The number of retries of a message that did not arrive.
pub const REMOTE_RETRIES_MAX: u32 = 3;

/// The remote agent that performs the task, if one does.
pub(crate) fn remote_agent(state: &TaskState) -> Option<&RemoteAgent> {
    state.context()?.agent.remote()
}

/// Sends the newest message, or fails the task if its budget is used up.
pub(crate) fn send_message(
    state: &TaskState,
    ctx: &mut DecisionContext,
    mut events: Vec<Event>,
) -> Decision {
    if let Some(over) = ctx.budget.reached() {
        return fail_over_budget(events, over);
    }
    let id = ExecutionId::from_random_bytes(ctx.entropy.id_bytes());
    let agent = state.task().order().assigned_agent.clone();
    let max_retries = REMOTE_RETRIES_MAX;
    events.push(execution_event(id, ExecutionChange::Start { agent, max_retries }));
    Decision { events, effects: vec![Effect::SendMessage] }
}

/// Continues after the former owner died: follows an accepted remote task, and puts a message in
/// doubt if its acceptance is unknown.
pub(crate) fn resume_remote(state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
    let resumed = vec![Event::TaskResumed];
    let Some(execution) = state.execution() else { return Ok(send_message(state, ctx, resumed)) };
    let effect = match (execution.state, state.retry_at()) {
        // A person has answered, or asked for a retry.
        (ExecutionState::Idle, _) => return Ok(send_message(state, ctx, resumed)),
        (ExecutionState::Running, _) if execution.remote.is_some() => Effect::FollowRemote,
        (ExecutionState::Starting | ExecutionState::Running, _) => {
            let why = "the process that sent the message ended before the server had answered";
            let in_doubt = message_doubt(&execution.agent, why);
            return Ok(open_doubt_review(state, ctx, resumed, in_doubt));
        }
        (ExecutionState::Failed, Some(until)) => Effect::WaitUntil(until),
        // An execution ends and is cleaned up within one commit.
        _ => return Err(unexpected_command(state, "ResumeTask")),
    };
    Ok(Decision { events: resumed, effects: vec![effect] })
}

/// The doubt about a message that may have been accepted.
pub(crate) fn message_doubt(agent: &Name, why: &str) -> RunDoubt {
    RunDoubt {
        failure: format!("{why}; it is unknown whether the server accepted the message"),
        question: format!(
            "A message was sent to {agent}, and it is unknown whether the server accepted it: {why}. \
             Send it again, or continue with a result of your own?"
        ),
    }
}
