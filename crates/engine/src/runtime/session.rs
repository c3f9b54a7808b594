//! Sub-agents: tasks that another task's agent hands out, waits for, and gets a summary of.
//!
//! A sub-agent's task has the id of the call that opened it, so whoever makes the call again after a
//! crash finds the task that is there. It runs in the process of its parent, and never outlives it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_model::budget::Budget;
use polity_model::failure::ErrorCode;
use polity_model::ids::{InstanceId, TaskId, ToolCallId};
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_model::session::{TASK_DESCRIPTION_ARGUMENT, task_of_call};
use polity_model::task::Task;
use polity_model::tool::ToolName;
use polity_store::CommitError;
use serde_json::{Map, Value, json};

use super::load;
use super::steer::{self, Owners, Steered, is_stalled, living_sub_agents};
use super::worker::elapsed_ms;
use super::{EngineError, Shared};
use crate::budget::{BudgetAccount, BudgetAllowance};
use crate::commands::{CreateTask, RecordSessionWait, RecordToolReply, ReopenSession, TaskOrigin};
use crate::decide::{Command, CommandRejection};
use crate::driver::{RunOverrides, Tool, ToolReply};
use crate::pinned::Assignee;
use crate::state::TaskState;

/// How often a sub-agent is looked at that another process runs, or that waits for a person.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often the sub-agents of a task that has ended are looked at until they have ended too.
const ENDING_LOOKS_MAX: u32 = 100;

/// Who is alive besides this process.
struct Others<'a> {
    owners: &'a dyn Owners,
    own: InstanceId,
}

impl Owners for Others<'_> {
    fn is_alive(&self, instance: InstanceId) -> bool {
        instance != self.own && self.owners.is_alive(instance)
    }
}

/// What a sub-agent is to do, and for whom.
pub(super) struct SessionOrder {
    /// The call that asks for it.
    pub(super) call_id: ToolCallId,
    /// The task that asks.
    pub(super) parent: TaskId,
    /// The sub-agent, or the workflow, with everything it needs.
    pub(super) assignee: Assignee,
    /// The name of its conversation.
    pub(super) session: Arc<str>,
    /// What it is to do. It learns nothing else of its parent.
    pub(super) description: String,
    /// The parent's class of the retention policy, which holds for its parts too.
    pub(super) class: Option<String>,
    /// How long the parent is kept, and its parts with it.
    pub(super) retention_days: Option<u32>,
    /// The node whose `timeout_seconds` sets its deadline, if it has one.
    pub(super) limited_by: Option<Name>,
}

/// What became of a sub-agent.
enum Attended {
    /// It has ended, or was never given the work: this is what its parent learns.
    Answered(ToolReply),
    /// It waits for a person.
    Waits,
}

/// An agent's sub-agents, as the tools that they are to its model.
pub(super) fn sub_agent_tools(assignee: &Assignee) -> Vec<Arc<Tool>> {
    let Assignee::Agent(pinned) = assignee else { return Vec::new() };
    // Most agents have none, and every task passes here.
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
            Arc::new(Tool::new(name, text, schema, None, true, forever, Vec::new()))
        })
        .collect()
}

/// What a call of a sub-agent asks for.
pub(super) fn description(arguments: &Map<String, Value>) -> String {
    arguments.get(TASK_DESCRIPTION_ARGUMENT).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Has a sub-agent do its work, and tells what came of it.
pub(super) async fn attend(
    shared: Arc<Shared>,
    order: SessionOrder,
    deadline: Option<Timestamp>,
) -> Result<Command, EngineError> {
    let began = shared.parts.clock.now();
    let (call_id, limited_by) = (order.call_id, order.limited_by.clone());
    let attended = match deadline {
        None => shared.attend_session(order).await?,
        Some(deadline) => {
            let left = deadline.duration_since(began).max(SignedDuration::ZERO).unsigned_abs();
            if let Ok(attended) = tokio::time::timeout(left, shared.attend_session(order)).await {
                attended?
            } else {
                shared.end_part(task_of_call(call_id)).await?;
                Attended::Answered(timed_out(limited_by.as_ref()))
            }
        }
    };
    let reply = match attended {
        Attended::Waits => return Ok(Command::RecordSessionWait(RecordSessionWait { call_id })),
        Attended::Answered(reply) => reply,
    };
    let duration_ms = elapsed_ms(began, shared.parts.clock.now());
    Ok(Command::RecordToolReply(RecordToolReply { call_id, reply, duration_ms }))
}

/// Looks after a sub-agent that waits for a person, until there is something to do for it.
pub(super) async fn watch(
    shared: Arc<Shared>,
    call_id: ToolCallId,
) -> Result<Command, EngineError> {
    let task = task_of_call(call_id);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = shared.parts.clock.now();
        let waits = load::blocking(&shared.parts.store, move |store| {
            let Some(row) = store.task_row(task)? else { return Ok(false) };
            let is_late = row.review_deadline.is_some_and(|deadline| deadline <= now);
            let is_waiting = row.status == TaskStatus::AwaitingHuman && !is_late;
            Ok(is_waiting && !is_stalled(store, &row)?)
        });
        if !waits.await? {
            return Ok(Command::ReopenSession(ReopenSession { call_id }));
        }
    }
}

/// All that the parent gets of a sub-agent's work.
fn summary(task: Task) -> ToolReply {
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
            let so_far = result.map(|result| format!("; its last words: {result}"));
            let so_far = so_far.unwrap_or_default();
            let content = format!("error: {assigned_agent} failed{named}: {error}{so_far}");
            ToolReply { code: error_code, ..failed(content) }
        }
    }
}

fn timed_out(limited_by: Option<&Name>) -> ToolReply {
    let whose = limited_by.map_or("its node".to_owned(), |node| format!("node {node}"));
    let content = format!("error: it did not end within the timeout_seconds of {whose}");
    ToolReply { code: Some(ErrorCode::Timeout), ..failed(content) }
}

fn failed(content: String) -> ToolReply {
    ToolReply { content, is_error: true, ..ToolReply::default() }
}

impl Shared {
    /// Sees to it that someone works on a sub-agent's task, and waits until no one does.
    async fn attend_session(
        self: &Arc<Self>,
        order: SessionOrder,
    ) -> Result<Attended, EngineError> {
        let id = task_of_call(order.call_id);
        loop {
            let found = load::blocking(&self.parts.store, move |store| {
                let Some(row) = store.task_row(id)? else { return Ok(None) };
                let ended = if row.status.is_final() { Some(store.task(&row)?) } else { None };
                Ok(Some(ended))
            })
            .await?;
            let loaded = match found {
                Some(Some(ended)) => return Ok(Attended::Answered(summary(ended))),
                Some(None) => self.claim(id).await,
                None => match self.one_too_many(order.parent).await? {
                    Some(why) => return Ok(Attended::Answered(failed(why))),
                    None => self.create(new_task(&order)).await,
                },
            };
            let status = match loaded {
                Ok(loaded) => {
                    let session = Some(Arc::clone(&order.session));
                    self.enqueue(loaded, session).await.wait().await
                }
                Err(error) => Err(error),
            };
            match status {
                Ok(TaskStatus::AwaitingHuman)
                | Err(EngineError::Rejected(CommandRejection::AwaitingHuman { .. })) => {
                    return Ok(Attended::Waits);
                }
                Ok(TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
                | Err(
                    EngineError::Rejected(CommandRejection::Finished { .. })
                    // Someone else has opened it in the same moment.
                    | EngineError::Commit(CommitError::Conflict { .. }),
                ) => {}
                // Another process has it: what it makes of it counts.
                Ok(TaskStatus::Pending | TaskStatus::Running)
                | Err(
                    EngineError::Rejected(CommandRejection::OwnerAlive { .. })
                    | EngineError::TakenOver(_),
                ) => tokio::time::sleep(LOOK_EVERY).await,
                Err(EngineError::Rejected(why)) => {
                    let why = format!("error: the sub-agent was not called: {why}");
                    return Ok(Attended::Answered(failed(why)));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Why a task may open no more sub-agents, if that is so: those of the whole that it is a part of
    /// count.
    async fn one_too_many(&self, task: TaskId) -> Result<Option<String>, EngineError> {
        let limit = self.parts.limits.sub_agents;
        let tree = load::blocking(&self.parts.store, move |store| {
            let mut root = task;
            while let Some(parent) = store.task_row(root)?.and_then(|row| row.parent_task_id) {
                root = parent;
            }
            store.tree(root)
        });
        let is_full = tree.await?.tasks > u64::from(limit.get());
        Ok(is_full.then(|| {
            format!(
                "error: the sub-agent was not called: {limit} have worked for this task, the most \
                 that limits.sub_agents allows"
            )
        }))
    }

    /// Ends what works for a task, if the task has ended.
    pub(super) async fn end_parts_of(&self, state: &TaskState) {
        let id = state.id();
        if state.status().is_final()
            && let Err(error) = self.end_sub_agents(id).await
        {
            // The task has ended all the same; whoever resumes what is left ends them.
            tracing::warn!(%id, %error, "the sub-agents of a task could not be ended");
        }
    }

    /// Ends the sub-agents of a task that has ended, and waits until they have.
    pub(super) async fn end_sub_agents(&self, parent: TaskId) -> Result<(), EngineError> {
        let parts = &self.parts;
        // One that has just put a question, or that another process has, may need a second look.
        for _ in 0..ENDING_LOOKS_MAX {
            let living =
                load::blocking(&parts.store, move |store| living_sub_agents(store, parent)).await?;
            if living.is_empty() {
                return Ok(());
            }
            for row in living {
                self.end_once(row.id).await?;
            }
        }
        Err(EngineError::Contended(parent))
    }

    /// Ends a task that works for another, if it lives, and waits until it has ended.
    pub(super) async fn end_part(&self, id: TaskId) -> Result<(), EngineError> {
        for _ in 0..ENDING_LOOKS_MAX {
            let row = load::blocking(&self.parts.store, move |store| store.task_row(id)).await?;
            if row.is_none_or(|row| row.status.is_final()) {
                return Ok(());
            }
            self.end_once(id).await?;
        }
        Err(EngineError::Contended(id))
    }

    /// Does what can be done to end a task. The next look shows what became of it.
    async fn end_once(&self, id: TaskId) -> Result<(), EngineError> {
        if let Some(done) = self.desk.end(id) {
            let _ = done.await;
            return Ok(());
        }
        let parts = &self.parts;
        // One that is this process's own, and that no worker is on, is no one's.
        let others = Others { owners: &*parts.owners, own: parts.instance };
        match steer::cancel(&parts.steering(&others), id).await {
            Ok(Steered::Done(_))
            | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
            Ok(Steered::Requested) => tokio::time::sleep(LOOK_EVERY).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A sub-agent whose parent has ended is ended too: no one waits for it.
    pub(super) async fn refuse_stray(&self, state: &TaskState) -> Result<(), EngineError> {
        let Some(parent) = state.task().order().parent_task_id else { return Ok(()) };
        let parts = &self.parts;
        let row = load::blocking(&parts.store, move |store| store.task_row(parent)).await?;
        if !row.is_some_and(|parent| parent.status.is_final()) {
            return Ok(());
        }
        let task = state.id();
        let steered = steer::cancel(&parts.steering(&*parts.owners), task).await?;
        Err(match (steered, state.owner()) {
            // Its owner has been asked, and is still at work.
            (Steered::Requested, Some(owner)) => CommandRejection::OwnerAlive { task, owner },
            (Steered::Requested, None) | (Steered::Done(_), _) => {
                CommandRejection::Finished { task, status: TaskStatus::Cancelled }
            }
        }
        .into())
    }

    /// What a task may spend: its own budget, and those of the tasks that it is a part of.
    pub(super) async fn open_allowance(
        &self,
        assignee: &Assignee,
        state: &TaskState,
    ) -> Result<BudgetAllowance, EngineError> {
        let order = state.task().order();
        let mut tasks = Vec::new();
        if let Some(budget) = budget_of(assignee, order.budget) {
            self.open_account(order.id, assignee, budget).await?;
            tasks.push(order.id);
        }
        let mut parent = order.parent_task_id;
        while let Some(id) = parent {
            if let Some(above) = self.ledger.allowance(id) {
                tasks.extend(above.iter());
                break;
            }
            let above = load::load(&self.parts.store, id).await?;
            let order = above.state.task().order();
            if let Some(budget) = budget_of(&above.assignee, order.budget) {
                self.open_account(id, &above.assignee, budget).await?;
                tasks.push(id);
            }
            parent = order.parent_task_id;
        }
        Ok(BudgetAllowance::new(&self.ledger, order.id, tasks))
    }

    async fn open_account(
        &self,
        task: TaskId,
        assignee: &Assignee,
        budget: Budget,
    ) -> Result<(), EngineError> {
        let tree = load::blocking(&self.parts.store, move |store| store.tree(task)).await?;
        let (agent, spent) = (assignee.name().clone(), tree.usage);
        self.ledger.open(task, BudgetAccount { agent, budget, spent });
        Ok(())
    }
}

/// The tighter of both limits, where an agent and a task have one.
fn budget_of(assignee: &Assignee, of_task: Option<Budget>) -> Option<Budget> {
    let of_agent = assignee.llm().and_then(|llm| llm.budget);
    let (Some(one), Some(other)) = (of_agent, of_task) else { return of_agent.or(of_task) };
    let tokens = [one.max_tokens, other.max_tokens].into_iter().flatten().min();
    let usd = match (one.max_cost_usd, other.max_cost_usd) {
        (Some(one), Some(other)) => Some(if one <= other { one } else { other }),
        (one, other) => one.or(other),
    };
    Some(Budget { max_cost_usd: usd, max_tokens: tokens })
}

fn new_task(order: &SessionOrder) -> CreateTask {
    CreateTask {
        assignee: order.assignee.clone(),
        origin: TaskOrigin::SubAgentCall { parent: order.parent, call: order.call_id },
        description: order.description.clone(),
        // What the parent was given besides its input is not the sub-agent's.
        parameters: Map::new(),
        class: order.class.clone(),
        retention_days: order.retention_days,
        budget: None,
        overrides: RunOverrides::default(),
    }
}
