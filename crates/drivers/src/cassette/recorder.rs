//! Records model and tool answers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_definition::TokenPrice;
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, CallSite, ModelDriver, ModelFailure,
    ModelReply, ModelRequest, NotReady, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec,
    Toolbox, ToolsUnavailable,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::AttemptFailure;
use polity_model::tool::ToolPattern;
use polity_model::usage::Usage;

use super::conversation::{ModelQuestion, redacted_tool_name};
use super::document::{
    Cassette, CassetteAnswer, CassetteArguments, CassetteCall, CassetteReply, CassetteSession,
    CassetteToolRequest, FailedCall, ListedTool, ModelOutcome, ToolListing, ToolOutcome,
};
use crate::secrets::SecretSet;

/// Forwards calls to the real drivers and records the outcomes, with secrets redacted. A dropped
/// call is not recorded.
pub struct CassetteRecorder {
    models: Arc<dyn ModelDriver>,
    tools: Arc<dyn ToolDriver>,
    pub(super) secrets: SecretSet,
    cassette: Mutex<Cassette>,
}

impl CassetteRecorder {
    /// Appends to a cassette; a new run starts with an empty one.
    pub fn new(
        models: Arc<dyn ModelDriver>,
        tools: Arc<dyn ToolDriver>,
        secrets: SecretSet,
        mut cassette: Cassette,
    ) -> Self {
        cassette.input = secrets.redact(cassette.input.as_str()).into();
        cassette.parameters = secrets.redact_fields(std::mem::take(&mut cassette.parameters));
        Self { models, tools, secrets, cassette: Mutex::new(cassette) }
    }

    /// The answers recorded so far.
    pub fn cassette(&self) -> Cassette {
        self.lock_cassette().clone()
    }

    /// Updates are atomic, so a poisoned lock is still consistent.
    pub(super) fn lock_cassette(&self) -> MutexGuard<'_, Cassette> {
        self.cassette.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn update_session(&self, session: &str, change: impl FnOnce(&mut CassetteSession)) {
        change(self.lock_cassette().sessions.entry(session.to_owned()).or_default());
    }

    fn record_exchange(
        &self,
        request: &ModelRequest<'_>,
        outcome: &Result<ModelReply, ModelFailure>,
    ) {
        let Some(llm) = request.pinned.llm() else { return };
        let question = ModelQuestion::from_request(request, llm, &self.secrets);
        let outcome = match outcome {
            Ok(reply) => ModelOutcome::Answer(self.to_answer(reply, request.toolbox)),
            Err(ModelFailure { failure, context_full, usage, .. }) => {
                ModelOutcome::Failure(FailedCall {
                    context_full: *context_full,
                    usage: *usage,
                    ..self.to_failed_call(failure)
                })
            }
        };
        let settings = question.settings.clone();
        self.lock_cassette().agents.insert(question.agent.clone(), settings);
        let CallSite { session, turn } = request.call_site;
        self.update_session(session, |session| session.record_exchange(turn, question, outcome));
    }

    fn record_listing(
        &self,
        patterns: &[ToolPattern],
        call_site: CallSite<'_>,
        outcome: &Result<Arc<Toolbox>, ToolsUnavailable>,
    ) {
        let mut listing = ToolListing {
            turn: call_site.turn,
            patterns: patterns.to_vec(),
            offered: Vec::new(),
            in_reserve: Vec::new(),
            failure: None,
        };
        match outcome {
            Ok(toolbox) => {
                listing.offered = self.tool_references(toolbox.offered());
                listing.in_reserve = self.tool_references(toolbox.in_reserve());
            }
            Err(unavailable) => listing.failure = Some(self.to_failed_call(&unavailable.failure)),
        }
        self.update_session(call_site.session, |session| session.record_listing(listing));
    }

    fn record_call(&self, request: &ToolRequest<'_>, outcome: &Result<ToolReply, ToolFailure>) {
        let secrets = &self.secrets;
        let outcome = match outcome {
            Ok(reply) => ToolOutcome::Reply(CassetteReply {
                content: secrets.redact(&reply.content).into(),
                structured: reply.structured.clone().map(|json| secrets.redact_json(json)),
                is_error: reply.is_error,
                is_cut: reply.is_cut,
            }),
            Err(ToolFailure { failure, maybe_done, timed_out }) => {
                let failed = self.to_failed_call(failure);
                let (maybe_done, timed_out) = (*maybe_done, *timed_out);
                ToolOutcome::Failure(FailedCall { maybe_done, timed_out, ..failed })
            }
        };
        let call = CassetteCall {
            index: request.index,
            tool: request.tool.clone(),
            arguments: secrets.redact_fields(request.arguments.clone()),
            outcome,
        };
        let CallSite { session, turn } = request.call_site;
        self.update_session(session, |session| session.record_call(turn, call));
    }

    fn to_answer(&self, reply: &ModelReply, toolbox: &Toolbox) -> CassetteAnswer {
        let asked = |asked: &AskedTool| {
            let (server, tool) =
                redacted_tool_name(&asked.server, &asked.tool, toolbox, &self.secrets);
            let arguments = match &asked.arguments {
                AskedArguments::Object(arguments) => {
                    CassetteArguments::Arguments(self.secrets.redact_fields(arguments.clone()))
                }
                AskedArguments::Unreadable { text, reason } => CassetteArguments::Unreadable {
                    text: self.secrets.redact(text).into(),
                    reason: self.secrets.redact(reason),
                },
            };
            let signature = asked.signature.as_ref();
            let signature = signature.map(|signature| self.secrets.redact(signature));
            CassetteToolRequest { server, tool, arguments, signature }
        };
        CassetteAnswer {
            content: self.secrets.redact(&reply.content).into(),
            tool_calls: reply.tool_calls.iter().map(asked).collect(),
            usage: reply.usage,
            is_cut: reply.ending.is_cut(),
            is_paused: reply.ending == AnswerEnding::Paused,
            withheld: reply.ending.withheld(),
            stop_reason: reply
                .stop_reason
                .as_ref()
                .filter(|_| reply.ending != AnswerEnding::Complete)
                .map(|reason| self.secrets.redact(reason)),
        }
    }

    pub(super) fn to_failed_call(&self, failure: &AttemptFailure) -> FailedCall {
        FailedCall {
            category: failure.category,
            message: self.secrets.redact(&failure.message).into(),
            context_full: false,
            maybe_done: false,
            timed_out: false,
            usage: Usage::default(),
        }
    }

    /// The cassette's names of these tools; each is described once.
    fn tool_references(&self, tools: &[Arc<ToolSpec>]) -> Vec<String> {
        let mut cassette = self.lock_cassette();
        tools.iter().map(|tool| tool_reference(&mut cassette.tools, tool, &self.secrets)).collect()
    }
}

fn tool_reference(
    known: &mut BTreeMap<String, ListedTool>,
    tool: &ToolSpec,
    secrets: &SecretSet,
) -> String {
    let described = ListedTool {
        description: secrets.redact(&tool.description).into(),
        input_schema: secrets.redact_fields(tool.input_schema.clone()),
        output_schema: tool.output_schema.clone().map(|schema| secrets.redact_fields(schema)),
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

impl ModelDriver for CassetteRecorder {
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
            self.record_exchange(&request, &outcome);
            outcome
        })
    }
}

impl ToolDriver for CassetteRecorder {
    fn ready(&self, patterns: &[ToolPattern]) -> Result<(), NotReady> {
        self.tools.ready(patterns)
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        Box::pin(async move {
            let outcome = self.tools.toolbox(patterns, call_site).await;
            self.record_listing(patterns, call_site, &outcome);
            outcome
        })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        Box::pin(async move {
            let outcome = self.tools.call(request).await;
            self.record_call(&request, &outcome);
            outcome
        })
    }
}
