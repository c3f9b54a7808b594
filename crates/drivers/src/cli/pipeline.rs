//! The stages around a run: create the workspace, run, collect artifacts, settle the workspace.

use std::path::PathBuf;
use std::time::Duration;

use polity_definition::{AgentDefinition, CliAgent};
use polity_engine::driver::{LostRun, RunEnd, RunOutcome, RunOverrides, RunRequest};
use polity_masking::SecretMask;
use polity_model::failure::AttemptFailure;
use polity_model::ids::ExecutionId;
use polity_model::run::RunReport;
use polity_model::usage::Usage;
use tokio::sync::watch;

use super::{CliDriver, cli_agent, permanent_failure};
use crate::cli::invocation::{self, presets};
use crate::cli::run::system_error;
use crate::cli::workspace::artifacts::{ArtifactCollector, ArtifactLimits, unsearchable};
use crate::cli::workspace::{RunWorkspace, WorkspaceError};
use crate::file_work::with_time_limit;

/// The maximum duration of file operations on a workspace. Git commands have a shorter one.
const FILE_WORK_MAX: Duration = Duration::from_hours(1);

impl CliDriver {
    /// Runs an agent in its workspace and collects its artifacts.
    pub(crate) async fn run_pipeline(&self, request: RunRequest<'_>) -> RunOutcome {
        if *request.stop.borrow() {
            return not_run(RunEnd::Stopped);
        }
        let cli = match cli_agent(request.agent) {
            Ok(cli) => cli,
            Err(error) => return not_run(RunEnd::Failed(permanent_failure(&error))),
        };
        let workspace =
            self.workspace_for(request.agent, cli, request.overrides, request.execution_id);
        let Some(workspace) = workspace else { return self.run_in_folder(request, cli).await };
        let (new_workspace, stop) = (workspace.clone(), request.stop.clone());
        let settle_stop = stop.clone();
        let folder = match run_blocking(move || Ok(new_workspace.create(&stop))).await {
            Ok(Ok(folder)) => folder,
            Ok(Err(WorkspaceError::Stopped)) => {
                return self.settle(workspace, not_run(RunEnd::Stopped), settle_stop).await;
            }
            Ok(Err(WorkspaceError::Failed(failure))) | Err(failure) => {
                let outcome = not_run(RunEnd::Failed(failure));
                return self.settle(workspace, outcome, settle_stop).await;
            }
        };
        let working_directory = Some(folder.to_string_lossy().into_owned());
        let overrides = RunOverrides { working_directory, envs: request.overrides.envs.clone() };
        let outcome =
            self.run_in_folder(RunRequest { overrides: &overrides, ..request }, cli).await;
        self.settle(workspace, outcome, settle_stop).await
    }

    /// Collects artifacts and settles the workspace of a recovered run.
    pub(crate) async fn settle_recovered(
        &self,
        run: LostRun<'_>,
        outcome: RunOutcome,
    ) -> RunOutcome {
        let Ok(cli) = cli_agent(run.agent) else { return outcome };
        let resolved = presets::resolve(cli);
        let secrets = invocation::secrets(&resolved, run.overrides, &self.options.environment);
        let workspace = self.workspace_for(run.agent, cli, run.overrides, run.execution_id);
        let folder = match workspace.clone() {
            Some(workspace) => {
                let stop = self.active_runs.stop_signal();
                match run_blocking(move || Ok(workspace.working_directory(&stop))).await {
                    Ok(folder) => folder,
                    Err(failure) => return RunOutcome { end: RunEnd::Failed(failure), ..outcome },
                }
            }
            None => self.working_folder(run.agent, cli, run.overrides),
        };
        let outcome = match self.masks.get_or_build(&secrets) {
            Ok(mask) => self.collect_artifacts(cli, folder, mask, run.execution_id, outcome).await,
            Err(error) => {
                tracing::warn!(%error, "cannot collect the artifacts of a run");
                outcome
            }
        };
        match workspace {
            Some(workspace) => {
                self.settle(workspace, outcome, self.active_runs.stop_signal()).await
            }
            None => outcome,
        }
    }

    fn workspace_for(
        &self,
        agent: &AgentDefinition,
        cli: &CliAgent,
        overrides: &RunOverrides,
        execution_id: ExecutionId,
    ) -> Option<RunWorkspace> {
        let source = self.working_folder(agent, cli, overrides);
        RunWorkspace::for_agent(cli, source, execution_id, &self.options)
    }

    async fn run_in_folder(&self, request: RunRequest<'_>, cli: &CliAgent) -> RunOutcome {
        let prepared = match self.prepare(&request) {
            Ok(prepared) => prepared,
            Err(failure) => return not_run(RunEnd::Failed(failure)),
        };
        let (folder, mask) = (prepared.invocation.program.folder.clone(), prepared.mask.clone());
        match self.supervise(prepared, &request).await {
            Ok(outcome) => {
                self.collect_artifacts(cli, folder, mask, request.execution_id, outcome).await
            }
            Err(failure) => not_run(RunEnd::Failed(failure)),
        }
    }

    /// Collects the artifacts of a run, whether it succeeded or not.
    async fn collect_artifacts(
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
        let collected = run_blocking(move || {
            let (source, data, mask) = (&*folder, &*data, &mask);
            let collector =
                ArtifactCollector { patterns: &patterns, source, data, target, mask, limits };
            Ok(collector.collect().unwrap_or_else(|error| unsearchable(&error)))
        });
        match collected.await {
            Ok(artifacts) => outcome.report.artifacts = artifacts,
            Err(failure) => outcome.end = RunEnd::Failed(failure),
        }
        outcome
    }

    /// Keeps the workspace of a successful run and removes that of any other.
    async fn settle(
        &self,
        workspace: RunWorkspace,
        mut outcome: RunOutcome,
        stop: watch::Receiver<bool>,
    ) -> RunOutcome {
        match &outcome.end {
            RunEnd::Answered(_) | RunEnd::Truncated { .. } => {
                match run_blocking(move || Ok(workspace.finish(&stop))).await {
                    Ok(collected) => outcome.report.workspace = Some(collected),
                    Err(failure) => outcome.end = RunEnd::Failed(failure),
                }
            }
            RunEnd::Failed(_) | RunEnd::TimedOut(_) | RunEnd::Stopped => {
                let removed = run_blocking(move || {
                    workspace.remove(&stop).map_err(|error| system_error(&error.to_string()))
                });
                if let Err(failure) = removed.await {
                    // Cleanup removes it at the next start.
                    tracing::warn!(%failure, "cannot remove the workspace of a run");
                }
            }
        }
        outcome
    }
}

fn not_run(end: RunEnd) -> RunOutcome {
    RunOutcome { end, report: RunReport::default(), usage: Usage::default() }
}

/// Runs slow file operations on a thread of their own.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AttemptFailure> + Send + 'static,
) -> Result<T, AttemptFailure> {
    let done = with_time_limit(FILE_WORK_MAX, work).await;
    done.unwrap_or_else(|error| Err(system_error(&error.to_string())))
}
