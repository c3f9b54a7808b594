//! Answers from a cassette, in place of models and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polity_definition::{LlmAgent, TokenPrice};
use polity_engine::driver::{
    AskedArguments, AskedTool, BoxFuture, ModelFailure, ModelReply, ModelRequest, Models, NotReady,
    Place, Tool, ToolFailure, ToolReply, ToolRequest, Toolbox, Tools, ToolsUnavailable,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::tool::ToolPattern;
use serde_json::{Map, Value};

use super::conversation::Question;
use super::difference::difference;
use super::document::{
    Answer, Arguments, Cassette, FailedCall, Listing, ModelOutcome, Reply, Session, ToolOutcome,
};
use super::session::{At, name};
use crate::secrets::Secrets;

/// What to do about a cassette that does not fit.
pub(super) const REMEDY: &str = "if the run of now is right, record it again with --record";

/// Answers what is asked at a place with what was answered there when the cassette was recorded, if
/// the same is asked. No model is called and no server is started.
pub struct Player {
    cassette: Cassette,
    pub(super) secrets: Secrets,
    memory: Mutex<Memory>,
}

/// What a player remembers of the run.
#[derive(Default)]
struct Memory {
    /// The answers that were given.
    given: BTreeSet<(String, Which)>,
    /// What was the first to differ. After that nothing can be answered: whatever is asked next
    /// follows on something that was not recorded.
    broken: Option<String>,
    /// The tools of each listing, by session and turn, so that their schemas are compiled once.
    toolboxes: BTreeMap<(String, u32), Arc<Toolbox>>,
}

/// Which answer of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Which {
    Exchange { turn: u32, number: usize },
    Call { turn: u32, number: usize },
    Run,
    Message { number: u32 },
}

impl Player {
    /// Plays a cassette. What is asked is compared without these secrets, as it was recorded.
    pub fn new(cassette: Cassette, secrets: Secrets) -> Self {
        Self { cassette, secrets, memory: Mutex::default() }
    }

    /// The answers that no one asked for, in words. None where the run went another way: that was
    /// told already.
    pub fn never_asked_for(&self) -> Vec<String> {
        let memory = self.locked();
        if memory.broken.is_some() {
            return Vec::new();
        }
        let mut left = Vec::new();
        for (name, session) in &self.cassette.sessions {
            let is_left = |which| !memory.given.contains(&(name.clone(), which));
            if session.run.is_some() && is_left(Which::Run) {
                left.push(format!("the program in session \"{name}\""));
            }
            for kept in &session.messages {
                if is_left(Which::Message { number: kept.number }) {
                    left.push(format!("the other server in {}", told(name, kept.number)));
                }
            }
            for turn in &session.turns {
                let number = turn.number;
                let exchanges = (0..turn.exchanges.len())
                    .filter(|at| is_left(Which::Exchange { turn: number, number: *at }));
                left.extend(exchanges.map(|_| format!("the model in {}", told(name, number))));
                let calls = turn.calls.iter().enumerate();
                let calls =
                    calls.filter(|(at, _)| is_left(Which::Call { turn: number, number: *at }));
                left.extend(
                    calls.map(|(_, call)| format!("{} in {}", call.tool, told(name, number))),
                );
            }
        }
        left
    }

    fn locked(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn session(&self, session: &str) -> Result<&Session, String> {
        self.cassette.sessions.get(session).ok_or_else(|| {
            let known: Vec<_> =
                self.cassette.sessions.keys().map(|name| format!("\"{name}\"")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("the cassette has no session \"{session}\", only {known}; {REMEDY}")
        })
    }

    pub(super) fn given(&self, session: &str, which: Which) {
        self.locked().given.insert((session.to_owned(), which));
    }

    /// Remembers what differs, if it is the first, and says what is to be said.
    pub(super) fn broken(&self, message: String) -> AttemptFailure {
        let message = self.locked().broken.get_or_insert(message).clone();
        AttemptFailure { category: ErrorCategory::Permanent, message }
    }

    /// Nothing is answered after something has differed.
    pub(super) fn must_fit(&self) -> Result<(), String> {
        self.locked().broken.clone().map_or(Ok(()), Err)
    }

    fn answer(&self, request: &ModelRequest<'_>, llm: &LlmAgent) -> Result<&ModelOutcome, String> {
        self.must_fit()?;
        let place = request.place;
        let session = self.session(place.session)?;
        let Some((at, turn)) =
            session.turn(place.turn).filter(|(_, turn)| !turn.exchanges.is_empty())
        else {
            return Err(ends_before(session, place));
        };
        let question = Question::of(request, llm, &self.secrets);
        let mut nearest: Option<String> = None;
        for (number, exchange) in turn.exchanges.iter().enumerate() {
            let recorded = self.question(session, At { turn: at, exchange: number });
            let recorded = recorded.ok_or_else(|| ends_before(session, place))?;
            if recorded == question {
                self.given(place.session, Which::Exchange { turn: place.turn, number });
                return Ok(&exchange.outcome);
            }
            let differs = difference(&recorded.to_text(), &question.to_text());
            if nearest.as_ref().is_none_or(|known| differs.len() < known.len()) {
                nearest = Some(differs);
            }
        }
        let what = format!("the model is asked something else in {}", at_place(place));
        Err(differs(&what, &nearest.unwrap_or_default()))
    }

    /// What was asked when the cassette was recorded.
    fn question(&self, session: &Session, at: At) -> Option<Question> {
        let (tools, messages) = session.asked(at)?;
        let agent = session.agent.clone()?;
        let settings = self.cassette.agents.get(&agent)?.clone();
        Some(Question { agent, settings, tools, messages })
    }

    fn toolbox(
        &self,
        patterns: &[ToolPattern],
        place: Place<'_>,
    ) -> Result<Arc<Toolbox>, AttemptFailure> {
        let session = self.session(place.session).map_err(|message| self.broken(message))?;
        let Some(listing) = session.listing(place.turn) else {
            let message = format!(
                "the cassette lists no tools for {}, and the agent has tools now; {REMEDY}",
                at_place(place)
            );
            return Err(self.broken(message));
        };
        if listing.patterns != patterns {
            let what = format!("the agent has other tools in {}", at_place(place));
            let differs = differs(&what, &difference(&lines(&listing.patterns), &lines(patterns)));
            return Err(self.broken(differs));
        }
        if let Some(failed) = &listing.failure {
            return Err(for_good(failed));
        }
        let key = (place.session.to_owned(), listing.turn);
        if let Some(toolbox) = self.locked().toolboxes.get(&key) {
            return Ok(Arc::clone(toolbox));
        }
        let toolbox = Arc::new(self.listed(listing).map_err(|message| self.broken(message))?);
        self.locked().toolboxes.insert(key, Arc::clone(&toolbox));
        Ok(toolbox)
    }

    fn listed(&self, listing: &Listing) -> Result<Toolbox, String> {
        let tool = |reference: &String| {
            let missing = || format!("the cassette lists {reference} and does not describe it");
            let known = self.cassette.tools.get(reference).ok_or_else(missing)?.clone();
            let name = name(reference).parse().map_err(|_| missing())?;
            Ok(Arc::new(Tool::new(
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
        let ToolRequest { tool, arguments, place, index, .. } = *request;
        let session = self.session(place.session)?;
        let calls = session.turn(place.turn).map_or(&[][..], |(_, turn)| &turn.calls);
        let mut calls = calls.iter().enumerate();
        let found = calls.find(|(_, call)| call.index == index && call.tool == *tool);
        let Some((number, call)) = found else {
            return Err(format!(
                "the cassette has no answer of {tool} as call {index} of {}; {REMEDY}",
                at_place(place)
            ));
        };
        let now = self.secrets.removed_from_fields(arguments.clone());
        if call.arguments != now {
            let what = format!("{tool} is called with other arguments in {}", at_place(place));
            return Err(differs(&what, &difference(&pretty(&call.arguments), &pretty(&now))));
        }
        self.given(place.session, Which::Call { turn: place.turn, number });
        Ok(&call.outcome)
    }
}

/// The place as people say it.
fn told(session: &str, turn: u32) -> String {
    format!("turn {turn} of session \"{session}\"")
}

pub(super) fn at_place(place: Place<'_>) -> String {
    told(place.session, place.turn)
}

fn ends_before(session: &Session, place: Place<'_>) -> String {
    let asked = session.turns.iter().filter(|turn| !turn.exchanges.is_empty());
    let end = match asked.map(|turn| turn.number).max() {
        Some(last) => format!("its last answer there is that of turn {last}"),
        None => "it has none there at all".to_owned(),
    };
    format!("the cassette has no answer for {}: {end}; {REMEDY}", at_place(place))
}

pub(super) fn differs(what: &str, difference: &str) -> String {
    let mut message = format!("{what} than when the cassette was recorded (-):\n");
    // Writing to a String cannot fail.
    let _ = write!(message, "{difference}{REMEDY}");
    message
}

fn lines(patterns: &[ToolPattern]) -> String {
    patterns.iter().map(|pattern| format!("tools: {pattern}")).collect::<Vec<_>>().join("\n")
}

pub(super) fn pretty(arguments: &Map<String, Value>) -> String {
    serde_json::to_string_pretty(arguments).unwrap_or_default()
}

/// A failure that was the last word in its place. To try again would bring the same, and take time.
pub(super) fn for_good(failed: &FailedCall) -> AttemptFailure {
    let category = match failed.category {
        ErrorCategory::Transient | ErrorCategory::Permanent => ErrorCategory::Permanent,
        ErrorCategory::AgentError => ErrorCategory::AgentError,
        ErrorCategory::SystemError => ErrorCategory::SystemError,
    };
    AttemptFailure { category, message: failed.message.as_str().to_owned() }
}

fn model_reply(answer: &Answer) -> ModelReply {
    let tool_calls = answer.tool_calls.iter().map(|asked| AskedTool {
        server: asked.server.clone(),
        tool: asked.tool.clone(),
        arguments: match &asked.arguments {
            Arguments::Arguments(arguments) => AskedArguments::Object(arguments.clone()),
            Arguments::Unreadable { text, reason } => AskedArguments::Unreadable {
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
        is_cut: answer.is_cut,
        mark: None,
    }
}

fn model_failure(failed: &FailedCall) -> ModelFailure {
    let message = failed.message.as_str().to_owned();
    ModelFailure {
        context_full: failed.context_full,
        // The category decides how the task ends, so it stays; trying again must take no time.
        retry_after: Some(Duration::ZERO),
        ..ModelFailure::new(AttemptFailure { category: failed.category, message })
    }
}

fn tool_reply(reply: &Reply) -> ToolReply {
    ToolReply {
        content: reply.content.as_str().to_owned(),
        structured: reply.structured.clone(),
        is_error: reply.is_error,
        is_cut: reply.is_cut,
        code: None,
    }
}

impl Models for Player {
    fn ready(&self, _pinned: &PinnedAgent) -> Result<(), NotReady> {
        Ok(())
    }

    /// What was paid is on the cassette, and nothing is paid now.
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
                return Err(ModelFailure::new(self.broken(message)));
            };
            let answer = self.answer(&request, llm);
            match answer.map_err(|message| ModelFailure::new(self.broken(message)))? {
                ModelOutcome::Answer(answer) => Ok(model_reply(answer)),
                ModelOutcome::Failure(failed) => Err(model_failure(failed)),
            }
        })
    }
}

impl Tools for Player {
    fn ready(&self, _patterns: &[ToolPattern]) -> Result<(), NotReady> {
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        place: Place<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        let toolbox = self.toolbox(patterns, place);
        Box::pin(async { toolbox.map_err(|failure| ToolsUnavailable { failure }) })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        let outcome = self.reply(&request).map_err(|message| self.broken(message));
        Box::pin(async {
            let never_made = |failure| ToolFailure { failure, maybe_done: false, timed_out: false };
            match outcome.map_err(never_made)? {
                ToolOutcome::Reply(reply) => Ok(tool_reply(reply)),
                ToolOutcome::Failure(failed) => Err(ToolFailure {
                    failure: for_good(failed),
                    maybe_done: failed.maybe_done,
                    timed_out: failed.timed_out,
                }),
            }
        })
    }
}
