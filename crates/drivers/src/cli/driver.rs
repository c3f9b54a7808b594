//! The engine's driver trait, implemented for command-line agents.

use std::collections::BTreeSet;

use polity_definition::{AccessType, AgentDefinition, WorkspaceMode};
use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, ProgramPreparation, ProgramRunner, RunCleanup, RunDedup,
    RunIdentity, RunOutcome, RunOverrides, RunRequest,
};
use polity_model::digest::Digest;
use polity_model::ids::ExecutionId;
use polity_model::usage::Usage;
use serde_json::{Map, Value};

use super::invocation::{self, presets};
use super::run::files::RunFiles;
use super::workspace::{self, BranchPolicy};
use super::{CliDriver, agent_secrets, cli_agent};
use crate::process::run_record::{ShimRecord, end_abandoned_services};

impl ProgramPreparation for CliDriver {
    fn ready(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> Result<(), NotReady> {
        let program = cli_agent(agent)?;
        let (resolved, none) = (presets::resolve(program), Map::new());
        invocation::check(&resolved, self.base_inputs(agent, overrides, &none))?;
        let folder = self.working_folder(agent, program, overrides);
        workspace::check(program, agent.name.as_str(), &folder)
    }

    /// Runs that write to the same folder share a pool, across agents. All other runs share a pool
    /// with the runs of their agent. A `lock_key` overrides both.
    fn slot_pool(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        let own = format!("agent {}", agent.name);
        let Ok(program) = cli_agent(agent) else { return own };
        // Scripts of workflows run side by side, like other steps.
        if program.script.is_some() {
            return own;
        }
        match (&program.lock_key, program.access_type, program.workspace) {
            (Some(key), _, _) => format!("key {}", key.as_str()),
            (None, AccessType::ReadWrite, WorkspaceMode::Shared) => {
                format!("folder {}", self.working_folder(agent, program, overrides).display())
            }
            (None, AccessType::ReadOnly, _)
            | (None, AccessType::ReadWrite, WorkspaceMode::Worktree | WorkspaceMode::Copy) => own,
        }
    }

    fn working_directory(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String {
        let folder = match cli_agent(agent) {
            Ok(program) => self.working_folder(agent, program, overrides),
            Err(_) => self.options.folder.clone(),
        };
        folder.to_string_lossy().into_owned()
    }

    fn mask_secrets(
        &self,
        agent: &AgentDefinition,
        overrides: &RunOverrides,
        values: Value,
    ) -> Value {
        let secrets = cli_agent(agent).map_or(Vec::new(), |program| {
            agent_secrets(program, overrides, &self.options.environment)
        });
        match self.masks.get_or_build(&secrets) {
            Ok(mask) => mask.mask_json(values),
            // Values that cannot be masked are withheld.
            Err(error) => withhold_values(values, &format!("[polity: withheld: {error}]")),
        }
    }
}

impl RunDedup for CliDriver {
    fn dedup_key(&self, identity: &RunIdentity<'_>) -> Option<Digest> {
        let request = self.request_digester.digest(identity);
        // Without a digest, duplicate tasks are not merged; each one runs.
        request
            .inspect_err(|error| tracing::warn!(%error, "cannot compute the digest of a request"))
            .ok()
    }
}

impl ProgramRunner for CliDriver {
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let outcome = self.run_until_shutdown(request).await;
            with_usage_of_script(request.agent, outcome)
        })
    }

    fn recover<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async move {
            let outcome = self.recover_outcome(run.agent, run.execution_id, run.attempt).await?;
            let outcome = self.settle_recovered(run, outcome).await;
            Some(with_usage_of_script(run.agent, outcome))
        })
    }

    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.active_runs.stop())
    }

    fn forget(&self, execution_id: ExecutionId, attempts: u32) {
        for attempt in 0..attempts {
            let files = RunFiles::new(&self.options.data, execution_id, attempt);
            if let Err(error) = files.remove() {
                tracing::warn!(path = %files.record.display(), %error, "cannot remove the files of a run");
            }
        }
    }
}

impl RunCleanup for CliDriver {
    fn leftover_executions(&self) -> BTreeSet<ExecutionId> {
        self.executions_with_files().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list the remaining files of runs");
            BTreeSet::new()
        })
    }

    fn kill_leftovers(&self, execution_id: ExecutionId, attempts: u32) {
        for attempt in 0..attempts {
            let RunFiles { record: path, .. } =
                RunFiles::new(&self.options.data, execution_id, attempt);
            let record = ShimRecord::open(&path);
            let ended = record.and_then(|record| record.map_or(Ok(()), |it| it.end_remaining()));
            if let Err(error) = ended {
                tracing::warn!(path = %path.display(), %error, "cannot end the remaining processes of a run");
            }
        }
    }

    fn remove_leftovers(&self, execution_id: ExecutionId, keeps_workspace: bool) {
        if let Err(error) = self.remove_files(execution_id, keeps_workspace) {
            tracing::warn!(%execution_id, %error, "cannot remove the remaining files of a run");
        }
    }

    fn end_leftover_services(&self) {
        if let Err(error) = end_abandoned_services(&self.options.data) {
            tracing::warn!(%error, "cannot list the records of services");
        }
    }

    fn remove_workspace(&self, execution_id: ExecutionId) -> Result<(), NotReady> {
        let data = &self.options.data;
        // The branch holds the task's result.
        let removed = workspace::discard(&self.options, execution_id, BranchPolicy::Keep);
        removed.map_err(|error| NotReady {
            message: format!(
                "the workspace of execution {execution_id} cannot be removed: {error}"
            ),
            hint: format!("check the folder {}", data.display()),
        })
    }
}

/// The outcome with the model usage of a script, which is none, as for a tool.
fn with_usage_of_script(agent: &AgentDefinition, outcome: RunOutcome) -> RunOutcome {
    match agent.program() {
        Some(cli) if cli.script.is_some() => RunOutcome { usage: Usage::default(), ..outcome },
        Some(_) | None => outcome,
    }
}

/// Replaces all values, keeping only field names.
fn withhold_values(values: Value, instead: &str) -> Value {
    match values {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, withhold_values(value, instead)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            instead.into()
        }
    }
}
