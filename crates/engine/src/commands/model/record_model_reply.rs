//! Records the model's reply. The runtime drives it with the driver's result; `RecordModelFailure`
//! is its counterpart. A reply with tool calls starts them; any other reply completes the task. A
//! reply that violates the agent's `output_schema` is sent back for correction. A reply to a task
//! that is being cancelled is recorded too, because it was paid for.

use std::sync::Arc;

use polity_definition::LlmAgent;
use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::ids::{CheckpointId, ToolCallId};
use polity_model::message::{Message, ToolCall};

use crate::budget::priced_usage;
use crate::decide::call_batch::{CallBatch, CallView};
use crate::decide::outcomes::{cancel_task, end_execution, fail_task};
use crate::decide::preconditions::expect_reasoning;
use crate::decide::{Decision, DecisionContext, DecisionResult, llm};
use crate::driver::ModelReply;
use crate::state::TaskState;
use crate::tool_turn::requested_calls::{CallRuling, FanOutLimit, check_call};
use crate::tool_turn::{continue_turn, output_schema};

/// The number of consecutive turns that may request the same calls with the same arguments.
pub const REPEATED_TURNS_MAX: u32 = 8;

/// The number of consecutive identical turns that may also get identical answers.
pub const FRUITLESS_TURNS_MAX: u32 = 3;

/// The number of calls per reply. Further calls are refused, and the model can request them again.
pub const TURN_CALLS_MAX: usize = 64;

/// The model replied.
#[derive(Debug, Clone)]
pub struct RecordModelReply {
    /// The answer.
    pub reply: ModelReply,
    /// The duration of the call.
    pub duration_ms: u64,
}

impl RecordModelReply {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        expect_reasoning(state, "RecordModelReply")?;
        let llm = llm(state)?;
        let tool_calls: Vec<ToolCall> = self
            .reply
            .tool_calls
            .iter()
            .map(|asked| asked.with_id(ToolCallId::from_random_bytes(ctx.entropy.id_bytes())))
            .collect();
        let schema = llm.output_schema.as_ref().filter(|_| tool_calls.is_empty());
        let output = schema.map(|schema| output_schema::extract_json(schema, &self.reply));
        let content = match &output {
            Some(Ok(json)) => json,
            Some(Err(_)) | None => self.reply.content.as_str(),
        };
        let answered = Event::ModelAnswered {
            message: Message::Assistant {
                content: content.to_owned(),
                tool_calls: tool_calls.clone(),
                timestamp: ctx.now,
            },
            usage: priced_usage(self.reply.usage, llm),
            duration_ms: self.duration_ms,
            is_cut: self.reply.is_cut,
            mark: self.reply.mark,
        };
        if !tool_calls.is_empty() {
            return Ok(self.act(state, llm, ctx, answered, &tool_calls));
        }
        if state.cancel_requested() {
            return Ok(cancel_task(state, vec![answered]));
        }
        let mut events = vec![answered];
        match output {
            Some(Err(problem)) => {
                return Ok(output_schema::request_correction(state, llm, ctx, events, &problem));
            }
            None if content.trim().is_empty() => {
                let message = "the model answered with neither text nor tool calls".to_owned();
                fail_task(state, &mut events, ErrorCode::EmptyAnswer, message);
            }
            Some(Ok(_)) | None => match ctx.budget.exceeded() {
                Some(over) => fail_task(state, &mut events, ErrorCode::Budget, over.to_owned()),
                None => complete(state, ctx, &mut events),
            },
        }
        Ok(Decision { events, effects: Vec::new() })
    }

    fn act(
        &self,
        state: &TaskState,
        llm: &LlmAgent,
        ctx: &mut DecisionContext,
        answered: Event,
        calls: &[ToolCall],
    ) -> Decision {
        let stop = stop(state, llm, ctx, calls);
        let mut batch = CallBatch::of_reply(state, llm, ctx, answered, calls.len());
        if state.cancel_requested() || stop.is_some() {
            let why = if stop.is_some() { "the task ended" } else { "the task was cancelled" };
            for (index, call) in calls.iter().enumerate() {
                let content = format!("{why} before the tool was called");
                batch.answer_with_error(index, call.id, content, 0);
            }
            return match stop {
                Some((code, error)) if !state.cancel_requested() => batch.into_failure(code, error),
                Some(_) | None => cancel_task(state, batch.into_events()),
            };
        }
        let toolbox = Arc::clone(&batch.ctx().toolbox);
        let mut names = Vec::with_capacity(calls.len());
        let mut fan_out = FanOutLimit::new(batch.ctx().limits.sub_agent_fan_out);
        for (index, (call, asked)) in calls.iter().zip(&self.reply.tool_calls).enumerate() {
            let ruling = if index < TURN_CALLS_MAX {
                check_call(asked, &toolbox, llm)
            } else {
                CallRuling::Refuse(format!(
                    "error: at most {TURN_CALLS_MAX} tools are called at once; ask for this one again"
                ))
            };
            match fan_out.limit(ruling) {
                CallRuling::Call(tool) => {
                    names.push(tool.name.to_string());
                    batch.call(index, call.id, &tool, None);
                }
                CallRuling::Hold(tool) => {
                    names.push(tool.to_string());
                    batch.hold(index, call.id, tool);
                }
                CallRuling::Refuse(message) => {
                    names.push(String::new());
                    batch.answer_with_error(index, call.id, message, 0);
                }
            }
        }
        continue_turn(batch, |index| {
            let (call, name) = (calls.get(index)?, names.get(index)?);
            Some(CallView { id: call.id, name: name.clone(), arguments: &call.arguments })
        })
    }
}

/// Returns the reason to stop before any further tool call, if there is one.
fn stop(
    state: &TaskState,
    llm: &LlmAgent,
    ctx: &DecisionContext,
    calls: &[ToolCall],
) -> Option<(ErrorCode, String)> {
    // The model could not read the answers of its tools.
    if let Some(over) = ctx.budget.reached() {
        return Some((ErrorCode::Budget, over.to_owned()));
    }
    let limit = llm.max_iterations.get();
    if state.iterations() + 1 >= limit {
        let message = format!("no final answer after {limit} turns, the agent's max_iterations");
        return Some((ErrorCode::LimitIterations, message));
    }
    let repeated = state.calls().repeated_with(calls);
    let fruitless = repeated > 1 && state.calls().same_answered() >= FRUITLESS_TURNS_MAX;
    if repeated > REPEATED_TURNS_MAX || fruitless {
        let names: Vec<_> = calls.iter().map(ToolCall::name).collect();
        let same = if fruitless { " and got the same answer each time" } else { "" };
        let message = format!(
            "the model asked for {} with the same arguments {repeated} times in a row{same}",
            names.join(", ")
        );
        return Some((ErrorCode::LimitRepeats, message));
    }
    None
}

fn complete(state: &TaskState, ctx: &mut DecisionContext, events: &mut Vec<Event>) {
    events.extend(end_execution(state, ExecutionChange::Complete));
    events.push(Event::CheckpointTaken {
        checkpoint_id: CheckpointId::from_random_bytes(ctx.entropy.id_bytes()),
        sequence: state.checkpoints(),
        node: state.task().order().assigned_agent.to_string(),
        awaiting_human: false,
        message_count: None,
    });
    events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
}

#[cfg(test)]
#[path = "record_model_reply_tests.rs"]
mod tests;
