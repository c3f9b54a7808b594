//! Command-line agents: supervised processes from invocation to outcome.
//!
//! One run passes through these modules in order:
//!
//! 1. `invocation` resolves the agent's preset and builds the command line, environment, stdin and
//!    files of the process.
//! 2. The engine takes a slot, which limits concurrent runs across all processes of a home.
//! 3. `pipeline` wraps the run: it makes the `workspace` first and collects the artifacts after.
//! 4. `run` starts the process through the shim (see [`crate::process`]) and supervises it: stop
//!    requests, deadlines, usage.
//! 5. `output` reads both streams all the time: masks them, writes them to files, parses the
//!    answer, and shows them live.
//! 6. `outcome` combines exit, output and shim record into a verdict: an answer or a failure.
//! 7. `recovery` does the same for a run whose owner died, and removes the files it left.
//!
//! `shutdown` stops all runs before Polity exits.
//!
//! `driver` is the entry point: it implements the engine's trait on top of these.

mod driver;
mod installed;
mod invocation;
mod outcome;
mod output;
mod pipeline;
mod recovery;
mod run;
mod shutdown;
mod workspace;

#[cfg(test)]
mod test_agents;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::PathBuf;

use polity_definition::{AgentDefinition, CliAgent};
use polity_engine::driver::{NotReady, RunOverrides, RunRequest};
use polity_masking::RedactionSettings;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use serde_json::{Map, Value};

pub use self::installed::{InstalledAgent, find_installed, program_answers};
#[cfg(feature = "fuzz")]
pub(crate) use self::output::json_rpc::RpcResponseScanner;
pub use self::workspace::artifacts::ArtifactLimits;

use self::invocation::request_digest::RequestDigester;
use self::invocation::{RunInputs, presets};
use self::outcome::verdict;
use self::output::mask_cache::MaskCache;
use self::run::files::RunFiles;
use self::run::{AgentInfo, PreparedRun, system_error};
use self::shutdown::ActiveRuns;
use crate::environment::EnvSource;
use crate::process::{HomeProgramCheck, ProcessLauncher};

/// The command and the variables of a CLI agent, with those of its preset, before any input is
/// filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSummary {
    /// The executable and its arguments, with their placeholders.
    pub command: Vec<String>,
    /// The variables that are set.
    pub envs: BTreeMap<String, String>,
    /// The variables that are passed on from this process.
    pub env_allow: BTreeSet<String>,
}

impl CommandSummary {
    /// Resolves the agent's preset.
    pub fn of(agent: &CliAgent) -> Self {
        let resolved = presets::resolve(agent);
        let args: Vec<String> = match &resolved.script {
            Some(script) => {
                let args = script.arguments().into_iter().map(str::to_owned);
                args.chain(script.file().map(ToString::to_string)).collect()
            }
            None => resolved.args.iter().map(|arg| arg.as_str().to_owned()).collect(),
        };
        Self {
            command: std::iter::once(resolved.executable).chain(args).collect(),
            envs: resolved.envs,
            env_allow: resolved.env_allow,
        }
    }
}

/// The paths, limits and dependencies of [`CliDriver`].
#[derive(Debug, Clone)]
pub struct CliOptions {
    /// The home folder; relative paths in definitions start here.
    pub home: PathBuf,
    /// The data folder of the home.
    pub data: PathBuf,
    /// The default working directory of agents.
    pub folder: PathBuf,
    /// The source of environment variables.
    pub environment: EnvSource,
    /// The launcher for agent processes.
    pub launcher: ProcessLauncher,
    /// The check of agents whose executable is in the home.
    pub program_check: HomeProgramCheck,
    /// Redaction patterns from the settings, in addition to known secrets.
    pub redaction: RedactionSettings,
    /// The maximum output stored per run, in bytes.
    pub output_bytes: NonZeroU64,
    /// Limits on the files stored per run.
    pub artifacts: ArtifactLimits,
}

/// The driver for command-line agents.
#[derive(Debug)]
pub struct CliDriver {
    options: CliOptions,
    masks: MaskCache,
    request_digester: RequestDigester,
    active_runs: ActiveRuns,
}

impl CliDriver {
    /// Creates a driver with these options.
    pub fn new(options: CliOptions) -> Self {
        let masks = MaskCache::new(options.redaction.clone());
        let request_digester = RequestDigester::new(options.data.clone());
        Self { options, masks, request_digester, active_runs: ActiveRuns::default() }
    }

    fn prepare<'a>(&self, request: &RunRequest<'a>) -> Result<PreparedRun<'a>, AttemptFailure> {
        let (execution_id, attempt) = (request.execution_id, request.attempt);
        let files = RunFiles::new(&self.options.data, execution_id, attempt);
        let agent = cli_agent(request.agent).map_err(|error| permanent_failure(&error))?;
        let resolved = presets::resolve(agent);
        let inputs = RunInputs {
            input: request.input,
            script: request.script,
            private_folder: &files.private,
            ..self.base_inputs(request.agent, request.overrides, request.parameters)
        };
        let invocation =
            invocation::build(&resolved, inputs).map_err(|error| permanent_failure(&error))?;
        let mask = self.masks.get_or_build(&invocation.secrets);
        let mask = mask.map_err(|error| system_error(&error.to_string()))?;
        let is_shimmed = self.is_shimmed();
        let info = AgentInfo { name: request.agent.name.as_str(), agent, resolved };
        Ok(PreparedRun { info, invocation, mask, files, is_shimmed })
    }

    fn is_shimmed(&self) -> bool {
        matches!(self.options.launcher, ProcessLauncher::Shim(_))
    }

    /// The invocation inputs that are known without a task.
    fn base_inputs<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        overrides: &'a RunOverrides,
        parameters: &'a Map<String, Value>,
    ) -> RunInputs<'a> {
        RunInputs {
            agent: agent.name.as_str(),
            input: "",
            parameters,
            overrides,
            script: None,
            session_id: None,
            environment: &self.options.environment,
            home: &self.options.home,
            program_check: &self.options.program_check,
            current_folder: &self.options.folder,
            private_folder: &self.options.data,
        }
    }

    /// The working directory of a run. A missing folder is reported when the process is started.
    fn working_folder(
        &self,
        agent: &AgentDefinition,
        program: &CliAgent,
        overrides: &RunOverrides,
    ) -> PathBuf {
        let (resolved, none) = (presets::resolve(program), Map::new());
        let folder =
            invocation::working_directory(&resolved, self.base_inputs(agent, overrides, &none));
        let folder = folder.unwrap_or_else(|_| self.options.folder.clone());
        folder.canonicalize().unwrap_or(folder)
    }
}

/// The secret values that an agent receives from this environment and from a task.
pub(crate) fn agent_secrets(
    program: &CliAgent,
    overrides: &RunOverrides,
    environment: &EnvSource,
) -> Vec<String> {
    invocation::secrets(&presets::resolve(program), overrides, environment)
}

/// The command-line settings of an agent.
fn cli_agent(agent: &AgentDefinition) -> Result<&CliAgent, NotReady> {
    agent.program().ok_or_else(|| NotReady {
        message: format!("the agent \"{}\" is not a command-line agent", agent.name),
        hint: "set its kind to cli".to_owned(),
    })
}

fn permanent_failure(not_ready: &NotReady) -> AttemptFailure {
    let message = format!("{}; {}", not_ready.message, not_ready.hint);
    verdict::failure(ErrorCategory::Permanent, &message)
}
