//! A home folder for runs, and a recorder of their progress.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use polity_definition::AgentDefinition;
use polity_drivers::EnvSource;
use polity_drivers::cli::{ArtifactLimits, CliDriver, CliOptions};
use polity_drivers::process::{HomeProgramCheck, ProcessLauncher};
use polity_engine::driver::{
    LostRun, ProgramRunner, RunEnd, RunOutcome, RunOverrides, RunProgress, RunRequest,
};
use polity_masking::RedactionSettings;
use polity_model::failure::AttemptFailure;
use polity_model::ids::ExecutionId;
use polity_model::run::ResourceUsage;
use polity_store::{FileSlotPools, Slot, SlotPools};
use polity_testkit::mcp::environment;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::waiting::{TEST_TIMEOUT, eventually};

/// A secret that no output may show.
pub(crate) const SECRET: &str = "correct-horse-battery-staple";

/// The stored output limit, in bytes.
pub(crate) const OUTPUT_BYTES: u64 = 1 << 20;

pub(crate) struct CliFixture {
    pub(crate) driver: CliDriver,
    home: TempDir,
}

impl CliFixture {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { driver: driver(home.path()), home }
    }

    /// A driver of another process on the same home.
    pub(crate) fn other_driver(&self) -> CliDriver {
        driver(self.home.path())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn stored_output(&self, outcome: &RunOutcome, stream: &str) -> Vec<u8> {
        fs::read(self.path("data").join(&outcome.report.output.folder).join(stream)).unwrap()
    }

    /// Waits until a file has a complete line, and parses its pids.
    pub(crate) async fn read_pids(&self, name: &str) -> Vec<u32> {
        let path = self.path(name);
        let text = eventually("the pids are written", || {
            fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        });
        let pids: Vec<_> = text.await.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert!(!pids.is_empty(), "{name} names no process");
        pids
    }

    /// The slot pools of this home.
    pub(crate) fn slots(&self) -> FileSlotPools {
        FileSlotPools::new(self.path("data/places"))
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slots().acquire("fixture", 100).wait().unwrap().unwrap()
    }

    pub(crate) async fn sh(&self, script: &str) -> RunOutcome {
        self.run(&sh(script, &json!({})), "").await
    }

    pub(crate) async fn run(&self, agent: &AgentDefinition, input: &str) -> RunOutcome {
        self.run_watched(agent, input, &ProgressRecorder::default()).await
    }

    /// Runs an agent and records its progress.
    pub(crate) async fn run_watched(
        &self,
        agent: &AgentDefinition,
        input: &str,
        progress: &ProgressRecorder,
    ) -> RunOutcome {
        let (_sender, stop) = watch::channel(false);
        self.run_stoppable(agent, input, progress, &stop, new_execution()).await
    }

    /// Runs an agent without input as this execution.
    pub(crate) async fn run_as(
        &self,
        agent: &AgentDefinition,
        execution_id: ExecutionId,
        progress: &ProgressRecorder,
    ) -> RunOutcome {
        let (_sender, stop) = watch::channel(false);
        self.run_stoppable(agent, "", progress, &stop, execution_id).await
    }

    /// Runs an agent until it ends or is stopped.
    pub(crate) async fn run_stoppable(
        &self,
        agent: &AgentDefinition,
        input: &str,
        progress: &ProgressRecorder,
        stop: &watch::Receiver<bool>,
        execution_id: ExecutionId,
    ) -> RunOutcome {
        let (parameters, overrides, slot) = (Map::new(), RunOverrides::default(), self.slot());
        let run = self.driver.run(RunRequest {
            agent,
            session: "",
            execution_id,
            attempt: 0,
            input,
            parameters: &parameters,
            overrides: &overrides,
            script: None,
            slot: &slot,
            stop,
            progress,
        });
        tokio::time::timeout(TEST_TIMEOUT, run).await.expect("the run should have ended long ago")
    }
}

fn driver(home: &Path) -> CliDriver {
    let user = home.join("user").to_str().unwrap().to_owned();
    let lookup = move |name: &str| match name {
        "TOKEN" => Some(SECRET.to_owned()),
        // No settings of the machine's user.
        "HOME" => Some(user.clone()),
        other => environment(other),
    };
    CliDriver::new(CliOptions {
        home: home.into(),
        data: home.join("data"),
        folder: home.into(),
        environment: EnvSource::new(lookup),
        launcher: ProcessLauncher::Shim(env!("CARGO_BIN_EXE_polity-shim").into()),
        program_check: HomeProgramCheck::default(),
        redaction: RedactionSettings::default(),
        output_bytes: OUTPUT_BYTES.try_into().unwrap(),
        artifacts: ArtifactLimits { files: 3.try_into().unwrap(), bytes: 1000.try_into().unwrap() },
    })
}

/// An agent with this command and these further fields.
pub(crate) fn agent(program: &str, args: &[&str], more: &Value) -> AgentDefinition {
    let mut file = json!({
        "name": "subject", "kind": "cli", "executable_path": program, "cli_args": args,
        "grace_seconds": 1,
    });
    let fields = file.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    AgentDefinition::from_canonical(&file.to_string()).unwrap()
}

pub(crate) fn sh(script: &str, more: &Value) -> AgentDefinition {
    agent("sh", &["-c", script], more)
}

pub(crate) fn python(script: &str, more: &Value) -> AgentDefinition {
    agent("python3", &["-c", script], more)
}

pub(crate) fn answer(outcome: &RunOutcome) -> &str {
    let RunEnd::Answered(answer) = &outcome.end else { panic!("{:?}", outcome.end) };
    answer
}

pub(crate) fn failure(outcome: &RunOutcome) -> &AttemptFailure {
    let RunEnd::Failed(failure) = &outcome.end else { panic!("{:?}", outcome.end) };
    failure
}

/// Recovers a run whose owner died.
pub(crate) async fn recover(
    driver: &CliDriver,
    agent: &AgentDefinition,
    execution_id: ExecutionId,
    attempt: u32,
) -> Option<RunOutcome> {
    let run = LostRun {
        agent,
        session: "",
        execution_id,
        attempt,
        input: "",
        parameters: &Map::new(),
        overrides: &RunOverrides::default(),
    };
    driver.recover(run).await
}

#[derive(Default)]
pub(crate) struct ProgressRecorder {
    pub(crate) started: Mutex<Option<u32>>,
    pub(crate) output: Mutex<String>,
    pub(crate) usages: Mutex<Vec<ResourceUsage>>,
}

impl ProgressRecorder {
    pub(crate) fn shown(&self) -> String {
        self.output.lock().unwrap().clone()
    }
}

impl RunProgress for ProgressRecorder {
    fn started(&self, process_id: u32) {
        *self.started.lock().unwrap() = Some(process_id);
    }

    fn output(&self, piece: &str) {
        self.output.lock().unwrap().push_str(piece);
    }

    fn usage(&self, usage: ResourceUsage) {
        self.usages.lock().unwrap().push(usage);
    }
}

/// A new execution id.
pub(crate) fn new_execution() -> ExecutionId {
    use std::hash::{BuildHasher, RandomState};
    let number = || RandomState::new().hash_one(0).to_le_bytes();
    ExecutionId::from_random_bytes([number(), number()].concat().try_into().unwrap())
}
