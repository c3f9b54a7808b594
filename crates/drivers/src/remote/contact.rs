//! A server that was reached: what it is asked, and what its answers mean for the work.

use std::time::Duration;

use polity_engine::driver::{Progress, RemoteEnd, RemoteOutcome, Sent};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use serde_json::Value;

use super::credentials::Credentials;
use super::fault::{Fault, Unsent};
use super::line::Line;
use super::speech::{Ask, Interface};
use super::wire::{self, Reply, State, Task, Told};
use crate::http::shown_url;

/// How long to wait before a task is looked at again for the first time; each wait is longer.
pub(super) const POLL_FIRST: Duration = Duration::from_millis(100);

/// The longest wait before a task is looked at again.
const POLL_MAX: Duration = Duration::from_secs(5);

/// How long a server may take to answer where nothing is done but to look.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// How long a stream is listened to before the task is looked at all the same.
const LISTEN_MAX: Duration = Duration::from_secs(30);

/// A server that was reached, and how it is spoken to.
pub(super) struct Contact<'a> {
    pub(super) line: &'a Line,
    pub(super) credentials: Credentials,
    pub(super) interface: Interface,
    /// Whether it tells of its work as it goes on.
    pub(super) streams: bool,
}

impl Contact<'_> {
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Value, Fault> {
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
    pub(super) fn sent(&self, answered: Result<Value, Fault>) -> Sent {
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
                    (RemoteEnd::Failed { failure: self.of_agent(&failure), retry_after }, None)
                }
                Unsent::InDoubt(why) => (RemoteEnd::InDoubt(why), None),
            },
        };
        let report = RemoteReport { state, is_over: true, ..self.report() };
        Sent::Over(RemoteOutcome { end, report, usage: Usage::default() })
    }

    /// The failure with who it was.
    fn of_agent(&self, failure: &AttemptFailure) -> AttemptFailure {
        let message = format!("{}: {}", shown_url(&self.interface.url), failure.message);
        AttemptFailure { category: failure.category, message }
    }

    /// What a task came to that the server does nothing more for by itself.
    fn settled(&self, task: &Task) -> RemoteOutcome {
        let state = task.status.state;
        let said = task.said().map(|said| self.clean(&said));
        let in_words = || said.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
        let failed = |category, message| {
            let failure = AttemptFailure { category, message };
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

impl Contact<'_> {
    /// Looks after a task until it is settled; nothing if the server cannot be asked just now.
    pub(super) async fn follow(
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
        let mut failure = self.of_agent(&fault.failure(category, self.token()));
        if is_over {
            failure.message.push_str("; the server does not know the task any more");
        }
        let end = RemoteEnd::Failed { failure, retry_after: None };
        let report = RemoteReport { task: Some(task.clone()), is_over, ..self.report() };
        RemoteOutcome { end, report, usage: Usage::default() }
    }
}

/// What a server answers, unless it takes too long to.
pub(super) async fn in_time<T>(look: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = format!("it did not answer within {} seconds", LOOK_MAX.as_secs());
    tokio::time::timeout(LOOK_MAX, look).await.unwrap_or(Err(Fault::Lost(late)))
}

/// Waits a while, and longer the next time.
pub(super) async fn pause(wait: &mut Duration) {
    tokio::time::sleep(*wait).await;
    *wait = (*wait * 2).min(POLL_MAX);
}

/// The fault without the token, which some servers repeat.
pub(super) fn without(credentials: &Credentials, fault: Fault) -> Fault {
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
