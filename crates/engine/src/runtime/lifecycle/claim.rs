//! Claims orphaned tasks, and answers or expires their reviews.

use std::sync::Arc;

use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;

use super::check_ready;
use crate::budget::BudgetStatus;
use crate::commands::{AnswerReview, ClaimTask, ExpireReview};
use crate::decide::preconditions::expect_trust;
use crate::decide::{Command, CommandRejection, DecisionContext, decide};
use crate::driver::{CallSite, RunOverrides, Toolbox};
use crate::runtime::control::{CancelOutcome, cancel};
use crate::runtime::decision_loop::{ProposedEvents, TaskDecision, decide_and_commit};
use crate::runtime::history::{LoadedTask, load_task};
use crate::runtime::remote_cancel::cancel_remote_work;
use crate::runtime::sub_agents::{end_sub_tasks, sub_agent_tools};
use crate::runtime::{EngineError, RuntimeInner};
use crate::state::{TaskState, WorkflowRun};
use crate::workflow::check_result;

/// Makes this process the owner of a task that has no live owner.
pub(in crate::runtime) async fn claim_task(
    inner: &Arc<RuntimeInner>,
    id: TaskId,
) -> Result<LoadedTask, EngineError> {
    let deps = &inner.deps;
    let mut loaded = load_task(&*deps.store, id).await?;
    if end_if_parent_ended(inner, &loaded.state).await? {
        loaded = load_task(&*deps.store, id).await?;
    }
    // Before the check of drivers, which would read definitions that nobody trusts.
    expect_trust(&loaded.state)?;
    if !loaded.state.status().is_final() && !loaded.state.cancel_requested() {
        // A task that cannot run here stays as it is, for a process that can run it.
        let working_directory = loaded.state.task().order().working_directory.clone();
        let overrides = RunOverrides { working_directory, ..RunOverrides::default() };
        check_ready(deps, &loaded.assignee, &overrides)?;
    }
    expire_review(inner, &mut loaded.state).await?;
    decide_and_commit(&mut TaskDecision {
        journal: &inner.journal,
        state: &mut loaded.state,
        leases: Some(&*deps.leases),
        is_fenced: true,
        decide: |state: &_, owner_alive| {
            let claim = ClaimTask { instance: deps.instance(), owner_alive };
            propose(state, &Command::ClaimTask(claim), inner.plain_context())
        },
    })
    .await?;
    Ok(loaded)
}

/// Records the answer to a review.
pub(in crate::runtime) async fn answer_review(
    inner: &Arc<RuntimeInner>,
    id: TaskId,
    answer: AnswerReview,
) -> Result<(), EngineError> {
    let deps = &inner.deps;
    let mut loaded = load_task(&*deps.store, id).await?;
    expect_trust(&loaded.state)?;
    check_skipped_result(inner, &loaded.state, &answer).await?;
    let (toolbox, checkpoint) = (toolbox_for(inner, &loaded, &answer).await, answer.checkpoint_id);
    let command = Command::AnswerReview(answer);
    let answered = decide_and_commit(&mut TaskDecision {
        journal: &inner.journal,
        state: &mut loaded.state,
        leases: None,
        is_fenced: true,
        decide: |state: &_, _| {
            propose(state, &command, inner.context(&toolbox, BudgetStatus::default()))
        },
    })
    .await;
    if let Err(EngineError::Rejected(CommandRejection::AnotherQuestion { .. })) = &answered {
        let checkpoints = deps.store.checkpoints(id).await?;
        if checkpoints.iter().all(|row| row.checkpoint_id != checkpoint) {
            return Err(CommandRejection::NoSuchCheckpoint { task: id, checkpoint }.into());
        }
    }
    answered?;
    end_sub_tasks(inner, &loaded.state).await;
    if let Some(agent) = loaded.assignee.agent() {
        let state = &mut loaded.state;
        let (remotes, clock) = (&*deps.remotes, &*deps.clock);
        if let Err(error) = cancel_remote_work(&inner.journal, remotes, clock, agent, state).await {
            // The local task has ended anyway.
            tracing::warn!(%id, %error, "cannot record the cancellation of a remote task");
        }
    }
    Ok(())
}

/// Checks that the node of the parent's workflow can take the result that a person supplies for a run.
async fn check_skipped_result(
    inner: &Arc<RuntimeInner>,
    state: &TaskState,
    answer: &AnswerReview,
) -> Result<(), EngineError> {
    let (ReviewVerdict::SkipWith { result }, Some(parent), true) =
        (&answer.verdict, state.task().order().parent_task_id, state.is_program())
    else {
        return Ok(());
    };
    let parent = load_task(&*inner.deps.store, parent).await?.state;
    let mut calls = parent.calls().all().iter();
    let call = calls.find(|call| call.sub_task(parent.id()) == state.id());
    if let (Some(run), Some(call)) = (parent.workflow_run(), call) {
        check_result(run, call.id(), result)?;
    }
    Ok(())
}

/// The tools whose schemas check modified arguments. If a server cannot be asked, the arguments are
/// checked when they are used.
async fn toolbox_for(
    inner: &Arc<RuntimeInner>,
    loaded: &LoadedTask,
    answer: &AnswerReview,
) -> Arc<Toolbox> {
    match (&answer.verdict, loaded.assignee.llm()) {
        (ReviewVerdict::Modify { .. }, Some(llm)) => {
            let listed = inner.deps.tools.toolbox(&llm.tools, CallSite::OUTSIDE).await;
            let listed = listed.unwrap_or_else(|error| {
                let id = loaded.state.id();
                tracing::warn!(%id, %error, "the new arguments are checked when they are used");
                Arc::default()
            });
            Arc::new(listed.joined(&sub_agent_tools(&loaded.assignee)))
        }
        (ReviewVerdict::Modify { .. }, None)
        | (
            ReviewVerdict::Approve
            | ReviewVerdict::Reject
            | ReviewVerdict::Retry
            | ReviewVerdict::SkipWith { .. },
            _,
        ) => Arc::default(),
    }
}

/// Takes the default action of a review whose deadline has passed.
async fn expire_review(
    inner: &Arc<RuntimeInner>,
    state: &mut TaskState,
) -> Result<(), EngineError> {
    let has_expired = decide_and_commit(&mut TaskDecision {
        journal: &inner.journal,
        state,
        leases: None,
        is_fenced: true,
        decide: |state: &TaskState, _| {
            let mut context = inner.plain_context();
            let deadline = state.review().and_then(|review| review.deadline);
            if deadline.is_none_or(|deadline| context.now < deadline) {
                return Ok(ProposedEvents { at: context.now, events: Vec::new(), output: false });
            }
            let command = Command::ExpireReview(ExpireReview);
            let events = decide(state, &command, &mut context)?.events;
            Ok(ProposedEvents { at: context.now, events, output: true })
        },
    })
    .await?;
    if has_expired {
        end_sub_tasks(inner, state).await;
    }
    Ok(())
}

/// Cancels a sub-task whose parent has ended, and refuses to claim it unless it must undo finished
/// nodes. Returns true if it has changed.
async fn end_if_parent_ended(
    inner: &Arc<RuntimeInner>,
    state: &TaskState,
) -> Result<bool, EngineError> {
    let Some(parent) = state.task().order().parent_task_id else { return Ok(false) };
    if state.workflow_run().is_some_and(WorkflowRun::is_ending) {
        return Ok(false);
    }
    let row = inner.deps.store.task_row(parent).await?;
    if !row.is_some_and(|parent| parent.status.is_final()) {
        return Ok(false);
    }
    let task = state.id();
    let cancelled = cancel(&inner.deps.control(), task).await?;
    Err(match (cancelled, state.owner()) {
        (CancelOutcome::Compensating, _) => return Ok(true),
        // The owner was asked, and is still working.
        (CancelOutcome::Requested, Some(owner)) => CommandRejection::OwnerAlive { task, owner },
        (CancelOutcome::Requested, None) | (CancelOutcome::Done(_), _) => {
            CommandRejection::Finished { task, status: TaskStatus::Cancelled }
        }
    }
    .into())
}

fn propose(
    state: &TaskState,
    command: &Command,
    mut context: DecisionContext,
) -> Result<ProposedEvents<()>, EngineError> {
    let events = decide(state, command, &mut context)?.events;
    Ok(ProposedEvents { at: context.now, events, output: () })
}
