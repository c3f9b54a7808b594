//! What came of a run whose owner died.

use std::io;

use polity_definition::AgentDefinition;
use polity_engine::driver::RunOutcome;
use polity_model::ids::ExecutionId;
use polity_model::run::RunReport;

use super::kept;
use super::outcome::{Cause, Tails, judged, parsed};
use super::paths::Paths;
use super::presets::Output;
use super::run::{About, reader};
use super::{CliPrograms, presets, program_of};
use crate::process::Tail;
use crate::process::record::{How, Record};

impl CliPrograms {
    /// Ends what is left of a run, and says what came of it, if that is known for sure.
    pub(super) async fn look_for(
        &self,
        agent: &AgentDefinition,
        execution_id: ExecutionId,
        attempt: u32,
    ) -> Option<RunOutcome> {
        let paths = Paths::new(&self.options.data, execution_id, attempt);
        let path = paths.record.clone();
        // Waiting for the end of the shim takes a thread.
        let ended = tokio::task::spawn_blocking(move || -> io::Result<Option<Record>> {
            let record = Record::open(&path)?;
            record.as_ref().map_or(Ok(()), Record::end_what_is_left)?;
            Ok(record)
        });
        let record = ended.await.map_err(io::Error::other).flatten();
        let outcome = record.and_then(|record| match record {
            Some(record) => known(agent, &paths, &record),
            None => Ok(None),
        });
        let outcome = outcome.and_then(|outcome| paths.remove_private().map(|()| outcome));
        outcome.unwrap_or_else(|error| {
            tracing::warn!(path = %paths.record.display(), %error, "a run cannot be looked for");
            None
        })
    }
}

/// What came of a run, if the program ended by itself and all of its output was read and kept. What
/// was still in a pipe went with the one who was to read it; and so did an output file.
fn known(
    agent: &AgentDefinition,
    paths: &Paths,
    record: &Record,
) -> io::Result<Option<RunOutcome>> {
    let (Some(ended), Some(output)) = (record.ended(), record.output()) else { return Ok(None) };
    let Ok(program) = program_of(agent) else { return Ok(None) };
    let about =
        About { name: agent.name.as_str(), agent: program, settled: presets::filled(program) };
    match (ended.how, &about.settled.output) {
        (How::ByItself(_), Output::Stdout | Output::JsonRpc) if !output.is_cut => {}
        (How::ByItself(_) | How::NotStarted { .. } | How::Told(_) | How::Exceeded(..), _) => {
            return Ok(None);
        }
    }
    let (stdout, stderr) = (kept::read(&paths.stdout)?, kept::read(&paths.stderr)?);
    let tails = Tails { stdout: last_lines(&stdout), stderr: last_lines(&stderr) };
    let mut reader = reader(&about.settled, None);
    // No one looks on.
    let _ = reader.push(&stdout);
    let (stdout, _) = reader.finish();
    let report = RunReport {
        process_id: record.process_id(),
        duration_ms: ended.duration_ms,
        resource_usage: ended.usage,
        output,
        ..RunReport::default()
    };
    let said = (parsed(stdout), tails);
    Ok(Some(judged(&about, Cause::Ended, ended.how, said, report)))
}

fn last_lines(text: &[u8]) -> String {
    let mut tail = Tail::default();
    tail.push(text);
    tail.last_lines()
}
