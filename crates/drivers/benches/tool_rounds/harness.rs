//! A runtime with a durable journal and drivers, composed as in the program.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::{AgentDefinition, HomeSettings, Limits};
use polity_drivers::EnvSource;
use polity_drivers::llm::LanguageModels;
use polity_drivers::mcp::{McpOptions, McpTools};
use polity_drivers::process::ProcessLauncher;
use polity_engine::clock::SystemClock;
use polity_engine::commands::CreateTask;
use polity_engine::driver::{ModelDriver, ToolDriver};
use polity_engine::entropy::SystemEntropy;
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::{Runtime, RuntimeDeps, TaskHandle};
use polity_model::machine::task::TaskStatus;
use polity_store::{CommitDurability, SqliteStore, Store, StoreAccess};
use polity_testkit::mcp::environment;
use polity_testkit::runtime::{TestLeases, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use serde_json::json;
use tempfile::TempDir;

use crate::servers::{model_name, tool_server};

/// A folder on the project's disk, not on a memory disk.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a future on one thread, as the program does.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) struct BenchRuntime {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Store>,
}

impl BenchRuntime {
    /// Creates a runtime with these models and tools.
    pub(crate) fn new(
        folder: &Path,
        models: Arc<dyn ModelDriver>,
        tools: Arc<dyn ToolDriver>,
        concurrent_tasks: u32,
    ) -> Self {
        let database = folder.join("polity.db");
        let access = StoreAccess::ReadWrite(CommitDurability::Full);
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&database, access).unwrap());
        let leases = Arc::new(TestLeases::default());
        let deps = RuntimeDeps {
            tools,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            limits: Limits {
                concurrent_tasks: NonZeroU32::new(concurrent_tasks).unwrap(),
                ..HomeSettings::default().limits
            },
            ..runtime_deps(Arc::clone(&store), models, &leases, instance_id(1), 1)
        };
        Self { runtime: polity_store::block_on(Runtime::start(deps)).unwrap(), store }
    }

    /// Creates a runtime with the real drivers.
    pub(crate) fn with_drivers(folder: &Path, concurrent_tasks: u32) -> (Self, Arc<McpTools>) {
        let launcher = if cfg!(target_os = "linux") {
            ProcessLauncher::Shim(std::env::current_exe().unwrap())
        } else {
            ProcessLauncher::Direct
        };
        let environment = EnvSource::new(environment);
        let options = McpOptions::new(folder.to_owned(), environment.clone(), launcher);
        let tools = Arc::new(McpTools::new([tool_server()], options));
        let models = Arc::new(LanguageModels::new(environment));
        let shared_tools = Arc::clone(&tools) as Arc<dyn ToolDriver>;
        (Self::new(folder, models, shared_tools, concurrent_tasks), tools)
    }

    pub(crate) async fn create(&self, agent: &PinnedAgent, description: &str) -> TaskHandle {
        self.runtime.create(CreateTask::new(agent.clone(), description)).await.unwrap()
    }

    pub(crate) async fn run(&self, agent: &PinnedAgent, description: &str) {
        let mut task = self.create(agent, description).await;
        assert_eq!(task.wait().await.unwrap(), TaskStatus::Completed);
    }
}

/// An agent whose model calls its tool `rounds` times.
pub(crate) fn agent(url: &str, rounds: u32) -> PinnedAgent {
    pausing_agent(url, rounds, Duration::ZERO)
}

/// An agent whose model also pauses halfway.
pub(crate) fn pausing_agent(url: &str, rounds: u32, pause: Duration) -> PinnedAgent {
    let config = json!({"provider": "openai_compatible", "model": model_name(rounds, pause),
        "endpoint": format!("{url}/v1")});
    let agent = json!({"kind": "llm", "name": "noter", "role": "notes numbers",
        "system_prompt": "Note every number.", "tools": ["notes/note"],
        "max_iterations": 10_000, "llm_config": config});
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    PinnedAgent::alone(Arc::new(agent), None)
}
