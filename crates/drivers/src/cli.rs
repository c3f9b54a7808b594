//! Command-line programs as agents: started, watched, and ended to the last of their descendants.
//!
//! `presets` settles what a definition leaves open, `invocation` turns that and a task into a
//! program to start, `parser` reads what the program prints, and `verdict` says what came of it.
//! None of the four starts anything. `run` does: it starts the program through the shim and sees it
//! through, while `drain` reads what it writes, `kept` keeps it, `live` shows it, and `clock` knows
//! when it takes too long. `outcome` puts together what came of it, and `found` does so for a run
//! whose owner died. `places` says how many run at once,
//! `requests` which tasks were given the same. `whole` is a run with what is around it: a `workspace` of
//! its own before, `artifacts` after; `sweep` removes what is left when Polity was killed.

mod artifacts;
mod clock;
mod drain;
mod found;
mod invocation;
mod kept;
mod live;
mod masks;
mod outcome;
mod parser;
mod paths;
mod places;
mod presets;
mod requests;
mod rpc;
mod run;
mod sweep;
mod verdict;
mod whole;
mod workspace;

#[cfg(test)]
mod testing;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::PathBuf;

use polity_definition::{AccessType, AgentDefinition, CliAgent, Redaction, Workspace};
use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, PlaceTaken, Programs, RunIdentity, RunOutcome, RunOverrides,
    RunRequest,
};
use polity_model::digest::Digest;
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::ids::ExecutionId;
use serde_json::{Map, Value};

pub use self::artifacts::ArtifactLimits;

use self::invocation::Parts;
use self::masks::Masks;
use self::paths::Paths;
use self::places::Places;
use self::requests::Requests;
use self::run::{About, Prepared, system_error};
use self::workspace::Branch;
use crate::environment::Environment;
use crate::process::Launcher;
use crate::process::record::Record;

/// What running programs needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct CliOptions {
    /// The home, which paths in definitions are relative to.
    pub home: PathBuf,
    /// The folder of what is not edited by hand.
    pub data: PathBuf,
    /// Where Polity runs, and so do programs whose definitions do not say otherwise.
    pub folder: PathBuf,
    /// Where variables are looked up.
    pub environment: Environment,
    /// How programs are started.
    pub launcher: Launcher,
    /// What is masked besides known secrets.
    pub redaction: Redaction,
    /// The most that is kept of the output of one run.
    pub output_bytes: NonZeroU64,
    /// The most that is kept of the files of one run.
    pub artifacts: ArtifactLimits,
}

/// Runs command-line programs.
#[derive(Debug)]
pub struct CliPrograms {
    options: CliOptions,
    masks: Masks,
    places: Places,
    requests: Requests,
}

impl CliPrograms {
    /// Runs programs in these surroundings.
    pub fn new(options: CliOptions) -> Self {
        let masks = Masks::new(options.redaction.clone());
        let places = Places::new(options.data.join("places"));
        let requests = Requests::new(options.data.clone());
        Self { options, masks, places, requests }
    }

    fn prepare<'a>(&self, request: &RunRequest<'a>) -> Result<Prepared<'a>, Failure> {
        let (execution_id, attempt) = (request.execution_id, request.attempt);
        let paths = Paths::new(&self.options.data, execution_id, attempt);
        let agent = program_of(request.agent).map_err(|error| permanent(&error))?;
        let settled = presets::filled(agent);
        let parts = Parts {
            input: request.input,
            private_folder: &paths.private,
            ..self.parts(request.agent, request.overrides, request.parameters)
        };
        let invocation = invocation::build(&settled, parts).map_err(|error| permanent(&error))?;
        let mask = self.masks.of(&invocation.secrets);
        let mask = mask.map_err(|error| system_error(&error.to_string()))?;
        let is_shimmed = self.is_shimmed();
        let about = About { name: request.agent.name.as_str(), agent, settled };
        Ok(Prepared { about, invocation, mask, paths, is_shimmed })
    }

    fn is_shimmed(&self) -> bool {
        match self.options.launcher {
            Launcher::Shim(_) => true,
            Launcher::Direct => false,
        }
    }

    /// What is known before there is a task.
    fn parts<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        overrides: &'a RunOverrides,
        parameters: &'a Map<String, Value>,
    ) -> Parts<'a> {
        Parts {
            agent: agent.name.as_str(),
            input: "",
            parameters,
            overrides,
            session_id: None,
            environment: &self.options.environment,
            home: &self.options.home,
            current_folder: &self.options.folder,
            private_folder: &self.options.data,
        }
    }

    /// The folder in which a run would take place. One that is not there is missed when the program
    /// is to be started.
    fn folder_of(
        &self,
        agent: &AgentDefinition,
        program: &CliAgent,
        overrides: &RunOverrides,
    ) -> PathBuf {
        let (settled, none) = (presets::filled(program), Map::new());
        let folder = invocation::working_directory(&settled, self.parts(agent, overrides, &none));
        let folder = folder.unwrap_or_else(|_| self.options.folder.clone());
        folder.canonicalize().unwrap_or(folder)
    }
}

/// What a program is given of this environment, and by a task, that must not be seen.
pub(crate) fn secrets_of(
    program: &CliAgent,
    overrides: &RunOverrides,
    environment: &Environment,
) -> Vec<String> {
    invocation::secrets(&presets::filled(program), overrides, environment)
}

impl Programs for CliPrograms {
    fn ready(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> Result<(), NotReady> {
        let program = program_of(agent)?;
        let (settled, none) = (presets::filled(program), Map::new());
        invocation::check(&settled, self.parts(agent, overrides, &none))?;
        let folder = self.folder_of(agent, program, overrides);
        workspace::check(program, agent.name.as_str(), &folder)
    }

    /// Runs that change the same folder share a pool, whatever their agents; all others share one
    /// with the runs of the same agent. A `lock_key` overrides both.
    fn pool(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        let own = format!("agent {}", agent.name);
        let Ok(program) = program_of(agent) else { return own };
        match (&program.lock_key, program.access_type, program.workspace) {
            (Some(key), _, _) => format!("key {}", key.as_str()),
            (None, AccessType::ReadWrite, Workspace::Shared) => {
                format!("folder {}", self.folder_of(agent, program, overrides).display())
            }
            (None, AccessType::ReadOnly, _)
            | (None, AccessType::ReadWrite, Workspace::Worktree | Workspace::Copy) => own,
        }
    }

    fn take_place(&self, pool: &str, places: u32) -> Result<Option<PlaceTaken>, NotReady> {
        self.places.take(pool, places).map_err(|error| NotReady {
            message: format!("no place can be taken for a run: {error}"),
            hint: format!("look at the folder {}", self.options.data.display()),
        })
    }

    fn folder(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        let folder = match program_of(agent) {
            Ok(program) => self.folder_of(agent, program, overrides),
            Err(_) => self.options.folder.clone(),
        };
        folder.to_string_lossy().into_owned()
    }

    fn request(&self, identity: &RunIdentity<'_>) -> Option<Digest> {
        let request = self.requests.of(identity);
        // Without it the program is run for each task, which is no harm.
        request.inspect_err(|error| tracing::warn!(%error, "requests cannot be compared")).ok()
    }

    fn masked(&self, agent: &AgentDefinition, overrides: &RunOverrides, values: Value) -> Value {
        let secrets = program_of(agent).map_or(Vec::new(), |program| {
            secrets_of(program, overrides, &self.options.environment)
        });
        match self.masks.of(&secrets) {
            Ok(mask) => mask.mask_json(values),
            // What cannot be masked is not shown at all.
            Err(error) => hidden(values, &format!("[polity: not shown, because {error}]")),
        }
    }

    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(self.run_whole(request))
    }

    fn found<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async move {
            let outcome = self.look_for(run.agent, run.execution_id, run.attempt).await?;
            Some(self.settle_found(run, outcome).await)
        })
    }

    fn left_behind(&self) -> BTreeSet<ExecutionId> {
        self.all_left_behind().unwrap_or_else(|error| {
            tracing::warn!(%error, "what runs left behind cannot be listed");
            BTreeSet::new()
        })
    }

    fn end(&self, execution_id: ExecutionId, attempts: u32) {
        for attempt in 0..attempts {
            let Paths { record: path, .. } = Paths::new(&self.options.data, execution_id, attempt);
            let record = Record::open(&path);
            let ended = record.and_then(|record| record.map_or(Ok(()), |it| it.end_what_is_left()));
            if let Err(error) = ended {
                tracing::warn!(path = %path.display(), %error, "what is left of a run is not ended");
            }
        }
    }

    fn sweep(&self, execution_id: ExecutionId, keeps_workspace: bool) {
        if let Err(error) = self.sweep_one(execution_id, keeps_workspace) {
            tracing::warn!(%execution_id, %error, "what a run left behind is not removed");
        }
    }

    fn discard(&self, execution_id: ExecutionId) -> Result<(), NotReady> {
        let Self { options, .. } = self;
        let (data, environment) = (&options.data, &options.environment);
        // The branch has what the task was to bring about.
        let removed = workspace::remove_of(data, execution_id, environment, Branch::Stays);
        removed.map_err(|error| NotReady {
            message: format!("the workspace of execution {execution_id} is not removed: {error}"),
            hint: format!("look at the folder {}", data.display()),
        })
    }

    fn forget(&self, execution_id: ExecutionId, attempts: u32) {
        for attempt in 0..attempts {
            let paths = Paths::new(&self.options.data, execution_id, attempt);
            if let Err(error) = paths.forget() {
                tracing::warn!(path = %paths.record.display(), %error, "files of a run are left");
            }
        }
    }
}

/// The values with nothing to be seen of them but their names.
fn hidden(values: Value, instead: &str) -> Value {
    match values {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, hidden(value, instead))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            instead.into()
        }
    }
}

/// The program that an agent is.
fn program_of(agent: &AgentDefinition) -> Result<&CliAgent, NotReady> {
    agent.program().ok_or_else(|| NotReady {
        message: format!("the agent \"{}\" is no command-line program", agent.name),
        hint: "set its kind to cli".to_owned(),
    })
}

fn permanent(not_ready: &NotReady) -> Failure {
    let message = format!("{}; {}", not_ready.message, not_ready.hint);
    verdict::failure(ErrorCategory::Permanent, &message)
}
