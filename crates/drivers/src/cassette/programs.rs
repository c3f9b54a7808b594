//! Programs, where there is a cassette: their runs are written down, or played again without them.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, PlaceTaken, Programs, RunEnd, RunOutcome, RunOverrides,
    RunRequest,
};
use polity_model::ids::ExecutionId;
use polity_model::run::{ProcessExit, RunReport};
use polity_model::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::difference::difference;
use super::document::FailedCall;
use super::lines::Lines;
use super::player::{Player, REMEDY, Which, differs, for_good, pretty};
use super::recorder::Recorder;
use crate::secrets::Secrets;

/// What stands for a place where nothing is run.
const NOWHERE: &str = "/dev/null";

/// One run of a program, as a cassette has it: the last attempt, since what failed before it was tried
/// again, and a replay need not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptRun {
    #[serde(flatten)]
    given: Given,
    #[serde(flatten)]
    end: KeptEnd,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit: Option<ProcessExit>,
    usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

/// What a program is given, without secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Given {
    input: Lines,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
}

/// How a run went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptEnd {
    Answer(Lines),
    Failure(FailedCall),
    TimedOut(Lines),
}

impl Given {
    fn of(programs: &dyn Programs, secrets: &Secrets, run: &LostRun<'_>) -> Self {
        let known = json!([secrets.removed_from(run.input), run.parameters]);
        let masked = programs.masked(run.agent, run.overrides, secrets.removed_from_json(known));
        match masked {
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([Value::String(input), Value::Object(parameters)]) => {
                    Self { input: input.into(), parameters }
                }
                Ok(_) | Err(_) => Self::hidden(),
            },
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => Self::hidden(),
        }
    }

    /// What cannot be masked is not told.
    fn hidden() -> Self {
        Self { input: Lines::default(), parameters: Map::new() }
    }

    fn to_text(&self) -> String {
        format!("input: {}\nparameters: {}", self.input.as_str(), pretty(&self.parameters))
    }
}

/// The run that a request is for, as one who looks for it later would name it.
fn named<'a>(request: &RunRequest<'a>) -> LostRun<'a> {
    let RunRequest { agent, session, execution_id, attempt, input, parameters, overrides, .. } =
        *request;
    LostRun { agent, session, execution_id, attempt, input, parameters, overrides }
}

/// Runs programs, and writes down what comes of it.
pub struct RecordedPrograms {
    recorder: Arc<Recorder>,
    programs: Arc<dyn Programs>,
}

impl RecordedPrograms {
    /// Writes down what these programs do.
    pub fn new(recorder: Arc<Recorder>, programs: Arc<dyn Programs>) -> Self {
        Self { recorder, programs }
    }

    fn write(&self, run: &LostRun<'_>, outcome: &RunOutcome) {
        let secrets = &self.recorder.secrets;
        let without_secrets = |text: &str| Lines::from(secrets.removed_from(text));
        let end = match &outcome.end {
            RunEnd::Answered(answer) => KeptEnd::Answer(without_secrets(answer)),
            RunEnd::Failed(failure) => KeptEnd::Failure(self.recorder.failed(failure)),
            RunEnd::TimedOut(message) => KeptEnd::TimedOut(without_secrets(message)),
            // What is broken off leaves no trace.
            RunEnd::Stopped => return,
        };
        let session_id = outcome.report.session_id.as_ref();
        let kept = KeptRun {
            given: Given::of(&*self.programs, secrets, run),
            end,
            exit: outcome.report.exit,
            usage: outcome.usage,
            session_id: session_id.map(|id| secrets.removed_from(id)),
        };
        self.recorder.write_session(run.session, |session| {
            session.agent = Some(run.agent.name.to_string());
            session.run = Some(kept);
        });
    }
}

impl Programs for RecordedPrograms {
    fn ready(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> Result<(), NotReady> {
        self.programs.ready(agent, overrides)
    }

    fn pool(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        self.programs.pool(agent, overrides)
    }

    fn take_place(&self, pool: &str, places: u32) -> Result<Option<PlaceTaken>, NotReady> {
        self.programs.take_place(pool, places)
    }

    fn folder(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        self.programs.folder(agent, overrides)
    }

    fn masked(&self, agent: &AgentDefinition, overrides: &RunOverrides, values: Value) -> Value {
        self.programs.masked(agent, overrides, values)
    }

    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let outcome = self.programs.run(request).await;
            self.write(&named(&request), &outcome);
            outcome
        })
    }

    fn found<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async move {
            let outcome = self.programs.found(run).await?;
            self.write(&run, &outcome);
            Some(outcome)
        })
    }

    fn forget(&self, execution_id: ExecutionId, attempts: u32) {
        self.programs.forget(execution_id, attempts);
    }

    fn left_behind(&self) -> BTreeSet<ExecutionId> {
        self.programs.left_behind()
    }

    fn end(&self, execution_id: ExecutionId, attempts: u32) {
        self.programs.end(execution_id, attempts);
    }

    fn sweep(&self, execution_id: ExecutionId, keeps_workspace: bool) {
        self.programs.sweep(execution_id, keeps_workspace);
    }

    fn discard(&self, execution_id: ExecutionId) -> Result<(), NotReady> {
        self.programs.discard(execution_id)
    }
}

/// Answers for programs from a cassette. Nothing is run.
pub struct PlayedPrograms {
    player: Arc<Player>,
    /// Tells what must not be seen.
    programs: Arc<dyn Programs>,
}

impl PlayedPrograms {
    /// Answers in place of these programs.
    pub fn new(player: Arc<Player>, programs: Arc<dyn Programs>) -> Self {
        Self { player, programs }
    }

    fn outcome(&self, run: &LostRun<'_>) -> RunOutcome {
        self.answer(run).unwrap_or_else(|message| {
            let end = RunEnd::Failed(self.player.broken(message));
            RunOutcome { end, report: RunReport::default(), usage: Usage::default() }
        })
    }

    fn answer(&self, run: &LostRun<'_>) -> Result<RunOutcome, String> {
        self.player.must_fit()?;
        let session = self.player.session(run.session)?;
        let Some(kept) = &session.run else {
            return Err(format!(
                "the cassette has no run of a program in session \"{}\"; {REMEDY}",
                run.session
            ));
        };
        let now = Given::of(&*self.programs, &self.player.secrets, run);
        // What comes from the cassette has its masks already.
        let is_as_kept =
            kept.given.input.as_str() == run.input && kept.given.parameters == *run.parameters;
        if kept.given != now && !is_as_kept {
            let what =
                format!("the program is given something else in session \"{}\"", run.session);
            return Err(differs(&what, &difference(&kept.given.to_text(), &now.to_text())));
        }
        self.player.given(run.session, Which::Run);
        let end = match &kept.end {
            KeptEnd::Answer(answer) => RunEnd::Answered(answer.as_str().to_owned()),
            KeptEnd::Failure(failed) => RunEnd::Failed(for_good(failed)),
            KeptEnd::TimedOut(message) => RunEnd::TimedOut(message.as_str().to_owned()),
        };
        let was_started = match &kept.end {
            KeptEnd::Answer(_) | KeptEnd::TimedOut(_) => true,
            KeptEnd::Failure(_) => kept.exit.is_some(),
        };
        let report = RunReport {
            // It is this process that answers.
            process_id: was_started.then(std::process::id),
            exit: kept.exit,
            session_id: kept.session_id.clone(),
            ..RunReport::default()
        };
        Ok(RunOutcome { end, report, usage: kept.usage })
    }
}

impl Programs for PlayedPrograms {
    fn ready(&self, _: &AgentDefinition, _: &RunOverrides) -> Result<(), NotReady> {
        Ok(())
    }

    /// Whoever really runs is not held up.
    fn pool(&self, agent: &AgentDefinition, _: &RunOverrides) -> String {
        format!("replay of {}", agent.name)
    }

    fn take_place(&self, _: &str, _: u32) -> Result<Option<PlaceTaken>, NotReady> {
        let lock = File::open(NOWHERE).map_err(|error| NotReady {
            message: format!("{NOWHERE} cannot be opened: {error}"),
            hint: "see what has become of it".to_owned(),
        })?;
        Ok(Some(PlaceTaken { lock: Arc::new(lock) }))
    }

    fn folder(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        self.programs.folder(agent, overrides)
    }

    fn masked(&self, agent: &AgentDefinition, overrides: &RunOverrides, values: Value) -> Value {
        self.programs.masked(agent, overrides, values)
    }

    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        let outcome = self.outcome(&named(&request));
        Box::pin(async { outcome })
    }

    fn found<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        let outcome = self.outcome(&run);
        Box::pin(async { Some(outcome) })
    }
}
