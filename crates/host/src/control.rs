//! Control of tasks that other processes may run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_definition::Home;
use polity_engine::clock::SystemClock;
use polity_engine::decide::CommandRejection;
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_engine::runtime::{
    CancelOutcome, ControlDeps, EngineError, LiveEvent, cancel, clean_up_runs,
};
use polity_model::event::{Event, JournalPosition, StreamSequence};
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::task::TaskStatus::Cancelled;
use polity_store::{Store, TaskRow};
use tokio::sync::broadcast;

use crate::context::HostContext;
use crate::error::HostError;
use crate::queries::HomeQueries;
use crate::telemetry::TelemetryExport;

/// The time that an owner has to carry out a cancellation. It notices within a fifth of a second.
const OWNER_SECONDS_MAX: u64 = 10;

/// The interval between two reads of a task that is being cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Cancels a task, whichever process runs it, and waits until it has ended. A workflow that no
/// process runs and that must undo finished nodes is returned before that: the caller adopts it.
pub async fn cancel_task(
    context: &HostContext,
    home: &Home,
    queries: &HomeQueries,
    id: TaskId,
) -> Result<TaskRow, HostError> {
    let store: Arc<dyn Store> = Arc::new(context.open_writer(home)?);
    let before = store.last_position().await?;
    let (row, was_ended_here) = cancel_and_wait(context, home, queries, &store, id).await?;
    if was_ended_here {
        // The input of a run is in its files until they are removed.
        clean_up_runs(&*store, &*context.programs(home)?, &context.leases()).await?;
        export_end(context, queries, &store, id, before).await?;
    }
    Ok(row)
}

/// Returns the ended task, and true if this process has ended it.
async fn cancel_and_wait(
    context: &HostContext,
    home: &Home,
    queries: &HomeQueries,
    store: &Arc<dyn Store>,
    id: TaskId,
) -> Result<(TaskRow, bool), HostError> {
    let (leases, remotes) = (context.leases(), context.remotes(home));
    let control = ControlDeps { store, leases: &leases, clock: &SystemClock, remotes: &remotes };
    let mut was_ended_here = match cancel(&control, id).await {
        Ok(CancelOutcome::Compensating) => return Ok((queries.task_row(id).await?, false)),
        Ok(outcome) => matches!(outcome, CancelOutcome::Done(_)),
        // Another process cancelled it first.
        Err(EngineError::Rejected(CommandRejection::Finished { status: Cancelled, .. })) => false,
        Err(error) => return Err(error.into()),
    };
    let began = Instant::now();
    loop {
        let row = queries.task_row(id).await?;
        if row.status.is_final() {
            return Ok((row, was_ended_here));
        }
        // If the owner ended before it noticed the request, this process ends the task.
        if queries.is_interrupted(&row).await? {
            if is_compensating(queries, id).await? {
                return Ok((row, was_ended_here));
            }
            match cancel(&control, id).await {
                // The task has ended since the row was read; the next read shows it.
                Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
                Ok(CancelOutcome::Compensating) => {
                    return Ok((queries.task_row(id).await?, was_ended_here));
                }
                Ok(outcome) => was_ended_here |= matches!(outcome, CancelOutcome::Done(_)),
                Err(error) => return Err(error.into()),
            }
        }
        // An owner that undoes finished nodes takes its time.
        if began.elapsed() > Duration::from_secs(OWNER_SECONDS_MAX)
            && !is_compensating(queries, id).await?
        {
            return Err(HostError::OwnerUnresponsive { task: id, seconds: OWNER_SECONDS_MAX });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// True if the workflow undoes its finished nodes.
async fn is_compensating(queries: &HomeQueries, id: TaskId) -> Result<bool, HostError> {
    let events = queries.events(id, StreamSequence::default()).await?;
    Ok(events.iter().any(|recorded| matches!(recorded.event, Event::CompensationStarted { .. })))
}

/// Exports the end of a task and its parts that this process has cancelled. A live owner of a part
/// exports its end itself.
async fn export_end(
    context: &HostContext,
    queries: &HomeQueries,
    store: &Arc<dyn Store>,
    id: TaskId,
    before: JournalPosition,
) -> Result<(), HostError> {
    let (mut ended, mut waiting) = (Vec::new(), vec![id]);
    while let Some(task) = waiting.pop() {
        let row = queries.task_row(task).await?;
        if !queries.has_live_owner(&row).await {
            let events = queries.events(task, StreamSequence::default()).await?;
            ended.extend(events.into_iter().filter(|recorded| recorded.position > before));
        }
        waiting.extend(queries.parts(task).await?.iter().map(|part| part.id));
    }
    let (news, live) = broadcast::channel(ended.len().max(1));
    let instance = InstanceId::from_random_bytes(SystemEntropy.seed());
    let telemetry = TelemetryExport::start(context, live, store, instance).await;
    for recorded in ended {
        // Without telemetry nobody listens.
        let _ = news.send(LiveEvent::Event(Arc::new(recorded)));
    }
    drop(news);
    telemetry.close().await;
    Ok(())
}
