//! The stages around a run: make the workspace, run, collect artifacts, keep or remove the
//! workspace.

use std::path::PathBuf;

use polity_definition::{AgentDefinition, CliAgent};
use polity_engine::driver::{LostRun, RunEnd, RunOutcome, RunOverrides, RunRequest};
use polity_model::failure::AttemptFailure;
use polity_model::ids::ExecutionId;
use polity_model::run::RunReport;
use polity_model::usage::Usage;

use super::{CliDriver, permanent, program_of};
use crate::cli::invocation::{self, presets};
use crate::cli::run::system_error;
use crate::cli::workspace::artifacts::{ArtifactCollector, ArtifactLimits, not_looked_for};
use crate::cli::workspace::{RunWorkspace, WorkspaceError};
use crate::masking::SecretMask;

impl CliDriver {
    /// Runs an agent in its workspace and collects its artifacts.
    pub(crate) async fn run_whole(&self, request: RunRequest<'_>) -> RunOutcome {
        if *request.stop.borrow() {
            return not_run(RunEnd::Stopped);
        }
        let cli = match program_of(request.agent) {
            Ok(cli) => cli,
            Err(error) => return not_run(RunEnd::Failed(permanent(&error))),
        };
        let space = self.space(request.agent, cli, request.overrides, request.execution_id);
        let Some(space) = space else { return self.run_in(request, cli).await };
        let (making, stop) = (space.clone(), request.stop.clone());
        let folder = match blocking(move || Ok(making.make(&stop))).await {
            Ok(Ok(folder)) => folder,
            Ok(Err(WorkspaceError::Stopped)) => {
                return self.settled(space, not_run(RunEnd::Stopped)).await;
            }
            Ok(Err(WorkspaceError::Failed(failure))) | Err(failure) => {
                return self.settled(space, not_run(RunEnd::Failed(failure))).await;
            }
        };
        let working_directory = Some(folder.to_string_lossy().into_owned());
        let overrides = RunOverrides { working_directory, envs: request.overrides.envs.clone() };
        let outcome = self.run_in(RunRequest { overrides: &overrides, ..request }, cli).await;
        self.settled(space, outcome).await
    }

    /// Collects artifacts and settles the workspace of a recovered run.
    pub(crate) async fn settle_found(&self, run: LostRun<'_>, outcome: RunOutcome) -> RunOutcome {
        let Ok(cli) = program_of(run.agent) else { return outcome };
        let settled = presets::filled(cli);
        let secrets = invocation::secrets(&settled, run.overrides, &self.options.environment);
        let space = self.space(run.agent, cli, run.overrides, run.execution_id);
        let folder = match &space {
            Some(space) => space.folder(),
            None => self.folder_of(run.agent, cli, run.overrides),
        };
        let outcome = match self.masks.of(&secrets) {
            Ok(mask) => self.with_artifacts(cli, folder, mask, run.execution_id, outcome).await,
            Err(error) => {
                tracing::warn!(%error, "the artifacts of a run are not kept");
                outcome
            }
        };
        match space {
            Some(space) => self.settled(space, outcome).await,
            None => outcome,
        }
    }

    fn space(
        &self,
        agent: &AgentDefinition,
        cli: &CliAgent,
        overrides: &RunOverrides,
        execution_id: ExecutionId,
    ) -> Option<RunWorkspace> {
        let (source, options) = (self.folder_of(agent, cli, overrides), &self.options);
        RunWorkspace::of(cli, source, &options.data, execution_id, &options.environment)
    }

    async fn run_in(&self, request: RunRequest<'_>, cli: &CliAgent) -> RunOutcome {
        let prepared = match self.prepare(&request) {
            Ok(prepared) => prepared,
            Err(failure) => return not_run(RunEnd::Failed(failure)),
        };
        let (folder, mask) = (prepared.invocation.program.folder.clone(), prepared.mask.clone());
        match self.supervise(prepared, &request).await {
            Ok(outcome) => {
                self.with_artifacts(cli, folder, mask, request.execution_id, outcome).await
            }
            Err(failure) => not_run(RunEnd::Failed(failure)),
        }
    }

    /// Collects the artifacts of a run, whether it succeeded or not.
    async fn with_artifacts(
        &self,
        cli: &CliAgent,
        folder: PathBuf,
        mask: SecretMask,
        execution_id: ExecutionId,
        mut outcome: RunOutcome,
    ) -> RunOutcome {
        if cli.artifacts.is_empty() || outcome.report.exit.is_none() {
            return outcome;
        }
        let (patterns, data) = (cli.artifacts.clone(), self.options.data.clone());
        let limits: ArtifactLimits = self.options.artifacts;
        let target = format!("output/{execution_id}/artifacts");
        let kept = blocking(move || {
            let (source, data, mask) = (&*folder, &*data, &mask);
            let keeper =
                ArtifactCollector { patterns: &patterns, source, data, target, mask, limits };
            Ok(keeper.keep().unwrap_or_else(|error| not_looked_for(&error)))
        });
        match kept.await {
            Ok(artifacts) => outcome.report.artifacts = artifacts,
            Err(failure) => outcome.end = RunEnd::Failed(failure),
        }
        outcome
    }

    /// Keeps the workspace of a successful run and removes that of any other.
    async fn settled(&self, space: RunWorkspace, mut outcome: RunOutcome) -> RunOutcome {
        match &outcome.end {
            RunEnd::Answered(_) => match blocking(move || Ok(space.keep())).await {
                Ok(kept) => outcome.report.workspace = Some(kept),
                Err(failure) => outcome.end = RunEnd::Failed(failure),
            },
            RunEnd::Failed(_) | RunEnd::TimedOut(_) | RunEnd::Stopped => {
                let removed = blocking(move || {
                    space.remove().map_err(|error| system_error(&error.to_string()))
                });
                if let Err(failure) = removed.await {
                    // Cleanup removes it at the next start.
                    tracing::warn!(%failure, "the workspace of a run is left");
                }
            }
        }
        outcome
    }
}

fn not_run(end: RunEnd) -> RunOutcome {
    RunOutcome { end, report: RunReport::default(), usage: Usage::default() }
}

/// Runs slow file operations on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AttemptFailure> + Send + 'static,
) -> Result<T, AttemptFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|stopped| Err(system_error(&stopped.to_string())))
}
