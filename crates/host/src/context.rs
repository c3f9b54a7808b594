//! The home that a front end works on, with the surroundings of this process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polity_definition::{DurabilitySetting, Home, is_servers, is_settings};
use polity_drivers::EnvSource;
use polity_drivers::cli::{ArtifactLimits, CliDriver, CliOptions};
use polity_drivers::mcp::{McpOptions, McpTools};
use polity_drivers::process::ProcessLauncher;
use polity_drivers::remote::{A2aAgents, RemoteOptions};
use polity_engine::driver::ProgramDriver;
use polity_store::{CommitDurability, FileLeases, FileSlotPools, SqliteStore, StoreAccess};

use crate::error::HostError;
use crate::home_folder::HomeFolder;
use crate::home_version::HomeVersion;
use crate::queries::HomeQueries;
use crate::warning::HostWarning;

/// The function that shows warnings.
type WarningHandler = dyn Fn(HostWarning) + Send + Sync;

/// A home, the environment of this process and a handler for warnings. It opens the store and
/// creates drivers.
#[derive(Clone)]
pub struct HostContext {
    folder: HomeFolder,
    environment: EnvSource,
    on_warning: Arc<WarningHandler>,
}

impl fmt::Debug for HostContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostContext").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl HostContext {
    /// A context of a home.
    pub fn new(
        folder: HomeFolder,
        environment: EnvSource,
        on_warning: impl Fn(HostWarning) + Send + Sync + 'static,
    ) -> Self {
        Self { folder, environment, on_warning: Arc::new(on_warning) }
    }

    /// The home folder.
    pub fn folder(&self) -> &HomeFolder {
        &self.folder
    }

    /// The environment variables that drivers and telemetry see.
    pub fn environment(&self) -> &EnvSource {
        &self.environment
    }

    /// Passes a warning to the front end.
    pub(crate) fn warn(&self, warning: HostWarning) {
        (self.on_warning)(warning);
    }

    /// Opens the store for reading. Creates nothing.
    pub fn open_queries(&self) -> Result<HomeQueries, HostError> {
        Ok(self.queries_on(Arc::new(self.open_reader()?)))
    }

    /// Opens the store for reading. Creates nothing.
    pub fn open_reader(&self) -> Result<SqliteStore, HostError> {
        self.folder.must_exist()?;
        self.protect_data()?;
        Ok(SqliteStore::open(&self.folder.database(), StoreAccess::ReadOnly)?)
    }

    /// Opens the store for writing.
    pub fn open_writer(&self, home: &Home) -> Result<SqliteStore, HostError> {
        self.protect_data()?;
        let durability = match home.settings.durability {
            DurabilitySetting::Full => CommitDurability::Full,
            DurabilitySetting::Relaxed => CommitDurability::Relaxed,
        };
        Ok(SqliteStore::open(&self.folder.database(), StoreAccess::ReadWrite(durability))?)
    }

    /// Queries on a store of this home that is open already.
    pub fn queries_on(&self, store: Arc<dyn polity_store::Store>) -> HomeQueries {
        HomeQueries::new(store, Arc::new(self.leases()))
    }

    /// Reads the definitions. Fails if the settings are not valid: a misspelt limit would otherwise
    /// be ignored.
    pub fn definitions(&self) -> Result<Home, HostError> {
        expect_settings(self.folder.read()?)
    }

    /// Reads the definitions as [`Self::definitions`] does, with the version of their files.
    pub fn definitions_and_version(&self) -> Result<(Home, HomeVersion), HostError> {
        let (home, version) = self.folder.read_version()?;
        Ok((expect_settings(home)?, version))
    }

    /// The tools of the home's MCP servers. A server starts when it is first needed.
    pub fn tools(&self, home: &Home) -> Result<McpTools, HostError> {
        // A server with a mistake in its definition is left out, and tasks would miss its tools.
        let problems: Vec<_> =
            home.problems.iter().filter(|problem| is_servers(&problem.file)).cloned().collect();
        if !problems.is_empty() {
            return Err(HostError::invalid("the MCP servers are not valid", problems));
        }
        self.valid_tools(home)
    }

    /// The tools of the valid MCP servers only.
    pub(crate) fn valid_tools(&self, home: &Home) -> Result<McpTools, HostError> {
        let options = McpOptions {
            program_check: self.folder.program_check(),
            ..McpOptions::new(self.absolute_root()?, self.environment.clone(), self.launcher()?)
        };
        let servers = home.mcp_servers.values().map(|server| (**server).clone());
        Ok(McpTools::new(servers, options))
    }

    /// The driver of CLI agents.
    pub fn programs(&self, home: &Home) -> Result<Arc<dyn ProgramDriver>, HostError> {
        let folder = std::env::current_dir()
            .map_err(|error| HostError::io("find", Path::new("this folder"), error))?;
        let root = self.absolute_root()?;
        Ok(Arc::new(CliDriver::new(CliOptions {
            data: HomeFolder::data_of(&root),
            home: root,
            folder,
            environment: self.environment.clone(),
            launcher: self.launcher()?,
            program_check: self.folder.program_check(),
            redaction: home.settings.redaction.clone(),
            output_bytes: home.settings.limits.output_bytes,
            artifacts: ArtifactLimits {
                files: home.settings.limits.artifact_files,
                bytes: home.settings.limits.artifact_bytes,
            },
        })))
    }

    /// The driver of agents on other servers.
    pub fn remotes(&self, home: &Home) -> A2aAgents {
        let output_bytes = home.settings.limits.output_bytes;
        A2aAgents::new(RemoteOptions { environment: self.environment.clone(), output_bytes })
    }

    /// The absolute path of the home folder.
    pub fn absolute_root(&self) -> Result<PathBuf, HostError> {
        std::path::absolute(self.folder.root())
            .map_err(|error| HostError::io("find", self.folder.root(), error))
    }

    /// The leases of the processes that work on this home.
    pub fn leases(&self) -> FileLeases {
        FileLeases::new(self.folder.instances())
    }

    /// The concurrency slots of CLI agents in this home.
    pub(crate) fn slots(&self) -> Result<FileSlotPools, HostError> {
        Ok(FileSlotPools::new(HomeFolder::data_of(&self.absolute_root()?).join("places")))
    }

    /// The way to start child processes.
    pub(crate) fn launcher(&self) -> Result<ProcessLauncher, HostError> {
        let program = std::env::current_exe()
            .map_err(|error| HostError::io("find", Path::new("this program"), error))?;
        // Only Linux can keep a whole process tree together.
        Ok(if cfg!(target_os = "linux") {
            ProcessLauncher::Shim(program)
        } else {
            ProcessLauncher::Direct
        })
    }
}

/// Refuses definitions with invalid settings.
fn expect_settings(home: Home) -> Result<Home, HostError> {
    let problems: Vec<_> =
        home.problems.iter().filter(|problem| is_settings(&problem.file)).cloned().collect();
    if problems.is_empty() {
        Ok(home)
    } else {
        Err(HostError::invalid("the settings are not valid", problems))
    }
}

/// The environment of this process. A variable that is not UTF-8 counts as unset.
pub fn process_environment() -> EnvSource {
    EnvSource::new(|name| std::env::var_os(name)?.into_string().ok())
}
