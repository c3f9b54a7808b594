//! Records and replays the runs of CLI agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, ProgramDriver, ProgramPreparation, ProgramRunner, RunCleanup,
    RunDedup, RunEnd, RunOutcome, RunOverrides, RunRequest,
};
use polity_model::ids::ExecutionId;
use polity_model::run::{ProcessExit, RunReport};
use polity_model::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::diff::diff;
use super::document::FailedCall;
use super::multiline::MultilineText;
use super::player::{AnswerKey, CassettePlayer, REMEDY, mismatch, permanent_failure, pretty};
use super::recorder::CassetteRecorder;
use crate::secrets::SecretSet;

/// The recorded run of a CLI agent. Only the last attempt is recorded; a replay needs no failed ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedRun {
    #[serde(flatten)]
    input: RunInput,
    #[serde(flatten)]
    end: RecordedRunEnd,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit: Option<ProcessExit>,
    usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

/// The input of a run, with secrets redacted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RunInput {
    input: MultilineText,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedRunEnd {
    Answer(MultilineText),
    Truncated { answer: MultilineText, message: MultilineText },
    Failure(FailedCall),
    TimedOut(MultilineText),
}

impl RunInput {
    fn redacted(driver: &dyn ProgramDriver, secrets: &SecretSet, run: &LostRun<'_>) -> Self {
        let known = json!([secrets.redact(run.input), run.parameters]);
        let masked = driver.mask_secrets(run.agent, run.overrides, secrets.redact_json(known));
        // Input that cannot be masked is omitted.
        let (input, parameters) = serde_json::from_value(masked).unwrap_or_default();
        Self { input, parameters }
    }

    fn to_text(&self) -> String {
        format!("input: {}\nparameters: {}", self.input.as_str(), pretty(&self.parameters))
    }
}

/// The identity of the run that a request starts.
fn to_lost_run<'a>(request: &RunRequest<'a>) -> LostRun<'a> {
    let RunRequest { agent, session, execution_id, attempt, input, parameters, overrides, .. } =
        *request;
    LostRun { agent, session, execution_id, attempt, input, parameters, overrides }
}

/// Runs CLI agents and records the outcomes.
pub struct RecordingProgramDriver {
    recorder: Arc<CassetteRecorder>,
    driver: Arc<dyn ProgramDriver>,
}

impl RecordingProgramDriver {
    /// Wraps a driver.
    pub fn new(recorder: Arc<CassetteRecorder>, driver: Arc<dyn ProgramDriver>) -> Self {
        Self { recorder, driver }
    }

    fn record(&self, run: &LostRun<'_>, outcome: &RunOutcome) {
        let secrets = &self.recorder.secrets;
        let redact = |text: &str| MultilineText::from(secrets.redact(text));
        let end = match &outcome.end {
            RunEnd::Answered(answer) => RecordedRunEnd::Answer(redact(answer)),
            RunEnd::Truncated { answer, message } => {
                RecordedRunEnd::Truncated { answer: redact(answer), message: redact(message) }
            }
            RunEnd::Failed(failure) => {
                RecordedRunEnd::Failure(self.recorder.to_failed_call(failure))
            }
            RunEnd::TimedOut(message) => RecordedRunEnd::TimedOut(redact(message)),
            // A stopped run is not recorded.
            RunEnd::Stopped => return,
        };
        let session_id = outcome.report.session_id.as_ref();
        let recorded = RecordedRun {
            input: RunInput::redacted(&*self.driver, secrets, run),
            end,
            exit: outcome.report.exit,
            usage: outcome.usage,
            session_id: session_id.map(|id| secrets.redact(id)),
        };
        self.recorder.update_session(run.session, |session| {
            session.agent = Some(run.agent.name.to_string());
            session.run = Some(recorded);
        });
    }
}

impl ProgramPreparation for RecordingProgramDriver {
    fn ready(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> Result<(), NotReady> {
        self.driver.ready(agent, overrides)
    }

    fn slot_pool(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        self.driver.slot_pool(agent, overrides)
    }

    fn working_directory(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        self.driver.working_directory(agent, overrides)
    }

    fn mask_secrets(
        &self,
        agent: &AgentDefinition,
        overrides: &RunOverrides,
        values: Value,
    ) -> Value {
        self.driver.mask_secrets(agent, overrides, values)
    }
}

impl RunDedup for RecordingProgramDriver {}

impl ProgramRunner for RecordingProgramDriver {
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let outcome = self.driver.run(request).await;
            self.record(&to_lost_run(&request), &outcome);
            outcome
        })
    }

    fn recover<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async move {
            let outcome = self.driver.recover(run).await?;
            self.record(&run, &outcome);
            Some(outcome)
        })
    }

    fn stop_all(&self) -> BoxFuture<'_, ()> {
        self.driver.stop_all()
    }

    fn forget(&self, execution_id: ExecutionId, attempts: u32) {
        self.driver.forget(execution_id, attempts);
    }
}

impl RunCleanup for RecordingProgramDriver {
    fn leftover_executions(&self) -> BTreeSet<ExecutionId> {
        self.driver.leftover_executions()
    }

    fn kill_leftovers(&self, execution_id: ExecutionId, attempts: u32) {
        self.driver.kill_leftovers(execution_id, attempts);
    }

    fn remove_leftovers(&self, execution_id: ExecutionId, keeps_workspace: bool) {
        self.driver.remove_leftovers(execution_id, keeps_workspace);
    }

    fn end_leftover_services(&self) {
        self.driver.end_leftover_services();
    }

    fn remove_workspace(&self, execution_id: ExecutionId) -> Result<(), NotReady> {
        self.driver.remove_workspace(execution_id)
    }
}

/// Replays the runs of CLI agents. Starts no process.
pub struct PlaybackProgramDriver {
    player: Arc<CassettePlayer>,
    /// Masks the input for comparison.
    driver: Arc<dyn ProgramDriver>,
}

impl PlaybackProgramDriver {
    /// Replaces a driver.
    pub fn new(player: Arc<CassettePlayer>, driver: Arc<dyn ProgramDriver>) -> Self {
        Self { player, driver }
    }

    fn outcome(&self, run: &LostRun<'_>) -> RunOutcome {
        self.answer(run).unwrap_or_else(|message| {
            let end = RunEnd::Failed(self.player.fail(message));
            RunOutcome { end, report: RunReport::default(), usage: Usage::default() }
        })
    }

    fn answer(&self, run: &LostRun<'_>) -> Result<RunOutcome, String> {
        self.player.check_no_mismatch()?;
        let session = self.player.session(run.session)?;
        let Some(recorded) = &session.run else {
            return Err(format!(
                "the cassette has no run of a program in session \"{}\"; {REMEDY}",
                run.session
            ));
        };
        let now = RunInput::redacted(&*self.driver, &self.player.secrets, run);
        // Input from the cassette is already masked.
        let is_already_masked = recorded.input.input.as_str() == run.input
            && recorded.input.parameters == *run.parameters;
        if recorded.input != now && !is_already_masked {
            let what =
                format!("the program is given something else in session \"{}\"", run.session);
            return Err(mismatch(&what, &diff(&recorded.input.to_text(), &now.to_text())));
        }
        self.player.mark_used(run.session, AnswerKey::Run);
        let (end, was_started) = match recorded.end.clone() {
            RecordedRunEnd::Answer(answer) => (RunEnd::Answered(answer.into()), true),
            RecordedRunEnd::Truncated { answer, message } => {
                (RunEnd::Truncated { answer: answer.into(), message: message.into() }, true)
            }
            RecordedRunEnd::TimedOut(message) => (RunEnd::TimedOut(message.into()), true),
            RecordedRunEnd::Failure(failed) => {
                (RunEnd::Failed(permanent_failure(&failed)), recorded.exit.is_some())
            }
        };
        let report = RunReport {
            // The id of the replaying process replaces that of the agent.
            process_id: was_started.then(std::process::id),
            exit: recorded.exit,
            session_id: recorded.session_id.clone(),
            ..RunReport::default()
        };
        Ok(RunOutcome { end, report, usage: recorded.usage })
    }
}

impl ProgramPreparation for PlaybackProgramDriver {
    fn ready(&self, _: &AgentDefinition, _: &RunOverrides) -> Result<(), NotReady> {
        Ok(())
    }

    /// A pool of its own, so that replays never block real runs.
    fn slot_pool(&self, agent: &AgentDefinition, _: &RunOverrides) -> String {
        format!("replay of {}", agent.name)
    }

    fn working_directory(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        self.driver.working_directory(agent, overrides)
    }

    fn mask_secrets(
        &self,
        agent: &AgentDefinition,
        overrides: &RunOverrides,
        values: Value,
    ) -> Value {
        self.driver.mask_secrets(agent, overrides, values)
    }
}

impl RunDedup for PlaybackProgramDriver {}

impl ProgramRunner for PlaybackProgramDriver {
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        let outcome = self.outcome(&to_lost_run(&request));
        Box::pin(async { outcome })
    }

    fn recover<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        let outcome = self.outcome(&run);
        Box::pin(async { Some(outcome) })
    }
}

impl RunCleanup for PlaybackProgramDriver {}
