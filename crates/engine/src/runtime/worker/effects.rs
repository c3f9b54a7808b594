//! Effects of a worker: model calls, tool calls, sub-agents and waits.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::name::Name;
use polity_model::session::{task_of_call, task_of_inherited_call};

use super::Worker;
use super::call_timer::{CallTimer, TimedText};
use super::interruption::{EffectOutcome, Interruption, interruption};
use super::tool_listing::{agent_patterns, list_available, list_tools, with_sub_agents};
use crate::budget::priced_usage;
use crate::commands::{
    FailureCause, ParentStep, RecordModelFailure, RecordModelReply, RecordToolFailure,
    RecordToolReply, RetryExecution, RetryTool,
};
use crate::decide::Command;
use crate::driver::{
    CallSite, ModelFailure, ModelReply, ModelRequest, TextSink, ToolFailure, ToolReply,
    ToolRequest, ToolsUnavailable, TracedStep, TracedStepKind, traced,
};
use crate::pinned::Assignee;
use crate::runtime::orphans::active_sub_tasks;
use crate::runtime::sub_agents::{self, SubAgentOrder, end_sub_task};
use crate::runtime::{EngineError, RuntimeInner};
use crate::state::Backoff;

impl Worker {
    /// Calls the model. The request borrows the conversation.
    pub(super) async fn call_model(&mut self) -> EffectOutcome {
        let Self {
            inner, assignee, session, state, signals, toolbox, sub_agents, allowance, ..
        } = self;
        // Only agents call models.
        let Assignee::Agent(pinned) = assignee else { return Err(Interruption::Abandoned) };
        let pinned = &*pinned;
        let Some(llm) = pinned.llm() else { return Err(Interruption::Abandoned) };
        let mut began = inner.deps.clock.now();
        let call = async {
            let call_site = CallSite { session, turn: state.turn() };
            match list_tools(inner, agent_patterns(pinned), call_site).await {
                Ok(listed) => *toolbox = with_sub_agents(listed, sub_agents),
                // The model keeps its last tools: calls of a lost server fail, others work.
                Err(error) if !toolbox.offered().is_empty() => {
                    tracing::warn!(%error, "the tools could not be listed again");
                }
                Err(error) => return Err(ModelEffectError::Tools(error)),
            }
            let permit = if allowance.is_limited() {
                Some(allowance.permit().await.map_err(ModelEffectError::Budget)?)
            } else {
                None
            };
            // The start of tool servers does not count as model time.
            began = inner.deps.clock.now();
            let timer = CallTimer::start(&llm.llm_config);
            let text = LiveText { inner, task: state.id() };
            let request = ModelRequest {
                pinned,
                history: state.history(),
                toolbox,
                marks: state.marks(),
                call_site: CallSite { session, turn: state.turn() },
                progress: &TimedText { text, timer: &timer },
            };
            let step = TracedStep { task: state.id(), kind: TracedStepKind::ModelCall };
            let call = inner.deps.models.call(request);
            let call = traced(inner.deps.trace_contexts.as_ref(), step, call);
            let answer = tokio::select! {
                biased;
                answer = call => Ok(answer),
                timeout = timer.expired() => {
                    Err(timeout.failure(timer.usage_so_far(state.history().text_bytes())))
                }
            };
            if let Some(permit) = permit {
                let usage = match &answer {
                    Ok(Ok(reply)) => reply.usage,
                    Ok(Err(failure)) | Err(failure) => failure.usage,
                };
                permit.settle(priced_usage(usage, llm));
            }
            Ok(answer)
        };
        let answer = tokio::select! {
            answer = call => answer,
            interrupted = interruption(inner, state, signals) => return Err(interrupted),
        };
        let duration_ms = elapsed_ms(began, inner.deps.clock.now());
        Ok(model_outcome(answer, duration_ms))
    }

    pub(super) async fn wait_until(&mut self, time: Timestamp) -> EffectOutcome {
        let Self { inner, state, signals, .. } = self;
        let left = left(inner, state.backoff(), time);
        tokio::select! {
            () = tokio::time::sleep(left) => Ok(Command::RetryExecution(RetryExecution)),
            interrupted = interruption(inner, state, signals) => Err(interrupted),
        }
    }

    /// Lists the tools of a task that continues with tool calls. Calls of missing tools fail later.
    pub(super) async fn list_tools(&mut self) -> Option<Interruption> {
        let Self { inner, assignee, session, state, signals, .. } = self;
        let call_site = CallSite { session, turn: state.turn() };
        let patterns = match assignee {
            Assignee::Agent(pinned) => agent_patterns(pinned).to_vec(),
            Assignee::Workflow(flow) => flow.tools(),
        };
        let listed = tokio::select! {
            listed = list_available(inner, &patterns, call_site) => listed,
            interrupted = interruption(inner, state, signals) => return Some(interrupted),
        };
        self.toolbox = with_sub_agents(listed, &self.sub_agents);
        None
    }

    /// Starts a tool call.
    pub(super) fn call_tool(&mut self, call_id: ToolCallId, limit: Duration) {
        let calls = self.state.calls();
        let Some((index, call)) = calls.index(call_id).zip(calls.get(call_id)) else { return };
        let Some(tool) = call.tool.clone() else { return };
        let arguments = call.arguments().clone();
        let inner = Arc::clone(&self.inner);
        let (session, turn, index) = self.call_site(call_id, index);
        let limited_by = self.limited_by(call_id);
        let task = self.state.id();
        let handle = self.calls.spawn(async move {
            let call_site = CallSite { session: &session, turn };
            let (tool, arguments) = (&tool, &arguments);
            let request = ToolRequest {
                tool,
                arguments,
                limit,
                limited_by: limited_by.as_ref(),
                call_site,
                index,
            };
            let began = inner.deps.clock.now();
            let step = TracedStep { task, kind: TracedStepKind::ToolCall(call_id) };
            let call = inner.deps.tools.call(request);
            let answer = traced(inner.deps.trace_contexts.as_ref(), step, call).await;
            let duration_ms = elapsed_ms(began, inner.deps.clock.now());
            Ok(tool_outcome(call_id, answer, duration_ms))
        });
        self.abort_handles.insert(call_id, handle);
    }

    /// The node whose `timeout_seconds` limits a call.
    fn limited_by(&self, call_id: ToolCallId) -> Option<Name> {
        let walk = self.state.workflow_run()?;
        let (_, node) = walk.plan().time_limit(walk.node_of(call_id)?)?;
        Some(node.clone())
    }

    /// The call site: conversation, turn and index. For a node's call, the node's name, the number of
    /// its runs and the item of a map.
    fn call_site(&self, call_id: ToolCallId, index: usize) -> (Arc<str>, u32, usize) {
        let node = self.state.workflow_run().and_then(|walk| Some((walk, walk.node_of(call_id)?)));
        match node {
            Some((walk, node)) => {
                let name = walk.plan().nodes()[node].name();
                let item = walk.item_of(call_id).unwrap_or_default() as usize;
                (format!("{}/{name}", self.session).into(), walk.node_run(node).count, item)
            }
            None => (Arc::clone(&self.session), self.state.turn(), index),
        }
    }

    /// Abandons a call, and ends its sub-task.
    pub(super) async fn abandon(&mut self, call_id: ToolCallId) -> Result<(), EngineError> {
        if let Some(handle) = self.abort_handles.remove(&call_id) {
            handle.abort();
        }
        if self.state.is_retry() {
            end_sub_task(&self.inner, task_of_inherited_call(self.state.id(), call_id)).await?;
        }
        end_sub_task(&self.inner, task_of_call(call_id)).await
    }

    /// Ends sub-tasks of abandoned calls that nobody ended: when a review was answered, or the
    /// process died.
    pub(super) async fn end_unneeded_sub_tasks(&mut self) -> Result<(), EngineError> {
        let Assignee::Workflow(flow) = &self.assignee else { return Ok(()) };
        if !flow.has_parts() {
            return Ok(());
        }
        for row in active_sub_tasks(&*self.inner.deps.store, self.state.id()).await? {
            let calls = self.state.calls().all();
            if calls.iter().all(|call| call.sub_task(self.state.id()) != row.id) {
                end_sub_task(&self.inner, row.id).await?;
            }
        }
        Ok(())
    }

    /// Starts a sub-agent.
    pub(super) fn open_sub_agent(&mut self, call_id: ToolCallId, deadline: Option<Timestamp>) {
        let Some(order) = self.sub_agent_order(call_id) else { return };
        let run = sub_agents::run_sub_agent(Arc::clone(&self.inner), order, deadline);
        let handle = self.calls.spawn(run);
        self.abort_handles.insert(call_id, handle);
    }

    fn sub_agent_order(&self, call_id: ToolCallId) -> Option<SubAgentOrder> {
        let calls = self.state.calls();
        let (index, call) = calls.index(call_id).zip(calls.get(call_id))?;
        let agent = call.tool.as_ref()?.sub_agent()?;
        let order = self.state.task().order();
        let (assignee, session) = match &self.assignee {
            Assignee::Agent(pinned) => {
                let call_site = format!("{}.{}", self.state.turn(), index + 1);
                (Assignee::Agent(pinned.sub_agent(&agent)?), call_site)
            }
            Assignee::Workflow(flow) => {
                let walk = self.state.workflow_run()?;
                let node = walk.node_of(call_id)?;
                let step = walk.step_of(call_id)?;
                let mut call_site = format!("{}.{}", step.name, walk.node_run(node).count);
                if let Some(item) = walk.item_of(call_id) {
                    call_site = format!("{call_site}.{item}");
                }
                (flow.assignee_of(step)?, call_site)
            }
        };
        Some(SubAgentOrder {
            call_id,
            task: call.sub_task(order.id),
            earlier: call.earlier_sub_task,
            parent: order.id,
            raised: order.raised,
            assignee,
            session: format!("{}/{session}/{agent}", self.session).into(),
            description: sub_agents::description(call.arguments()),
            class: order.class.clone(),
            retention_days: order.retention_days,
            limited_by: self.limited_by(call_id),
            step: self.parent_step(call_id),
        })
    }

    /// The step of the workflow that a call performs.
    fn parent_step(&self, call_id: ToolCallId) -> ParentStep {
        let Some(run) = self.state.workflow_run() else { return ParentStep::default() };
        ParentStep { node: run.node_name(call_id).cloned(), item: run.item_of(call_id) }
    }

    /// Watches a sub-task that waits for a review.
    pub(super) fn watch_sub_agent(&mut self, call_id: ToolCallId) {
        let Some(call) = self.state.calls().get(call_id) else { return };
        let task = call.sub_task(self.state.id());
        let watch = sub_agents::watch_sub_agent(Arc::clone(&self.inner), call_id, task);
        let handle = self.calls.spawn(watch);
        self.abort_handles.insert(call_id, handle);
    }

    /// Waits for the time of a call's next attempt.
    pub(super) fn wait_for_tool(&mut self, call_id: ToolCallId, until: Timestamp) {
        let backoff = self.state.calls().get(call_id).and_then(|call| call.backoff);
        let left = left(&self.inner, backoff, until);
        let handle = self.calls.spawn(async move {
            tokio::time::sleep(left).await;
            Ok(Command::RetryTool(RetryTool { call_id }))
        });
        self.abort_handles.insert(call_id, handle);
    }
}

/// The reason why a model was not called.
enum ModelEffectError {
    /// The agent's tools could not be listed.
    Tools(ToolsUnavailable),
    /// The budget is used up.
    Budget(String),
}

/// Publishes partial text of a model or remote agent.
pub(super) struct LiveText<'a> {
    pub(super) inner: &'a RuntimeInner,
    pub(super) task: TaskId,
}

impl TextSink for LiveText<'_> {
    fn text(&self, piece: &str) {
        self.inner.journal.publish_text(self.task, piece);
    }
}

/// The time until the next attempt, at most the whole backoff.
fn left(inner: &RuntimeInner, backoff: Option<Backoff>, until: Timestamp) -> Duration {
    let now = inner.deps.clock.now();
    backoff.unwrap_or(Backoff { since: now, until }).left(now)
}

pub(in crate::runtime) fn elapsed_ms(began: Timestamp, ended: Timestamp) -> u64 {
    u64::try_from(ended.duration_since(began).as_millis()).unwrap_or(0)
}

fn model_outcome(
    answer: Result<Result<Result<ModelReply, ModelFailure>, ModelFailure>, ModelEffectError>,
    duration_ms: u64,
) -> Command {
    let (failure, cause) = match answer {
        Ok(Ok(Ok(reply))) => {
            return Command::RecordModelReply(RecordModelReply { reply, duration_ms });
        }
        Ok(Ok(Err(failure))) => (failure, FailureCause::Model),
        Ok(Err(timed_out)) => (timed_out, FailureCause::Timeout),
        Err(ModelEffectError::Tools(ToolsUnavailable { failure })) => {
            (ModelFailure::new(failure), FailureCause::Tools)
        }
        Err(ModelEffectError::Budget(message)) => {
            let failure = AttemptFailure { category: ErrorCategory::Permanent, message };
            (ModelFailure::new(failure), FailureCause::Budget)
        }
    };
    Command::RecordModelFailure(RecordModelFailure { failure, cause, duration_ms })
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
