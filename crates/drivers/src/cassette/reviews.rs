//! Answers to reviews in a cassette.

use polity_model::review::ReviewVerdict;
use polity_model::state::StateUpdates;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::multiline::MultilineText;
use super::player::{AnswerKey, CassettePlayer};
use super::recorder::CassetteRecorder;
use crate::secrets::SecretSet;

/// The name of the session under which answers to reviews count as used. No session is called so.
pub(super) const REVIEWS_SESSION: &str = "";

/// A review, as far as a cassette identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewQuestion<'a> {
    /// The path from the task's agent or workflow to the asking one.
    pub place: &'a str,
    /// The question.
    pub question: &'a str,
}

/// A person's answer to a review.
#[derive(Debug, Clone, PartialEq)]
pub struct CassetteVerdict {
    /// The decision.
    pub verdict: ReviewVerdict,
    /// The message, if there is one.
    pub message: Option<String>,
    /// The changes of the State.
    pub state_updates: StateUpdates,
}

/// A review with its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedReview {
    pub(super) place: String,
    pub(super) question: MultilineText,
    #[serde(flatten)]
    verdict: ReviewVerdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<MultilineText>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    state_updates: Map<String, Value>,
}

impl RecordedReview {
    fn new(review: ReviewQuestion<'_>, answer: CassetteVerdict, secrets: &SecretSet) -> Self {
        let CassetteVerdict { verdict, message, state_updates } = answer;
        let verdict = match verdict {
            ReviewVerdict::Modify { arguments } => {
                ReviewVerdict::Modify { arguments: secrets.redact_fields(arguments) }
            }
            ReviewVerdict::SkipWith { result } => {
                ReviewVerdict::SkipWith { result: secrets.redact(&result) }
            }
            ReviewVerdict::Approve | ReviewVerdict::Reject | ReviewVerdict::Retry => verdict,
        };
        Self {
            place: review.place.to_owned(),
            question: secrets.redact(review.question).into(),
            verdict,
            message: message.map(|message| secrets.redact(&message).into()),
            state_updates: secrets.redact_fields(state_updates.as_map().clone()),
        }
    }

    fn to_answer(&self) -> Option<CassetteVerdict> {
        Some(CassetteVerdict {
            verdict: self.verdict.clone(),
            message: self.message.clone().map(String::from),
            state_updates: StateUpdates::try_from(self.state_updates.clone()).ok()?,
        })
    }
}

impl CassetteRecorder {
    /// Records a person's answer to a review.
    pub fn record_review(&self, review: ReviewQuestion<'_>, answer: CassetteVerdict) {
        let recorded = RecordedReview::new(review, answer, &self.secrets);
        self.lock_cassette().reviews.push(recorded);
    }
}

impl CassettePlayer {
    /// The first unused answer to this review, if the cassette has one.
    pub fn review_answer(&self, review: ReviewQuestion<'_>) -> Option<CassetteVerdict> {
        let question = self.secrets.redact(review.question);
        for (number, recorded) in self.cassette.reviews.iter().enumerate() {
            let key = AnswerKey::Review { number };
            let is_same = recorded.place == review.place && recorded.question.as_str() == question;
            if is_same && !self.is_used(REVIEWS_SESSION, key) {
                self.mark_used(REVIEWS_SESSION, key);
                return recorded.to_answer();
            }
        }
        None
    }
}
