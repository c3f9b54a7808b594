//! A runtime on a real database, with models and tools that answer at once.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use polity_definition::{Home, HomeFile, HomeSettings, Limits};
use polity_engine::clock::SystemClock;
use polity_engine::driver::{ModelDriver, ToolDriver};
use polity_engine::entropy::SystemEntropy;
use polity_engine::pinned::PinnedWorkflow;
use polity_engine::runtime::{Runtime, RuntimeDeps};
use polity_store::{CommitDurability, SqliteStore, Store, StoreAccess};
use polity_testkit::runtime::{FakeModels, TestLeases, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use polity_testkit::tools::FakeTools;

/// A folder on the project's disk, not on a memory disk.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn open(path: &Path, durability: CommitDurability) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, StoreAccess::ReadWrite(durability)).unwrap())
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// Runs on the current thread, as `polity run` does.
pub(crate) fn block_on_alone<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

/// A runtime that runs this many tasks at once.
pub(crate) fn runtime(store: &Arc<dyn Store>, at_once: u32) -> Runtime {
    let models = Arc::new(FakeModels::new([], std::time::Duration::ZERO));
    runtime_with(store, at_once, models, Arc::new(FakeTools::default()))
}

pub(crate) fn runtime_with(
    store: &Arc<dyn Store>,
    at_once: u32,
    models: Arc<dyn ModelDriver>,
    tools: Arc<dyn ToolDriver>,
) -> Runtime {
    let leases = Arc::new(TestLeases::default());
    let deps = RuntimeDeps {
        tools,
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        limits: Limits {
            concurrent_tasks: NonZeroU32::new(at_once).unwrap(),
            ..HomeSettings::default().limits
        },
        ..runtime_deps(Arc::clone(store), models, &leases, instance_id(1), 1)
    };
    polity_store::block_on(Runtime::start(deps)).unwrap()
}

/// A workflow from its file.
pub(crate) fn workflow(name: &str, text: &str) -> PinnedWorkflow {
    let file = |path: String, text: &str| HomeFile { path, text: Ok(text.to_owned()) };
    let server = "servers: [{name: echo, transport: sse, config: {url: 'http://localhost/'}}]";
    let home = Home::parse(vec![
        file("polity.yaml".to_owned(), "{}"),
        file("config/mcp_servers.yaml".to_owned(), server),
        file(format!("workflows/{name}.yaml"), text),
    ]);
    assert!(home.problems.is_empty(), "{:?}", home.problems);
    PinnedWorkflow::of(&home, Arc::clone(&home.workflows[name])).unwrap().unwrap()
}
