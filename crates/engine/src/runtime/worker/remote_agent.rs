//! Effects for remote agents: sending messages and following their tasks.

use std::sync::Arc;
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::message::{Message, MessageRole};
use polity_model::remote::RemoteReport;
use polity_model::usage::Usage;

use super::Worker;
use super::effects::{LiveText, elapsed_ms};
use super::interruption::{EffectOutcome, Interruption, interruption};
use crate::budget::{BudgetAllowance, CallPermit};
use crate::commands::{RecordRemoteAcceptance, RecordRemoteOutcome};
use crate::decide::Command;
use crate::driver::{
    CallSite, MessageDelivery, RemoteEnd, RemoteMessage, RemoteOutcome, RemoteWork,
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

    fn remote_limit(&self) -> Duration {
        Duration::from_secs(self.inner.deps.limits.remote_seconds.get())
    }

    /// Sends the newest message for the agent.
    pub(super) async fn send_message(&mut self) -> Result<EffectOutcome, EngineError> {
        let limit = self.remote_limit();
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
            inner.deps.remotes.send(message).await
        };
        let sent = {
            let mut call = std::pin::pin!(tokio::time::timeout(limit, call));
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
                Command::RecordRemoteOutcome(RecordRemoteOutcome {
                    outcome: Some(outcome),
                    duration_ms,
                })
            }
            Err(_) => {
                Command::RecordRemoteOutcome(RecordRemoteOutcome { outcome: None, duration_ms })
            }
        }))
    }

    /// Follows the task on the server.
    pub(super) async fn follow_remote(&mut self) -> EffectOutcome {
        let limit = self.remote_limit();
        let (Some(agent), Some(task)) = (self.remote_agent(), self.state.remote().cloned()) else {
            return Err(Interruption::Abandoned);
        };
        let session = Arc::clone(&self.session);
        let Self { inner, state, signals, .. } = self;
        let since = state.execution().and_then(|execution| execution.start_time);
        let began = since.unwrap_or_else(|| inner.deps.clock.now());
        let progress = LiveText { inner, task: state.id() };
        let allowance = self.allowance.clone();
        let follow = async {
            // Other calls wait for the budget. This one has already started.
            let _permit = permit(&allowance).await;
            let call_site = CallSite { session: &session, turn: messages_sent(state) };
            let work = RemoteWork { agent: &agent, call_site, task: &task };
            inner.deps.remotes.follow(work, &progress).await
        };
        let followed = tokio::select! {
            followed = tokio::time::timeout(limit, follow) => followed,
            interrupted = interruption(inner, state, signals) => return Err(interrupted),
        };
        let duration_ms = elapsed_ms(began, inner.deps.clock.now());
        let outcome = followed.ok();
        if let Some(outcome) = &outcome {
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
