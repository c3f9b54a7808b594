//! Steering a task from outside: by a process that does not run it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::{AgentDefinition, HomeSettings};
use polity_model::event::{Event, RecordedEvent, StreamId, StreamSequence};
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_store::instances::Instances;
use polity_store::{Commit, CommitError, Store, StoreError, TaskFilter, TaskRow};

use super::remote::end_remote;
use super::{CONFLICTS_MAX, EngineError, Loaded, load};
use crate::budget::BudgetStatus;
use crate::clock::Clock;
use crate::commands::{CancelOrigin, CancelTask};
use crate::decide::{Command, CommandRejection, DecisionContext, SlotContext, decide};
use crate::driver::Remotes;
use crate::entropy::Entropy;
use crate::state::TaskState;

/// How many events are looked at first for what a task waits for.
const NEWEST_EVENTS: u32 = 8;

/// Who knows which processes are alive.
pub trait Owners: Send + Sync {
    /// Whether that process is alive.
    fn is_alive(&self, instance: InstanceId) -> bool;
}

impl Owners for Instances {
    fn is_alive(&self, instance: InstanceId) -> bool {
        // Where it cannot be told, the owner counts as alive: nothing is taken from the living.
        Instances::is_alive(self, instance).unwrap_or_else(|error| {
            tracing::warn!(%instance, %error, "it cannot be told whether a process is alive");
            true
        })
    }
}

/// What came of steering a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steered {
    /// It is done.
    Done(TaskStatus),
    /// The task's owner has been asked, and will notice.
    Requested,
}

/// What it takes to steer a task.
#[derive(Clone, Copy)]
pub struct Steering<'a> {
    /// The journal.
    pub store: &'a Arc<dyn Store>,
    /// Who knows which processes are alive.
    pub owners: &'a dyn Owners,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Who reaches the servers that work for tasks.
    pub remotes: &'a dyn Remotes,
}

/// Ends a task that this process does not run, and its sub-agents with it.
pub async fn cancel(steering: &Steering<'_>, id: TaskId) -> Result<Steered, EngineError> {
    let store = steering.store;
    let steered = cancel_alone(steering, id).await?;
    // Where the owner was only asked, it sees to its sub-agents itself.
    if let Steered::Done(_) = steered {
        for row in load::blocking(store, move |store| living_sub_agents(store, id)).await? {
            match Box::pin(cancel(steering, row.id)).await {
                // It ended by itself meanwhile.
                Ok(_) | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(steered)
}

/// The sub-agents' tasks of a task that have not ended.
pub(super) fn living_sub_agents(
    store: &dyn Store,
    parent: TaskId,
) -> Result<Vec<TaskRow>, StoreError> {
    let statuses = vec![TaskStatus::Pending, TaskStatus::Running, TaskStatus::AwaitingHuman];
    store.task_rows(&TaskFilter { statuses, parent: Some(parent), ..TaskFilter::default() })
}

async fn cancel_alone(steering: &Steering<'_>, id: TaskId) -> Result<Steered, EngineError> {
    let Steering { store, owners, clock, .. } = steering;
    for _ in 0..CONFLICTS_MAX {
        let Loaded { assignee, state } = load(store, id).await?;
        let owner_alive = state.owner().is_some_and(|owner| owners.is_alive(owner));
        let by = CancelOrigin::Other { owner_alive };
        // Nothing about a cancel is left to chance.
        let mut ctx = DecisionContext {
            now: clock.now(),
            entropy: Entropy::from_seed([0; 16]),
            toolbox: Arc::default(),
            limits: HomeSettings::default().limits,
            budget: BudgetStatus::default(),
            slot: SlotContext::default(),
            agent_toggles: Arc::default(),
        };
        let decision = decide(&state, &Command::CancelTask(CancelTask { by }), &mut ctx)?;
        if decision.events.is_empty() {
            return Ok(Steered::Requested);
        }
        let ends = decision.events.contains(&Event::TaskCancelled);
        let commit = Commit {
            stream: state.stream(),
            expected_sequence: state.sequence(),
            owner_epoch: None,
            at: ctx.now,
            events: decision.events,
            definitions: Vec::new(),
            sealed_input: None,
        };
        match store.commit(commit).await {
            Ok(_) if ends => {
                if let Some(agent) = assignee.agent().filter(|_| state.open_remote().is_some()) {
                    let ended = load(store, id).await?.state;
                    end_remote_of(steering, agent, &ended).await?;
                }
                return Ok(Steered::Done(TaskStatus::Cancelled));
            }
            Ok(_) => return Ok(Steered::Requested),
            Err(CommitError::Conflict { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(EngineError::Contended(id))
}

/// Ends what works on another server for a task that has ended.
async fn end_remote_of(
    steering: &Steering<'_>,
    agent: &AgentDefinition,
    ended: &TaskState,
) -> Result<(), EngineError> {
    let Steering { store, clock, remotes, .. } = steering;
    let Some(commit) = end_remote(*remotes, *clock, agent, ended).await else { return Ok(()) };
    match store.commit(commit).await {
        // Someone else has asked too, and told of it.
        Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The tasks that no one works on although someone should: their owner is gone, or the time for a
/// person's answer is over. Oldest first. A
/// sub-agent is not among them, but the task that it goes on with.
pub fn orphans(
    store: &dyn Store,
    owners: &dyn Owners,
    now: Timestamp,
) -> Result<Vec<TaskRow>, StoreError> {
    let unfinished = TaskFilter {
        statuses: vec![TaskStatus::Pending, TaskStatus::Running],
        ..TaskFilter::default()
    };
    let is_left = |row: &TaskRow| !row.owner.is_some_and(|owner| owners.is_alive(owner));
    let mut found = BTreeMap::new();
    for row in store.task_rows(&unfinished)?.into_iter().filter(is_left) {
        let top = resumed_with(store, row)?;
        if is_left(&top) {
            found.insert(top.created_position, top);
        }
    }
    let waiting = TaskFilter { statuses: vec![TaskStatus::AwaitingHuman], ..TaskFilter::default() };
    for row in store.task_rows(&waiting)?.into_iter().filter(is_left) {
        let is_late = row.review_deadline.is_some_and(|deadline| deadline <= now);
        if is_late || is_stray(store, &row)? || is_stalled(store, &row)? {
            let top = resumed_with(store, row)?;
            if is_left(&top) {
                found.insert(top.created_position, top);
            }
        }
    }
    Ok(found.into_values().collect())
}

/// The task at the top of those that a sub-agent works for, of which each goes on with the parts of
/// it. One whose parent has ended stands alone.
pub fn top_of(store: &dyn Store, mut row: TaskRow) -> Result<TaskRow, StoreError> {
    while let Some(parent) = row.parent_task_id {
        match store.task_row(parent)? {
            Some(parent) if !parent.status.is_final() => row = parent,
            Some(_) | None => break,
        }
    }
    Ok(row)
}

/// The task that must be taken over so that this one goes on: the highest of those that it works
/// for. One that waits for an answer of its own, with all above it, does not hold up its parts:
/// below it each goes on alone, and what comes of it is there when the answer comes.
pub fn resumed_with(store: &dyn Store, mut row: TaskRow) -> Result<TaskRow, StoreError> {
    while let Some(parent) = row.parent_task_id {
        match store.task_row(parent)? {
            Some(parent) if !parent.status.is_final() && !asks(store, &parent)? => row = parent,
            Some(_) | None => break,
        }
    }
    Ok(row)
}

/// Whether a task waits for an answer to a question of its own.
fn asks(store: &dyn Store, row: &TaskRow) -> Result<bool, StoreError> {
    Ok(row.status == TaskStatus::AwaitingHuman
        && why_it_waits(store, row.id)? == Some(Wait::ForAnswer))
}

/// Whether a task was paused for sub-agents, and there is something to do for one of them by now: a
/// person has answered it, or something below it, or none of them lives any more.
pub(super) fn is_stalled(store: &dyn Store, row: &TaskRow) -> Result<bool, StoreError> {
    if row.status != TaskStatus::AwaitingHuman {
        return Ok(false);
    }
    let living = living_sub_agents(store, row.id)?;
    let mut is_waited_for = living.is_empty();
    for part in &living {
        is_waited_for |= part.status != TaskStatus::AwaitingHuman || is_stalled(store, part)?;
    }
    if !is_waited_for {
        return Ok(false);
    }
    // Most tasks that wait have no sub-agents, and wait for an answer of their own.
    Ok(why_it_waits(store, row.id)? == Some(Wait::ForParts))
}

/// What a task that waits for a person waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// For an answer to a question of its own.
    ForAnswer,
    /// For its parts, which ask.
    ForParts,
}

/// Why a task began to wait, the last time that it did.
fn why_it_waits(store: &dyn Store, id: TaskId) -> Result<Option<Wait>, StoreError> {
    let why = |recorded: &RecordedEvent| {
        let asks = matches!(recorded.event, Event::ReviewOpened { .. });
        let is_paused = recorded.event == Event::TaskPaused;
        asks.then_some(Wait::ForAnswer).or(is_paused.then_some(Wait::ForParts))
    };
    let stream = StreamId::Task(id);
    // A task that waits is looked at again and again, and its last events tell. Those who claimed it
    // and died before it went on have left few of their own.
    let newest = store.newest_events(&stream, NEWEST_EVENTS)?;
    if let Some(wait) = newest.iter().find_map(why) {
        return Ok(Some(wait));
    }
    let all = store.events(&stream, StreamSequence::default())?;
    Ok(all.iter().rev().find_map(why))
}

/// Whether a task is a part of one that has ended.
fn is_stray(store: &dyn Store, row: &TaskRow) -> Result<bool, StoreError> {
    let Some(parent) = row.parent_task_id else { return Ok(false) };
    Ok(store.task_row(parent)?.is_some_and(|parent| parent.status.is_final()))
}
