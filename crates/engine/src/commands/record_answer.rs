//! The model has answered. The runtime drives it with what the driver brought. An answer that asks
//! for tools goes on to the next turn of the loop; any other ends the task. The answer is recorded
//! even when the task is to be cancelled, because it has been paid for.

use polity_model::definition::LlmAgent;
use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::{ErrorCategory, ErrorCode, Failure};
use polity_model::ids::{CheckpointId, ToolCallId};
use polity_model::message::{Message, ToolCall};
use polity_model::usage::{Cost, Usage};

use super::{cancelled, end_execution, expect_awaiting_model};
use crate::decide::{Decision, Effect, Given, Rejection, llm};
use crate::driver::ModelReply;
use crate::state::TaskState;

/// What the model said.
#[derive(Debug, Clone)]
pub struct RecordAnswer {
    /// The answer.
    pub reply: ModelReply,
    /// How long it took.
    pub duration_ms: u64,
}

impl RecordAnswer {
    pub(crate) fn decide(
        &self,
        state: &TaskState,
        given: &mut Given,
    ) -> Result<Decision, Rejection> {
        expect_awaiting_model(state, "RecordAnswer")?;
        let llm = llm(state)?;
        let tool_calls: Vec<ToolCall> = self
            .reply
            .tool_calls
            .iter()
            .map(|asked| asked.with_id(ToolCallId::from_random_bytes(given.entropy.id_bytes())))
            .collect();
        let unavailable: Vec<Event> =
            tool_calls.iter().map(|call| not_available(call, given)).collect();
        let mut events = vec![Event::ModelAnswered {
            message: Message::Assistant {
                content: self.reply.content.clone(),
                tool_calls,
                timestamp: given.now,
            },
            usage: charged(self.reply.usage, llm),
            duration_ms: self.duration_ms,
            mark: self.reply.mark,
        }];
        let effect = if state.cancel_requested() {
            events.extend(cancelled(state));
            None
        } else if !unavailable.is_empty() {
            events.extend(unavailable);
            next_turn(state, llm, &mut events)
        } else if self.reply.content.trim().is_empty() {
            let message = "the model answered with neither text nor tool calls".to_owned();
            fail(state, &mut events, ErrorCode::EmptyAnswer, message);
            None
        } else {
            complete(state, given, &mut events);
            None
        };
        Ok(Decision { events, effect })
    }
}

/// Calls the model again, unless it has had all its turns.
fn next_turn(state: &TaskState, llm: &LlmAgent, events: &mut Vec<Event>) -> Option<Effect> {
    let answers = state.iterations() + 1;
    let limit = llm.max_iterations.get();
    if answers >= limit {
        let message = format!("no final answer after {limit} turns, the agent's max_iterations");
        fail(state, events, ErrorCode::LimitIterations, message);
        return None;
    }
    events.push(Event::ModelCalled { iteration: answers + 1 });
    Some(Effect::CallModel)
}

/// Every call gets its answer, or no model would accept the conversation again.
fn not_available(call: &ToolCall, given: &Given) -> Event {
    let content = format!(
        "error: there is no tool {}/{} for this agent; answer without it",
        call.server, call.tool
    );
    Event::MessageAdded {
        message: Message::Tool { tool_call_id: call.id, content, timestamp: given.now },
    }
}

/// The agent's own price is charged where the driver knows none.
fn charged(usage: Usage, llm: &LlmAgent) -> Usage {
    match &llm.llm_config.price {
        Some(price) if usage.cost == Cost::ZERO => {
            let mut cost = Cost::of_tokens(usage.input_tokens, price.input_per_million_usd.get());
            cost += Cost::of_tokens(usage.output_tokens, price.output_per_million_usd.get());
            Usage { cost, ..usage }
        }
        Some(_) | None => usage,
    }
}

fn complete(state: &TaskState, given: &mut Given, events: &mut Vec<Event>) {
    events.extend(end_execution(state, ExecutionChange::Complete));
    events.push(Event::CheckpointTaken {
        checkpoint_id: CheckpointId::from_random_bytes(given.entropy.id_bytes()),
        sequence: state.checkpoints(),
        node: state.context().agent.name.to_string(),
        awaiting_human: false,
    });
    events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
}

fn fail(state: &TaskState, events: &mut Vec<Event>, code: ErrorCode, error: String) {
    let failure = Failure { category: ErrorCategory::AgentError, message: error.clone() };
    events.extend(end_execution(state, ExecutionChange::Fail { failure, retry_at: None }));
    events.push(Event::TaskFailed { code, error, partial_result: Some(ResultRef::LastAnswer) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{self, asks_for_tool, given, pending, reply, running, with};

    fn record(state: &TaskState, reply: ModelReply) -> Result<Decision, Rejection> {
        RecordAnswer { reply, duration_ms: 1 }.decide(state, &mut given())
    }

    fn labels(decision: &Decision) -> Vec<&'static str> {
        decision.events.iter().map(Event::label).collect()
    }

    #[test]
    fn an_answer_completes_the_task() {
        let decision = record(&running(), reply("Hello, Ada.")).unwrap();
        assert_eq!(
            labels(&decision),
            [
                "model_answered",
                "execution_changed",
                "execution_changed",
                "execution_changed",
                "checkpoint_taken",
                "task_completed"
            ]
        );
        let done = with(running(), decision.events).snapshot();
        assert_eq!(done.result.as_deref(), Some("Hello, Ada."));
    }

    #[test]
    fn a_call_of_a_tool_that_is_not_there_is_answered_and_the_loop_goes_on() {
        let decision = record(&running(), asks_for_tool()).unwrap();
        assert_eq!(labels(&decision), ["model_answered", "message_added", "model_called"]);
        assert_eq!(decision.effect, Some(Effect::CallModel));
    }

    #[test]
    fn the_last_turn_ends_with_what_there_is() {
        let mut state = running();
        for turn in 1..=10 {
            let mut answer = asks_for_tool();
            answer.content = format!("thought {turn}");
            state = with(state.clone(), record(&state, answer).unwrap().events);
        }
        let task = state.snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::LimitIterations));
        assert_eq!(task.result.as_deref(), Some("thought 10"));
    }

    #[test]
    fn an_empty_answer_fails_the_task() {
        let decision = record(&running(), reply("")).unwrap();
        let task = with(running(), decision.events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::EmptyAnswer));
    }

    #[test]
    fn an_answer_is_paid_for_even_when_the_task_is_to_be_cancelled() {
        let state = with(running(), vec![Event::CancelRequested]);
        let decision = record(&state, reply("Hello")).unwrap();
        let task = with(state, decision.events).snapshot();
        assert_eq!(task.status.to_string(), "cancelled");
        assert_eq!(task.usage.output_tokens, 2);
    }

    #[test]
    fn no_one_else_waits_for_an_answer() {
        for state in [pending(), testing::backing_off(), testing::cancelled()] {
            assert!(matches!(record(&state, reply("x")), Err(Rejection::OutOfPlace { .. })));
        }
    }
}
