//! What a task may spend, together with its sub-agents.
//!
//! A budget belongs to a task: its agent has one, or whoever gave the task said so. Everything that
//! the task and its sub-agents use counts, and a sub-agent is also held to the budgets of those above
//! it. A call is begun only while less than the limit is spent, and only when no other is under way
//! that counts towards the same budget: no one knows beforehand what a call will use, so this way a
//! budget is never overshot by more than one call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_model::budget::Budget;
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_model::usage::{Cost, Usage};
use tokio::sync::Notify;

/// What a decision knows of a task's budgets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    reached: Option<String>,
    exceeded: Option<String>,
}

impl BudgetStatus {
    /// Why no more may be spent, if that is so.
    pub fn reached(&self) -> Option<&str> {
        self.reached.as_deref()
    }

    /// Why more was spent than may be, if that is so.
    pub fn exceeded(&self) -> Option<&str> {
        self.exceeded.as_deref()
    }

    /// What follows from what was spent of some budgets.
    pub fn of(purses: &[Purse]) -> Self {
        let first = |tell: fn(&Purse) -> Option<String>| purses.iter().find_map(tell);
        Self {
            reached: first(|purse| purse.told(|spent, limit| spent >= limit)),
            exceeded: first(|purse| purse.told(|spent, limit| spent > limit)),
        }
    }
}

/// A budget, and what was spent of it.
#[derive(Debug, Clone)]
pub struct Purse {
    /// The agent whose budget it is.
    pub agent: Name,
    /// The limits.
    pub budget: Budget,
    /// What was spent.
    pub spent: Usage,
}

impl Purse {
    /// What is used up, in words, if something is.
    fn told(&self, is_over: fn(u128, u128) -> bool) -> Option<String> {
        let Self { agent, budget, spent } = self;
        let tokens = spent.total_tokens();
        if let Some(limit) = budget.max_tokens
            && is_over(tokens.into(), limit.get().into())
        {
            return Some(format!(
                "the budget of {agent} is used up: {tokens} of {limit} tokens (budget.max_tokens)"
            ));
        }
        let limit = budget.max_cost_usd.map(|limit| Cost::of_usd(limit.get()))?;
        is_over(spent.cost.pico_usd().into(), limit.pico_usd().into()).then(|| {
            format!(
                "the budget of {agent} is used up: {} of {limit} (budget.max_cost_usd)",
                spent.cost
            )
        })
    }
}

/// The budgets of the tasks that a runtime works on.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accounts: Mutex<HashMap<TaskId, Account>>,
    /// The budgets that each task at work is held to.
    allowances: Mutex<HashMap<TaskId, Arc<[TaskId]>>>,
    changed: Notify,
}

#[derive(Debug)]
struct Account {
    purse: Purse,
    /// Whether a call is under way.
    is_busy: bool,
}

/// The budgets that a task is held to: those of the tasks above it, and its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowance {
    ledger: Arc<Ledger>,
    tasks: Arc<[TaskId]>,
}

/// Leave to make one call.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    allowance: &'a Allowance,
}

impl Ledger {
    fn accounts(&self) -> MutexGuard<'_, HashMap<TaskId, Account>> {
        // Every change below is a single step, so a panic elsewhere leaves the ledger whole.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an account. One that is in use stays as it is: it knows of calls that the journal does
    /// not know of yet.
    pub(crate) fn open(&self, task: TaskId, purse: Purse) {
        let mut accounts = self.accounts();
        if accounts.get(&task).is_none_or(|account| !account.is_busy) {
            accounts.insert(task, Account { purse, is_busy: false });
        }
    }

    /// Closes the account of a task that is no longer worked on here.
    pub(crate) fn close(&self, task: TaskId) {
        self.accounts().remove(&task);
        self.allowances().remove(&task);
    }

    /// The budgets that a task at work is held to.
    pub(crate) fn allowance(&self, task: TaskId) -> Option<Arc<[TaskId]>> {
        self.allowances().get(&task).cloned()
    }

    fn allowances(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<[TaskId]>>> {
        self.allowances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allowance {
    /// A task is held to the budgets of these tasks, of which the ledger has accounts.
    pub(crate) fn new(ledger: &Arc<Ledger>, task: TaskId, tasks: Vec<TaskId>) -> Self {
        let tasks: Arc<[TaskId]> = tasks.into();
        ledger.allowances().insert(task, Arc::clone(&tasks));
        Self { ledger: Arc::clone(ledger), tasks }
    }

    /// What a decision should know.
    pub(crate) fn budget_status(&self) -> BudgetStatus {
        if self.tasks.is_empty() {
            return BudgetStatus::default();
        }
        let accounts = self.ledger.accounts();
        let purses: Vec<Purse> = self
            .tasks
            .iter()
            .filter_map(|task| accounts.get(task).map(|account| account.purse.clone()))
            .collect();
        BudgetStatus::of(&purses)
    }

    /// Something was used without leave: what it would be was not known before it was over.
    pub(crate) fn spend(&self, used: Usage) {
        let mut accounts = self.ledger.accounts();
        for task in &*self.tasks {
            if let Some(account) = accounts.get_mut(task) {
                account.purse.spent += used;
            }
        }
    }

    /// Whether the task is held to any budget.
    pub(crate) fn is_limited(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Waits until a call may be made. An error says what is used up.
    pub(crate) async fn permit(&self) -> Result<Permit<'_>, String> {
        loop {
            // Registered before the look, so that a change between the two is not missed.
            let changed = self.ledger.changed.notified();
            if let Some(permit) = self.begin()? {
                return Ok(permit);
            }
            changed.await;
        }
    }

    /// Leave to make a call, if no other is under way.
    fn begin(&self) -> Result<Option<Permit<'_>>, String> {
        let mut accounts = self.ledger.accounts();
        for account in self.tasks.iter().filter_map(|task| accounts.get(task)) {
            if let Some(over) = account.purse.told(|spent, limit| spent >= limit) {
                return Err(over);
            }
            if account.is_busy {
                return Ok(None);
            }
        }
        for task in &*self.tasks {
            if let Some(account) = accounts.get_mut(task) {
                account.is_busy = true;
            }
        }
        Ok(Some(Permit { allowance: self }))
    }
}

impl Permit<'_> {
    /// The call was made, and used this.
    pub(crate) fn settle(&self, used: Usage) {
        self.allowance.spend(used);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let allowance = self.allowance;
        if allowance.tasks.is_empty() {
            return;
        }
        {
            let mut accounts = allowance.ledger.accounts();
            for task in &*allowance.tasks {
                if let Some(account) = accounts.get_mut(task) {
                    account.is_busy = false;
                }
            }
        }
        allowance.ledger.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn purse(budget: serde_json::Value, tokens: u64) -> Purse {
        let spent =
            Usage { input_tokens: tokens, output_tokens: 0, cost: Cost::of_tokens(tokens, 1.0) };
        let budget = serde_json::from_value(budget).unwrap();
        Purse { agent: "editor".parse().unwrap(), budget, spent }
    }

    #[test]
    fn a_limit_is_reached_before_it_is_exceeded() {
        for (budget, tokens, reached, exceeded) in [
            (json!({"max_tokens": 10}), 9, false, false),
            (json!({"max_tokens": 10}), 10, true, false),
            (json!({"max_tokens": 10}), 11, true, true),
            (json!({"max_cost_usd": 0.00001}), 9, false, false),
            (json!({"max_cost_usd": 0.00001}), 10, true, false),
            (json!({"max_cost_usd": 0.00001}), 11, true, true),
            (json!({"max_cost_usd": 1.0, "max_tokens": 10}), 11, true, true),
        ] {
            let status = BudgetStatus::of(&[purse(budget.clone(), tokens)]);
            assert_eq!(status.reached().is_some(), reached, "{budget} {tokens}");
            assert_eq!(status.exceeded().is_some(), exceeded, "{budget} {tokens}");
        }
        assert_eq!(BudgetStatus::of(&[]), BudgetStatus::default());
    }

    fn used(input_tokens: u64) -> Usage {
        Usage { input_tokens, ..Usage::default() }
    }

    #[tokio::test]
    async fn calls_under_a_budget_go_one_by_one() {
        let task = TaskId::from_random_bytes([1; 16]);
        let ledger = Arc::new(Ledger::default());
        ledger.open(task, purse(json!({ "max_tokens": 80 }), 0));
        let allowance = Allowance::new(&ledger, task, vec![task]);
        let first = allowance.permit().await.unwrap();
        assert!(allowance.begin().unwrap().is_none(), "no one knows what it will use");
        first.settle(used(40));
        drop(first);
        // One that failed has used nothing.
        drop(allowance.permit().await.unwrap());
        let last = allowance.permit().await.unwrap();
        last.settle(used(60));
        drop(last);
        let refused = allowance.permit().await.unwrap_err();
        assert!(refused.contains("100 of 80 tokens"), "{refused}");
    }
}
