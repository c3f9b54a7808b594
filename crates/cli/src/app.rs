//! The parts, put together: a home with its store, and a runtime where one is needed.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polity_definition::{DurabilitySetting, Home, is_servers, is_settings};
use polity_drivers::Environment;
use polity_drivers::cli::{ArtifactLimits, CliDriver, CliOptions};
use polity_drivers::llm::LanguageModels;
use polity_drivers::mcp::{McpOptions, McpTools};
use polity_drivers::process::ProcessLauncher;
use polity_drivers::remote::{A2aRemotes, RemoteOptions};
use polity_engine::clock::SystemClock;
use polity_engine::driver::{Models, Programs, Remotes, Tools};
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_engine::runtime::{Parts, Runtime};
use polity_model::ids::{InstanceId, TaskId};
use polity_model::task::Task;
use polity_store::instances::{Instance, Instances};
use polity_store::{Access, Durability, SqliteStore, Store, TaskFilter, TaskRow};

use crate::args::{Options, Verbosity};
use crate::error::CliError;
use crate::home::HomeFolder;
use crate::notices::Notices;
use crate::telemetry::Telemetry;
use crate::view::{count, note, style};

/// What every command begins with.
#[derive(Debug, Clone)]
pub(crate) struct App {
    /// The options of every command.
    pub(crate) options: Options,
    /// The home.
    pub(crate) folder: HomeFolder,
}

impl App {
    /// Finds the home.
    pub(crate) fn new(options: Options) -> Result<Self, CliError> {
        let folder = HomeFolder::find(options.home.as_deref())?;
        Ok(Self { options, folder })
    }

    /// Whether to print JSON.
    pub(crate) fn json(&self) -> bool {
        self.options.json
    }

    /// Whether to show steps on stderr.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.json() && self.options.verbosity() != Verbosity::Quiet
    }

    /// Whether to show everything that happens on stderr.
    pub(crate) fn shows_events(&self) -> bool {
        !self.json() && self.options.verbosity() == Verbosity::Verbose
    }

    /// Whether stderr is a terminal on which lines can be rewritten.
    pub(crate) fn is_live(&self) -> bool {
        self.shows_progress() && std::io::stderr().is_terminal()
    }

    /// Opens the store to read what is there. Makes nothing.
    pub(crate) fn reader(&self) -> Result<SqliteStore, CliError> {
        self.folder.must_exist()?;
        Ok(SqliteStore::open(&self.folder.database(), Access::ReadOnly)?)
    }

    /// Opens the store to write.
    pub(crate) fn writer(&self, home: &Home) -> Result<SqliteStore, CliError> {
        let durability = match home.settings.durability {
            DurabilitySetting::Full => Durability::Full,
            DurabilitySetting::Relaxed => Durability::Relaxed,
        };
        Ok(SqliteStore::open(&self.folder.database(), Access::ReadWrite(durability))?)
    }

    /// The definitions as far as they are valid, with a word about the others.
    pub(crate) fn listed(&self) -> Result<Home, CliError> {
        let home = self.folder.read()?;
        if !home.problems.is_empty() && self.shows_progress() {
            let problems = count(home.problems.len(), "problem");
            note!("{}: {problems} in this home, see `polity check`", style::warning("warning"));
        }
        Ok(home)
    }

    /// The definitions, with the settings known to be right: limits that were misspelt would
    /// otherwise be forgotten without a word.
    pub(crate) fn definitions(&self) -> Result<Home, CliError> {
        let home = self.folder.read()?;
        let of_settings: Vec<_> =
            home.problems.iter().filter(|problem| is_settings(&problem.file)).cloned().collect();
        if of_settings.is_empty() {
            Ok(home)
        } else {
            Err(CliError::invalid("the settings are not valid", of_settings))
        }
    }

    /// The tools of the home's MCP servers. Nothing is started until it is needed.
    pub(crate) fn tools(&self, home: &Home) -> Result<McpTools, CliError> {
        // Servers that were left out because of a slip would be missed by tasks that need them.
        let of_servers: Vec<_> =
            home.problems.iter().filter(|problem| is_servers(&problem.file)).cloned().collect();
        if !of_servers.is_empty() {
            return Err(CliError::invalid("the MCP servers are not valid", of_servers));
        }
        self.valid_tools(home)
    }

    /// The tools of those MCP servers that are valid, whatever is wrong with the others.
    fn valid_tools(&self, home: &Home) -> Result<McpTools, CliError> {
        let options = McpOptions::new(self.absolute_root()?, environment(), launcher()?);
        let servers = home.mcp_servers.values().map(|server| (**server).clone());
        Ok(McpTools::new(servers, options))
    }

    /// Those who run the home's programs.
    pub(crate) fn programs(&self, home: &Home) -> Result<Arc<dyn Programs>, CliError> {
        let folder = std::env::current_dir()
            .map_err(|error| CliError::io("find", Path::new("this folder"), &error))?;
        let root = self.absolute_root()?;
        Ok(Arc::new(CliDriver::new(CliOptions {
            data: root.join("data"),
            home: root,
            folder,
            environment: environment(),
            launcher: launcher()?,
            redaction: home.settings.redaction.clone(),
            output_bytes: home.settings.limits.output_bytes,
            artifacts: ArtifactLimits {
                files: home.settings.limits.artifact_files,
                bytes: home.settings.limits.artifact_bytes,
            },
        })))
    }

    /// The home folder, wherever one stands.
    pub(crate) fn absolute_root(&self) -> Result<PathBuf, CliError> {
        std::path::absolute(self.folder.root())
            .map_err(|error| CliError::io("find", self.folder.root(), &error))
    }

    /// Who is alive.
    pub(crate) fn instances(&self) -> Instances {
        Instances::at(self.folder.instances())
    }

    /// The task that an id, or the beginning of one, stands for.
    pub(crate) fn task_row(&self, store: &dyn Store, id: &str) -> Result<TaskRow, CliError> {
        let list = "`polity task list` shows the tasks there are";
        if id == "last" {
            let newest = TaskFilter { limit: Some(1), roots_only: true, ..TaskFilter::default() };
            let none = || CliError::not_found("there are no tasks yet");
            return store.task_rows(&newest)?.pop().ok_or_else(none);
        }
        let id = id.to_lowercase();
        if id.is_empty() {
            return Err(CliError::usage("the id is empty").hint(list));
        }
        let found = store.task_ids_by_prefix(&id, 3)?;
        match found.as_slice() {
            [] => Err(CliError::not_found(format!("there is no task {id}")).hint(list)),
            [id] => store
                .task_row(*id)?
                .ok_or_else(|| CliError::not_found(format!("there is no task {id}")).hint(list)),
            _ => Err(CliError::usage(format!("several tasks begin with \"{id}\""))
                .hint("give more of the id")),
        }
    }

    /// A task with its texts, marked if its process is gone.
    pub(crate) fn task(&self, store: &dyn Store, row: &TaskRow) -> Result<Task, CliError> {
        // The owner may have finished and gone after the row was read. The dead write nothing, so
        // what is read now stays true.
        let newer = if self.is_interrupted(row) { store.task_row(row.id)? } else { None };
        let row = newer.as_ref().unwrap_or(row);
        let mut task = store.task(row)?;
        task.interrupted = self.is_interrupted(row);
        task.released = task.interrupted && row.owner.is_none();
        Ok(task)
    }

    /// Whether someone should be working on the task, and no one is.
    pub(crate) fn is_interrupted(&self, row: &TaskRow) -> bool {
        use polity_engine::runtime::Owners;
        use polity_model::machine::task::TaskStatus;
        match row.status {
            TaskStatus::Pending | TaskStatus::Running => {
                !row.owner.is_some_and(|owner| Owners::is_alive(&self.instances(), owner))
            }
            TaskStatus::AwaitingHuman
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled => false,
        }
    }
}

/// Who answers for models and tools.
pub(crate) struct Drivers {
    /// Answers for models.
    pub(crate) models: Arc<dyn Models>,
    /// Answers for tools.
    pub(crate) tools: Arc<dyn Tools>,
    /// Runs programs.
    pub(crate) programs: Arc<dyn Programs>,
    /// Has agents on other servers do work.
    pub(crate) remotes: Arc<dyn Remotes>,
    /// The servers behind the tools, which are ended with the work.
    pub(crate) servers: Option<Arc<McpTools>>,
    /// Whether people are told what waits for them. A replay asks no one, and stays offline.
    pub(crate) notifies: bool,
}

impl Drivers {
    /// The real ones.
    pub(crate) fn live(app: &App, home: &Home) -> Result<Self, CliError> {
        Ok(Self::of(app.tools(home)?, app.programs(home)?, home))
    }

    /// The real ones, as far as they are there: for what needs no server to begin with.
    pub(crate) fn available(app: &App, home: &Home) -> Result<Self, CliError> {
        Ok(Self::of(app.valid_tools(home)?, app.programs(home)?, home))
    }

    fn of(servers: McpTools, programs: Arc<dyn Programs>, home: &Home) -> Self {
        let servers = Arc::new(servers);
        let models = Arc::new(LanguageModels::new(environment()));
        let remotes = Arc::new(remotes(home));
        let tools = servers.clone();
        Self { models, tools, programs, remotes, servers: Some(servers), notifies: true }
    }
}

/// A process that performs work: it shows that it is alive for as long as this is kept.
pub(crate) struct Workshop {
    /// Runs tasks.
    pub(crate) runtime: Runtime,
    /// The store that it runs them on.
    pub(crate) store: Arc<dyn Store>,
    servers: Option<Arc<McpTools>>,
    telemetry: Telemetry,
    notices: Option<Notices>,
    _alive: Instance,
}

impl Workshop {
    /// Opens for work with the real models and tools. Must be called within a Tokio runtime.
    pub(crate) fn open(app: &App, home: &Home) -> Result<Self, CliError> {
        Self::open_with(app, home, Drivers::live(app, home)?)
    }

    /// Opens for work with these models and tools. Must be called within a Tokio runtime.
    pub(crate) fn open_with(app: &App, home: &Home, drivers: Drivers) -> Result<Self, CliError> {
        let store: Arc<dyn Store> = Arc::new(app.writer(home)?);
        let instances = app.instances();
        let io = |error| CliError::io("write", &app.folder.instances(), &error);
        if let Err(error) = instances.sweep() {
            // What the dead left behind does no harm; someone else may be able to remove it.
            tracing::warn!(%error, "the signs of ended processes could not be removed");
        }
        let id = InstanceId::from_random_bytes(SystemEntropy.seed());
        let alive = instances.register(id).map_err(io)?;
        let Drivers { models, tools, programs, remotes, servers, notifies } = drivers;
        let runtime = Runtime::start(Parts {
            store: Arc::clone(&store),
            models,
            tools,
            programs,
            remotes,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            owners: Arc::new(instances),
            instance: id,
            limits: home.settings.limits,
        })?;
        let telemetry = Telemetry::start(app, &runtime, &store, &environment());
        let settings = home.settings.on_review.clone();
        let notices =
            if notifies { Notices::start(app, settings, &runtime, &store)? } else { None };
        Ok(Self { runtime, store, servers, telemetry, notices, _alive: alive })
    }

    /// Ends what was started for the work, and waits until it is gone.
    pub(crate) async fn close(self) {
        let Self { runtime, store, servers, telemetry, notices, _alive } = self;
        drop(runtime);
        let shutdown = async {
            if let Some(servers) = servers {
                servers.shutdown().await;
            }
        };
        let told = async {
            if let Some(notices) = notices {
                notices.close().await;
            }
        };
        tokio::join!(shutdown, telemetry.close(), told);
        drop(store);
    }

    /// A task as it is in the store.
    pub(crate) fn task(&self, app: &App, id: TaskId) -> Result<Task, CliError> {
        let row = self.store.task_row(id)?.ok_or_else(|| {
            CliError::not_found(format!("task {id} is not in the store any more"))
        })?;
        app.task(&*self.store, &row)
    }
}

/// Those who reach the home's agents on other servers.
pub(crate) fn remotes(home: &Home) -> A2aRemotes {
    let output_bytes = home.settings.limits.output_bytes;
    A2aRemotes::new(RemoteOptions { environment: environment(), output_bytes })
}

/// How this program starts others.
pub(crate) fn launcher() -> Result<ProcessLauncher, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::io("find", Path::new("this program"), &error))?;
    // Elsewhere there is no way to hold a whole family of processes together.
    Ok(if cfg!(target_os = "linux") {
        ProcessLauncher::Shim(program)
    } else {
        ProcessLauncher::Direct
    })
}

/// The environment of this process. A value that is no text counts as unset.
pub(crate) fn environment() -> Environment {
    Environment::new(|name| std::env::var_os(name)?.into_string().ok())
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(
    future: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::io("start", std::path::Path::new("the runtime"), &error))?;
    runtime.block_on(future)
}
