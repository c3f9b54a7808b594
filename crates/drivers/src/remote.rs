//! Agents on other servers, over A2A: the card says how an agent is reached, a message gives it work,
//! and its task is followed to the end.
//!
//! `card` reads cards and picks the way, `contact` asks and judges, `speech` spells what is asked,
//! `wire` reads what servers say, `line` has the connections, `fault` knows what an error says about
//! the work.

mod card;
mod contact;
mod credentials;
mod fault;
mod line;
mod speech;
mod wire;

use std::num::NonZeroU64;
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, NotReady, Progress, RemoteEnd, RemoteMessage, RemoteOutcome, RemoteWork, Remotes,
    Sent,
};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use reqwest::Url;

use self::card::Card;
use self::contact::{Contact, POLL_FIRST, in_time, pause, without};
use self::credentials::Credentials;
pub(crate) use self::credentials::secrets_of;
use self::fault::Fault;
use self::line::Line;
use self::speech::Ask;
use crate::environment::Environment;
use crate::http::{Clients, shown_url};

/// What it takes to reach agents on other servers.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Where tokens and proxies are looked up.
    pub environment: Environment,
    /// The most that is read of one answer: `limits.output_bytes`.
    pub output_bytes: NonZeroU64,
}

/// Has agents on other servers do work, over A2A.
#[derive(Debug)]
pub struct A2aRemotes {
    line: Line,
}

/// Why there is no way to an agent. Nothing has been sent to it.
struct NoContact {
    failure: AttemptFailure,
    retry_after: Option<Duration>,
}

impl NoContact {
    fn permanent(message: String) -> Self {
        let failure = AttemptFailure { category: ErrorCategory::Permanent, message };
        Self { failure, retry_after: None }
    }

    fn outcome(self, task: Option<RemoteTask>) -> RemoteOutcome {
        let Self { failure, retry_after } = self;
        RemoteOutcome {
            end: RemoteEnd::Failed { failure, retry_after },
            report: RemoteReport { task, ..RemoteReport::default() },
            usage: Usage::default(),
        }
    }
}

impl A2aRemotes {
    /// Reaches servers with what the environment has.
    pub fn new(options: RemoteOptions) -> Self {
        let RemoteOptions { environment, output_bytes } = options;
        let output_bytes = output_bytes.get();
        Self { line: Line { clients: Clients::default(), environment, output_bytes } }
    }

    fn credentials(&self, agent: &AgentDefinition) -> Result<Credentials, NotReady> {
        match agent.remote() {
            Some(remote) => Credentials::of(agent, remote, &self.line.environment),
            None => Ok(Credentials::default()),
        }
    }

    /// Reads the agent's card, and picks the way to reach it.
    async fn contact(&self, agent: &AgentDefinition) -> Result<Contact<'_>, NoContact> {
        let remote = agent.remote().map(|remote| Url::parse(remote.card_url.as_str()));
        let Some(Ok(url)) = remote else {
            return Err(NoContact::permanent("the agent's card_url is no address".to_owned()));
        };
        let credentials = self.credentials(agent).map_err(|not_ready| {
            NoContact::permanent(format!("{}; {}", not_ready.message, not_ready.hint))
        })?;
        let shown = shown_url(&url);
        let card = in_time(self.line.card(&url, &credentials.headers)).await;
        let body = card.map_err(|fault| {
            let fault = without(&credentials, fault);
            let category =
                if fault.may_pass() { ErrorCategory::Transient } else { ErrorCategory::Permanent };
            let AttemptFailure { category, message } =
                fault.failure(category, credentials.variable.as_deref());
            let message = match fault {
                Fault::Status { status: 404, .. } => format!(
                    "there is no card at {shown}: card_url is the whole address, such as \
                     https://host/.well-known/agent-card.json"
                ),
                Fault::Unreachable(_)
                | Fault::Lost(_)
                | Fault::Status { .. }
                | Fault::Rpc { .. }
                | Fault::Unreadable(_)
                | Fault::TooLarge(_) => format!("the card at {shown}: {message}"),
            };
            let failure = AttemptFailure { category, message };
            NoContact { failure, retry_after: fault.retry_after() }
        })?;
        let card: Card = serde_json::from_slice(&body).map_err(|error| {
            NoContact::permanent(format!(
                "what is at {shown} is no card of an agent: {error}; card_url is the address of a \
                 card of A2A 1.0 or 0.3"
            ))
        })?;
        let way = card.way(&url, credentials.variable.as_deref());
        let interface = way.map_err(|no_way| NoContact::permanent(no_way.to_string()))?;
        Ok(Contact { line: &self.line, interface, streams: card.streams(), credentials })
    }
}

impl Remotes for A2aRemotes {
    fn ready(&self, agent: &AgentDefinition) -> Result<(), NotReady> {
        self.credentials(agent).map(|_| ())
    }

    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            match self.contact(message.agent).await {
                Ok(contact) => contact.sent(contact.ask(Ask::Send(&message)).await),
                Err(no_contact) => Sent::Over(no_contact.outcome(None)),
            }
        })
    }

    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, RemoteOutcome> {
        Box::pin(async move {
            let RemoteWork { agent, task, .. } = work;
            let id = task.task_id.as_str();
            let mut wait = POLL_FIRST;
            loop {
                // The card is read anew: a server that comes back may offer something else.
                let outcome = match self.contact(agent).await {
                    Err(none) if none.failure.category == ErrorCategory::Transient => None,
                    Err(none) => Some(none.outcome(Some(task.clone()))),
                    Ok(contact) => contact.follow(id, task, &mut wait, progress).await,
                };
                if let Some(outcome) = outcome {
                    return outcome;
                }
                pause(&mut wait).await;
            }
        })
    }

    fn cancel<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        task: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let contact = self.contact(agent).await.map_err(|none| none.failure.message)?;
            let answered = contact.ask(Ask::Cancel(&task.task_id)).await;
            answered.map(|_| ()).map_err(|fault| fault.to_string())
        })
    }
}
