//! Budgets of tasks and their sub-agents.
//!
//! A task's budget comes from its agent's definition or from its creator. Usage of the task and of
//! its sub-agents counts towards it, and a sub-agent is also bound by the budgets of its ancestors.
//! A call starts only while the budget is not used up and no other call counts towards it. The
//! usage of a call is unknown beforehand, so this limits the overshoot to one call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_definition::LlmAgent;
use polity_model::budget::Budget;
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_model::usage::{Cost, Usage};
use tokio::sync::Notify;

/// The status of the budgets that bind a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    reached: Option<String>,
    exceeded: Option<String>,
}

impl BudgetStatus {
    /// The reason why nothing more may be spent, if a limit is reached.
    pub fn reached(&self) -> Option<&str> {
        self.reached.as_deref()
    }

    /// The reason why too much was spent, if a limit is exceeded.
    pub fn exceeded(&self) -> Option<&str> {
        self.exceeded.as_deref()
    }

    /// Computes the status from the accounts of all binding budgets.
    pub fn of(accounts: &[BudgetAccount]) -> Self {
        let first =
            |describe: fn(&BudgetAccount) -> Option<String>| accounts.iter().find_map(describe);
        Self {
            reached: first(|account| account.describe_limit(|spent, limit| spent >= limit)),
            exceeded: first(|account| account.describe_limit(|spent, limit| spent > limit)),
        }
    }
}

/// A budget and its usage so far.
#[derive(Debug, Clone)]
pub struct BudgetAccount {
    /// The agent that the budget belongs to.
    pub agent: Name,
    /// The limits.
    pub budget: Budget,
    /// The usage so far.
    pub spent: Usage,
}

impl BudgetAccount {
    /// Describes the limit that `is_over` finds crossed, if any.
    fn describe_limit(&self, is_over: fn(u128, u128) -> bool) -> Option<String> {
        let Self { agent, budget, spent } = self;
        let tokens = spent.total_tokens().saturating_add(spent.estimate.tokens);
        let estimated = |part: &dyn std::fmt::Display, is_any: bool| {
            let reason = format!(", {part} of them estimated because they were not reported");
            if is_any { reason } else { String::new() }
        };
        if let Some(limit) = budget.max_tokens
            && is_over(tokens.into(), limit.get().into())
        {
            let estimated = estimated(&spent.estimate.tokens, spent.estimate.tokens > 0);
            return Some(format!(
                "the budget of {agent} is used up: {tokens} of {limit} tokens{estimated} \
                 (budget.max_tokens)"
            ));
        }
        let limit = budget.max_cost_usd.map(|limit| Cost::of_usd(limit.get()))?;
        let cost = spent.cost + spent.estimate.cost;
        is_over(cost.pico_usd().into(), limit.pico_usd().into()).then(|| {
            let estimated = estimated(&spent.estimate.cost, spent.estimate.cost > Cost::ZERO);
            format!(
                "the budget of {agent} is used up: {cost} of {limit}{estimated} \
                 (budget.max_cost_usd)"
            )
        })
    }
}

/// The budget accounts of a runtime's tasks.
#[derive(Debug, Default)]
pub(crate) struct BudgetLedger {
    entries: Mutex<HashMap<TaskId, LedgerEntry>>,
    /// The tasks whose budgets bind each running task.
    allowances: Mutex<HashMap<TaskId, Arc<[TaskId]>>>,
    changed: Notify,
}

#[derive(Debug)]
struct LedgerEntry {
    account: BudgetAccount,
    /// True while a call that counts towards the budget is in progress.
    is_busy: bool,
}

/// The budgets that bind a task: its ancestors' and its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct BudgetAllowance {
    ledger: Arc<BudgetLedger>,
    tasks: Arc<[TaskId]>,
}

/// Permission for one call. Dropping it lets the next call start.
#[derive(Debug)]
pub(crate) struct CallPermit<'a> {
    allowance: &'a BudgetAllowance,
}

impl BudgetLedger {
    fn entries(&self) -> MutexGuard<'_, HashMap<TaskId, LedgerEntry>> {
        // Every update is a single step, so a panic elsewhere leaves the ledger consistent.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an account. A busy account is left unchanged: it includes calls that are not yet
    /// journaled.
    pub(crate) fn open(&self, task: TaskId, account: BudgetAccount) {
        let mut entries = self.entries();
        if entries.get(&task).is_none_or(|entry| !entry.is_busy) {
            entries.insert(task, LedgerEntry { account, is_busy: false });
        }
    }

    /// Closes the account of a task that has no worker here any more.
    pub(crate) fn close(&self, task: TaskId) {
        self.entries().remove(&task);
        self.allowances().remove(&task);
    }

    /// The tasks whose budgets bind a running task.
    pub(crate) fn allowance(&self, task: TaskId) -> Option<Arc<[TaskId]>> {
        self.allowances().get(&task).cloned()
    }

    fn allowances(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<[TaskId]>>> {
        self.allowances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetAllowance {
    /// Binds a task to the budgets of `tasks`, which must have open accounts.
    pub(crate) fn new(ledger: &Arc<BudgetLedger>, task: TaskId, tasks: Vec<TaskId>) -> Self {
        let tasks: Arc<[TaskId]> = tasks.into();
        ledger.allowances().insert(task, Arc::clone(&tasks));
        Self { ledger: Arc::clone(ledger), tasks }
    }

    /// Returns the current status for a decision.
    pub(crate) fn budget_status(&self) -> BudgetStatus {
        if self.tasks.is_empty() {
            return BudgetStatus::default();
        }
        let entries = self.ledger.entries();
        let accounts: Vec<BudgetAccount> = self
            .tasks
            .iter()
            .filter_map(|task| entries.get(task).map(|entry| entry.account.clone()))
            .collect();
        BudgetStatus::of(&accounts)
    }

    /// Charges usage that needed no permit, such as a process's own report.
    pub(crate) fn spend(&self, used: Usage) {
        let mut entries = self.ledger.entries();
        for task in &*self.tasks {
            if let Some(entry) = entries.get_mut(task) {
                entry.account.spent += used;
            }
        }
    }

    /// True if any budget binds the task.
    pub(crate) fn is_limited(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Waits for permission to make a call. The error describes the limit that is reached.
    pub(crate) async fn permit(&self) -> Result<CallPermit<'_>, String> {
        loop {
            // Registered before the check, so that no change in between is missed.
            let changed = self.ledger.changed.notified();
            if let Some(permit) = self.begin()? {
                return Ok(permit);
            }
            changed.await;
        }
    }

    /// Returns a permit if no other call is in progress.
    fn begin(&self) -> Result<Option<CallPermit<'_>>, String> {
        let mut entries = self.ledger.entries();
        for entry in self.tasks.iter().filter_map(|task| entries.get(task)) {
            if let Some(over) = entry.account.describe_limit(|spent, limit| spent >= limit) {
                return Err(over);
            }
            if entry.is_busy {
                return Ok(None);
            }
        }
        for task in &*self.tasks {
            if let Some(entry) = entries.get_mut(task) {
                entry.is_busy = true;
            }
        }
        Ok(Some(CallPermit { allowance: self }))
    }
}

impl CallPermit<'_> {
    /// Charges the usage of the call.
    pub(crate) fn settle(&self, used: Usage) {
        self.allowance.spend(used);
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        let allowance = self.allowance;
        if allowance.tasks.is_empty() {
            return;
        }
        {
            let mut entries = allowance.ledger.entries();
            for task in &*allowance.tasks {
                if let Some(entry) = entries.get_mut(task) {
                    entry.is_busy = false;
                }
            }
        }
        allowance.ledger.changed.notify_waiters();
    }
}

/// Prices usage with the agent's own price if the driver reports no cost.
pub(crate) fn priced_usage(usage: Usage, llm: &LlmAgent) -> Usage {
    match &llm.llm_config.price {
        Some(price) if usage.cost == Cost::ZERO && !usage.tokens_unknown => {
            let cost = price.of(usage.input_tokens, usage.output_tokens);
            Usage { cost, cost_unknown: false, ..usage }
        }
        Some(_) | None => usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;
    use polity_model::usage::UsageEstimate;

    fn account(budget: serde_json::Value, tokens: u64) -> BudgetAccount {
        let spent = Usage::reported(Some(tokens), Some(0), Some(Cost::of_tokens(tokens, 1.0)));
        let budget = serde_json::from_value(budget).unwrap();
        BudgetAccount { agent: "editor".parse().unwrap(), budget, spent }
    }

    #[test]
    fn limit_is_reached_before_it_is_exceeded() {
        for (budget, tokens, reached, exceeded) in [
            (json!({"max_tokens": 10}), 9, false, false),
            (json!({"max_tokens": 10}), 10, true, false),
            (json!({"max_tokens": 10}), 11, true, true),
            (json!({"max_cost_usd": 0.00001}), 9, false, false),
            (json!({"max_cost_usd": 0.00001}), 10, true, false),
            (json!({"max_cost_usd": 0.00001}), 11, true, true),
            (json!({"max_cost_usd": 1.0, "max_tokens": 10}), 11, true, true),
        ] {
            let status = BudgetStatus::of(&[account(budget.clone(), tokens)]);
            assert_eq!(status.reached().is_some(), reached, "{budget} {tokens}");
            assert_eq!(status.exceeded().is_some(), exceeded, "{budget} {tokens}");
        }
        assert_eq!(BudgetStatus::of(&[]), BudgetStatus::default());
    }

    #[test]
    fn unreported_usage_counts_as_an_estimate() {
        let estimate = UsageEstimate { tokens: 8, cost: Cost::of_tokens(8, 1.0) };
        for (budget, expected) in [
            (
                json!({"max_tokens": 10}),
                "the budget of editor is used up: 11 of 10 tokens, 8 of them estimated because \
                 they were not reported (budget.max_tokens)",
            ),
            (
                json!({"max_cost_usd": 0.000_01}),
                "the budget of editor is used up: $0.0000 of $0.0000, $0.0000 of them estimated \
                 because they were not reported (budget.max_cost_usd)",
            ),
        ] {
            let mut account = account(budget, 3);
            account.spent += Usage { estimate, ..Usage::UNKNOWN };
            assert_eq!(BudgetStatus::of(&[account]).exceeded(), Some(expected));
        }
    }

    fn used(input_tokens: u64) -> Usage {
        Usage { input_tokens, ..Usage::default() }
    }

    #[tokio::test]
    async fn budgeted_calls_run_one_at_a_time() {
        let task = TaskId::from_random_bytes([1; 16]);
        let ledger = Arc::new(BudgetLedger::default());
        ledger.open(task, account(json!({ "max_tokens": 80 }), 0));
        let allowance = BudgetAllowance::new(&ledger, task, vec![task]);
        let first = allowance.permit().await.unwrap();
        assert!(allowance.begin().unwrap().is_none(), "its usage is unknown");
        first.settle(used(40));
        drop(first);
        // A failed call uses nothing.
        drop(allowance.permit().await.unwrap());
        let last = allowance.permit().await.unwrap();
        last.settle(used(60));
        drop(last);
        let refused = allowance.permit().await.unwrap_err();
        assert!(refused.contains("100 of 80 tokens"), "{refused}");
    }
}
