//! Loads tasks from the store.

use polity_model::event::{
    DefinitionPin, Event, ForkPoint, RecordedEvent, StreamId, StreamSequence,
};
use polity_model::ids::TaskId;
use polity_store::Store;

use super::EngineError;
use crate::decide::retry_point;
use crate::pinned::Assignee;
use crate::state::TaskState;

/// A task in memory.
#[derive(Debug, Clone)]
pub struct LoadedTask {
    /// The agent or workflow, with its pinned definitions.
    pub assignee: Assignee,
    /// The state.
    pub state: TaskState,
}

/// Loads a task and its pinned definitions.
pub async fn load_task(store: &dyn Store, id: TaskId) -> Result<LoadedTask, EngineError> {
    let TaskHistory { assignee, state, rest } = TaskHistory::load(store, id).await?;
    let state = state.following(rest).map_err(|broken| EngineError::broken(id, &broken))?;
    Ok(LoadedTask { assignee, state })
}

/// A task after its first event, and the events that follow.
#[derive(Debug, Clone)]
pub struct TaskHistory {
    /// The agent or workflow.
    pub assignee: Assignee,
    /// The state after the first event.
    pub state: TaskState,
    /// The events that follow.
    pub rest: Vec<RecordedEvent>,
}

impl TaskHistory {
    /// Loads the history of a task. A fork or retry begins with the State of its origin at the point
    /// from which it continues.
    pub async fn load(store: &dyn Store, id: TaskId) -> Result<Self, EngineError> {
        let mut at_fork = None;
        let mut lineage = read_lineage(store, id).await?;
        while let Some((task, events)) = lineage.pop() {
            let history = begin(store, task, events, at_fork.take()).await?;
            if lineage.is_empty() {
                return Ok(history);
            }
            let state = history.state.following(history.rest);
            at_fork = Some(state.map_err(|broken| EngineError::broken(task, &broken))?);
        }
        Err(EngineError::NotFound(id))
    }

    /// Loads the histories of a task and of those that it continues, the oldest first. Each has the
    /// events that the next one shares.
    pub async fn load_lineage(store: &dyn Store, id: TaskId) -> Result<Vec<Self>, EngineError> {
        let lineage = read_lineage(store, id).await?;
        let mut histories: Vec<Self> = Vec::with_capacity(lineage.len());
        for (task, events) in lineage.into_iter().rev() {
            // The state of the origin at the fork point.
            let at_fork = histories.last().map(|origin| {
                let state = origin.state.clone().following(origin.rest.iter().cloned());
                state.map_err(|broken| EngineError::broken(task, &broken))
            });
            histories.push(begin(store, task, events, at_fork.transpose()?).await?);
        }
        Ok(histories)
    }
}

/// Reads the events of a task, and those that it shares with the tasks that it continues, the oldest
/// last.
async fn read_lineage(
    store: &dyn Store,
    id: TaskId,
) -> Result<Vec<(TaskId, Vec<RecordedEvent>)>, EngineError> {
    let events = store.events(&StreamId::Task(id), StreamSequence::default()).await?;
    let mut lineage = vec![(id, events)];
    while let Some((_, events)) = lineage.last()
        && let Some(from) = events.first().and_then(fork_point).copied()
    {
        let origin = StreamId::Task(from.task_id);
        let mut shared = store.events(&origin, StreamSequence::default()).await?;
        shared.retain(|recorded| recorded.sequence <= from.sequence);
        lineage.push((from.task_id, shared));
    }
    Ok(lineage)
}

/// True if finished nodes of a task's workflow were undone, or may have been.
pub async fn is_undone(store: &dyn Store, id: TaskId) -> Result<bool, EngineError> {
    let TaskHistory { assignee, rest, .. } = TaskHistory::load(store, id).await?;
    Ok(retry_point::is_undone(&assignee, &rest))
}

/// The definitions that a task pinned.
pub async fn pins_of(store: &dyn Store, id: TaskId) -> Result<Vec<DefinitionPin>, EngineError> {
    let events = store.events(&StreamId::Task(id), StreamSequence::default()).await?;
    let first = events.into_iter().next().map(|recorded| recorded.event);
    let Some(Event::TaskCreated(created)) = first else { return Err(EngineError::NotFound(id)) };
    Ok(created.pins)
}

fn fork_point(first: &RecordedEvent) -> Option<&ForkPoint> {
    let Event::TaskCreated(created) = &first.event else { return None };
    created.forked_from.as_ref()
}

async fn begin(
    store: &dyn Store,
    id: TaskId,
    events: Vec<RecordedEvent>,
    at_fork: Option<TaskState>,
) -> Result<TaskHistory, EngineError> {
    let mut rest = events.into_iter();
    let first = rest.next().ok_or(EngineError::NotFound(id))?;
    let Event::TaskCreated(created) = &first.event else {
        return Err(EngineError::NotFound(id));
    };
    let assignee = Assignee::load(store, &created.assigned_agent, &created.pins).await?;
    let assignee = assignee.with_timeout(created.raised.timeout_seconds);
    let state = match at_fork {
        Some(state) => state.fork(first, &assignee),
        None => TaskState::begin(&assignee, first),
    };
    let state = state.map_err(|broken| EngineError::broken(id, &broken))?;
    Ok(TaskHistory { assignee, state, rest: rest.collect() })
}
