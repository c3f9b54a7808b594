//! Sub-agents: tasks that an agent delegates, waits for, and gets a summary of.
//!
//! A sub-task has the id of the call that opened it, so a call that is repeated after a crash finds
//! the existing task. It runs in the process of its parent and never outlives it.

mod allowance;
mod ending;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::AgentDefinition;
use polity_model::event::RaisedLimits;
use polity_model::failure::ErrorCode;
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_model::session::TASK_DESCRIPTION_ARGUMENT;
use polity_model::task::Task;
use polity_model::tool::ToolName;
use polity_store::{CommitError, Store};
use serde_json::{Map, Value, json};

use super::history::{LoadedTask, TaskHistory};
use super::lifecycle::{RetryIdentity, claim_task, continue_ended, create_task};
use super::orphans::is_stalled;
use super::scheduler::enqueue;
use super::worker::elapsed_ms;
use super::{EngineError, RetryError, RuntimeInner};
use crate::commands::{
    CreateTask, ParentStep, RecordSessionWait, RecordToolReply, ReopenSession, TaskOrigin,
};
use crate::decide::doubted_run::find_doubted_run;
use crate::decide::{Command, CommandRejection};
use crate::driver::{RunOverrides, ToolReply, ToolSpec};
use crate::pinned::Assignee;
use crate::script_output::ScriptOutput;

pub(super) use allowance::{budget_of, open_allowance};
pub(super) use ending::{end_sub_task, end_sub_tasks};

/// The interval at which a sub-task is checked that another process runs, or that waits for a
/// review.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The work of a sub-agent, and its parent.
pub(super) struct SubAgentOrder {
    /// The call that opened it.
    pub(super) call_id: ToolCallId,
    /// The id of the sub-task.
    pub(super) task: TaskId,
    /// The sub-task of the same call in the task that the parent continues.
    pub(super) earlier: Option<TaskId>,
    /// The parent task.
    pub(super) parent: TaskId,
    /// The limits that the parent raises.
    pub(super) raised: RaisedLimits,
    /// The sub-agent or workflow, with its definitions.
    pub(super) assignee: Assignee,
    /// The name of its conversation.
    pub(super) session: Arc<str>,
    /// The input. The sub-agent sees nothing else of its parent.
    pub(super) description: String,
    /// The parent's class in the retention policy, which sub-tasks share.
    pub(super) class: Option<String>,
    /// The parent's retention time, which sub-tasks share.
    pub(super) retention_days: Option<u32>,
    /// The node whose `timeout_seconds` sets the deadline.
    pub(super) limited_by: Option<Name>,
    /// The step of the parent's workflow that it performs.
    pub(super) step: ParentStep,
}

/// The outcome of a sub-task.
enum SubAgentOutcome {
    /// It has ended or was refused, with this reply to the parent.
    Answered(ToolReply),
    /// It waits for a review.
    Waits,
}

/// The sub-agents of an agent, as tools of its model.
pub(super) fn sub_agent_tools(assignee: &Assignee) -> Vec<Arc<ToolSpec>> {
    let Assignee::Agent(pinned) = assignee else { return Vec::new() };
    // This runs for every task, and most agents have no sub-agents.
    if pinned.sub_agents().next().is_none() {
        return Vec::new();
    }
    let Value::Object(schema) = json!({
        "type": "object",
        "properties": {
            TASK_DESCRIPTION_ARGUMENT: {
                "type": "string",
                "minLength": 1,
                "description": "What to do, with all that must be known for it: the agent sees \
                                nothing of this conversation.",
            },
        },
        "required": [TASK_DESCRIPTION_ARGUMENT],
        "additionalProperties": false,
    }) else {
        return Vec::new();
    };
    pinned
        .sub_agents()
        .map(|sub_agent| {
            let name = ToolName::of_sub_agent(&sub_agent.agent.name);
            let role = sub_agent.agent.role().unwrap_or_default();
            let text = format!("Hands work to the agent {}: {role}", sub_agent.agent.name);
            let (schema, forever) = (schema.clone(), Duration::MAX);
            Arc::new(ToolSpec::new(name, text, schema, None, true, forever, Vec::new()))
        })
        .collect()
}

/// The input of a sub-agent call.
pub(super) fn description(arguments: &Map<String, Value>) -> String {
    arguments.get(TASK_DESCRIPTION_ARGUMENT).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Runs a sub-agent, and returns the command that records its outcome.
pub(super) async fn run_sub_agent(
    inner: Arc<RuntimeInner>,
    order: SubAgentOrder,
    deadline: Option<Timestamp>,
) -> Result<Command, EngineError> {
    let began = inner.deps.clock.now();
    let (call_id, task, limited_by) = (order.call_id, order.task, order.limited_by.clone());
    let outcome = match deadline {
        None => run_to_outcome(&inner, order).await?,
        Some(deadline) => {
            let left = deadline.duration_since(began).max(SignedDuration::ZERO).unsigned_abs();
            if let Ok(outcome) = tokio::time::timeout(left, run_to_outcome(&inner, order)).await {
                outcome?
            } else {
                end_sub_task(&inner, task).await?;
                SubAgentOutcome::Answered(timed_out(limited_by.as_ref()))
            }
        }
    };
    let reply = match outcome {
        SubAgentOutcome::Waits => {
            return Ok(Command::RecordSessionWait(RecordSessionWait { call_id }));
        }
        SubAgentOutcome::Answered(reply) => reply,
    };
    let duration_ms = elapsed_ms(began, inner.deps.clock.now());
    Ok(Command::RecordToolReply(RecordToolReply { call_id, reply, duration_ms }))
}

/// Waits until a sub-task no longer waits for a review, and returns the command that continues it.
pub(super) async fn watch_sub_agent(
    inner: Arc<RuntimeInner>,
    call_id: ToolCallId,
    task: TaskId,
) -> Result<Command, EngineError> {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if !is_waiting(&*inner.deps.store, task, inner.deps.clock.now()).await? {
            return Ok(Command::ReopenSession(ReopenSession { call_id }));
        }
    }
}

async fn is_waiting(store: &dyn Store, id: TaskId, now: Timestamp) -> Result<bool, EngineError> {
    let Some(row) = store.task_row(id).await? else { return Ok(false) };
    let is_late = row.review_deadline.is_some_and(|deadline| deadline <= now);
    let is_waiting = row.status == TaskStatus::AwaitingHuman && !is_late;
    Ok(is_waiting && !is_stalled(store, &row).await?)
}

/// Creates or claims the sub-task, and waits until it has ended or waits for a review.
async fn run_to_outcome(
    inner: &Arc<RuntimeInner>,
    order: SubAgentOrder,
) -> Result<SubAgentOutcome, EngineError> {
    let id = order.task;
    let store = &*inner.deps.store;
    loop {
        let loaded = match store.task_row(id).await? {
            Some(row) if row.status.is_final() => {
                let task = store.task(&row).await?;
                return Ok(SubAgentOutcome::Answered(summary(task, &order.assignee)));
            }
            Some(_) => claim_task(inner, id).await,
            None => match too_many_sub_agents(inner, &order).await? {
                Some(why) => return Ok(SubAgentOutcome::Answered(failed(why))),
                None => match earlier_sub_task(inner, &order).await? {
                    EarlierSubTask::None => create_task(inner, new_task(&order), None).await,
                    EarlierSubTask::Completed(reply) => {
                        return Ok(SubAgentOutcome::Answered(reply));
                    }
                    EarlierSubTask::Ended(earlier) => retry_sub_task(inner, &order, earlier).await,
                },
            },
        };
        let status = match loaded {
            Ok(loaded) => {
                let session = Some(Arc::clone(&order.session));
                enqueue(inner, loaded, session).await.wait().await
            }
            Err(error) => Err(error),
        };
        match status {
            Ok(TaskStatus::AwaitingHuman)
            | Err(EngineError::Rejected(CommandRejection::AwaitingHuman { .. })) => {
                return Ok(SubAgentOutcome::Waits);
            }
            Ok(TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
            | Err(
                EngineError::Rejected(CommandRejection::Finished { .. })
                // Another process opened the session at the same time.
                | EngineError::Commit(CommitError::Conflict { .. }),
            ) => {}
            // Another process owns it; its result counts.
            Ok(TaskStatus::Pending | TaskStatus::Running)
            | Err(
                EngineError::Rejected(CommandRejection::OwnerAlive { .. }) | EngineError::TakenOver(_),
            ) => tokio::time::sleep(CHECK_INTERVAL).await,
            Err(EngineError::Retry(why)) => {
                let why = format!("error: the sub-agent was not called: {why}");
                return Ok(SubAgentOutcome::Answered(failed(why)));
            }
            Err(EngineError::Rejected(why)) => {
                let why = format!("error: the sub-agent was not called: {why}");
                return Ok(SubAgentOutcome::Answered(failed(why)));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The sub-task of an inherited call in the task that the parent continues.
enum EarlierSubTask {
    /// There is none.
    None,
    /// It was completed, with this reply.
    Completed(ToolReply),
    /// It failed or was cancelled.
    Ended(TaskId),
}

async fn earlier_sub_task(
    inner: &Arc<RuntimeInner>,
    order: &SubAgentOrder,
) -> Result<EarlierSubTask, EngineError> {
    let Some(earlier) = order.earlier else { return Ok(EarlierSubTask::None) };
    // The process that owned it may have died before it could end it.
    end_sub_task(inner, earlier).await?;
    let store = &*inner.deps.store;
    let Some(row) = store.task_row(earlier).await? else { return Ok(EarlierSubTask::None) };
    Ok(match row.status {
        TaskStatus::Completed => {
            let reply = summary(store.task(&row).await?, &order.assignee);
            // A script that printed something else than its output runs again.
            if is_script(&order.assignee) && ScriptOutput::parse(&reply.content).is_err() {
                EarlierSubTask::Ended(earlier)
            } else {
                EarlierSubTask::Completed(reply)
            }
        }
        TaskStatus::Failed
        | TaskStatus::Cancelled
        | TaskStatus::Pending
        | TaskStatus::Running
        | TaskStatus::AwaitingHuman => EarlierSubTask::Ended(earlier),
    })
}

/// Creates the sub-task as a retry of the earlier one, so that it continues inside its own turn. A
/// CLI agent or remote agent starts again with its input.
async fn retry_sub_task(
    inner: &RuntimeInner,
    order: &SubAgentOrder,
    earlier: TaskId,
) -> Result<LoadedTask, EngineError> {
    let agent = order.assignee.agent();
    if agent.is_some_and(|agent| agent.program().is_some() || agent.remote().is_some()) {
        return begin_again(inner, order, earlier).await;
    }
    let (id, parent, step) = (order.task, Some(order.parent), order.step.clone());
    let identity = RetryIdentity { id, parent, step };
    let definitions = Some(order.assignee.clone());
    let store = &*inner.deps.store;
    match continue_ended(store, earlier, definitions, order.raised, identity).await {
        Ok(continued) => create_task(inner, continued.create, Some(continued.at_fork)).await,
        Err(EngineError::Retry(RetryError::Undone { .. })) => {
            begin_again(inner, order, earlier).await
        }
        Err(error) => Err(error),
    }
}

/// Creates the sub-task anew with the same input. A run of the earlier one that was cut off is in
/// doubt.
async fn begin_again(
    inner: &RuntimeInner,
    order: &SubAgentOrder,
    earlier: TaskId,
) -> Result<LoadedTask, EngineError> {
    let history = TaskHistory::load(&*inner.deps.store, earlier).await?;
    let TaskHistory { assignee, state, rest } = &history;
    let mut create = new_task(order);
    if let TaskOrigin::SubAgentCall { retry_of, doubted_run, .. } = &mut create.origin {
        *retry_of = Some(earlier);
        *doubted_run = find_doubted_run(assignee, state, rest);
    }
    create_task(inner, create, None).await
}

/// The error if the whole tree of a task has as many sub-tasks as it may. Each item of a map has a
/// tree of its own, because `limits.map_items` limits the items.
async fn too_many_sub_agents(
    inner: &RuntimeInner,
    order: &SubAgentOrder,
) -> Result<Option<String>, EngineError> {
    if order.step.item.is_some() {
        return Ok(None);
    }
    let (store, limit) = (&*inner.deps.store, inner.deps.limits.sub_agents);
    let mut root = order.parent;
    while let Some(row) = store.task_row(root).await? {
        match row.parent_task_id {
            Some(parent) if row.map_item.is_none() => root = parent,
            Some(_) | None => break,
        }
    }
    let tree = store.task_tree(root).await?;
    let is_full = tree.task_count - tree.item_task_count > u64::from(limit.get());
    Ok(is_full.then(|| {
        format!(
            "error: the sub-agent was not called: {limit} have worked for this task, the most \
             that limits.sub_agents allows"
        )
    }))
}

/// The result of a sub-agent's task, as its parent sees it.
fn summary(task: Task, assignee: &Assignee) -> ToolReply {
    let Task { assigned_agent, status, result, error, error_code, .. } = task;
    match status {
        TaskStatus::Completed => {
            ToolReply { content: result.unwrap_or_default(), ..ToolReply::default() }
        }
        TaskStatus::Cancelled => ToolReply {
            code: Some(ErrorCode::PartCancelled),
            ..failed(format!("error: {assigned_agent} was cancelled"))
        },
        TaskStatus::Failed
        | TaskStatus::Pending
        | TaskStatus::Running
        | TaskStatus::AwaitingHuman => {
            let named = error_code.map(|code| format!(" ({code})")).unwrap_or_default();
            let error = error.unwrap_or_else(|| "it did not end".to_owned());
            // The error of a script names the script, and the node's failure has the code.
            if is_script(assignee) {
                return ToolReply { code: error_code, ..failed(format!("error: {error}")) };
            }
            let so_far = result.map(|result| format!("; its last words: {result}"));
            let so_far = so_far.unwrap_or_default();
            let content = format!("error: {assigned_agent} failed{named}: {error}{so_far}");
            ToolReply { code: error_code, ..failed(content) }
        }
    }
}

fn is_script(assignee: &Assignee) -> bool {
    assignee.agent().and_then(AgentDefinition::program).is_some_and(|cli| cli.script.is_some())
}

fn timed_out(limited_by: Option<&Name>) -> ToolReply {
    let whose = limited_by.map_or("its node".to_owned(), |node| format!("node {node}"));
    let content = format!("error: it did not end within the timeout_seconds of {whose}");
    ToolReply { code: Some(ErrorCode::Timeout), ..failed(content) }
}

fn failed(content: String) -> ToolReply {
    ToolReply { content, is_error: true, ..ToolReply::default() }
}

fn new_task(order: &SubAgentOrder) -> CreateTask {
    CreateTask {
        assignee: order.assignee.clone(),
        origin: TaskOrigin::SubAgentCall {
            parent: order.parent,
            id: order.task,
            retry_of: None,
            doubted_run: None,
            step: order.step.clone(),
        },
        description: order.description.clone(),
        // The parameters of the parent are not passed on.
        parameters: Map::new(),
        class: order.class.clone(),
        retention_days: order.retention_days,
        budget: None,
        raised: RaisedLimits {
            timeout_seconds: order.raised.timeout_seconds,
            ..Default::default()
        },
        overrides: RunOverrides::default(),
    }
}
