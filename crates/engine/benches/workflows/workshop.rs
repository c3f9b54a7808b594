//! A runtime on a real database, with models and tools that answer at once.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use polity_definition::{Home, HomeSettings, Limits, SourceFile};
use polity_engine::clock::SystemClock;
use polity_engine::driver::{Models, Tools};
use polity_engine::entropy::SystemEntropy;
use polity_engine::pinned::PinnedWorkflow;
use polity_engine::runtime::{Owners, Parts, Runtime};
use polity_store::{Access, Durability, SqliteStore, Store};
use polity_testkit::lives::instance_id;
use polity_testkit::programs::FakeCliAgents;
use polity_testkit::runtime::{ActingModels, Register};
use polity_testkit::tools::FakeTools;

/// The disk that is measured is the one the project is on, not a memory disk.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn open(path: &Path, durability: Durability) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, Access::ReadWrite(durability)).unwrap())
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// As `polity run` does it, which has one task to look after.
pub(crate) fn block_on_alone<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

/// A runtime that runs this many tasks at once.
pub(crate) fn runtime(store: &Arc<dyn Store>, at_once: u32) -> Runtime {
    let models = Arc::new(ActingModels::new([], std::time::Duration::ZERO));
    runtime_with(store, at_once, models, Arc::new(FakeTools::default()))
}

pub(crate) fn runtime_with(
    store: &Arc<dyn Store>,
    at_once: u32,
    models: Arc<dyn Models>,
    tools: Arc<dyn Tools>,
) -> Runtime {
    let owners = Arc::new(Register::default());
    owners.born(instance_id(1));
    Runtime::start(Parts {
        store: Arc::clone(store),
        models,
        tools,
        programs: Arc::new(FakeCliAgents::default()),
        remotes: Arc::new(polity_testkit::remotes::FakeRemotes::new([])),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        owners: owners as Arc<dyn Owners>,
        instance: instance_id(1),
        limits: Limits {
            concurrent_tasks: NonZeroU32::new(at_once).unwrap(),
            ..HomeSettings::default().limits
        },
    })
    .unwrap()
}

/// A workflow from its file.
pub(crate) fn workflow(name: &str, text: &str) -> PinnedWorkflow {
    let file = |path: String, text: &str| SourceFile { path, text: Ok(text.to_owned()) };
    let home = Home::parse(vec![
        file("polity.yaml".to_owned(), "{}"),
        file(format!("workflows/{name}.yaml"), text),
    ]);
    assert!(home.problems.is_empty(), "{:?}", home.problems);
    PinnedWorkflow::of(&home, Arc::clone(&home.workflows[name])).unwrap().unwrap()
}
