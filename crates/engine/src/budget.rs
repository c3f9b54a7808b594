//! What a task may spend, together with its sub-agents.
//!
//! A budget belongs to a task: its agent has one, or whoever gave the task said so. Everything that
//! the task and its sub-agents use counts, and a sub-agent is also held to the budgets of those above
//! it. A call is begun only while less than the limit is spent. Where several are under way at once,
//! each is expected to read what its conversation weighs and to write a good deal, and no less than
//! the largest so far; one that would not fit any more waits for the others. So near the limit calls
//! go one by one, and it is overshot by a call, unless several at once use far more than expected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_model::definition::{Budget, LlmAgent, Price};
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_model::usage::{Cost, Usage};
use tokio::sync::Notify;

use crate::driver::History;

/// How many tokens a model is expected to answer with, as long as none has answered with more.
const OUTPUT_TOKENS_EXPECTED: u64 = 1000;

/// How much text is about one token.
const BYTES_PER_TOKEN: usize = 4;

/// What a decision knows of a task's budgets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spending {
    reached: Option<String>,
    exceeded: Option<String>,
}

impl Spending {
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
    /// The calls that are under way, and what they are expected to use.
    under_way: u32,
    expected: Usage,
    /// The most that one call has read, written and cost.
    largest: Usage,
}

impl Account {
    /// Whether a call may begin besides those that are under way. Alone it always may.
    fn has_room(&self) -> bool {
        if self.under_way == 0 {
            return true;
        }
        let mut spent = self.purse.spent;
        spent += self.expected;
        Purse { spent, ..self.purse.clone() }.told(|spent, limit| spent >= limit).is_none()
    }

    /// What a call is taken to use while it is under way: no less than any before it.
    fn reserve(&self, estimate: Usage) -> Usage {
        Usage {
            input_tokens: estimate.input_tokens.max(self.largest.input_tokens),
            output_tokens: estimate.output_tokens.max(self.largest.output_tokens),
            cost: estimate.cost.max(self.largest.cost),
        }
    }
}

/// What is expected of a call before it is made.
pub(crate) fn estimate(history: History<'_>, llm: &LlmAgent, price: Price) -> Usage {
    let said: usize = history.iter().map(|message| message.content().len()).sum();
    let bytes = said + llm.identity.system_prompt.as_str().len();
    let input_tokens = (bytes / BYTES_PER_TOKEN) as u64;
    let output_tokens = OUTPUT_TOKENS_EXPECTED;
    Usage { input_tokens, output_tokens, cost: price.of(input_tokens, output_tokens) }
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
    /// What the call is expected to use, of each budget.
    reserved: Vec<Usage>,
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
        if accounts.get(&task).is_none_or(|account| account.under_way == 0) {
            let (expected, largest) = (Usage::default(), Usage::default());
            accounts.insert(task, Account { purse, under_way: 0, expected, largest });
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
    pub(crate) fn spending(&self) -> Spending {
        if self.tasks.is_empty() {
            return Spending::default();
        }
        let accounts = self.ledger.accounts();
        let purses: Vec<Purse> = self
            .tasks
            .iter()
            .filter_map(|task| accounts.get(task).map(|account| account.purse.clone()))
            .collect();
        Spending::of(&purses)
    }

    /// Whether the task is held to any budget.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits until a call may be made that is expected to use so much. An error says what is used up.
    pub(crate) async fn permit(&self, estimate: Usage) -> Result<Permit<'_>, String> {
        loop {
            // Registered before the look, so that a change between the two is not missed.
            let changed = self.ledger.changed.notified();
            if let Some(permit) = self.begin(estimate)? {
                return Ok(permit);
            }
            changed.await;
        }
    }

    /// Leave to make a call, if there is room for one now.
    fn begin(&self, estimate: Usage) -> Result<Option<Permit<'_>>, String> {
        let mut accounts = self.ledger.accounts();
        for account in self.tasks.iter().filter_map(|task| accounts.get(task)) {
            if let Some(over) = account.purse.told(|spent, limit| spent >= limit) {
                return Err(over);
            }
            if !account.has_room() {
                return Ok(None);
            }
        }
        let mut reserved = Vec::with_capacity(self.tasks.len());
        for task in &*self.tasks {
            let Some(account) = accounts.get_mut(task) else { continue };
            let expected = account.reserve(estimate);
            account.under_way += 1;
            account.expected += expected;
            reserved.push(expected);
        }
        Ok(Some(Permit { allowance: self, reserved }))
    }
}

impl Permit<'_> {
    /// The call was made, and used this.
    pub(crate) fn settle(&self, used: Usage) {
        let mut accounts = self.allowance.ledger.accounts();
        for task in &*self.allowance.tasks {
            let Some(account) = accounts.get_mut(task) else { continue };
            account.purse.spent += used;
            account.largest = account.reserve(used);
        }
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
            for (task, expected) in allowance.tasks.iter().zip(&self.reserved) {
                if let Some(account) = accounts.get_mut(task) {
                    account.under_way = account.under_way.saturating_sub(1);
                    account.expected -= *expected;
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
            let spending = Spending::of(&[purse(budget.clone(), tokens)]);
            assert_eq!(spending.reached().is_some(), reached, "{budget} {tokens}");
            assert_eq!(spending.exceeded().is_some(), exceeded, "{budget} {tokens}");
        }
        assert_eq!(Spending::of(&[]), Spending::default());
    }

    #[tokio::test]
    async fn near_the_limit_calls_go_one_by_one() {
        let task = |number| TaskId::from_random_bytes([number; 16]);
        let ledger = Arc::new(Ledger::default());
        ledger.open(task(1), purse(json!({"max_tokens": 80}), 0));
        let allowance = Allowance::new(&ledger, task(2), vec![task(1)]);
        let none = Usage::default();
        let first = allowance.permit(none).await.unwrap();
        first.settle(Usage { input_tokens: 40, ..Usage::default() });
        drop(first);
        let second = allowance.permit(none).await.unwrap();
        assert!(allowance.begin(none).unwrap().is_none(), "40 and another 40 are all there is");
        drop(second);
        let third = allowance.permit(none).await.unwrap();
        third.settle(Usage { input_tokens: 60, ..Usage::default() });
        let refused = allowance.permit(none).await.unwrap_err();
        assert!(refused.contains("100 of 80 tokens"), "{refused}");
    }

    #[tokio::test]
    async fn what_is_known_of_a_call_before_it_is_made_counts() {
        let task = TaskId::from_random_bytes([1; 16]);
        let ledger = Arc::new(Ledger::default());
        ledger.open(task, purse(json!({"max_tokens": 5000}), 0));
        let allowance = Allowance::new(&ledger, task, vec![task]);
        let large = Usage { input_tokens: 2000, output_tokens: 1000, ..Usage::default() };
        let first = allowance.permit(large).await.unwrap();
        let second = allowance.permit(large).await.unwrap();
        assert!(allowance.begin(large).unwrap().is_none(), "two are expected to use all");
        drop((first, second));
        let again = allowance.permit(large).await.unwrap();
        assert_eq!(ledger.accounts()[&task].expected, large);
        drop(again);
        assert_eq!(ledger.accounts()[&task].expected, Usage::default());
    }
}
