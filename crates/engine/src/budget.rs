//! What a task may spend, together with its sub-agents.
//!
//! A budget belongs to a task: its agent has one, or whoever gave the task said so. Everything that
//! the task and its sub-agents use counts, and a sub-agent is also held to the budgets of those above
//! it. A call is begun only while less than the limit is spent. Where several are under way at once,
//! each is expected to use as much as the largest of its agent so far, or a great deal where there
//! was none; one that would not fit any more waits for the others. So near the limit calls go one by
//! one, and it is overshot by a call, unless several at once use far more than any before them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_model::definition::{Budget, LlmAgent, Price};
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_model::usage::{Cost, Usage};
use tokio::sync::Notify;

use crate::driver::History;

/// How many tokens an agent's model is expected to answer with as long as it has not answered once.
const OUTPUT_TOKENS_UNKNOWN: u64 = 16_000;

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
    /// The most that one call of each agent has read, written and cost.
    largest: BTreeMap<Name, Usage>,
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

    /// What a call is taken to use while it is under way.
    fn reserve(&self, estimate: &Estimate) -> Usage {
        let Estimate { agent, input_tokens, price } = estimate;
        let known = self.largest.get(agent);
        let input_tokens = known.map_or(0, |largest| largest.input_tokens).max(*input_tokens);
        let output_tokens = known.map_or(OUTPUT_TOKENS_UNKNOWN, |largest| largest.output_tokens);
        let cost = known.map_or(Cost::ZERO, |largest| largest.cost);
        let cost = cost.max(price.of(input_tokens, output_tokens));
        Usage { input_tokens, output_tokens, cost }
    }

    /// A call was made, and used this.
    fn settle(&mut self, agent: &Name, used: Usage) {
        self.purse.spent += used;
        let largest = self.largest.entry(agent.clone()).or_default();
        largest.input_tokens = largest.input_tokens.max(used.input_tokens);
        largest.output_tokens = largest.output_tokens.max(used.output_tokens);
        largest.cost = largest.cost.max(used.cost);
    }
}

/// What is known of a call before it is made.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    agent: Name,
    /// About how much the model is sent.
    input_tokens: u64,
    price: Price,
}

impl Estimate {
    /// About a call with this conversation.
    pub(crate) fn of(history: History<'_>, llm: &LlmAgent, price: Price) -> Self {
        let said: usize = history.iter().map(|message| message.content().len()).sum();
        let bytes = said + llm.identity.system_prompt.as_str().len();
        let input_tokens = (bytes / BYTES_PER_TOKEN) as u64;
        Self { agent: llm.identity.name.clone(), input_tokens, price }
    }
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
    agent: Name,
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
            let (expected, largest) = (Usage::default(), BTreeMap::new());
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
    pub(crate) fn is_limited(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Waits until a call may be made. An error says what is used up.
    pub(crate) async fn permit(&self, estimate: &Estimate) -> Result<Permit<'_>, String> {
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
    fn begin(&self, estimate: &Estimate) -> Result<Option<Permit<'_>>, String> {
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
        Ok(Some(Permit { allowance: self, agent: estimate.agent.clone(), reserved }))
    }
}

impl Permit<'_> {
    /// The call was made, and used this.
    pub(crate) fn settle(&self, used: Usage) {
        let mut accounts = self.allowance.ledger.accounts();
        for task in &*self.allowance.tasks {
            if let Some(account) = accounts.get_mut(task) {
                account.settle(&self.agent, used);
            }
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

    fn estimate(agent: &str, input_tokens: u64) -> Estimate {
        Estimate { agent: agent.parse().unwrap(), input_tokens, price: Price::FREE }
    }

    fn used(input_tokens: u64) -> Usage {
        Usage { input_tokens, ..Usage::default() }
    }

    fn limited_to(tokens: u64) -> (Allowance, TaskId) {
        let task = TaskId::from_random_bytes([1; 16]);
        let ledger = Arc::new(Ledger::default());
        ledger.open(task, purse(json!({ "max_tokens": tokens }), 0));
        (Allowance::new(&ledger, task, vec![task]), task)
    }

    #[tokio::test]
    async fn near_the_limit_calls_go_one_by_one() {
        let (allowance, _) = limited_to(80);
        let editor = estimate("editor", 0);
        let first = allowance.permit(&editor).await.unwrap();
        assert!(allowance.begin(&editor).unwrap().is_none(), "no one knows what it will use");
        first.settle(used(40));
        drop(first);
        let second = allowance.permit(&editor).await.unwrap();
        assert!(allowance.begin(&editor).unwrap().is_none(), "40 and another 40 are all there is");
        drop(second);
        let third = allowance.permit(&editor).await.unwrap();
        third.settle(used(60));
        let refused = allowance.permit(&editor).await.unwrap_err();
        assert!(refused.contains("100 of 80 tokens"), "{refused}");
    }

    #[tokio::test]
    async fn what_is_known_of_an_agents_calls_counts() {
        let (allowance, task) = limited_to(100_000);
        let small = allowance.permit(&estimate("editor", 10)).await.unwrap();
        small.settle(used(100));
        drop(small);
        // What the editor uses says nothing about a researcher.
        let researchers: Vec<_> =
            (0..9).filter_map(|_| allowance.begin(&estimate("researcher", 0)).unwrap()).collect();
        assert_eq!(researchers.len(), 7);
        researchers[0].settle(used(500));
        drop(researchers);
        let known: Vec<_> =
            (0..9).filter_map(|_| allowance.begin(&estimate("researcher", 0)).unwrap()).collect();
        assert_eq!(known.len(), 9);
        drop(known);
        assert_eq!(allowance.ledger.accounts()[&task].expected, Usage::default());
    }
}
