//! Recovers the outcome of a run whose owner died.

mod cleanup;

use std::io;

use polity_definition::AgentDefinition;
use polity_engine::driver::RunOutcome;
use polity_model::ids::ExecutionId;
use polity_model::run::RunReport;

use super::{CliDriver, cli_agent};
use crate::cli::invocation::presets::{self, OutputMode};
use crate::cli::outcome::{EndCause, OutputTails, judge_run, stdout_result};
use crate::cli::output::output_file::read_output_file;
use crate::cli::run::files::RunFiles;
use crate::cli::run::{AgentInfo, stdout_parser};
use crate::process::OutputTail;
use crate::process::run_record::{RunExit, ShimRecord};

impl CliDriver {
    /// Ends the remaining processes of a run and returns its outcome, if it is certain.
    pub(crate) async fn recover_outcome(
        &self,
        agent: &AgentDefinition,
        execution_id: ExecutionId,
        attempt: u32,
    ) -> Option<RunOutcome> {
        let files = RunFiles::new(&self.options.data, execution_id, attempt);
        let path = files.record.clone();
        // Waiting for the shim blocks.
        let ended = tokio::task::spawn_blocking(move || -> io::Result<Option<ShimRecord>> {
            let record = ShimRecord::open(&path)?;
            record.as_ref().map_or(Ok(()), ShimRecord::end_remaining)?;
            Ok(record)
        });
        let record = ended.await.map_err(io::Error::other).flatten();
        let outcome = record.and_then(|record| match record {
            Some(record) => recorded_outcome(agent, &files, &record),
            None => Ok(None),
        });
        let outcome = outcome.and_then(|outcome| files.remove_private().map(|()| outcome));
        outcome.unwrap_or_else(|error| {
            tracing::warn!(path = %files.record.display(), %error, "cannot recover a run");
            None
        })
    }
}

/// The outcome of a run that exited and whose output was stored completely. Unread pipes and output
/// files are lost with the owner.
fn recorded_outcome(
    agent: &AgentDefinition,
    files: &RunFiles,
    record: &ShimRecord,
) -> io::Result<Option<RunOutcome>> {
    let (Some(ended), Some(output)) = (record.ended(), record.output()) else { return Ok(None) };
    let Ok(cli) = cli_agent(agent) else { return Ok(None) };
    let info = AgentInfo { name: agent.name.as_str(), agent: cli, resolved: presets::resolve(cli) };
    let has_exited = matches!(ended.exit, RunExit::Exited(_));
    if !has_exited || matches!(info.resolved.output, OutputMode::File(_)) || output.is_cut {
        return Ok(None);
    }
    let (stdout, stderr) = (read_output_file(&files.stdout)?, read_output_file(&files.stderr)?);
    let tails = OutputTails { stdout: last_lines(&stdout), stderr: last_lines(&stderr) };
    let mut parser = stdout_parser(&info.resolved, None);
    // Nobody reads live output here.
    let _ = parser.push(&stdout);
    let (stdout, _) = parser.finish();
    let report = RunReport {
        process_id: record.process_id(),
        duration_ms: ended.duration_ms,
        resource_usage: ended.usage,
        output,
        ..RunReport::default()
    };
    let parsed = (stdout_result(stdout), tails);
    Ok(Some(judge_run(&info, EndCause::Ended, ended.exit, parsed, report)))
}

fn last_lines(text: &[u8]) -> String {
    let mut tail = OutputTail::default();
    tail.push(text);
    tail.last_lines()
}
