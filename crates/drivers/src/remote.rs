//! Agents on other servers, over A2A: the card says how an agent is reached, a message gives it work,
//! and its task is followed to the end.
//!
//! `card` reads cards and picks the way, `speech` spells what is asked, `wire` reads what servers
//! say, `line` has the connections, `fault` knows what an error says about the work.

mod card;
mod credentials;
mod fault;
mod line;
mod speech;
mod wire;

use std::num::NonZeroU64;
use std::time::Duration;

use polity_engine::driver::{
    BoxFuture, NotReady, Progress, RemoteEnd, RemoteMessage, RemoteOutcome, Remotes, Sent,
};
use polity_model::definition::AgentDefinition;
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use reqwest::Url;
use serde_json::Value;

use self::card::Card;
use self::credentials::Credentials;
use self::fault::{Fault, Unsent};
use self::line::Line;
use self::speech::{Ask, Interface};
use self::wire::{Reply, State, Task, Told};
use crate::environment::Environment;
use crate::http::{Clients, shown_url};

/// How long to wait before a task is looked at again for the first time; each wait is longer.
const POLL_FIRST: Duration = Duration::from_millis(100);

/// The longest wait before a task is looked at again.
const POLL_MAX: Duration = Duration::from_secs(5);

/// How long a server may take to answer where nothing is done but to look.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// How long a stream is listened to before the task is looked at all the same.
const LISTEN_MAX: Duration = Duration::from_secs(30);

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

/// A server that was reached, and how it is spoken to.
struct Contact<'a> {
    line: &'a Line,
    credentials: Credentials,
    interface: Interface,
    streams: bool,
}

/// Why there is no way to an agent. Nothing has been sent to it.
struct NoContact {
    failure: Failure,
    retry_after: Option<Duration>,
}

impl NoContact {
    fn permanent(message: String) -> Self {
        let failure = Failure { category: ErrorCategory::Permanent, message };
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
            let Failure { category, message } =
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
            let failure = Failure { category, message };
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

/// The fault without the token, which some servers repeat.
fn without(credentials: &Credentials, fault: Fault) -> Fault {
    let clean = |text: String| credentials.secrets.removed_from(&text);
    match fault {
        Fault::Unreachable(why) => Fault::Unreachable(clean(why)),
        Fault::Lost(why) => Fault::Lost(clean(why)),
        Fault::Status { status, message, retry_after } => {
            Fault::Status { status, message: clean(message), retry_after }
        }
        Fault::Rpc { code, message } => Fault::Rpc { code, message: clean(message) },
        Fault::Unreadable(why) => Fault::Unreadable(clean(why)),
        Fault::TooLarge(limit) => Fault::TooLarge(limit),
    }
}

impl Contact<'_> {
    async fn ask(&self, ask: Ask<'_>) -> Result<Value, Fault> {
        let request = self.interface.request(ask);
        let answered = self.line.json(request, &self.credentials.headers).await;
        let answered = answered.and_then(|json| self.interface.answer(json));
        answered.map_err(|fault| without(&self.credentials, fault))
    }

    async fn task(&self, id: &str) -> Result<Task, Fault> {
        wire::task(in_time(self.ask(Ask::Get(id))).await?).map_err(Fault::Unreadable)
    }

    /// Listens to what the server tells of a task, until it does nothing more by itself.
    async fn listen(&self, id: &str, progress: &dyn Progress) -> Result<(), Fault> {
        let request = self.interface.request(Ask::Subscribe(id));
        let hear = |json: Value| {
            Ok(match wire::told(self.interface.answer(json)?) {
                Told::State(state) => state.is_settled(),
                Told::Piece(piece) => {
                    progress.text(&self.credentials.secrets.removed_from(&piece));
                    false
                }
                Told::Else => false,
            })
        };
        self.line.events(request, &self.credentials.headers, hear).await
    }

    fn report(&self) -> RemoteReport {
        RemoteReport {
            url: shown_url(&self.interface.url),
            protocol: self.interface.binding.to_string(),
            ..RemoteReport::default()
        }
    }

    fn token(&self) -> Option<&str> {
        self.credentials.variable.as_deref()
    }

    fn clean(&self, text: &str) -> String {
        self.credentials.secrets.removed_from(text)
    }

    /// What came of a message.
    fn sent(&self, answered: Result<Value, Fault>) -> Sent {
        let reply = answered.and_then(|json| wire::reply(json).map_err(Fault::Unreadable));
        let (end, state) = match reply {
            Ok(Reply::Task(task)) if task.status.state.is_settled() => {
                return Sent::Over(self.settled(&task));
            }
            Ok(Reply::Task(task)) => return Sent::Accepted(task.named()),
            Ok(Reply::Message(message)) => {
                (RemoteEnd::Answered(self.clean(&message.text())), Some("answered".to_owned()))
            }
            Err(fault) => match fault.of_sending(self.token()) {
                Unsent::Failed(failure, retry_after) => {
                    (RemoteEnd::Failed { failure: self.of_agent(failure), retry_after }, None)
                }
                Unsent::InDoubt(why) => (RemoteEnd::InDoubt(why), None),
            },
        };
        let report = RemoteReport { state, is_over: true, ..self.report() };
        Sent::Over(RemoteOutcome { end, report, usage: Usage::default() })
    }

    /// The failure with who it was.
    fn of_agent(&self, failure: Failure) -> Failure {
        let message = format!("{}: {}", shown_url(&self.interface.url), failure.message);
        Failure { category: failure.category, message }
    }

    /// What a task came to that the server does nothing more for by itself.
    fn settled(&self, task: &Task) -> RemoteOutcome {
        let state = task.status.state;
        let said = task.said().map(|said| self.clean(&said));
        let in_words = || said.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
        let failed = |category, message| {
            let failure = Failure { category, message };
            RemoteEnd::Failed { failure, retry_after: None }
        };
        let end = match state {
            State::Completed => RemoteEnd::Answered(self.clean(&task.result())),
            State::InputRequired => {
                RemoteEnd::Asks(said.clone().unwrap_or_else(|| {
                    "The agent asks for more, and does not say what.".to_owned()
                }))
            }
            State::Failed => {
                failed(ErrorCategory::AgentError, format!("the agent failed{}", in_words()))
            }
            State::Rejected => failed(
                ErrorCategory::AgentError,
                format!("the agent does not take this work{}", in_words()),
            ),
            State::Canceled => failed(
                ErrorCategory::AgentError,
                format!("the task was cancelled on the other server{}", in_words()),
            ),
            State::AuthRequired => {
                let what = match self.token() {
                    Some(variable) => format!("set {variable} to a token that may do it"),
                    None => "give the agent's file an auth with a token that may do it".to_owned(),
                };
                let words = in_words();
                let message = format!("the agent needs more rights for this{words}; {what}");
                failed(ErrorCategory::Permanent, message)
            }
            // These go on, and are not asked about.
            State::Submitted | State::Working | State::Unknown => {
                RemoteEnd::InDoubt("the task goes on".to_owned())
            }
        };
        let report = RemoteReport {
            task: Some(task.named()),
            state: Some(state.label().to_owned()),
            is_over: state.is_final(),
            ..self.report()
        };
        RemoteOutcome { end, report, usage: task.usage() }
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
        agent: &'a AgentDefinition,
        task: &'a RemoteTask,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, RemoteOutcome> {
        Box::pin(async move {
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

impl Contact<'_> {
    /// Looks after a task until it is settled; nothing if the server cannot be asked just now.
    async fn follow(
        &self,
        id: &str,
        task: &RemoteTask,
        wait: &mut Duration,
        progress: &dyn Progress,
    ) -> Option<RemoteOutcome> {
        let mut streams = self.streams;
        loop {
            let found = self.task(id).await;
            match found {
                Ok(found) if found.status.state.is_settled() => return Some(self.settled(&found)),
                Ok(_) => {}
                Err(fault) if fault.may_pass() => return None,
                Err(fault) => return Some(self.lost(task, &fault)),
            }
            if streams {
                match tokio::time::timeout(LISTEN_MAX, self.listen(id, progress)).await {
                    // What has been told is asked for once more, since only then it is whole.
                    Ok(Ok(())) | Err(_) => *wait = POLL_FIRST,
                    Ok(Err(fault @ Fault::TooLarge(_))) => return Some(self.lost(task, &fault)),
                    // A task can be followed without a stream, too.
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "a task is looked at from time to time");
                        streams = error.may_pass();
                    }
                }
            }
            pause(wait).await;
        }
    }

    /// No more can be learned of a task.
    fn lost(&self, task: &RemoteTask, fault: &Fault) -> RemoteOutcome {
        let (category, is_over) = (ErrorCategory::Permanent, fault.is_unknown_task());
        let mut failure = self.of_agent(fault.failure(category, self.token()));
        if is_over {
            failure.message.push_str("; the server does not know the task any more");
        }
        let end = RemoteEnd::Failed { failure, retry_after: None };
        let report = RemoteReport { task: Some(task.clone()), is_over, ..self.report() };
        RemoteOutcome { end, report, usage: Usage::default() }
    }
}

/// What a server answers, unless it takes too long to.
async fn in_time<T>(look: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = format!("it did not answer within {} seconds", LOOK_MAX.as_secs());
    tokio::time::timeout(LOOK_MAX, look).await.unwrap_or(Err(Fault::Lost(late)))
}

/// Waits a while, and longer the next time.
async fn pause(wait: &mut Duration) {
    tokio::time::sleep(*wait).await;
    *wait = (*wait * 2).min(POLL_MAX);
}
