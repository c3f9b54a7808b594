//! Agents on other servers, where there is a cassette.

use polity_engine::driver::{
    BoxFuture, NotReady, Progress, RemoteEnd, RemoteMessage, RemoteOutcome, Remotes, Sent,
};
use polity_model::definition::AgentDefinition;
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;

/// Stands in for agents on other servers where there is a cassette: what they do is not on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotOnTape;

impl NotOnTape {
    fn refusal() -> NotReady {
        NotReady {
            message: "what an agent on another server does is not kept on cassettes".to_owned(),
            hint: "run the task without --record and --replay".to_owned(),
        }
    }

    fn not_called() -> RemoteOutcome {
        let message = Self::refusal().message;
        let failure = Failure { category: ErrorCategory::Permanent, message };
        let end = RemoteEnd::Failed { failure, retry_after: None };
        RemoteOutcome { end, report: RemoteReport::default(), usage: Usage::default() }
    }
}

impl Remotes for NotOnTape {
    fn ready(&self, _: &AgentDefinition) -> Result<(), NotReady> {
        Err(Self::refusal())
    }

    fn send<'a>(&'a self, _: RemoteMessage<'a>) -> BoxFuture<'a, Sent> {
        Box::pin(async { Sent::Over(Self::not_called()) })
    }

    fn follow<'a>(
        &'a self,
        _: &'a AgentDefinition,
        _: &'a RemoteTask,
        _: &'a dyn Progress,
    ) -> BoxFuture<'a, RemoteOutcome> {
        Box::pin(async { Self::not_called() })
    }

    fn cancel<'a>(
        &'a self,
        _: &'a AgentDefinition,
        _: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Err(Self::refusal().message) })
    }
}
