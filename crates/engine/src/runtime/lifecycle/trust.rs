//! Trust in imported tasks.

use polity_model::ids::TaskId;
use polity_store::{StoreError, TaskFilter};

use crate::commands::TrustTask;
use crate::decide::{Command, decide};
use crate::runtime::decision_loop::{ProposedEvents, TaskDecision, decide_and_commit};
use crate::runtime::history::load_task;
use crate::runtime::{EngineError, RuntimeInner};
use crate::state::TaskState;

/// Records that a person trusts a task and every task below it.
///
/// Sub-tasks come first, so that a crash in between leaves the task itself untrusted.
pub(in crate::runtime) async fn trust_task(
    inner: &RuntimeInner,
    task: TaskId,
    by: &str,
) -> Result<(), EngineError> {
    let command = Command::TrustTask(TrustTask { by: by.to_owned() });
    for id in tree_of(inner, task).await?.into_iter().rev() {
        let mut state = load_task(&*inner.deps.store, id).await?.state;
        decide_and_commit(&mut TaskDecision {
            journal: &inner.journal,
            state: &mut state,
            leases: None,
            is_fenced: false,
            decide: |state: &TaskState, _| {
                let mut context = inner.plain_context();
                let events = decide(state, &command, &mut context)?.events;
                Ok(ProposedEvents { at: context.now, events, output: () })
            },
        })
        .await?;
    }
    Ok(())
}

/// A task and all tasks below it, each after its parent.
async fn tree_of(inner: &RuntimeInner, task: TaskId) -> Result<Vec<TaskId>, StoreError> {
    let (mut found, mut next) = (vec![task], 0);
    while let Some(parent) = found.get(next).copied() {
        let below = TaskFilter { parent: Some(parent), ..TaskFilter::default() };
        found.extend(inner.deps.store.task_rows(&below).await?.iter().map(|row| row.id));
        next += 1;
    }
    Ok(found)
}
