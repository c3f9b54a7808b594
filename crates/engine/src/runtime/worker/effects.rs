//! What a worker does between two steps: calling models and tools, and waiting.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::name::Name;
use polity_model::session::task_of_call;
use polity_model::tool::ToolPattern;
use tokio::time::error::Elapsed;

use super::{Interrupted, Worker, interruption};
use crate::budget::priced_usage;
use crate::commands::{
    FailureCause, RecordModelFailure, RecordModelReply, RecordToolFailure, RecordToolReply,
    RetryExecution, RetryTool,
};
use crate::decide::Command;
use crate::decide::backoff;
use crate::driver::{
    CallSite, ModelFailure, ModelReply, ModelRequest, Progress, Tool, ToolFailure, ToolReply,
    ToolRequest, Toolbox, ToolsUnavailable,
};
use crate::entropy::Entropy;
use crate::pinned::{Assignee, PinnedAgent};
use crate::runtime::load;
use crate::runtime::session::{self, SessionOrder};
use crate::runtime::steer::living_sub_agents;
use crate::runtime::{EngineError, Shared};

type Awaited = Result<Command, Interrupted>;

/// How often it is tried again to list tools before a task goes on without them.
const LISTING_RETRIES_MAX: u32 = 3;

impl Worker {
    /// Calls the model with the conversation as it is, which is borrowed for as long as that takes.
    pub(super) async fn call_model(&mut self) -> Awaited {
        let Self {
            shared, assignee, session, state, signals, toolbox, sub_agents, allowance, ..
        } = self;
        // Only the decisions of an agent ask for a model.
        let Assignee::Agent(pinned) = assignee else { return Err(Interrupted::Abandoned) };
        let pinned = &*pinned;
        let limit = pinned
            .llm()
            .map_or(Duration::MAX, |llm| Duration::from_secs(llm.llm_config.timeout_seconds.get()));
        let mut began = shared.parts.clock.now();
        let call = async {
            match tools_of(shared, tools_named(pinned), CallSite { session, turn: state.turn() })
                .await
            {
                Ok(listed) => *toolbox = with_sub_agents(listed, sub_agents),
                // The model goes on with what it had: a server that is gone shows when it is
                // called, and the others are still there.
                Err(error) if !toolbox.offered().is_empty() => {
                    tracing::warn!(%error, "the tools could not be listed again");
                }
                Err(error) => return Err(NotCalled::Tools(error)),
            }
            let permit = if allowance.is_limited() {
                Some(allowance.permit().await.map_err(NotCalled::Budget)?)
            } else {
                None
            };
            // Servers that had to be started first are not the model's doing.
            began = shared.parts.clock.now();
            let request = ModelRequest {
                pinned,
                history: state.history(),
                toolbox,
                marks: state.marks(),
                call_site: CallSite { session, turn: state.turn() },
                progress: &LiveText { shared, task: state.id() },
            };
            let call = shared.parts.models.call(request);
            let answer = tokio::time::timeout(limit, call).await;
            if let (Ok(Ok(reply)), Some(llm), Some(permit)) = (&answer, pinned.llm(), permit) {
                permit.settle(priced_usage(reply.usage, llm));
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
        let Self { shared, assignee, session, state, signals, .. } = self;
        let call_site = CallSite { session, turn: state.turn() };
        let patterns = match assignee {
            Assignee::Agent(pinned) => tools_named(pinned).to_vec(),
            Assignee::Workflow(flow) => flow.tools(),
        };
        let listed = tokio::select! {
            listed = tools_there(shared, &patterns, call_site) => listed,
            interrupted = interruption(shared, state, signals) => return Some(interrupted),
        };
        self.toolbox = with_sub_agents(listed, &self.sub_agents);
        None
    }

    /// Makes a tool call on the side.
    pub(super) fn call_tool(&mut self, call_id: ToolCallId, limit: Duration) {
        let calls = self.state.calls();
        let Some((index, call)) = calls.index(call_id).zip(calls.get(call_id)) else { return };
        let Some(tool) = call.tool.clone() else { return };
        let arguments = call.arguments().clone();
        let shared = Arc::clone(&self.shared);
        let (session, turn, index) = self.place_of(call_id, index);
        let limited_by = self.limited_by(call_id);
        let work = self.tools.spawn(async move {
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
            let began = shared.parts.clock.now();
            let answer = shared.parts.tools.call(request).await;
            let duration_ms = elapsed_ms(began, shared.parts.clock.now());
            Ok(tool_outcome(call_id, answer, duration_ms))
        });
        self.at_work.insert(call_id, work);
    }

    /// The node whose `timeout_seconds` limits a call, if one does.
    fn limited_by(&self, call_id: ToolCallId) -> Option<Name> {
        let walk = self.state.workflow_run()?;
        let (_, node) = walk.plan().time_limit(walk.node_of(call_id)?)?;
        Some(node.clone())
    }

    /// Where a call is made: the conversation, the turn and the place within it. A node's calls are
    /// told apart by the node and how often it has run.
    fn place_of(&self, call_id: ToolCallId, index: usize) -> (Arc<str>, u32, usize) {
        let node = self.state.workflow_run().and_then(|walk| Some((walk, walk.node_of(call_id)?)));
        match node {
            Some((walk, node)) => {
                let name = walk.plan().nodes()[node].name();
                (format!("{}/{name}", self.session).into(), walk.node_run(node).count, 0)
            }
            None => (Arc::clone(&self.session), self.state.turn(), index),
        }
    }

    /// Gives up what is under way for a call, and ends the task that works for it.
    pub(super) async fn abandon(&mut self, call_id: ToolCallId) -> Result<(), EngineError> {
        if let Some(work) = self.at_work.remove(&call_id) {
            work.abort();
        }
        self.shared.end_part(task_of_call(call_id)).await
    }

    /// Ends what works for calls that were given up while no one was there to end it: when a person
    /// answered, or when the process died that had given them up.
    pub(super) async fn end_given_up(&mut self) -> Result<(), EngineError> {
        let Assignee::Workflow(flow) = &self.assignee else { return Ok(()) };
        if !flow.has_parts() {
            return Ok(());
        }
        let id = self.state.id();
        let store = &self.shared.parts.store;
        let living = load::blocking(store, move |store| living_sub_agents(store, id)).await?;
        for row in living {
            let is_needed =
                self.state.calls().all().iter().any(|call| task_of_call(call.id()) == row.id);
            if !is_needed {
                self.shared.end_part(row.id).await?;
            }
        }
        Ok(())
    }

    /// Has a sub-agent work on the side.
    pub(super) fn open_session(&mut self, call_id: ToolCallId, deadline: Option<Timestamp>) {
        let Some(order) = self.session_order(call_id) else { return };
        let attend = session::attend(Arc::clone(&self.shared), order, deadline);
        let work = self.tools.spawn(attend);
        self.at_work.insert(call_id, work);
    }

    fn session_order(&self, call_id: ToolCallId) -> Option<SessionOrder> {
        let calls = self.state.calls();
        let (index, call) = calls.index(call_id).zip(calls.get(call_id))?;
        let agent = call.tool.as_ref()?.sub_agent()?;
        let order = self.state.task().order();
        let (assignee, session) = match &self.assignee {
            Assignee::Agent(pinned) => {
                let place = format!("{}.{}", self.state.turn(), index + 1);
                (Assignee::Agent(pinned.sub_agent(&agent)?), place)
            }
            Assignee::Workflow(flow) => {
                let walk = self.state.workflow_run()?;
                let node = walk.node_of(call_id)?;
                let planned = &walk.plan().nodes()[node].node;
                let place = format!("{}.{}", planned.name, walk.node_run(node).count);
                (flow.assignee_of(planned)?, place)
            }
        };
        Some(SessionOrder {
            call_id,
            parent: order.id,
            assignee,
            session: format!("{}/{session}/{agent}", self.session).into(),
            description: session::description(call.arguments()),
            class: order.class.clone(),
            retention_days: order.retention_days,
            limited_by: self.limited_by(call_id),
        })
    }

    /// Looks on the side after a sub-agent that waits for a person.
    pub(super) fn watch_session(&mut self, call_id: ToolCallId) {
        let work = self.tools.spawn(session::watch(Arc::clone(&self.shared), call_id));
        self.at_work.insert(call_id, work);
    }

    /// Waits on the side for the time of a call's next attempt.
    pub(super) fn wait_for_tool(&mut self, call_id: ToolCallId, until: Timestamp) {
        let shared = Arc::clone(&self.shared);
        let work = self.tools.spawn(async move {
            sleep_until(&shared, until).await;
            Ok(Command::RetryTool(RetryTool { call_id }))
        });
        self.at_work.insert(call_id, work);
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

/// The tools that an agent may use.
fn tools_named(pinned: &PinnedAgent) -> &[ToolPattern] {
    pinned.llm().map_or(&[], |llm| &llm.tools)
}

/// What there is of these tools. A server that cannot be reached takes its own away, and no others.
async fn tools_there(
    shared: &Shared,
    patterns: &[ToolPattern],
    call_site: CallSite<'_>,
) -> Arc<Toolbox> {
    let error = match tools_in_time(shared, patterns, call_site).await {
        Ok(toolbox) => return toolbox,
        Err(error) => error,
    };
    let servers: BTreeSet<&str> = patterns.iter().map(ToolPattern::server).collect();
    let is_alone = servers.len() == 1;
    let mut there = Toolbox::default();
    for server in servers {
        let own: Vec<ToolPattern> =
            patterns.iter().filter(|pattern| pattern.server() == server).cloned().collect();
        // What is recorded of one server is not what was listed of all.
        let session = format!("{}/tools of {server}", call_site.session);
        let listed = if is_alone {
            Err(error.clone())
        } else {
            tools_of(shared, &own, CallSite { session: &session, ..call_site }).await
        };
        there = match listed {
            Ok(listed) => there.and(&listed),
            Err(error) => {
                tracing::warn!(%server, %error, "the tools of a server could not be listed");
                there.and(&Toolbox::lost(server, &error.to_string()))
            }
        };
    }
    Arc::new(there)
}

/// What there is of these tools, tried again where what is wrong may pass.
async fn tools_in_time(
    shared: &Shared,
    patterns: &[ToolPattern],
    call_site: CallSite<'_>,
) -> Result<Arc<Toolbox>, ToolsUnavailable> {
    let mut entropy = Entropy::from_seed(shared.parts.entropy.seed());
    let mut retries = 0;
    loop {
        match tools_of(shared, patterns, call_site).await {
            Err(error)
                if error.failure.category == ErrorCategory::Transient
                    && retries < LISTING_RETRIES_MAX =>
            {
                tokio::time::sleep(backoff::delay(retries, None, &mut entropy)).await;
                retries += 1;
            }
            listed => return listed,
        }
    }
}

/// What there is of these tools. Where none is named, no one is asked.
async fn tools_of(
    shared: &Shared,
    patterns: &[ToolPattern],
    call_site: CallSite<'_>,
) -> Result<Arc<Toolbox>, ToolsUnavailable> {
    if patterns.is_empty() {
        return Ok(Arc::default());
    }
    shared.parts.tools.toolbox(patterns, call_site).await
}

/// Passes on what a model or an agent on another server says while it says it.
pub(super) struct LiveText<'a> {
    pub(super) shared: &'a Shared,
    pub(super) task: TaskId,
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
            return Command::RecordModelReply(RecordModelReply { reply, duration_ms });
        }
        Ok(Ok(Err(failure))) => (failure, FailureCause::Model),
        Ok(Err(_)) => {
            let message = format!(
                "the model did not answer within {} seconds, the agent's \
                 llm_config.timeout_seconds",
                limit.as_secs()
            );
            let failure = AttemptFailure { category: ErrorCategory::Transient, message };
            (ModelFailure::new(failure), FailureCause::Timeout)
        }
        Err(NotCalled::Tools(ToolsUnavailable { failure })) => {
            (ModelFailure::new(failure), FailureCause::Tools)
        }
        Err(NotCalled::Budget(message)) => {
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
