//! Orphans: tasks that nobody works on although somebody should.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polity_model::event::{Event, ExecutionChange, RecordedEvent, StreamId, StreamSequence};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_store::{Leases, Store, StoreError, TaskFilter, TaskRow};

use super::liveness::OwnerLiveness;

/// The number of newest events that usually contain the reason of a wait.
const NEWEST_EVENTS: u32 = 8;

/// Tasks that nobody works on although somebody should.
#[derive(Debug, Default, PartialEq)]
pub struct OrphanedTasks {
    /// The tasks to adopt, oldest first.
    pub resumable: Vec<TaskRow>,
    /// Imported tasks that no person has trusted, oldest first. Nobody adopts them.
    pub untrusted: Vec<TaskRow>,
}

/// Finds the tasks whose owner is dead, or whose review deadline has passed. Oldest first. For a
/// sub-task, the result has the task that must be adopted instead.
pub async fn find_orphans(
    store: &dyn Store,
    leases: &dyn Leases,
    now: Timestamp,
) -> Result<OrphanedTasks, StoreError> {
    let mut owners = OwnerLiveness::new(leases);
    let mut found = BTreeMap::new();
    let unfinished = vec![TaskStatus::Pending, TaskStatus::Running];
    let unfinished = TaskFilter { statuses: unfinished, ..TaskFilter::default() };
    for row in store.task_rows(&unfinished).await? {
        if owners.check(row.owner).await {
            continue;
        }
        let top = task_to_adopt(store, row).await?;
        if !owners.check(top.owner).await {
            found.insert(top.created_position, top);
        }
    }
    let waiting = TaskFilter { statuses: vec![TaskStatus::AwaitingHuman], ..TaskFilter::default() };
    for row in store.task_rows(&waiting).await? {
        if owners.check(row.owner).await {
            continue;
        }
        if can_continue(store, &row, now).await? {
            let top = task_to_adopt(store, row).await?;
            if !owners.check(top.owner).await {
                found.insert(top.created_position, top);
            }
        }
    }
    let mut orphans = OrphanedTasks::default();
    for row in found.into_values() {
        if needs_trust(store, row.id).await? {
            orphans.untrusted.push(row);
        } else {
            orphans.resumable.push(row);
        }
    }
    Ok(orphans)
}

/// True if a task that waits for a person could go on without one: its deadline has passed, its
/// parent has ended, or a sub-task that it waited for was answered.
pub async fn can_continue(
    store: &dyn Store,
    row: &TaskRow,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let is_late = row.review_deadline.is_some_and(|deadline| deadline <= now);
    Ok(is_late || has_ended_parent(store, row).await? || is_stalled(store, row).await?)
}

/// True if a running task waits in line: for a slot of its CLI agent, or for its new owner to reach
/// it.
pub async fn is_queued(store: &dyn Store, row: &TaskRow) -> Result<bool, StoreError> {
    if row.status != TaskStatus::Running {
        return Ok(false);
    }
    let newest = store.newest_events(&StreamId::Task(row.id), NEWEST_EVENTS).await?;
    let mut has_begun = false;
    for event in newest.iter().map(|recorded| &recorded.event) {
        if matches!(event, Event::TaskStarted | Event::TaskResumed) {
            has_begun = true;
        } else if let Event::ExecutionChanged { change, .. } = event {
            return Ok(matches!(change, ExecutionChange::Queue { .. }));
        } else if *event != Event::CancelRequested {
            return Ok(!has_begun && matches!(event, Event::TaskClaimed { .. }));
        }
    }
    Ok(false)
}

/// True if a task was imported, and no person has trusted it since.
pub async fn needs_trust(store: &dyn Store, id: TaskId) -> Result<bool, StoreError> {
    // Until it is trusted, an imported task gets no further event, except for its cancellation.
    let newest = store.newest_events(&StreamId::Task(id), NEWEST_EVENTS).await?;
    Ok(newest.iter().find_map(|recorded| recorded.event.needs_trust()).unwrap_or_default())
}

/// The highest active ancestor of a task, or the task itself.
pub async fn active_root(store: &dyn Store, mut row: TaskRow) -> Result<TaskRow, StoreError> {
    while let Some(parent) = row.parent_task_id {
        match store.task_row(parent).await? {
            Some(parent) if !parent.status.is_final() => row = parent,
            Some(_) | None => break,
        }
    }
    Ok(row)
}

/// The task to adopt so that this one goes on: its highest ancestor that does not wait for a review
/// of its own. Below an ancestor with an open review, sub-tasks go on alone, and their results are
/// there when the review is answered.
pub async fn task_to_adopt(store: &dyn Store, mut row: TaskRow) -> Result<TaskRow, StoreError> {
    while let Some(parent) = row.parent_task_id {
        match store.task_row(parent).await? {
            Some(parent)
                if !parent.status.is_final() && !has_open_review(store, &parent).await? =>
            {
                row = parent;
            }
            Some(_) | None => break,
        }
    }
    Ok(row)
}

/// The sub-tasks of a task that have not ended.
pub(super) async fn active_sub_tasks(
    store: &dyn Store,
    parent: TaskId,
) -> Result<Vec<TaskRow>, StoreError> {
    let statuses = vec![TaskStatus::Pending, TaskStatus::Running, TaskStatus::AwaitingHuman];
    let filter = TaskFilter { statuses, parent: Some(parent), ..TaskFilter::default() };
    store.task_rows(&filter).await
}

/// True if a task is paused for its sub-tasks, and one of them can go on: its review was answered,
/// or no sub-task is active.
pub(super) async fn is_stalled(store: &dyn Store, row: &TaskRow) -> Result<bool, StoreError> {
    if row.status != TaskStatus::AwaitingHuman {
        return Ok(false);
    }
    let active = active_sub_tasks(store, row.id).await?;
    let mut can_go_on = active.is_empty();
    for sub_task in &active {
        can_go_on |= sub_task.status != TaskStatus::AwaitingHuman
            || Box::pin(is_stalled(store, sub_task)).await?;
    }
    // Most waiting tasks have no sub-tasks and wait for a review of their own.
    Ok(can_go_on && wait_reason(store, row.id).await? == Some(WaitReason::SubTasks))
}

async fn has_open_review(store: &dyn Store, row: &TaskRow) -> Result<bool, StoreError> {
    Ok(row.status == TaskStatus::AwaitingHuman
        && wait_reason(store, row.id).await? == Some(WaitReason::Review))
}

async fn has_ended_parent(store: &dyn Store, row: &TaskRow) -> Result<bool, StoreError> {
    let Some(parent) = row.parent_task_id else { return Ok(false) };
    Ok(store.task_row(parent).await?.is_some_and(|parent| parent.status.is_final()))
}

/// The reason why a task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitReason {
    /// It has an open review.
    Review,
    /// Its sub-tasks wait.
    SubTasks,
}

async fn wait_reason(store: &dyn Store, id: TaskId) -> Result<Option<WaitReason>, StoreError> {
    let reason = |recorded: &RecordedEvent| {
        let is_review = matches!(recorded.event, Event::ReviewOpened { .. });
        let is_paused = recorded.event == Event::TaskPaused;
        is_review.then_some(WaitReason::Review).or(is_paused.then_some(WaitReason::SubTasks))
    };
    let stream = StreamId::Task(id);
    // Waiting tasks are checked often. Few events follow the reason: claims by owners that died.
    let newest = store.newest_events(&stream, NEWEST_EVENTS).await?;
    if let Some(found) = newest.iter().find_map(reason) {
        return Ok(Some(found));
    }
    let all = store.events(&stream, StreamSequence::default()).await?;
    Ok(all.iter().rev().find_map(reason))
}
