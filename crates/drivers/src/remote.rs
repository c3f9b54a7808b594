//! The remote driver: delegates work to agents on other servers over A2A.
//!
//! The agent's card names its interfaces. A message starts a task there, which is followed until it
//! ends. `card` selects the interface, `client` performs operations and interprets the answers,
//! `encode` and `decode` translate the wire formats, `http` holds the connections, and `error`
//! classifies failures.

mod card;
mod client;
mod credentials;
mod decode;
mod encode;
mod error;
mod http;

use std::num::NonZeroU64;
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, MessageDelivery, NotReady, RemoteDriver, RemoteEnd, RemoteMessage, RemoteOutcome,
    RemoteWork, TextSink,
};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use reqwest::Url;

pub(crate) use self::card::AgentCard;
use self::client::{A2aClient, POLL_FIRST, back_off, redact_error, with_timeout};
use self::credentials::RemoteCredentials;
pub(crate) use self::credentials::secret_values;
use self::encode::A2aOperation;
use self::error::RemoteError;
use self::http::RemoteHttp;
use crate::environment::EnvSource;
use crate::http::{HttpClients, redact_url};

/// The options of [`A2aAgents`].
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The source of tokens and proxy settings.
    pub environment: EnvSource,
    /// The largest accepted response: `limits.output_bytes`.
    pub output_bytes: NonZeroU64,
}

/// Delegates work to agents on other servers over A2A.
#[derive(Debug)]
pub struct A2aAgents {
    http: RemoteHttp,
}

/// A failure to connect. Nothing has been sent to the agent.
struct ConnectFailure {
    failure: AttemptFailure,
    retry_after: Option<Duration>,
}

impl ConnectFailure {
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

impl A2aAgents {
    /// Creates a driver with these options.
    pub fn new(options: RemoteOptions) -> Self {
        let RemoteOptions { environment, output_bytes } = options;
        let output_bytes = output_bytes.get();
        Self { http: RemoteHttp { clients: HttpClients::default(), environment, output_bytes } }
    }

    fn credentials(&self, agent: &AgentDefinition) -> Result<RemoteCredentials, NotReady> {
        match agent.remote() {
            Some(remote) => RemoteCredentials::load(agent, remote, &self.http.environment),
            None => Ok(RemoteCredentials::default()),
        }
    }

    /// Fetches the agent's card and selects an interface.
    async fn connect(&self, agent: &AgentDefinition) -> Result<A2aClient<'_>, ConnectFailure> {
        let remote = agent.remote().map(|remote| Url::parse(remote.card_url.as_str()));
        let Some(Ok(url)) = remote else {
            return Err(ConnectFailure::permanent("the agent's card_url is no address".to_owned()));
        };
        let credentials = self.credentials(agent).map_err(|not_ready| {
            ConnectFailure::permanent(format!("{}; {}", not_ready.message, not_ready.hint))
        })?;
        let shown = redact_url(&url);
        let card = with_timeout(self.http.fetch_card(&url, &credentials.headers)).await;
        let body = card.map_err(|error| {
            let error = redact_error(&credentials, error);
            let category = if error.is_transient() {
                ErrorCategory::Transient
            } else {
                ErrorCategory::Permanent
            };
            let AttemptFailure { category, message } =
                error.to_failure(category, credentials.variable.as_deref());
            let message = match error {
                RemoteError::Status { status: 404, .. } => format!(
                    "there is no card at {shown}: card_url is the whole address, such as \
                     https://host/.well-known/agent-card.json"
                ),
                _ => format!("the card at {shown}: {message}"),
            };
            let failure = AttemptFailure { category, message };
            ConnectFailure { failure, retry_after: error.retry_after() }
        })?;
        let card: AgentCard = serde_json::from_slice(&body).map_err(|error| {
            ConnectFailure::permanent(format!(
                "what is at {shown} is no card of an agent: {error}; card_url is the address of a \
                 card of A2A 1.0 or 0.3"
            ))
        })?;
        let interface = card.select_interface(&url, credentials.variable.as_deref());
        let interface = interface.map_err(|error| ConnectFailure::permanent(error.to_string()))?;
        Ok(A2aClient { http: &self.http, interface, can_stream: card.can_stream(), credentials })
    }
}

impl RemoteDriver for A2aAgents {
    fn ready(&self, agent: &AgentDefinition) -> Result<(), NotReady> {
        self.credentials(agent).map(|_| ())
    }

    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, MessageDelivery> {
        Box::pin(async move {
            match self.connect(message.agent).await {
                Ok(client) => client.to_sent(client.call(A2aOperation::Send(&message)).await),
                Err(failure) => MessageDelivery::Over(failure.outcome(None)),
            }
        })
    }

    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        progress: &'a dyn TextSink,
    ) -> BoxFuture<'a, RemoteOutcome> {
        Box::pin(async move {
            let RemoteWork { agent, task, .. } = work;
            let id = task.task_id.as_str();
            let mut wait = POLL_FIRST;
            loop {
                // The card is fetched again: a restarted server may offer other interfaces.
                let outcome = match self.connect(agent).await {
                    Err(failed) if failed.failure.category == ErrorCategory::Transient => None,
                    Err(failed) => Some(failed.outcome(Some(task.clone()))),
                    Ok(client) => client.follow(id, task, &mut wait, progress).await,
                };
                if let Some(outcome) = outcome {
                    return outcome;
                }
                back_off(&mut wait).await;
            }
        })
    }

    fn cancel<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        task: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let client = self.connect(agent).await.map_err(|failed| failed.failure.message)?;
            let answered = client.call(A2aOperation::Cancel(&task.task_id)).await;
            answered.map(|_| ()).map_err(|error| error.to_string())
        })
    }
}
