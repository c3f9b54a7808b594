//! Agents on other servers, where there is a cassette: what they say is written down, or said again
//! without them.

use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, NotReady, Place, Progress, RemoteEnd, RemoteMessage, RemoteOutcome, RemoteWork,
    Remotes, Sent,
};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::difference::difference;
use super::document::FailedCall;
use super::lines::Lines;
use super::player::{Player, REMEDY, Which, at_place, differs, for_good, pretty};
use super::recorder::Recorder;
use crate::secrets::Secrets;

/// One message to an agent on another server, with what came of it in the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptMessage {
    /// Which message of the conversation it is, from 1.
    #[serde(rename = "message")]
    pub(super) number: u32,
    #[serde(flatten)]
    given: Given,
    /// Nothing where the server took it, and no one heard of it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    came_of_it: Option<KeptOutcome>,
}

/// What a message says, without secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Given {
    text: Lines,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct KeptOutcome {
    #[serde(flatten)]
    end: KeptEnd,
    /// The state of the task there, in the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptEnd {
    Answer(Lines),
    Question(Lines),
    Failure(FailedCall),
}

impl Given {
    fn of(message: &RemoteMessage<'_>, secrets: &Secrets) -> Self {
        Self {
            text: secrets.removed_from(message.text).into(),
            parameters: secrets.removed_from_fields(message.parameters.clone()),
        }
    }

    fn to_text(&self) -> String {
        format!("text: {}\nparameters: {}", self.text.as_str(), pretty(&self.parameters))
    }
}

/// Has agents on other servers do work, and writes down what comes of it.
pub struct RecordedRemotes {
    recorder: Arc<Recorder>,
    remotes: Arc<dyn Remotes>,
}

impl RecordedRemotes {
    /// Writes down what these agents say.
    pub fn new(recorder: Arc<Recorder>, remotes: Arc<dyn Remotes>) -> Self {
        Self { recorder, remotes }
    }

    /// Writes down a message, in place of an earlier attempt to send it.
    fn write_message(&self, message: &RemoteMessage<'_>) {
        let number = message.place.turn;
        let given = Given::of(message, &self.recorder.secrets);
        self.recorder.write_session(message.place.session, |session| {
            session.agent = Some(message.agent.name.to_string());
            // What followed on an earlier message does not follow on this one.
            session.messages.retain(|known| known.number < number);
            session.messages.push(KeptMessage { number, given, came_of_it: None });
        });
    }

    fn write_outcome(&self, place: Place<'_>, outcome: &RemoteOutcome) {
        let secrets = &self.recorder.secrets;
        let without_secrets = |text: &str| Lines::from(secrets.removed_from(text));
        let end = match &outcome.end {
            RemoteEnd::Answered(answer) => KeptEnd::Answer(without_secrets(answer)),
            RemoteEnd::Asks(question) => KeptEnd::Question(without_secrets(question)),
            RemoteEnd::Failed { failure, .. } => KeptEnd::Failure(self.recorder.failed(failure)),
            // What no one knows cannot be repeated. A person says what becomes of it.
            RemoteEnd::InDoubt(_) => return,
        };
        let (state, usage) = (outcome.report.state.clone(), outcome.usage);
        self.recorder.write_session(place.session, |session| {
            let known = session.messages.iter_mut().find(|known| known.number == place.turn);
            if let Some(known) = known {
                known.came_of_it = Some(KeptOutcome { end, state, usage });
            }
        });
    }
}

impl Remotes for RecordedRemotes {
    fn ready(&self, agent: &AgentDefinition) -> Result<(), NotReady> {
        self.remotes.ready(agent)
    }

    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            let sent = self.remotes.send(message).await;
            self.write_message(&message);
            match &sent {
                Sent::Accepted(_) => {}
                Sent::Over(outcome) => self.write_outcome(message.place, outcome),
            }
            sent
        })
    }

    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, RemoteOutcome> {
        Box::pin(async move {
            let outcome = self.remotes.follow(work, progress).await;
            self.write_outcome(work.place, &outcome);
            outcome
        })
    }

    fn cancel<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        task: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>> {
        self.remotes.cancel(agent, task)
    }
}

/// Answers for agents on other servers from a cassette. Nothing is sent.
pub struct PlayedRemotes {
    player: Arc<Player>,
}

impl PlayedRemotes {
    /// Answers from what this one plays.
    pub fn new(player: Arc<Player>) -> Self {
        Self { player }
    }

    fn outcome(&self, place: Place<'_>, given: Option<&Given>) -> RemoteOutcome {
        self.answer(place, given).unwrap_or_else(|message| {
            let failure = self.player.broken(message);
            let end = RemoteEnd::Failed { failure, retry_after: None };
            RemoteOutcome { end, report: RemoteReport::default(), usage: Usage::default() }
        })
    }

    fn answer(&self, place: Place<'_>, given: Option<&Given>) -> Result<RemoteOutcome, String> {
        self.player.must_fit()?;
        let session = self.player.session(place.session)?;
        let kept = session.messages.iter().find(|kept| kept.number == place.turn);
        let Some((kept, came_of_it)) =
            kept.and_then(|kept| Some((kept, kept.came_of_it.as_ref()?)))
        else {
            return Err(format!(
                "the cassette has no answer of an agent on another server for {}; {REMEDY}",
                at_place(place)
            ));
        };
        if let Some(now) = given.filter(|now| **now != kept.given) {
            let what = format!(
                "the agent on another server is told something else in {}",
                at_place(place)
            );
            return Err(differs(&what, &difference(&kept.given.to_text(), &now.to_text())));
        }
        self.player.given(place.session, Which::Message { number: place.turn });
        let KeptOutcome { end, state, usage } = came_of_it;
        let (end, is_over) = match end {
            KeptEnd::Answer(answer) => (RemoteEnd::Answered(answer.as_str().to_owned()), true),
            KeptEnd::Question(question) => (RemoteEnd::Asks(question.as_str().to_owned()), false),
            KeptEnd::Failure(failed) => {
                (RemoteEnd::Failed { failure: for_good(failed), retry_after: None }, true)
            }
        };
        let report = RemoteReport { state: state.clone(), is_over, ..RemoteReport::default() };
        Ok(RemoteOutcome { end, report, usage: *usage })
    }
}

impl Remotes for PlayedRemotes {
    fn ready(&self, _: &AgentDefinition) -> Result<(), NotReady> {
        Ok(())
    }

    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, Sent> {
        let given = Given::of(&message, &self.player.secrets);
        let outcome = self.outcome(message.place, Some(&given));
        Box::pin(async { Sent::Over(outcome) })
    }

    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        _: &'a dyn Progress,
    ) -> BoxFuture<'a, RemoteOutcome> {
        let outcome = self.outcome(work.place, None);
        Box::pin(async { outcome })
    }

    fn cancel<'a>(
        &'a self,
        _: &'a AgentDefinition,
        _: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
