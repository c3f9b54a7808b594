//! Records and replays messages to remote agents.

use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, CallSite, MessageDelivery, NotReady, RemoteDriver, RemoteEnd, RemoteMessage,
    RemoteOutcome, RemoteWork, TextSink,
};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::diff::diff;
use super::document::FailedCall;
use super::multiline::MultilineText;
use super::player::{
    AnswerKey, CassettePlayer, REMEDY, describe_site, mismatch, permanent_failure, pretty,
};
use super::recorder::CassetteRecorder;
use crate::secrets::SecretSet;

/// The recorded message to a remote agent, with its final outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedMessage {
    /// The number of the message in the conversation, from 1.
    #[serde(rename = "message")]
    pub(super) number: u32,
    #[serde(flatten)]
    input: RemoteMessageInput,
    /// `None` if the server accepted it and no outcome is known.
    #[serde(rename = "came_of_it", default, skip_serializing_if = "Option::is_none")]
    outcome: Option<RecordedMessageOutcome>,
}

/// The content of a message, with secrets redacted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RemoteMessageInput {
    text: MultilineText,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RecordedMessageOutcome {
    #[serde(flatten)]
    end: RecordedMessageEnd,
    /// The final task state as the server names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedMessageEnd {
    Answer(MultilineText),
    Question(MultilineText),
    Failure(FailedCall),
}

impl RemoteMessageInput {
    fn redacted(message: &RemoteMessage<'_>, secrets: &SecretSet) -> Self {
        Self {
            text: secrets.redact(message.text).into(),
            parameters: secrets.redact_fields(message.parameters.clone()),
        }
    }

    fn to_text(&self) -> String {
        format!("text: {}\nparameters: {}", self.text.as_str(), pretty(&self.parameters))
    }
}

/// Forwards messages to remote agents and records the outcomes.
pub struct RecordingRemoteDriver {
    recorder: Arc<CassetteRecorder>,
    driver: Arc<dyn RemoteDriver>,
}

impl RecordingRemoteDriver {
    /// Wraps a driver.
    pub fn new(recorder: Arc<CassetteRecorder>, driver: Arc<dyn RemoteDriver>) -> Self {
        Self { recorder, driver }
    }

    /// Records a message, replacing an earlier attempt.
    fn record_message(&self, message: &RemoteMessage<'_>) {
        let number = message.call_site.turn;
        let input = RemoteMessageInput::redacted(message, &self.recorder.secrets);
        self.recorder.update_session(message.call_site.session, |session| {
            session.agent = Some(message.agent.name.to_string());
            // Later messages belonged to the earlier attempt.
            session.messages.retain(|known| known.number < number);
            session.messages.push(RecordedMessage { number, input, outcome: None });
        });
    }

    fn record_outcome(&self, call_site: CallSite<'_>, outcome: &RemoteOutcome) {
        let secrets = &self.recorder.secrets;
        let redact = |text: &str| MultilineText::from(secrets.redact(text));
        let end = match &outcome.end {
            RemoteEnd::Answered(answer) => RecordedMessageEnd::Answer(redact(answer)),
            RemoteEnd::Asks(question) => RecordedMessageEnd::Question(redact(question)),
            RemoteEnd::Failed { failure, .. } => {
                RecordedMessageEnd::Failure(self.recorder.to_failed_call(failure))
            }
            // An unknown outcome cannot be replayed; a person decides about it.
            RemoteEnd::InDoubt(_) => return,
        };
        let (state, usage) = (outcome.report.state.clone(), outcome.usage);
        self.recorder.update_session(call_site.session, |session| {
            let known = session.messages.iter_mut().find(|known| known.number == call_site.turn);
            if let Some(known) = known {
                known.outcome = Some(RecordedMessageOutcome { end, state, usage });
            }
        });
    }
}

impl RemoteDriver for RecordingRemoteDriver {
    fn ready(&self, agent: &AgentDefinition) -> Result<(), NotReady> {
        self.driver.ready(agent)
    }

    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, MessageDelivery> {
        Box::pin(async move {
            let sent = self.driver.send(message).await;
            self.record_message(&message);
            if let MessageDelivery::Over(outcome) = &sent {
                self.record_outcome(message.call_site, outcome);
            }
            sent
        })
    }

    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        progress: &'a dyn TextSink,
    ) -> BoxFuture<'a, RemoteOutcome> {
        Box::pin(async move {
            let outcome = self.driver.follow(work, progress).await;
            self.record_outcome(work.call_site, &outcome);
            outcome
        })
    }

    fn cancel<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        task: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>> {
        self.driver.cancel(agent, task)
    }
}

/// Replays the answers of remote agents. Sends nothing.
pub struct PlaybackRemoteDriver {
    player: Arc<CassettePlayer>,
}

impl PlaybackRemoteDriver {
    /// Creates a driver that answers from this player.
    pub fn new(player: Arc<CassettePlayer>) -> Self {
        Self { player }
    }

    fn outcome(
        &self,
        call_site: CallSite<'_>,
        input: Option<&RemoteMessageInput>,
    ) -> RemoteOutcome {
        self.answer(call_site, input).unwrap_or_else(|message| {
            let failure = self.player.fail(message);
            let end = RemoteEnd::Failed { failure, retry_after: None };
            RemoteOutcome { end, report: RemoteReport::default(), usage: Usage::default() }
        })
    }

    fn answer(
        &self,
        call_site: CallSite<'_>,
        input: Option<&RemoteMessageInput>,
    ) -> Result<RemoteOutcome, String> {
        self.player.check_no_mismatch()?;
        let session = self.player.session(call_site.session)?;
        let recorded = session.messages.iter().find(|recorded| recorded.number == call_site.turn);
        let Some((recorded, outcome)) =
            recorded.and_then(|recorded| Some((recorded, recorded.outcome.as_ref()?)))
        else {
            return Err(format!(
                "the cassette has no answer of an agent on another server for {}; {REMEDY}",
                describe_site(call_site)
            ));
        };
        if let Some(now) = input.filter(|now| **now != recorded.input) {
            let what =
                format!("the remote agent gets another message in {}", describe_site(call_site));
            return Err(mismatch(&what, &diff(&recorded.input.to_text(), &now.to_text())));
        }
        self.player.mark_used(call_site.session, AnswerKey::Message { number: call_site.turn });
        let RecordedMessageOutcome { end, state, usage } = outcome.clone();
        let is_over = !matches!(end, RecordedMessageEnd::Question(_));
        let end = match end {
            RecordedMessageEnd::Answer(answer) => RemoteEnd::Answered(answer.into()),
            RecordedMessageEnd::Question(question) => RemoteEnd::Asks(question.into()),
            RecordedMessageEnd::Failure(failed) => {
                RemoteEnd::Failed { failure: permanent_failure(&failed), retry_after: None }
            }
        };
        let report = RemoteReport { state, is_over, ..RemoteReport::default() };
        Ok(RemoteOutcome { end, report, usage })
    }
}

impl RemoteDriver for PlaybackRemoteDriver {
    fn ready(&self, _: &AgentDefinition) -> Result<(), NotReady> {
        Ok(())
    }

    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, MessageDelivery> {
        let input = RemoteMessageInput::redacted(&message, &self.player.secrets);
        let outcome = self.outcome(message.call_site, Some(&input));
        Box::pin(async { MessageDelivery::Over(outcome) })
    }

    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        _: &'a dyn TextSink,
    ) -> BoxFuture<'a, RemoteOutcome> {
        let outcome = self.outcome(work.call_site, None);
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
