//! Opens the budget accounts of a task and its ancestors.

use std::sync::Arc;

use polity_model::budget::Budget;
use polity_model::event::RaisedLimits;
use polity_model::ids::TaskId;
use polity_store::Store;

use crate::budget::{BudgetAccount, BudgetAllowance, BudgetLedger};
use crate::pinned::Assignee;
use crate::runtime::EngineError;
use crate::runtime::history::load_task;
use crate::runtime::lifecycle::spent_by_chain;
use crate::state::TaskState;

/// The allowance of a task: its own budget and those of its ancestors.
pub(in crate::runtime) async fn open_allowance(
    store: &dyn Store,
    ledger: &Arc<BudgetLedger>,
    assignee: &Assignee,
    state: &TaskState,
) -> Result<BudgetAllowance, EngineError> {
    let order = state.task().order();
    let mut tasks = Vec::new();
    if let Some(budget) = budget_of(assignee, order.budget, order.raised) {
        open_account(store, ledger, order.id, assignee, budget).await?;
        tasks.push(order.id);
    }
    let mut parent = order.parent_task_id;
    while let Some(id) = parent {
        if let Some(above) = ledger.allowance(id) {
            tasks.extend(above.iter());
            break;
        }
        let above = load_task(store, id).await?;
        let order = above.state.task().order();
        if let Some(budget) = budget_of(&above.assignee, order.budget, order.raised) {
            open_account(store, ledger, id, &above.assignee, budget).await?;
            tasks.push(id);
        }
        parent = order.parent_task_id;
    }
    Ok(BudgetAllowance::new(ledger, order.id, tasks))
}

async fn open_account(
    store: &dyn Store,
    ledger: &BudgetLedger,
    task: TaskId,
    assignee: &Assignee,
    budget: Budget,
) -> Result<(), EngineError> {
    // A retry is charged for the tasks that it continues.
    let spent = spent_by_chain(store, Some(task)).await?;
    ledger.open(task, BudgetAccount { agent: assignee.name().clone(), budget, spent });
    Ok(())
}

/// The tighter of the agent's and the task's budget, with raised limits in place of their own.
pub(in crate::runtime) fn budget_of(
    assignee: &Assignee,
    of_task: Option<Budget>,
    raised: RaisedLimits,
) -> Option<Budget> {
    let of_agent = assignee.llm().and_then(|llm| llm.budget);
    raised.raise(tighter(of_agent, of_task))
}

fn tighter(of_agent: Option<Budget>, of_task: Option<Budget>) -> Option<Budget> {
    let (Some(one), Some(other)) = (of_agent, of_task) else { return of_agent.or(of_task) };
    let tokens = [one.max_tokens, other.max_tokens].into_iter().flatten().min();
    let usd = match (one.max_cost_usd, other.max_cost_usd) {
        (Some(one), Some(other)) => Some(if one <= other { one } else { other }),
        (one, other) => one.or(other),
    };
    Some(Budget { max_cost_usd: usd, max_tokens: tokens })
}
