//! Reading tasks from the store without holding up the asynchronous threads.

use std::sync::Arc;

use polity_model::event::{Event, ForkPoint, RecordedEvent, StreamId, StreamSequence};
use polity_model::ids::TaskId;
use polity_store::{Store, StoreError};

use super::EngineError;
use crate::pinned::Assignee;
use crate::state::TaskState;

/// A task in memory, with what it needs.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Who does it, with the definitions that it pinned.
    pub assignee: Assignee,
    /// Its state.
    pub state: TaskState,
}

/// Reads a task and everything it pinned.
pub async fn load(store: &Arc<dyn Store>, id: TaskId) -> Result<Loaded, EngineError> {
    let store = Arc::clone(store);
    let read = move || {
        let Beginning { assignee, state, rest } = Beginning::of(&*store, id)?;
        let state = state.following(rest).map_err(|broken| EngineError::broken(id, &broken))?;
        Ok(Loaded { assignee, state })
    };
    tokio::task::spawn_blocking(read).await.unwrap_or(Err(EngineError::Left(id)))
}

/// How a task began: the state after its first event, and the events that follow.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// Who does it.
    pub assignee: Assignee,
    /// Its state after its first event.
    pub state: TaskState,
    /// The events that follow.
    pub rest: Vec<RecordedEvent>,
}

impl Beginning {
    /// Reads it. A task that goes on from a checkpoint of another begins with the State of that.
    pub fn of(store: &dyn Store, id: TaskId) -> Result<Self, EngineError> {
        Self::line(store, id)?.pop().ok_or(EngineError::NotFound(id))
    }

    /// Reads it with those of the tasks whose history it has, the first one first. Each has the
    /// events that the next one shares.
    pub fn line(store: &dyn Store, id: TaskId) -> Result<Vec<Self>, EngineError> {
        // From the task back to the one that the whole line began with.
        let mut line = vec![(id, store.events(&StreamId::Task(id), StreamSequence::default())?)];
        while let Some((_, events)) = line.last()
            && let Some(from) = events.first().and_then(forked_from)
        {
            let mut shared =
                store.events(&StreamId::Task(from.task_id), StreamSequence::default())?;
            shared.retain(|recorded| recorded.sequence <= from.sequence);
            line.push((from.task_id, shared));
        }
        let mut begun: Vec<Self> = Vec::with_capacity(line.len());
        for (task, events) in line.into_iter().rev() {
            // The state of the one before, at the point from which this one goes on.
            let at_fork = begun.last().map(|before| {
                let state = before.state.clone().following(before.rest.iter().cloned());
                state.map_err(|broken| EngineError::broken(task, &broken))
            });
            begun.push(begin(store, task, events, at_fork.transpose()?)?);
        }
        Ok(begun)
    }
}

fn forked_from(first: &RecordedEvent) -> Option<&ForkPoint> {
    let Event::TaskCreated(created) = &first.event else { return None };
    created.forked_from.as_ref()
}

fn begin(
    store: &dyn Store,
    id: TaskId,
    events: Vec<RecordedEvent>,
    at_fork: Option<TaskState>,
) -> Result<Beginning, EngineError> {
    let mut rest = events.into_iter();
    let first = rest.next().ok_or(EngineError::NotFound(id))?;
    let Event::TaskCreated(created) = &first.event else {
        return Err(EngineError::NotFound(id));
    };
    let assignee = Assignee::load(store, &created.assigned_agent, &created.pins)?;
    let state = match at_fork {
        Some(state) => state.fork(first),
        None => TaskState::begin(&assignee, first),
    };
    let state = state.map_err(|broken| EngineError::broken(id, &broken))?;
    Ok(Beginning { assignee, state, rest: rest.collect() })
}

/// What the store has of a task beyond what `state` knows.
pub(super) async fn events_after(
    store: &Arc<dyn Store>,
    state: &TaskState,
) -> Result<Vec<RecordedEvent>, StoreError> {
    let (stream, after) = (state.stream(), state.sequence());
    blocking(store, move |store| store.events(&stream, after)).await
}

/// Reads where blocking is allowed.
pub(super) async fn blocking<T: Send + 'static>(
    store: &Arc<dyn Store>,
    read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let store = Arc::clone(store);
    tokio::task::spawn_blocking(move || read(&*store)).await.unwrap_or(Err(StoreError::Closed))
}
