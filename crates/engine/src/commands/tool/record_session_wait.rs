//! Records that a sub-agent waits for a person. The runtime drives it when the sub-agent's task
//! opens a review. While other calls of the turn are in progress, the parent continues. Otherwise
//! the parent pauses and has no owner until it is resumed. `ReopenSession` is the counterpart.

use polity_model::ids::ToolCallId;

use crate::decide::call_batch::CallBatch;
use crate::decide::continuation::continue_task;
use crate::decide::outcomes::cancel_task;
use crate::decide::preconditions::expect_running_call;
use crate::decide::{DecisionContext, DecisionResult};
use crate::state::TaskState;

/// A sub-agent waits for a person.
#[derive(Debug, Clone, Copy)]
pub struct RecordSessionWait {
    /// The call that the sub-agent answers.
    pub call_id: ToolCallId,
}

impl RecordSessionWait {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (index, call) = expect_running_call(state, self.call_id, "RecordSessionWait")?;
        let mut batch = CallBatch::of_state(state, ctx)?;
        batch.wait_for_session(index, call.id());
        if state.cancel_requested() {
            return Ok(cancel_task(state, batch.into_events()));
        }
        Ok(continue_task(batch))
    }
}

#[cfg(test)]
mod tests {
    use polity_model::machine::task::TaskStatus;

    use super::*;
    use crate::commands::{ClaimTask, ReopenSession};
    use crate::decide::fixtures::prelude::*;
    use crate::driver::{AskedTool, ToolSpec};

    /// A context whose toolbox has a sub-agent.
    fn context_with_helper() -> DecisionContext {
        let mut ctx = test_context();
        let schema = json!({"type": "object"}).as_object().unwrap().clone();
        let (name, text) = ("agent/helper".parse().unwrap(), String::new());
        let tool = ToolSpec::new(name, text, schema, None, true, Duration::MAX, Vec::new());
        ctx.toolbox = Arc::new(ctx.toolbox.joined(&[Arc::new(tool)]));
        ctx
    }

    /// A task whose model has requested these tools, each `server/tool`.
    fn turn_with_calls(tools: &[&str]) -> TaskState {
        let ask = |tool: &&str| {
            let (server, tool) = tool.split_once('/').unwrap();
            AskedTool {
                server: server.to_owned(),
                tool: tool.to_owned(),
                arguments: AskedArguments::Object(serde_json::Map::new()),
                signature: None,
            }
        };
        let mut asked = reply("");
        asked.tool_calls = tools.iter().map(ask).collect();
        let answer = RecordModelReply { reply: asked, duration_ms: 1 };
        let decision = answer.decide(&running(), &mut context_with_helper()).unwrap();
        with(running(), decision.events)
    }

    fn waits(state: &TaskState, index: usize) -> Decision {
        let wait = RecordSessionWait { call_id: call_id(state, index) };
        wait.decide(state, &mut context_with_helper()).unwrap()
    }

    #[test]
    fn task_pauses_without_other_calls() {
        let state = turn_with_calls(&["agent/helper"]);
        let decision = waits(&state, 0);
        assert_eq!(labels(&decision), ["tool_waits", "task_paused"]);
        assert_eq!(decision.effects, []);
        let state = with(state, decision.events);
        assert_eq!((state.status(), state.owner()), (TaskStatus::AwaitingHuman, None));
        assert!(state.is_paused());
        let claim =
            ClaimTask { instance: crate::decide::fixtures::instance(2), owner_alive: false };
        let state = with(state.clone(), claim.decide(&state).unwrap().events);
        let resumed = ResumeTask.decide(&state, &mut context_with_helper()).unwrap();
        assert_eq!(labels(&resumed), ["task_resumed", "tool_called"]);
        let call_id = call_id(&state, 0);
        assert_eq!(resumed.effects, [Effect::OpenSession { call_id, deadline: None }]);
        assert_eq!(with(state, resumed.events).status(), TaskStatus::Running);
    }

    #[test]
    fn session_is_watched_during_other_calls() {
        let state = turn_with_calls(&["agent/helper", "time/now"]);
        let decision = waits(&state, 0);
        let helper = call_id(&state, 0);
        assert_eq!(labels(&decision), ["tool_waits"]);
        assert_eq!(decision.effects, [Effect::WatchSession { call_id: helper }]);
        let state = with(state, decision.events);
        let reopen = ReopenSession { call_id: helper };
        let reopened = reopen.decide(&state, &mut context_with_helper()).unwrap();
        assert_eq!(labels(&reopened), ["tool_called"]);
        assert_eq!(reopened.effects, [Effect::OpenSession { call_id: helper, deadline: None }]);
        // The other call ends first, so the task pauses with the sub-agent.
        let (call_id, reply) = (call_id(&state, 1), ToolReply::default());
        let reply = RecordToolReply { call_id, reply, duration_ms: 1 };
        let decision = reply.decide(&state, &mut context_with_helper()).unwrap();
        assert_eq!(labels(&decision), ["tool_answered", "task_paused"]);
    }

    #[test]
    fn cancel_of_a_paused_task_answers_its_call() {
        let state = turn_with_calls(&["agent/helper"]);
        let decision = waits(&state, 0);
        let state = with(state, decision.events);
        let by = CancelOrigin::Other { owner_alive: false };
        let decision = CancelTask { by }.decide(&state).unwrap();
        assert_eq!(labels(&decision)[0], "tool_answered");
        assert!(decision.events.contains(&Event::TaskCancelled));
    }

    #[test]
    fn only_open_sessions_wait_and_only_waiting_ones_reopen() {
        let state = turn_with_calls(&["agent/helper"]);
        let call_id = call_id(&state, 0);
        let reopen = ReopenSession { call_id }.decide(&state, &mut test_context());
        assert_eq!(reopen, Ok(Decision::default()));
        assert_rejected!(
            RecordSessionWait { call_id }.decide(&running(), &mut test_context()),
            UnexpectedCommand
        );
    }
}
