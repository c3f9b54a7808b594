//! Reading tasks from the store without holding up the asynchronous threads.

use std::sync::Arc;

use polity_model::event::{Event, Recorded, Sequence, StreamId};
use polity_model::ids::TaskId;
use polity_store::{Store, StoreError};

use super::EngineError;
use crate::closure::Closure;
use crate::state::TaskState;

/// A task in memory, with what it needs.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The definitions that it pinned.
    pub closure: Closure,
    /// Its state.
    pub state: TaskState,
}

/// Reads a task and everything it pinned.
pub async fn load(store: &Arc<dyn Store>, id: TaskId) -> Result<Loaded, EngineError> {
    let read = move |store: &dyn Store| -> Result<Loaded, EngineError> {
        let events = store.events(&StreamId::Task(id), Sequence::default())?;
        let closure = match events.first().map(|first| &first.event) {
            Some(Event::TaskCreated(created)) => {
                Closure::load(store, &created.assigned_agent, &created.pins)?
            }
            Some(_) | None => return Err(EngineError::NotFound(id)),
        };
        let state =
            TaskState::load(&closure, events).map_err(|broken| EngineError::broken(id, &broken))?;
        Ok(Loaded { closure, state })
    };
    let store = Arc::clone(store);
    tokio::task::spawn_blocking(move || read(&*store)).await.unwrap_or(Err(EngineError::Left(id)))
}

/// What the store has of a task beyond what `state` knows.
pub(super) async fn events_after(
    store: &Arc<dyn Store>,
    state: &TaskState,
) -> Result<Vec<Recorded>, StoreError> {
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
