//! What a worker does for an agent on another server: sending it messages, and following what it
//! makes of them.

use std::sync::Arc;
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::message::{Message, MessageRole};
use polity_model::remote::RemoteReport;
use polity_model::usage::Usage;

use super::effects::{LiveText, elapsed_ms};
use super::{Interrupted, Worker, interruption};
use crate::budget::{BudgetAllowance, CallPermit};
use crate::commands::{RecordRemoteAcceptance, RecordRemoteOutcome};
use crate::decide::Command;
use crate::driver::{CallSite, RemoteEnd, RemoteMessage, RemoteOutcome, RemoteWork, Sent};
use crate::pinned::Assignee;
use crate::runtime::EngineError;
use crate::runtime::remote::CANCEL_WAIT;
use crate::state::TaskState;

type Awaited = Result<Command, Interrupted>;

impl Worker {
    /// The agent that does the task, if it is on another server.
    fn remote_agent(&self) -> Option<Arc<AgentDefinition>> {
        let Assignee::Agent(pinned) = &self.assignee else { return None };
        pinned.agent.remote().map(|_| Arc::clone(&pinned.agent))
    }

    fn remote_limit(&self) -> Duration {
        Duration::from_secs(self.shared.parts.limits.remote_seconds.get())
    }

    /// Sends the newest message that is meant for the agent.
    pub(super) async fn send_message(&mut self) -> Result<Awaited, EngineError> {
        let limit = self.remote_limit();
        let (Some(agent), Some(execution)) = (self.remote_agent(), self.state.execution()) else {
            return Ok(Err(Interrupted::Abandoned));
        };
        let id = execution.id.to_string();
        let (allowance, session) = (self.allowance.clone(), Arc::clone(&self.session));
        let Self { shared, state, signals, .. } = self;
        let began = shared.parts.clock.now();
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
        // What it will use is not known before it is over, as with a call of a model.
        let call = async {
            let _permit = match permit(&allowance).await {
                Ok(permit) => permit,
                Err(over) => return Sent::Over(over_budget(over)),
            };
            shared.parts.remotes.send(message).await
        };
        let sent = {
            let mut call = std::pin::pin!(tokio::time::timeout(limit, call));
            tokio::select! {
                sent = &mut call => Ok(sent),
                interrupted = interruption(shared, state, signals) => match interrupted {
                    Interrupted::Abandoned => return Ok(Err(Interrupted::Abandoned)),
                    // What has been sent can be ended there only once its name is known.
                    Interrupted::Changed | Interrupted::Cancelled => {
                        let sent = tokio::time::timeout(CANCEL_WAIT, &mut call).await;
                        Err((interrupted, sent))
                    }
                },
            }
        };
        let duration_ms = elapsed_ms(began, shared.parts.clock.now());
        let sent = match sent {
            Ok(sent) => sent,
            Err((interrupted, sent)) => {
                if let Ok(Ok(Sent::Accepted(task))) = sent {
                    self.catch_up().await?;
                    self.step(&Command::RecordRemoteAcceptance(RecordRemoteAcceptance { task }))
                        .await?;
                }
                return Ok(Err(interrupted));
            }
        };
        Ok(Ok(match sent {
            Ok(Sent::Accepted(task)) => {
                Command::RecordRemoteAcceptance(RecordRemoteAcceptance { task })
            }
            Ok(Sent::Over(outcome)) => {
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

    /// Follows what the server works on.
    pub(super) async fn follow_remote(&mut self) -> Awaited {
        let limit = self.remote_limit();
        let (Some(agent), Some(task)) = (self.remote_agent(), self.state.remote().cloned()) else {
            return Err(Interrupted::Abandoned);
        };
        let session = Arc::clone(&self.session);
        let Self { shared, state, signals, .. } = self;
        let since = state.execution().and_then(|execution| execution.start_time);
        let began = since.unwrap_or_else(|| shared.parts.clock.now());
        let progress = LiveText { shared, task: state.id() };
        let allowance = self.allowance.clone();
        let follow = async {
            // Others wait with what they would spend. The work itself is under way already.
            let _permit = permit(&allowance).await;
            let call_site = CallSite { session: &session, turn: messages_sent(state) };
            let work = RemoteWork { agent: &agent, call_site, task: &task };
            shared.parts.remotes.follow(work, &progress).await
        };
        let followed = tokio::select! {
            followed = tokio::time::timeout(limit, follow) => followed,
            interrupted = interruption(shared, state, signals) => return Err(interrupted),
        };
        let duration_ms = elapsed_ms(began, shared.parts.clock.now());
        let outcome = followed.ok();
        if let Some(outcome) = &outcome {
            self.allowance.spend(outcome.usage);
        }
        Ok(Command::RecordRemoteOutcome(RecordRemoteOutcome { outcome, duration_ms }))
    }

    /// Asks the server to end what no one waits for any more.
    pub(super) async fn end_remote(&mut self) {
        if let Some(agent) = self.remote_agent() {
            self.shared.end_remote_of(&agent, &mut self.state).await;
        }
    }
}

/// How many messages were meant for the agent so far.
fn messages_sent(state: &TaskState) -> u32 {
    let sent =
        state.messages().iter().filter(|message| message.role() == MessageRole::User).count();
    u32::try_from(sent).unwrap_or(u32::MAX)
}

/// Leave to spend, where a budget asks for it; or why nothing may be spent any more.
async fn permit(allowance: &BudgetAllowance) -> Result<Option<CallPermit<'_>>, String> {
    if allowance.is_limited() { allowance.permit().await.map(Some) } else { Ok(None) }
}

fn over_budget(message: String) -> RemoteOutcome {
    let failure = AttemptFailure { category: ErrorCategory::Permanent, message };
    let end = RemoteEnd::Failed { failure, retry_after: None };
    RemoteOutcome { end, report: RemoteReport::default(), usage: Usage::default() }
}
