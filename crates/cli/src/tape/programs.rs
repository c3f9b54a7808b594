//! Programs, where there is a cassette.

use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, PlaceTaken, Programs, RunEnd, RunOutcome, RunOverrides,
    RunRequest,
};
use polity_model::definition::AgentDefinition;
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::ids::ExecutionId;
use polity_model::run::RunReport;
use polity_model::usage::Usage;
use serde_json::Value;

/// Stands in for programs where there is a cassette: what they do is not on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotOnTape;

impl NotOnTape {
    fn refusal() -> NotReady {
        NotReady {
            message: "what a command-line program does is not kept on cassettes".to_owned(),
            hint: "run the task without --record and --replay".to_owned(),
        }
    }
}

impl Programs for NotOnTape {
    fn ready(&self, _: &AgentDefinition, _: &RunOverrides) -> Result<(), NotReady> {
        Err(Self::refusal())
    }

    fn pool(&self, agent: &AgentDefinition, _: &RunOverrides) -> String {
        agent.name.to_string()
    }

    fn take_place(&self, _: &str, _: u32) -> Result<Option<PlaceTaken>, NotReady> {
        Err(Self::refusal())
    }

    fn folder(&self, _: &AgentDefinition, overrides: &RunOverrides) -> String {
        overrides.working_directory.clone().unwrap_or_default()
    }

    fn masked(&self, _: &AgentDefinition, _: &RunOverrides, values: Value) -> Value {
        values
    }

    fn run<'a>(&'a self, _: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        let message = Self::refusal().message;
        let failure = Failure { category: ErrorCategory::Permanent, message };
        let (report, usage) = (RunReport::default(), Usage::default());
        Box::pin(async move { RunOutcome { end: RunEnd::Failed(failure), report, usage } })
    }

    fn found<'a>(&'a self, _: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async { None })
    }

    fn forget(&self, _: ExecutionId, _: u32) {}
}
