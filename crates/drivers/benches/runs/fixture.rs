//! A home folder, in memory if possible, and agents to run in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::{AgentDefinition, HomeSettings};
use polity_drivers::EnvSource;
use polity_drivers::cli::{ArtifactLimits, CliDriver, CliOptions};
use polity_drivers::process::{HomeProgramCheck, ProcessLauncher};
use polity_engine::clock::SystemClock;
use polity_engine::driver::{
    ProgramDriver, ProgramRunner, RunOutcome, RunOverrides, RunProgress, RunRequest,
};
use polity_engine::entropy::SystemEntropy;
use polity_engine::runtime::{Runtime, RuntimeDeps};
use polity_masking::RedactionSettings;
use polity_model::ids::ExecutionId;
use polity_model::run::ResourceUsage;
use polity_store::{CommitDurability, FileSlotPools, SlotPools, SqliteStore, StoreAccess};
use polity_testkit::runtime::{FakeModels, TestLeases, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use serde_json::{Map, json};
use tempfile::TempDir;
use tokio::sync::watch;

pub(crate) struct RunFixture {
    programs: Arc<CliDriver>,
    slots: Arc<FileSlotPools>,
    home: TempDir,
}

struct NullSink;

impl RunProgress for NullSink {
    fn started(&self, _: u32) {}
    fn output(&self, _: &str) {}
    fn usage(&self, _: ResourceUsage) {}
}

impl RunFixture {
    /// In memory, if `/dev/shm` exists.
    pub(crate) fn new() -> Self {
        let memory_disk = Path::new("/dev/shm");
        Self::within(if memory_disk.is_dir() {
            tempfile::tempdir_in(memory_disk).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        })
    }

    pub(crate) fn on_disk() -> Self {
        Self::within(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn within(home: TempDir) -> Self {
        let programs = CliDriver::new(CliOptions {
            home: home.path().into(),
            data: home.path().join("data"),
            folder: home.path().into(),
            environment: EnvSource::new(|name| std::env::var(name).ok()),
            launcher: ProcessLauncher::Shim(std::env::current_exe().unwrap()),
            program_check: HomeProgramCheck::default(),
            redaction: RedactionSettings::default(),
            output_bytes: (100 << 20).try_into().unwrap(),
            artifacts: ArtifactLimits {
                files: 3.try_into().unwrap(),
                bytes: 1000.try_into().unwrap(),
            },
        });
        let slots = Arc::new(FileSlotPools::new(home.path().join("data/places")));
        Self { programs: Arc::new(programs), slots, home }
    }

    /// A runtime with a journal in this home.
    pub(crate) fn runtime(&self) -> Runtime {
        let leases = Arc::new(TestLeases::default());
        let journal = self.home.path().join("journal.db");
        let access = StoreAccess::ReadWrite(CommitDurability::Full);
        let store = Arc::new(SqliteStore::open(&journal, access).unwrap());
        let models = Arc::new(FakeModels::new([], Duration::ZERO));
        let deps = RuntimeDeps {
            programs: Arc::clone(&self.programs) as Arc<dyn ProgramDriver>,
            slots: Arc::clone(&self.slots) as Arc<dyn SlotPools>,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            limits: HomeSettings::default().limits,
            ..runtime_deps(store, models, &leases, instance_id(1), 1)
        };
        polity_store::block_on(Runtime::start(deps)).unwrap()
    }

    /// Runs an agent and forgets the run.
    pub(crate) async fn run(&self, agent: &AgentDefinition, number: u64, slots: u32) -> RunOutcome {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let execution_id = ExecutionId::from_random_bytes(bytes);
        let slot = self.slots.acquire("bench", slots).await.unwrap().unwrap();
        let (_keep, stop) = watch::channel(false);
        let outcome = self
            .programs
            .run(RunRequest {
                agent,
                session: "",
                execution_id,
                attempt: 0,
                input: "a question",
                parameters: &Map::new(),
                overrides: &RunOverrides::default(),
                script: None,
                slot: &slot,
                stop: &stop,
                progress: &NullSink,
            })
            .await;
        self.programs.forget(execution_id, 1);
        outcome
    }
}

pub(crate) fn agent(program: &str, args: &[&str]) -> AgentDefinition {
    let file = json!({
        "name": "subject", "kind": "cli", "executable_path": program, "cli_args": args,
        "access_type": "read-only", "max_concurrent_executions": 64, "queue_limit": 64,
    });
    AgentDefinition::from_canonical(&file.to_string()).unwrap()
}
