//! Cancels tasks that this process does not run.

use std::sync::Arc;

use polity_definition::HomeSettings;
use polity_model::event::Event;
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_store::{Leases, Store};

use super::EngineError;
use super::decision_loop::{ProposedEvents, TaskDecision, decide_and_commit};
use super::history::{LoadedTask, load_task};
use super::journal::TaskJournal;
use super::orphans::active_sub_tasks;
use super::remote_cancel::cancel_remote_work;
use crate::budget::BudgetStatus;
use crate::clock::Clock;
use crate::commands::{CancelOrigin, CancelTask};
use crate::decide::{Command, CommandRejection, DecisionContext, SlotContext, decide};
use crate::driver::RemoteDriver;
use crate::entropy::Entropy;
use crate::state::TaskState;

/// The outcome of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The task has ended with this status.
    Done(TaskStatus),
    /// The task's owner was asked, and will notice.
    Requested,
    /// The workflow must undo finished nodes before it ends, and no process runs it. The process
    /// that adopts it does so.
    Compensating,
}

/// The dependencies of a cancel.
#[derive(Clone, Copy)]
pub struct ControlDeps<'a> {
    /// The journal.
    pub store: &'a Arc<dyn Store>,
    /// The leases of all processes.
    pub leases: &'a dyn Leases,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// The driver of remote agents.
    pub remotes: &'a dyn RemoteDriver,
}

/// Cancels a task that this process does not run, and its sub-tasks.
pub async fn cancel(deps: &ControlDeps<'_>, id: TaskId) -> Result<CancelOutcome, EngineError> {
    cancel_except_own(deps, None, id).await
}

/// Cancels a task. Tasks of the instance `own` count as not owned: it has no worker on them.
pub(super) async fn cancel_except_own(
    deps: &ControlDeps<'_>,
    own: Option<InstanceId>,
    id: TaskId,
) -> Result<CancelOutcome, EngineError> {
    let outcome = cancel_one(deps, own, id).await?;
    // An owner that was only asked cancels its sub-tasks itself.
    if let CancelOutcome::Done(_) = outcome {
        for row in active_sub_tasks(&**deps.store, id).await? {
            match Box::pin(cancel_except_own(deps, own, row.id)).await {
                // The task has ended meanwhile.
                Ok(_) | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(outcome)
}

async fn cancel_one(
    deps: &ControlDeps<'_>,
    own: Option<InstanceId>,
    id: TaskId,
) -> Result<CancelOutcome, EngineError> {
    let ControlDeps { store, leases, clock, remotes } = *deps;
    let LoadedTask { assignee, mut state } = load_task(&**store, id).await?;
    let journal = TaskJournal::detached(store);
    let outcome = decide_and_commit(&mut TaskDecision {
        journal: &journal,
        state: &mut state,
        leases: Some(leases),
        is_fenced: false,
        decide: |state: &TaskState, is_alive| {
            let owner_alive = is_alive && state.owner() != own;
            let command =
                Command::CancelTask(CancelTask { by: CancelOrigin::Other { owner_alive } });
            let mut context = cancel_context(clock);
            let events = decide(state, &command, &mut context)?.events;
            let output = events.last().map_or(CancelOutcome::Requested, outcome_of);
            Ok(ProposedEvents { at: context.now, events, output })
        },
    })
    .await?;
    if let (CancelOutcome::Done(_), Some(agent)) = (outcome, assignee.agent()) {
        cancel_remote_work(&journal, remotes, clock, agent, &mut state).await?;
    }
    Ok(outcome)
}

/// The outcome of a cancel, from its last event.
fn outcome_of(last: &Event) -> CancelOutcome {
    match last {
        Event::TaskCancelled => CancelOutcome::Done(TaskStatus::Cancelled),
        // A second cancel ends the compensations after a failure.
        Event::TaskFailed { .. } => CancelOutcome::Done(TaskStatus::Failed),
        Event::CompensationStarted { .. } => CancelOutcome::Compensating,
        _ => CancelOutcome::Requested,
    }
}

/// A cancel needs only the time.
fn cancel_context(clock: &dyn Clock) -> DecisionContext {
    DecisionContext {
        now: clock.now(),
        entropy: Entropy::from_seed([0; 16]),
        toolbox: Arc::default(),
        limits: HomeSettings::default().limits,
        budget: BudgetStatus::default(),
        slot: SlotContext::default(),
        agent_toggles: Arc::default(),
    }
}
