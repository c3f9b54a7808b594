//! What a worker does between two steps: calling models and tools, and waiting.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_model::definition::Price;
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::ids::{TaskId, ToolCallId};
use tokio::time::error::Elapsed;

use super::{Interrupted, Worker, interruption};
use crate::budget::Estimate;
use crate::closure::Closure;
use crate::commands::{
    FailureCause, RecordAnswer, RecordFailure, RecordToolFailure, RecordToolReply, RetryExecution,
    RetryTool, charged,
};
use crate::decide::Command;
use crate::driver::{
    ModelFailure, ModelReply, ModelRequest, Place, Progress, Tool, ToolFailure, ToolReply,
    ToolRequest, Toolbox, ToolsUnavailable,
};
use crate::runtime::Shared;
use crate::runtime::session::{self, SessionOrder};

type Awaited = Result<Command, Interrupted>;

impl Worker {
    /// Calls the model with the conversation as it is, which is borrowed for as long as that takes.
    pub(super) async fn call_model(&mut self) -> Awaited {
        let Self {
            shared, closure, session, state, signals, toolbox, sub_agents, allowance, ..
        } = self;
        let limit = closure
            .llm()
            .map_or(Duration::MAX, |llm| Duration::from_secs(llm.llm_config.timeout_seconds.get()));
        let mut began = shared.parts.clock.now();
        let call = async {
            match tools_of(shared, closure, Place { session, turn: state.turn() }).await {
                Ok(listed) => *toolbox = with_sub_agents(listed, sub_agents),
                // The model goes on with what it had: a server that is gone shows when it is
                // called, and the others are still there.
                Err(error) if !toolbox.offered().is_empty() => {
                    tracing::warn!(%error, "the tools could not be listed again");
                }
                Err(error) => return Err(NotCalled::Tools(error)),
            }
            let permit = match closure.llm() {
                Some(llm) if allowance.is_limited() => {
                    let price = shared.parts.models.price(closure).unwrap_or(Price::FREE);
                    let estimate = Estimate::of(state.history(), llm, price);
                    Some(allowance.permit(&estimate).await.map_err(NotCalled::Budget)?)
                }
                Some(_) | None => None,
            };
            // Servers that had to be started first are not the model's doing.
            began = shared.parts.clock.now();
            let request = ModelRequest {
                closure,
                history: state.history(),
                toolbox,
                marks: state.marks(),
                place: Place { session, turn: state.turn() },
                progress: &LiveText { shared, task: state.id() },
            };
            let call = shared.parts.models.call(request);
            let answer = tokio::time::timeout(limit, call).await;
            if let (Ok(Ok(reply)), Some(llm), Some(permit)) = (&answer, closure.llm(), permit) {
                permit.settle(charged(reply.usage, llm));
            }
            Ok(answer)
        };
        let answer = tokio::select! {
            answer = call => answer,
            interrupted = interruption(shared, state, signals) => return Err(interrupted),
        };
        let duration_ms = elapsed_ms(began, shared.parts.clock.now());
        Ok(model_outcome(answer, limit, duration_ms))
    }

    pub(super) async fn wait_until(&mut self, time: Timestamp) -> Awaited {
        let Self { shared, state, signals, .. } = self;
        tokio::select! {
            () = sleep_until(shared, time) => Ok(Command::RetryExecution(RetryExecution)),
            interrupted = interruption(shared, state, signals) => Err(interrupted),
        }
    }

    /// Lists the agent's tools for a task that goes on with tool calls. Where that fails, the calls
    /// themselves will show it.
    pub(super) async fn look_for_tools(&mut self) -> Option<Interrupted> {
        let Self { shared, closure, session, state, signals, .. } = self;
        let place = Place { session, turn: state.turn() };
        let listed = tokio::select! {
            listed = tools_of(shared, closure, place) => listed,
            interrupted = interruption(shared, state, signals) => return Some(interrupted),
        };
        match listed {
            Ok(toolbox) => self.toolbox = with_sub_agents(toolbox, &self.sub_agents),
            Err(error) => {
                tracing::warn!(task = %self.state.id(), %error, "the tools could not be listed");
            }
        }
        None
    }

    /// Makes a tool call on the side.
    pub(super) fn call_tool(&mut self, call_id: ToolCallId, limit: Duration) {
        let calls = self.state.calls();
        let Some((index, call)) = calls.index(call_id).zip(calls.get(call_id)) else { return };
        let Some(tool) = call.tool.clone() else { return };
        let arguments = call.arguments().clone();
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&self.session));
        let turn = self.state.turn();
        self.tools.spawn(async move {
            let place = Place { session: &session, turn };
            let (tool, arguments) = (&tool, &arguments);
            let request = ToolRequest { tool, arguments, limit, place, index };
            let began = shared.parts.clock.now();
            let answer = shared.parts.tools.call(request).await;
            let duration_ms = elapsed_ms(began, shared.parts.clock.now());
            Ok(tool_outcome(call_id, answer, duration_ms))
        });
    }

    /// Has a sub-agent work on the side.
    pub(super) fn open_session(&mut self, call_id: ToolCallId) {
        let Some(order) = self.session_order(call_id) else { return };
        self.tools.spawn(session::attend(Arc::clone(&self.shared), order));
    }

    fn session_order(&self, call_id: ToolCallId) -> Option<SessionOrder> {
        let calls = self.state.calls();
        let (index, call) = calls.index(call_id).zip(calls.get(call_id))?;
        let agent = call.tool.as_ref()?.sub_agent()?;
        let order = self.state.task().order();
        Some(SessionOrder {
            call_id,
            parent: order.id,
            closure: self.closure.sub_agent(&agent)?,
            session: format!("{}/{}.{}/{agent}", self.session, self.state.turn(), index + 1).into(),
            description: session::description(call.arguments()),
            class: order.class.clone(),
            retention_days: order.retention_days,
        })
    }

    /// Looks on the side after a sub-agent that waits for a person.
    pub(super) fn watch_session(&mut self, call_id: ToolCallId) {
        self.tools.spawn(session::watch(Arc::clone(&self.shared), call_id));
    }

    /// Waits on the side for the time of a call's next attempt.
    pub(super) fn wait_for_tool(&mut self, call_id: ToolCallId, until: Timestamp) {
        let shared = Arc::clone(&self.shared);
        self.tools.spawn(async move {
            sleep_until(&shared, until).await;
            Ok(Command::RetryTool(RetryTool { call_id }))
        });
    }
}

/// Why a model was not even called.
enum NotCalled {
    /// The agent's tools could not be listed.
    Tools(ToolsUnavailable),
    /// What the task may spend is used up.
    Budget(String),
}

fn with_sub_agents(listed: Arc<Toolbox>, sub_agents: &[Arc<Tool>]) -> Arc<Toolbox> {
    if sub_agents.is_empty() { listed } else { Arc::new(listed.joined(sub_agents)) }
}

/// The tools that the agent may use. An agent without tools asks no one.
async fn tools_of(
    shared: &Shared,
    closure: &Closure,
    place: Place<'_>,
) -> Result<Arc<Toolbox>, ToolsUnavailable> {
    match closure.llm() {
        Some(llm) if !llm.tools.is_empty() => shared.parts.tools.toolbox(&llm.tools, place).await,
        Some(_) | None => Ok(Arc::default()),
    }
}

/// Passes on what a model says while it says it.
struct LiveText<'a> {
    shared: &'a Shared,
    task: TaskId,
}

impl Progress for LiveText<'_> {
    fn text(&self, piece: &str) {
        self.shared.publish_text(self.task, piece);
    }
}

async fn sleep_until(shared: &Shared, time: Timestamp) {
    let left = time.duration_since(shared.parts.clock.now()).max(SignedDuration::ZERO);
    tokio::time::sleep(left.unsigned_abs()).await;
}

pub(in crate::runtime) fn elapsed_ms(began: Timestamp, ended: Timestamp) -> u64 {
    u64::try_from(ended.duration_since(began).as_millis()).unwrap_or(0)
}

fn model_outcome(
    answer: Result<Result<Result<ModelReply, ModelFailure>, Elapsed>, NotCalled>,
    limit: Duration,
    duration_ms: u64,
) -> Command {
    let (failure, cause) = match answer {
        Ok(Ok(Ok(reply))) => {
            return Command::RecordAnswer(RecordAnswer { reply, duration_ms });
        }
        Ok(Ok(Err(failure))) => (failure, FailureCause::Model),
        Ok(Err(_)) => {
            let message = format!(
                "the model did not answer within {} seconds, the agent's \
                 llm_config.timeout_seconds",
                limit.as_secs()
            );
            let failure = Failure { category: ErrorCategory::Transient, message };
            (ModelFailure::new(failure), FailureCause::Timeout)
        }
        Err(NotCalled::Tools(ToolsUnavailable { failure })) => {
            (ModelFailure::new(failure), FailureCause::Tools)
        }
        Err(NotCalled::Budget(message)) => {
            let failure = Failure { category: ErrorCategory::Permanent, message };
            (ModelFailure::new(failure), FailureCause::Budget)
        }
    };
    Command::RecordFailure(RecordFailure { failure, cause, duration_ms })
}

fn tool_outcome(
    call_id: ToolCallId,
    answer: Result<ToolReply, ToolFailure>,
    duration_ms: u64,
) -> Command {
    match answer {
        Ok(reply) => Command::RecordToolReply(RecordToolReply { call_id, reply, duration_ms }),
        Err(failure) => {
            Command::RecordToolFailure(RecordToolFailure { call_id, failure, duration_ms })
        }
    }
}
