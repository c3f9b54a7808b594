//! A fake driver for remote agents.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, MessageDelivery, NotReady, RemoteDriver, RemoteEnd, RemoteMessage, RemoteOutcome,
    RemoteWork, TextSink,
};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;

/// A server's reaction to a message.
#[derive(Debug, Clone)]
pub enum RemoteReaction {
    /// Creates a task that ends like this.
    Task(RemoteEnd),
    /// Replies directly, without a task.
    Reply(RemoteEnd),
}

/// A server that records messages. Without scripted reactions, it creates a task that echoes the
/// message.
#[derive(Debug, Default)]
pub struct FakeRemotes {
    /// The time until a message is accepted.
    pub answers_after: Duration,
    /// The duration of the work.
    pub works_for: Duration,
    /// The interval of signs of progress while it works; none after the first if unset.
    pub shows_progress_every: Option<Duration>,
    known: Mutex<FakeRemoteState>,
}

#[derive(Debug, Default)]
struct FakeRemoteState {
    reactions: VecDeque<RemoteReaction>,
    /// Each message with its remote task.
    messages: Vec<(String, Option<String>)>,
    tasks: BTreeMap<String, RemoteEnd>,
    cancelled: Vec<String>,
}

impl FakeRemotes {
    /// A server with these reactions, message by message.
    pub fn new(reactions: impl IntoIterator<Item = RemoteReaction>) -> Self {
        let known = FakeRemoteState {
            reactions: reactions.into_iter().collect(),
            ..FakeRemoteState::default()
        };
        let second = Duration::from_secs(1);
        Self {
            answers_after: second,
            works_for: second,
            shows_progress_every: None,
            known: Mutex::new(known),
        }
    }

    fn known(&self) -> MutexGuard<'_, FakeRemoteState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The received messages with their remote tasks.
    pub fn messages(&self) -> Vec<(String, Option<String>)> {
        self.known().messages.clone()
    }

    /// The tasks that it was asked to cancel.
    pub fn cancelled(&self) -> Vec<String> {
        self.known().cancelled.clone()
    }

    fn take(&self, message: &RemoteMessage<'_>) -> MessageDelivery {
        let mut known = self.known();
        let old = message.task.map(|task| task.task_id.clone());
        known.messages.push((message.text.to_owned(), old.clone()));
        let id = old.unwrap_or_else(|| format!("t-{}", known.messages.len()));
        let usual = RemoteReaction::Task(RemoteEnd::Answered(message.text.to_owned()));
        match known.reactions.pop_front().unwrap_or(usual) {
            RemoteReaction::Task(end) => {
                known.tasks.insert(id.clone(), end);
                MessageDelivery::Accepted(RemoteTask {
                    task_id: id,
                    context_id: Some("c-1".to_owned()),
                })
            }
            RemoteReaction::Reply(end) => MessageDelivery::Over(outcome(end, None)),
        }
    }
}

fn outcome(end: RemoteEnd, task: Option<&RemoteTask>) -> RemoteOutcome {
    let is_over = !matches!(end, RemoteEnd::Asks(_));
    let report = RemoteReport { task: task.cloned(), is_over, ..RemoteReport::default() };
    RemoteOutcome { end, report, usage: Usage::default() }
}

impl RemoteDriver for FakeRemotes {
    fn ready(&self, _: &AgentDefinition) -> Result<(), NotReady> {
        Ok(())
    }

    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, MessageDelivery> {
        // The message arrives at once; the reply takes its time.
        let sent = self.take(&message);
        Box::pin(async move {
            tokio::time::sleep(self.answers_after).await;
            sent
        })
    }

    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        progress: &'a dyn TextSink,
    ) -> BoxFuture<'a, RemoteOutcome> {
        Box::pin(async move {
            let task = work.task;
            progress.text("working");
            let mut left = self.works_for;
            while let Some(pause) = self.shows_progress_every.filter(|pause| *pause < left) {
                tokio::time::sleep(pause).await;
                left -= pause;
                progress.progress();
            }
            tokio::time::sleep(left).await;
            let end = self.known().tasks.get(&task.task_id).cloned();
            let lost = RemoteEnd::InDoubt("there is no such task".to_owned());
            outcome(end.unwrap_or(lost), Some(task))
        })
    }

    fn cancel<'a>(
        &'a self,
        _: &'a AgentDefinition,
        task: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.known().cancelled.push(task.task_id.clone());
            Ok(())
        })
    }
}
