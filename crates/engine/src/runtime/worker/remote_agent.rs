//! Effects for remote agents: sending messages and following their tasks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::message::{Message, MessageRole};
use polity_model::remote::RemoteReport;
use polity_model::usage::Usage;
use tokio::time::Instant;

use super::Worker;
use super::effects::{LiveText, elapsed_ms};
use super::interruption::{EffectOutcome, Interruption, interruption};
use crate::budget::{BudgetAllowance, CallPermit};
use crate::commands::{RecordRemoteAcceptance, RecordRemoteOutcome, RemoteTimeout};
use crate::decide::Command;
use crate::driver::{
    CallSite, MessageDelivery, NullTextSink, RemoteEnd, RemoteMessage, RemoteOutcome, RemoteWork,
    TextSink, TracedStep, TracedStepKind, traced,
};
use crate::pinned::Assignee;
use crate::runtime::EngineError;
use crate::runtime::remote_cancel::{CANCEL_TIMEOUT, cancel_remote_work};
use crate::state::TaskState;

impl Worker {
    /// The agent of the task, if it is a remote agent.
    fn remote_agent(&self) -> Option<Arc<AgentDefinition>> {
        let Assignee::Agent(pinned) = &self.assignee else { return None };
        pinned.agent.remote().map(|_| Arc::clone(&pinned.agent))
    }

    fn remote_limits(&self) -> RemoteLimits {
        let limits = &self.inner.deps.limits;
        RemoteLimits {
            total: Duration::from_secs(limits.remote_seconds.get()),
            idle: Duration::from_secs(limits.remote_idle_seconds.get()),
        }
    }

    /// Sends the newest message for the agent.
    pub(super) async fn send_message(&mut self) -> Result<EffectOutcome, EngineError> {
        let limits = self.remote_limits();
        let (Some(agent), Some(execution)) = (self.remote_agent(), self.state.execution()) else {
            return Ok(Err(Interruption::Abandoned));
        };
        let id = execution.id.to_string();
        let (allowance, session) = (self.allowance.clone(), Arc::clone(&self.session));
        let Self { inner, state, signals, .. } = self;
        let began = inner.deps.clock.now();
        let said =
            state.messages().iter().rev().find(|message| message.role() == MessageRole::User);
        let message = RemoteMessage {
            agent: &agent,
            call_site: CallSite { session: &session, turn: messages_sent(state) },
            id: &id,
            text: said.map(Message::content).unwrap_or_default(),
            parameters: &state.task().order().parameters,
            task: state.remote(),
        };
        // Its usage is unknown until it ends.
        let call = async {
            let _permit = match permit(&allowance).await {
                Ok(permit) => permit,
                Err(over) => return MessageDelivery::Over(over_budget(over)),
            };
            let step = TracedStep { task: state.id(), kind: TracedStepKind::Work };
            let sent = inner.deps.remotes.send(message);
            traced(inner.deps.trace_contexts.as_ref(), step, sent).await
        };
        let sent = {
            // A server shows no progress before its first answer.
            let idle = ActivitySink::new(&NullTextSink);
            let mut call = std::pin::pin!(within_limits(call, limits, &idle));
            tokio::select! {
                sent = &mut call => Ok(sent),
                interrupted = interruption(inner, state, signals) => match interrupted {
                    Interruption::Abandoned => return Ok(Err(Interruption::Abandoned)),
                    // The server's task can be cancelled only once its id is known.
                    Interruption::Changed | Interruption::Cancelled => {
                        let sent = tokio::time::timeout(CANCEL_TIMEOUT, &mut call).await;
                        Err((interrupted, sent))
                    }
                },
            }
        };
        let duration_ms = elapsed_ms(began, inner.deps.clock.now());
        let sent = match sent {
            Ok(sent) => sent,
            Err((interrupted, sent)) => {
                if let Ok(Ok(MessageDelivery::Accepted(task))) = sent {
                    self.catch_up().await?;
                    self.step(&Command::RecordRemoteAcceptance(RecordRemoteAcceptance { task }))
                        .await?;
                }
                return Ok(Err(interrupted));
            }
        };
        Ok(Ok(match sent {
            Ok(MessageDelivery::Accepted(task)) => {
                Command::RecordRemoteAcceptance(RecordRemoteAcceptance { task })
            }
            Ok(MessageDelivery::Over(outcome)) => {
                self.allowance.spend(outcome.usage);
                let outcome = Ok(outcome);
                Command::RecordRemoteOutcome(RecordRemoteOutcome { outcome, duration_ms })
            }
            Err(timeout) => {
                let outcome = Err(timeout);
                Command::RecordRemoteOutcome(RecordRemoteOutcome { outcome, duration_ms })
            }
        }))
    }

    /// Follows the task on the server.
    pub(super) async fn follow_remote(&mut self) -> EffectOutcome {
        let limits = self.remote_limits();
        let (Some(agent), Some(task)) = (self.remote_agent(), self.state.remote().cloned()) else {
            return Err(Interruption::Abandoned);
        };
        let session = Arc::clone(&self.session);
        let Self { inner, state, signals, .. } = self;
        let since = state.execution().and_then(|execution| execution.start_time);
        let began = since.unwrap_or_else(|| inner.deps.clock.now());
        let live_text = LiveText { inner, task: state.id() };
        let progress = ActivitySink::new(&live_text);
        let allowance = self.allowance.clone();
        let follow = async {
            // Other calls wait for the budget. This one has already started.
            let _permit = permit(&allowance).await;
            let call_site = CallSite { session: &session, turn: messages_sent(state) };
            let work = RemoteWork { agent: &agent, call_site, task: &task };
            let step = TracedStep { task: state.id(), kind: TracedStepKind::Work };
            let followed = inner.deps.remotes.follow(work, &progress);
            traced(inner.deps.trace_contexts.as_ref(), step, followed).await
        };
        let outcome = tokio::select! {
            outcome = within_limits(follow, limits, &progress) => outcome,
            interrupted = interruption(inner, state, signals) => return Err(interrupted),
        };
        let duration_ms = elapsed_ms(began, inner.deps.clock.now());
        if let Ok(outcome) = &outcome {
            self.allowance.spend(outcome.usage);
        }
        Ok(Command::RecordRemoteOutcome(RecordRemoteOutcome { outcome, duration_ms }))
    }

    /// Cancels the server's work for a task that has ended.
    pub(super) async fn cancel_remote(&mut self) {
        let Some(agent) = self.remote_agent() else { return };
        let Self { inner, state, .. } = self;
        let (remotes, clock) = (&*inner.deps.remotes, &*inner.deps.clock);
        let id = state.id();
        let recorded = cancel_remote_work(&inner.journal, remotes, clock, &agent, state).await;
        if let Err(error) = recorded {
            // The local task has ended anyway.
            tracing::warn!(%id, %error, "cannot record the cancellation of a remote task");
        }
    }
}

/// The time limits of remote work.
#[derive(Clone, Copy)]
struct RemoteLimits {
    total: Duration,
    idle: Duration,
}

/// Notes the time of the last progress.
struct ActivitySink<'a> {
    text: &'a dyn TextSink,
    last: Mutex<Instant>,
}

impl<'a> ActivitySink<'a> {
    fn new(text: &'a dyn TextSink) -> Self {
        Self { text, last: Mutex::new(Instant::now()) }
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TextSink for ActivitySink<'_> {
    fn text(&self, piece: &str) {
        self.progress();
        self.text.text(piece);
    }

    fn progress(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// Awaits remote work until a limit is reached.
async fn within_limits<T>(
    work: impl Future<Output = T>,
    limits: RemoteLimits,
    activity: &ActivitySink<'_>,
) -> Result<T, RemoteTimeout> {
    let deadline = Instant::now() + limits.total;
    let expired = async {
        loop {
            let idle_until = activity.last() + limits.idle;
            tokio::time::sleep_until(idle_until.min(deadline)).await;
            if Instant::now() >= deadline {
                return RemoteTimeout::Total;
            }
            if activity.last() + limits.idle <= Instant::now() {
                return RemoteTimeout::Idle;
            }
        }
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        timeout = expired => Err(timeout),
    }
}

/// The number of messages for the agent so far.
fn messages_sent(state: &TaskState) -> u32 {
    let sent =
        state.messages().iter().filter(|message| message.role() == MessageRole::User).count();
    u32::try_from(sent).unwrap_or(u32::MAX)
}

/// The budget's permit, or the error if the budget is used up.
async fn permit(allowance: &BudgetAllowance) -> Result<Option<CallPermit<'_>>, String> {
    if allowance.is_limited() { allowance.permit().await.map(Some) } else { Ok(None) }
}

fn over_budget(message: String) -> RemoteOutcome {
    let failure = AttemptFailure { category: ErrorCategory::Permanent, message };
    let end = RemoteEnd::Failed { failure, retry_after: None };
    RemoteOutcome { end, report: RemoteReport::default(), usage: Usage::default() }
}
