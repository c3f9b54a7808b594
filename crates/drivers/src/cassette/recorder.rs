//! Writes down what models and tools answer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_definition::TokenPrice;
use polity_engine::driver::{
    AskedArguments, AskedTool, BoxFuture, ModelFailure, ModelReply, ModelRequest, Models, NotReady,
    Place, Tool, ToolFailure, ToolReply, ToolRequest, Toolbox, Tools, ToolsUnavailable,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::AttemptFailure;
use polity_model::tool::ToolPattern;

use super::conversation::{Question, tool_name};
use super::document::{
    Answer, Arguments, Asked, Call, Cassette, FailedCall, ListedTool, Listing, ModelOutcome, Reply,
    Session, ToolOutcome,
};
use crate::secrets::Secrets;

/// Passes everything on to the real models and tools, and writes down what comes of it, without
/// secrets. A call that is abandoned leaves no trace.
pub struct Recorder {
    models: Arc<dyn Models>,
    tools: Arc<dyn Tools>,
    pub(super) secrets: Secrets,
    cassette: Mutex<Cassette>,
}

impl Recorder {
    /// Adds to a cassette, which is empty for a run from the beginning.
    pub fn new(
        models: Arc<dyn Models>,
        tools: Arc<dyn Tools>,
        secrets: Secrets,
        mut cassette: Cassette,
    ) -> Self {
        cassette.input = secrets.removed_from(cassette.input.as_str()).into();
        Self { models, tools, secrets, cassette: Mutex::new(cassette) }
    }

    /// What is recorded so far.
    pub fn cassette(&self) -> Cassette {
        self.locked().clone()
    }

    /// No one leaves a cassette half changed, so one that someone panicked with is as good.
    fn locked(&self) -> MutexGuard<'_, Cassette> {
        self.cassette.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, place: Place<'_>, change: impl FnOnce(&mut Session)) {
        self.write_session(place.session, change);
    }

    pub(super) fn write_session(&self, session: &str, change: impl FnOnce(&mut Session)) {
        change(self.locked().sessions.entry(session.to_owned()).or_default());
    }

    fn write_exchange(
        &self,
        request: &ModelRequest<'_>,
        outcome: &Result<ModelReply, ModelFailure>,
    ) {
        let Some(llm) = request.pinned.llm() else { return };
        let question = Question::of(request, llm, &self.secrets);
        let outcome = match outcome {
            Ok(reply) => ModelOutcome::Answer(self.answer(reply, request.toolbox)),
            Err(ModelFailure { failure, context_full, .. }) => ModelOutcome::Failure(FailedCall {
                context_full: *context_full,
                ..self.failed(failure)
            }),
        };
        let settings = question.settings.clone();
        self.locked().agents.insert(question.agent.clone(), settings);
        self.write(request.place, |session| session.record(request.place.turn, question, outcome));
    }

    fn write_listing(
        &self,
        patterns: &[ToolPattern],
        place: Place<'_>,
        outcome: &Result<Arc<Toolbox>, ToolsUnavailable>,
    ) {
        let mut listing = Listing {
            turn: place.turn,
            patterns: patterns.to_vec(),
            offered: Vec::new(),
            in_reserve: Vec::new(),
            failure: None,
        };
        match outcome {
            Ok(toolbox) => {
                listing.offered = self.references(toolbox.offered());
                listing.in_reserve = self.references(toolbox.in_reserve());
            }
            Err(unavailable) => listing.failure = Some(self.failed(&unavailable.failure)),
        }
        self.write(place, |session| session.record_listing(listing));
    }

    fn write_call(&self, request: &ToolRequest<'_>, outcome: &Result<ToolReply, ToolFailure>) {
        let secrets = &self.secrets;
        let outcome = match outcome {
            Ok(reply) => ToolOutcome::Reply(Reply {
                content: secrets.removed_from(&reply.content).into(),
                structured: reply.structured.clone().map(|json| secrets.removed_from_json(json)),
                is_error: reply.is_error,
                is_cut: reply.is_cut,
            }),
            Err(ToolFailure { failure, maybe_done, timed_out }) => {
                let failed = self.failed(failure);
                let (maybe_done, timed_out) = (*maybe_done, *timed_out);
                ToolOutcome::Failure(FailedCall { maybe_done, timed_out, ..failed })
            }
        };
        let call = Call {
            index: request.index,
            tool: request.tool.clone(),
            arguments: secrets.removed_from_fields(request.arguments.clone()),
            outcome,
        };
        self.write(request.place, |session| session.record_call(request.place.turn, call));
    }

    fn answer(&self, reply: &ModelReply, toolbox: &Toolbox) -> Answer {
        let asked = |asked: &AskedTool| {
            let (server, tool) = tool_name(&asked.server, &asked.tool, toolbox, &self.secrets);
            let arguments = match &asked.arguments {
                AskedArguments::Object(arguments) => {
                    Arguments::Arguments(self.secrets.removed_from_fields(arguments.clone()))
                }
                AskedArguments::Unreadable { text, reason } => Arguments::Unreadable {
                    text: self.secrets.removed_from(text).into(),
                    reason: self.secrets.removed_from(reason),
                },
            };
            let signature = asked.signature.as_ref();
            let signature = signature.map(|signature| self.secrets.removed_from(signature));
            Asked { server, tool, arguments, signature }
        };
        Answer {
            content: self.secrets.removed_from(&reply.content).into(),
            tool_calls: reply.tool_calls.iter().map(asked).collect(),
            usage: reply.usage,
            is_cut: reply.is_cut,
        }
    }

    pub(super) fn failed(&self, failure: &AttemptFailure) -> FailedCall {
        FailedCall {
            category: failure.category,
            message: self.secrets.removed_from(&failure.message).into(),
            context_full: false,
            maybe_done: false,
            timed_out: false,
        }
    }

    /// The names by which the cassette knows these tools, each of which it describes once.
    fn references(&self, tools: &[Arc<Tool>]) -> Vec<String> {
        let mut cassette = self.locked();
        tools.iter().map(|tool| reference(&mut cassette.tools, tool, &self.secrets)).collect()
    }
}

fn reference(known: &mut BTreeMap<String, ListedTool>, tool: &Tool, secrets: &Secrets) -> String {
    let described = ListedTool {
        description: secrets.removed_from(&tool.description).into(),
        input_schema: secrets.removed_from_fields(tool.input_schema.clone()),
        output_schema: tool.output_schema.clone().map(|schema| secrets.removed_from_fields(schema)),
        repeatable: tool.repeatable,
        timeout_seconds: tool.timeout.as_secs(),
        fallback_tools: tool.fallback_tools.clone(),
    };
    let mut name = tool.name.to_string();
    for number in 2.. {
        match known.entry(name) {
            Entry::Occupied(entry) if *entry.get() == described => return entry.key().clone(),
            Entry::Occupied(_) => name = format!("{}#{number}", tool.name),
            Entry::Vacant(entry) => {
                let name = entry.key().clone();
                entry.insert(described);
                return name;
            }
        }
    }
    tool.name.to_string()
}

impl Models for Recorder {
    fn ready(&self, pinned: &PinnedAgent) -> Result<(), NotReady> {
        self.models.ready(pinned)
    }

    fn price(&self, pinned: &PinnedAgent) -> Option<TokenPrice> {
        self.models.price(pinned)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        Box::pin(async move {
            let outcome = self.models.call(request).await;
            self.write_exchange(&request, &outcome);
            outcome
        })
    }
}

impl Tools for Recorder {
    fn ready(&self, patterns: &[ToolPattern]) -> Result<(), NotReady> {
        self.tools.ready(patterns)
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        place: Place<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        Box::pin(async move {
            let outcome = self.tools.toolbox(patterns, place).await;
            self.write_listing(patterns, place, &outcome);
            outcome
        })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        Box::pin(async move {
            let outcome = self.tools.call(request).await;
            self.write_call(&request, &outcome);
            outcome
        })
    }
}
