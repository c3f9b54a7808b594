//! Records the model's reply. The runtime drives it with the driver's result; `RecordModelFailure`
//! is its counterpart. A reply with tool calls starts them; any other whole reply completes the task.
//! A reply that violates the agent's `output_schema` is sent back for correction. A reply that is
//! cut, refused or filtered is treated by the agent's `on_truncation`. A reply to a task that is
//! being cancelled is recorded too, because it was paid for.

use std::sync::Arc;

use polity_definition::{LlmAgent, TruncationPolicy};
use polity_model::event::{Event, ExecutionChange, ResultRef, UnsettledCall};
use polity_model::failure::{ErrorCode, WithheldReason};
use polity_model::ids::ToolCallId;
use polity_model::message::{Message, ToolCall};

use crate::budget::priced_usage;
use crate::decide::call_batch::{CallBatch, CallView};
use crate::decide::outcomes::{
    call_model_for_next_turn, cancel_task, end_execution, fail_task_with, final_checkpoint,
};
use crate::decide::preconditions::expect_reasoning;
use crate::decide::{Decision, DecisionContext, DecisionResult, llm};
use crate::driver::{AnswerEnding, ModelReply};
use crate::state::TaskState;
use crate::tool_turn::requested_calls::{CallRuling, FanOutLimit, check_call, find_unreadable};
use crate::tool_turn::{continue_turn, output_schema};

/// The number of consecutive turns that may request the same calls with the same arguments.
pub const REPEATED_TURNS_MAX: u32 = 8;

/// The number of consecutive identical turns that may also get identical answers.
pub const FRUITLESS_TURNS_MAX: u32 = 3;

/// The number of calls per reply. Further calls are refused, and the model can request them again.
pub const TURN_CALLS_MAX: usize = 64;

/// The message that asks a model to continue its answer.
const CONTINUE_PROMPT: &str = "Your answer was cut at the output limit. Continue exactly where it \
    stopped. Do not repeat anything and do not add an introduction.";

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
        let is_cut = self.reply.ending.is_cut();
        let earlier = if tool_calls.is_empty() { state.cut_text() } else { String::new() };
        let whole = earlier.clone() + &self.reply.content;
        let schema = llm.output_schema.as_ref().filter(|_| tool_calls.is_empty());
        let output = schema.map(|schema| output_schema::extract_json(schema, &whole, is_cut));
        let content = match &output {
            Some(Ok(json)) if earlier.is_empty() => json,
            Some(_) | None => self.reply.content.as_str(),
        };
        let answered = Event::ModelAnswered {
            message: Message::Assistant {
                content: content.to_owned(),
                tool_calls: tool_calls.clone(),
                timestamp: ctx.now,
            },
            usage: priced_usage(self.reply.usage, llm),
            duration_ms: self.duration_ms,
            is_cut,
            withheld: self.reply.ending.withheld(),
            mark: self.reply.mark,
        };
        if !tool_calls.is_empty() {
            return Ok(self.act(state, llm, ctx, answered, &tool_calls));
        }
        if state.cancel_requested() {
            return Ok(cancel_task(state, vec![answered]));
        }
        let mut events = vec![answered];
        let result = match &output {
            _ if earlier.is_empty() => ResultRef::LastAnswer,
            Some(Ok(json)) => ResultRef::Text((*json).to_owned()),
            Some(Err(_)) | None => ResultRef::Text(whole.clone()),
        };
        let has_text = !whole.trim().is_empty();
        let accepts = llm.on_truncation == TruncationPolicy::Accept && has_text;
        let ruling = match (output, self.reply.ending) {
            // JSON that fits its schema is whole, whatever the model had left to say.
            (Some(Ok(_)), _) => None,
            (None, AnswerEnding::Truncated | AnswerEnding::Paused | AnswerEnding::Withheld(_))
                if accepts =>
            {
                None
            }
            (_, AnswerEnding::Withheld(reason)) => {
                Some((reason.error_code(), self.withheld_message(reason)))
            }
            (_, AnswerEnding::Truncated | AnswerEnding::Paused)
                if llm.on_truncation == TruncationPolicy::Continue && has_text =>
            {
                match continuation_limit(state, llm, ctx) {
                    None => return Ok(request_continuation(state, ctx, events)),
                    limit => limit,
                }
            }
            (
                Some(Err(problem)),
                AnswerEnding::Complete | AnswerEnding::Truncated | AnswerEnding::Paused,
            ) => {
                return Ok(output_schema::request_correction(state, llm, ctx, events, &problem));
            }
            (None, AnswerEnding::Truncated) => {
                Some((ErrorCode::Truncated, self.truncated_message()))
            }
            (None, AnswerEnding::Paused) => Some((ErrorCode::Truncated, self.paused_message())),
            (None, AnswerEnding::Complete) if !has_text => Some((
                ErrorCode::EmptyAnswer,
                "the model answered with neither text nor tool calls".to_owned(),
            )),
            (None, AnswerEnding::Complete) => None,
        };
        let over_budget = || Some((ErrorCode::Budget, ctx.budget.exceeded()?.to_owned()));
        match ruling.or_else(over_budget) {
            Some((code, error)) => fail_task_with(state, &mut events, code, error, result),
            None => complete(state, ctx, &mut events, result),
        }
        Ok(Decision { events, effects: Vec::new() })
    }

    fn truncated_message(&self) -> String {
        format!(
            "the answer was cut at the model's output limit{}; ask for a shorter answer, or set the \
             agent's on_truncation to continue or accept",
            self.stop_reason()
        )
    }

    fn paused_message(&self) -> String {
        format!(
            "the provider stopped the answer before its end, but not at an output limit{}; set the \
             agent's on_truncation to continue, so that the model goes on, or to accept",
            self.stop_reason()
        )
    }

    fn withheld_message(&self, reason: WithheldReason) -> String {
        let what = match reason {
            WithheldReason::Refused => "the model refused to answer",
            WithheldReason::Filtered => "the provider's content filter stopped the answer",
        };
        format!("{what}{}", self.stop_reason())
    }

    /// The provider's own word for the end, in brackets.
    fn stop_reason(&self) -> String {
        self.reply.stop_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
    }

    fn act(
        &self,
        state: &TaskState,
        llm: &LlmAgent,
        ctx: &mut DecisionContext,
        answered: Event,
        calls: &[ToolCall],
    ) -> Decision {
        let withheld = self.reply.ending.withheld();
        let is_withheld = withheld.is_some();
        let withheld = withheld.map(|reason| (reason.error_code(), self.withheld_message(reason)));
        let stop = withheld.or_else(|| stop(state, llm, ctx, calls));
        let mut batch = CallBatch::of_reply(state, llm, ctx, answered, calls.len());
        if state.cancel_requested() || stop.is_some() {
            let why = if stop.is_some() { "the task ended" } else { "the task was cancelled" };
            let asked = calls.iter().zip(&self.reply.tool_calls).enumerate();
            let (unreadable, open): (Vec<_>, Vec<_>) = asked
                .map(|(index, (call, asked))| {
                    // A withheld reply is not continued, so its calls are closed together.
                    let problem = find_unreadable(asked).filter(|_| !is_withheld);
                    (index, call.id, problem)
                })
                .partition(|(_, _, problem)| problem.is_some());
            // A retry rules on the open calls again. The journal does not have unreadable arguments.
            for (index, call_id, problem) in unreadable {
                batch.answer_with_error(index, call_id, problem.unwrap_or_default(), 0);
            }
            for (index, call_id, _) in open {
                let content = format!("{why} before the tool was called");
                batch.answer_unsettled(index, call_id, content, 0, UnsettledCall::NotCalled);
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
    if state.own_turns() + 1 >= limit {
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

/// Asks the model to continue a cut answer.
fn request_continuation(
    state: &TaskState,
    ctx: &mut DecisionContext,
    events: Vec<Event>,
) -> Decision {
    let message = Message::User { content: CONTINUE_PROMPT.to_owned(), timestamp: ctx.now };
    call_model_for_next_turn(state, ctx, events, [Event::MessageAdded { message }])
}

/// Returns the reason why a cut answer may not be continued any more, if there is one.
fn continuation_limit(
    state: &TaskState,
    llm: &LlmAgent,
    ctx: &DecisionContext,
) -> Option<(ErrorCode, String)> {
    if let Some(over) = ctx.budget.reached() {
        return Some((ErrorCode::Budget, over.to_owned()));
    }
    let limit = llm.max_iterations.get();
    let message = || {
        format!(
            "the answer is still cut at the model's output limit after {limit} turns, the agent's \
             max_iterations"
        )
    };
    (state.own_turns() + 1 >= limit).then(|| (ErrorCode::Truncated, message()))
}

fn complete(
    state: &TaskState,
    ctx: &mut DecisionContext,
    events: &mut Vec<Event>,
    result: ResultRef,
) {
    events.extend(end_execution(state, ExecutionChange::Complete));
    events.push(final_checkpoint(state, ctx));
    events.push(Event::TaskCompleted { result });
}

#[cfg(test)]
#[path = "record_model_reply_tests.rs"]
mod tests;
