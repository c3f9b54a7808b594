//! Replays model and tool answers from a cassette.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polity_definition::{LlmAgent, TokenPrice};
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, CallSite, ModelDriver, ModelFailure,
    ModelReply, ModelRequest, NotReady, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec,
    Toolbox, ToolsUnavailable,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::tool::ToolPattern;
use serde_json::{Map, Value};

use super::conversation::ModelQuestion;
use super::diff::diff;
use super::document::{
    Cassette, CassetteAnswer, CassetteArguments, CassetteReply, CassetteSession, CassetteTurn,
    FailedCall, ModelOutcome, ToolListing, ToolOutcome,
};
use super::remote_messages::RecordedMessage;
use super::reviews::REVIEWS_SESSION;
use super::session::{ExchangeIndex, tool_name};
use crate::secrets::SecretSet;

/// The hint for a cassette that does not match.
pub(super) const REMEDY: &str = "if the current run is right, record it again with --record";

/// Answers each request with the one recorded at the same call site, if the requests match. No
/// model is called and no server started.
pub struct CassettePlayer {
    pub(super) cassette: Cassette,
    pub(super) secrets: SecretSet,
    state: Mutex<PlaybackState>,
}

/// The progress of a replay.
#[derive(Default)]
struct PlaybackState {
    /// The answers that have been used.
    used: BTreeSet<(String, AnswerKey)>,
    /// The first mismatch. Nothing is answered after it, since later requests depend on it.
    mismatch: Option<String>,
    /// The toolbox of each listing, by session and turn, so that schemas are compiled once.
    toolboxes: BTreeMap<(String, u32), Arc<Toolbox>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnswerKey {
    ModelExchange { turn: u32, number: usize },
    ToolCall { turn: u32, number: usize },
    Run,
    Message { number: u32 },
    Review { number: usize },
}

impl CassettePlayer {
    /// Creates a player. Requests are compared with these secrets redacted, as they were recorded.
    pub fn new(cassette: Cassette, secrets: SecretSet) -> Self {
        Self { cassette, secrets, state: Mutex::default() }
    }

    /// Descriptions of the unused answers. Empty after a mismatch, which has been reported already.
    pub fn unused_answers(&self) -> Vec<String> {
        let state = self.lock_state();
        if state.mismatch.is_some() {
            return Vec::new();
        }
        let mut unused = Vec::new();
        for (name, session) in &self.cassette.sessions {
            let is_unused = |key| !state.used.contains(&(name.clone(), key));
            if session.run.is_some() && is_unused(AnswerKey::Run) {
                unused.push(format!("the program in session \"{name}\""));
            }
            let mut add = |what: &str, turn: u32, key: AnswerKey| {
                if is_unused(key) {
                    unused.push(format!("{what} in {}", describe_turn(name, turn)));
                }
            };
            for RecordedMessage { number, .. } in &session.messages {
                add("the other server", *number, AnswerKey::Message { number: *number });
            }
            for CassetteTurn { number: turn, exchanges, calls } in &session.turns {
                for number in 0..exchanges.len() {
                    add("the model", *turn, AnswerKey::ModelExchange { turn: *turn, number });
                }
                for (number, call) in calls.iter().enumerate() {
                    let key = AnswerKey::ToolCall { turn: *turn, number };
                    add(call.tool.as_str(), *turn, key);
                }
            }
        }
        for (number, review) in self.cassette.reviews.iter().enumerate() {
            if !state.used.contains(&(REVIEWS_SESSION.to_owned(), AnswerKey::Review { number })) {
                unused.push(format!("the person at {}", review.place));
            }
        }
        unused
    }

    pub(super) fn is_used(&self, session: &str, key: AnswerKey) -> bool {
        self.lock_state().used.contains(&(session.to_owned(), key))
    }

    fn lock_state(&self) -> MutexGuard<'_, PlaybackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn session(&self, session: &str) -> Result<&CassetteSession, String> {
        self.cassette.sessions.get(session).ok_or_else(|| {
            let known: Vec<_> =
                self.cassette.sessions.keys().map(|name| format!("\"{name}\"")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("the cassette has no session \"{session}\", only {known}; {REMEDY}")
        })
    }

    pub(super) fn mark_used(&self, session: &str, key: AnswerKey) {
        self.lock_state().used.insert((session.to_owned(), key));
    }

    /// Records a mismatch unless there was one before, and returns the first as a failure.
    pub(super) fn fail(&self, message: String) -> AttemptFailure {
        let message = self.lock_state().mismatch.get_or_insert(message).clone();
        AttemptFailure { category: ErrorCategory::Permanent, message }
    }

    /// Fails if a mismatch has occurred.
    pub(super) fn check_no_mismatch(&self) -> Result<(), String> {
        self.lock_state().mismatch.clone().map_or(Ok(()), Err)
    }

    fn answer(&self, request: &ModelRequest<'_>, llm: &LlmAgent) -> Result<&ModelOutcome, String> {
        self.check_no_mismatch()?;
        let call_site = request.call_site;
        let session = self.session(call_site.session)?;
        let Some((at, turn)) =
            session.turn(call_site.turn).filter(|(_, turn)| !turn.exchanges.is_empty())
        else {
            return Err(no_answer_error(session, call_site));
        };
        let question = ModelQuestion::from_request(request, llm, &self.secrets);
        let mut diffs = Vec::new();
        for (number, exchange) in turn.exchanges.iter().enumerate() {
            let recorded =
                self.recorded_question(session, ExchangeIndex { turn: at, exchange: number });
            let recorded = recorded.ok_or_else(|| no_answer_error(session, call_site))?;
            if recorded == question {
                let key = AnswerKey::ModelExchange { turn: call_site.turn, number };
                self.mark_used(call_site.session, key);
                return Ok(&exchange.outcome);
            }
            diffs.push(diff(&recorded.to_text(), &question.to_text()));
        }
        let what = format!("the model is asked something else in {}", describe_site(call_site));
        let nearest = diffs.into_iter().min_by_key(String::len);
        Err(mismatch(&what, &nearest.unwrap_or_default()))
    }

    fn recorded_question(
        &self,
        session: &CassetteSession,
        at: ExchangeIndex,
    ) -> Option<ModelQuestion> {
        let (tools, messages) = session.request(at)?;
        let agent = session.agent.clone()?;
        let settings = self.cassette.agents.get(&agent)?.clone();
        Some(ModelQuestion { agent, settings, tools, messages })
    }

    fn toolbox(
        &self,
        patterns: &[ToolPattern],
        call_site: CallSite<'_>,
    ) -> Result<Arc<Toolbox>, AttemptFailure> {
        let session = self.session(call_site.session).map_err(|message| self.fail(message))?;
        let Some(listing) = session.listing(call_site.turn) else {
            let message = format!(
                "the cassette lists no tools for {}, and the agent has tools now; {REMEDY}",
                describe_site(call_site)
            );
            return Err(self.fail(message));
        };
        if listing.patterns != patterns {
            let what = format!("the agent has other tools in {}", describe_site(call_site));
            let mismatch =
                mismatch(&what, &diff(&pattern_lines(&listing.patterns), &pattern_lines(patterns)));
            return Err(self.fail(mismatch));
        }
        if let Some(failed) = &listing.failure {
            return Err(permanent_failure(failed));
        }
        let key = (call_site.session.to_owned(), listing.turn);
        if let Some(toolbox) = self.lock_state().toolboxes.get(&key) {
            return Ok(Arc::clone(toolbox));
        }
        let toolbox = Arc::new(self.build_toolbox(listing).map_err(|message| self.fail(message))?);
        self.lock_state().toolboxes.insert(key, Arc::clone(&toolbox));
        Ok(toolbox)
    }

    fn build_toolbox(&self, listing: &ToolListing) -> Result<Toolbox, String> {
        let tool = |reference: &String| {
            let missing = || format!("the cassette lists {reference} and does not describe it");
            let known = self.cassette.tools.get(reference).ok_or_else(missing)?.clone();
            let name = tool_name(reference).parse().map_err(|_| missing())?;
            Ok(Arc::new(ToolSpec::new(
                name,
                known.description.into(),
                known.input_schema,
                known.output_schema,
                known.repeatable,
                Duration::from_secs(known.timeout_seconds),
                known.fallback_tools,
            )))
        };
        let tools =
            |references: &[String]| references.iter().map(tool).collect::<Result<_, String>>();
        Ok(Toolbox::new(tools(&listing.offered)?, tools(&listing.in_reserve)?))
    }

    fn reply(&self, request: &ToolRequest<'_>) -> Result<&ToolOutcome, String> {
        let ToolRequest { tool, arguments, call_site, index, .. } = *request;
        let session = self.session(call_site.session)?;
        let calls = session.turn(call_site.turn).map_or(&[][..], |(_, turn)| &turn.calls);
        let mut calls = calls.iter().enumerate();
        let found = calls.find(|(_, call)| call.index == index && call.tool == *tool);
        let Some((number, call)) = found else {
            return Err(format!(
                "the cassette has no answer of {tool} as call {index} of {}; {REMEDY}",
                describe_site(call_site)
            ));
        };
        let now = self.secrets.redact_fields(arguments.clone());
        if call.arguments != now {
            let what =
                format!("{tool} is called with other arguments in {}", describe_site(call_site));
            return Err(mismatch(&what, &diff(&pretty(&call.arguments), &pretty(&now))));
        }
        self.mark_used(call_site.session, AnswerKey::ToolCall { turn: call_site.turn, number });
        Ok(&call.outcome)
    }
}

/// Describes a call site for an error message.
fn describe_turn(session: &str, turn: u32) -> String {
    format!("turn {turn} of session \"{session}\"")
}

pub(super) fn describe_site(call_site: CallSite<'_>) -> String {
    describe_turn(call_site.session, call_site.turn)
}

fn no_answer_error(session: &CassetteSession, call_site: CallSite<'_>) -> String {
    let asked = session.turns.iter().filter(|turn| !turn.exchanges.is_empty());
    let end = match asked.map(|turn| turn.number).max() {
        Some(last) => format!("its last answer there is that of turn {last}"),
        None => "it has none there at all".to_owned(),
    };
    format!("the cassette has no answer for {}: {end}; {REMEDY}", describe_site(call_site))
}

pub(super) fn mismatch(what: &str, diff: &str) -> String {
    format!("{what} than when the cassette was recorded (-):\n{diff}{REMEDY}")
}

fn pattern_lines(patterns: &[ToolPattern]) -> String {
    patterns.iter().map(|pattern| format!("tools: {pattern}")).collect::<Vec<_>>().join("\n")
}

pub(super) fn pretty(arguments: &Map<String, Value>) -> String {
    serde_json::to_string_pretty(arguments).unwrap_or_default()
}

/// The final failure of a call. It is permanent, since a retry would repeat it.
pub(super) fn permanent_failure(failed: &FailedCall) -> AttemptFailure {
    let category = match failed.category {
        ErrorCategory::Transient => ErrorCategory::Permanent,
        category => category,
    };
    AttemptFailure { category, message: failed.message.as_str().to_owned() }
}

fn model_reply(answer: &CassetteAnswer) -> ModelReply {
    let tool_calls = answer.tool_calls.iter().map(|asked| AskedTool {
        server: asked.server.clone(),
        tool: asked.tool.clone(),
        arguments: match &asked.arguments {
            CassetteArguments::Arguments(arguments) => AskedArguments::Object(arguments.clone()),
            CassetteArguments::Unreadable { text, reason } => AskedArguments::Unreadable {
                text: text.as_str().to_owned(),
                reason: reason.clone(),
            },
        },
        signature: asked.signature.clone(),
    });
    ModelReply {
        content: answer.content.as_str().to_owned(),
        tool_calls: tool_calls.collect(),
        usage: answer.usage,
        ending: AnswerEnding::from_fields(answer.is_cut, answer.is_paused, answer.withheld),
        stop_reason: answer.stop_reason.clone(),
        mark: None,
    }
}

fn model_failure(failed: &FailedCall) -> ModelFailure {
    let message = failed.message.as_str().to_owned();
    ModelFailure {
        context_full: failed.context_full,
        // A cassette holds the outcome of the last attempt. Its category decides the task's outcome
        // and stays.
        is_final: true,
        usage: failed.usage,
        ..ModelFailure::new(AttemptFailure { category: failed.category, message })
    }
}

fn tool_reply(reply: &CassetteReply) -> ToolReply {
    ToolReply {
        content: reply.content.as_str().to_owned(),
        structured: reply.structured.clone(),
        is_error: reply.is_error,
        is_cut: reply.is_cut,
        code: None,
    }
}

impl ModelDriver for CassettePlayer {
    fn ready(&self, _pinned: &PinnedAgent) -> Result<(), NotReady> {
        Ok(())
    }

    /// Replays are free; the cassette has the recorded usage.
    fn price(&self, _pinned: &PinnedAgent) -> Option<TokenPrice> {
        Some(TokenPrice::FREE)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        Box::pin(async move {
            let Some(llm) = request.pinned.llm() else {
                let message = "the agent has no model".to_owned();
                return Err(ModelFailure::new(self.fail(message)));
            };
            let answer = self.answer(&request, llm);
            match answer.map_err(|message| ModelFailure::new(self.fail(message)))? {
                ModelOutcome::Answer(answer) => Ok(model_reply(answer)),
                ModelOutcome::Failure(failed) => Err(model_failure(failed)),
            }
        })
    }
}

impl ToolDriver for CassettePlayer {
    fn ready(&self, _patterns: &[ToolPattern]) -> Result<(), NotReady> {
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        let toolbox = self.toolbox(patterns, call_site);
        Box::pin(async { toolbox.map_err(|failure| ToolsUnavailable { failure }) })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        let outcome = self.reply(&request).map_err(|message| self.fail(message));
        Box::pin(async {
            let never_made = |failure| ToolFailure { failure, maybe_done: false, timed_out: false };
            match outcome.map_err(never_made)? {
                ToolOutcome::Reply(reply) => Ok(tool_reply(reply)),
                ToolOutcome::Failure(failed) => Err(ToolFailure {
                    failure: permanent_failure(failed),
                    maybe_done: failed.maybe_done,
                    timed_out: failed.timed_out,
                }),
            }
        })
    }
}
