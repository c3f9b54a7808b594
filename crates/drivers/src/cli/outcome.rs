//! What came of a run that is over.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use polity_engine::driver::{RunEnd, RunOutcome};
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::run::{Exit, KeptOutput, RunReport};
use polity_model::usage::Usage;

use super::clock::Late;
use super::drain::{Drained, Read};
use super::parser::{ANSWER_BYTES_MAX, Parsed, Parser};
use super::rpc::Response;
use super::run::{About, Prepared, how_without_record, system_error};
use super::verdict;
use crate::process::record::{Ended, How, Limit, Record};

/// Why a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The program ended.
    Ended,
    /// It was told to end.
    Stopped,
    /// It took too long.
    Late(Late),
    /// It has responded to its only request.
    Responded,
}

/// A run of which nothing is left.
pub(super) struct Finished {
    pub(super) cause: Cause,
    pub(super) process_id: u32,
    pub(super) status: Option<ExitStatus>,
    pub(super) duration: Duration,
    /// What it wrote; nothing if it could not be read to its end.
    pub(super) output: Option<Streams>,
}

/// The last lines of both streams.
pub(super) struct Tails {
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// What became of both streams.
pub(super) struct Streams {
    pub(super) stdout: Drained,
    pub(super) stderr: Drained,
}

impl Streams {
    fn kept(&self, folder: &str) -> KeptOutput {
        let is_kept = self.stdout.is_kept || self.stderr.is_kept;
        KeptOutput {
            folder: if is_kept { folder.to_owned() } else { String::new() },
            stdout_bytes: self.stdout.bytes,
            stderr_bytes: self.stderr.bytes,
            is_cut: self.stdout.is_cut || self.stderr.is_cut,
        }
    }
}

/// What came of a run. All that was read of it is noted first, so that the run is known whole even
/// if no one is left to journal it.
pub(super) fn of(prepared: &Prepared<'_>, finished: Finished) -> RunOutcome {
    let Finished { cause, process_id, status, duration, output } = finished;
    let kept = output.as_ref().map(|output| output.kept(&prepared.paths.output));
    let record = Record::open(&prepared.paths.record).ok().flatten();
    if let (Some(record), Some(kept)) = (&record, &kept)
        && let Err(error) = record.note_output(kept)
    {
        tracing::warn!(path = %prepared.paths.record.display(), %error, "the record is not whole");
    }
    let ended = record
        .as_ref()
        .and_then(Record::ended)
        .or_else(|| without_shim(prepared, cause, status, duration));
    let mut report = RunReport {
        process_id: Some(process_id),
        exit: None,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        output: kept.unwrap_or_default(),
        ..RunReport::default()
    };
    let Some(ended) = ended else {
        // It was told to end before it could write anything down.
        if cause == Cause::Stopped {
            return RunOutcome { end: RunEnd::Stopped, report, usage: Usage::default() };
        }
        let said = output.map(|output| output.stderr.last_lines).unwrap_or_default();
        let end = RunEnd::Failed(system_error(&unsupervised(status, &said)));
        return RunOutcome { end, report, usage: Usage::default() };
    };
    report.resource_usage = ended.usage;
    let Some(Streams { stdout, stderr }) = output else {
        let message = "the output of the program could not be read to its end";
        let end = RunEnd::Failed(system_error(message));
        return RunOutcome { end, report, usage: Usage::default() };
    };
    let said = match &prepared.invocation.output_file {
        Some(path) => from_file(prepared, path),
        None => parsed(stdout.read),
    };
    // What was in pieces when it was read may be whole now.
    let said = said.map(|parsed| parsed.masked(&prepared.mask));
    let tails = Tails { stdout: stdout.last_lines, stderr: stderr.last_lines };
    judged(&prepared.about, cause, ended.how, (said, tails), report)
}

/// Why nothing was written down of a run.
fn unsupervised(status: Option<ExitStatus>, said: &str) -> String {
    match status.and_then(|status| status.code()) {
        Some(_) => format!("the program could not be supervised: {said}"),
        None => "the process that supervises the program was killed, so it is not known how the \
                 program ended or whether something of it is left; look for what killed it, such \
                 as a lack of memory"
            .to_owned(),
    }
}

/// How it ended, where there is no shim to write it down.
fn without_shim(
    prepared: &Prepared<'_>,
    cause: Cause,
    status: Option<ExitStatus>,
    duration: Duration,
) -> Option<Ended> {
    if prepared.is_shimmed {
        return None;
    }
    let status = status?;
    let exit = status.code().map(Exit::Code).or(status.signal().map(Exit::Signal))?;
    let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let usage = polity_model::run::ResourceUsage::default();
    Some(Ended { how: how_without_record(cause, exit), duration_ms, usage })
}

/// What came of a run of which everything is known.
pub(super) fn judged(
    about: &About<'_>,
    cause: Cause,
    how: How,
    (parsed, tails): (Result<Parsed, String>, Tails),
    mut report: RunReport,
) -> RunOutcome {
    report.exit = match how {
        How::NotStarted { .. } => None,
        How::ByItself(exit) | How::Told(exit) | How::Exceeded(_, exit) => Some(exit),
    };
    let (usage, session_id) = match &parsed {
        Ok(parsed) => (parsed.usage(), parsed.session_id.clone()),
        Err(_) => (Usage::default(), None),
    };
    report.session_id = session_id;
    let end = match (cause, how) {
        (_, How::NotStarted { os_error }) => {
            let error = io::Error::from_raw_os_error(os_error);
            RunEnd::Failed(verdict::not_started(&about.settled, &error))
        }
        (Cause::Stopped, _) => RunEnd::Stopped,
        (_, How::Exceeded(limit, _)) => RunEnd::Failed(exceeded(about, limit)),
        (Cause::Late(late), How::Told(_)) => RunEnd::TimedOut(late.message(about.name)),
        // It has said what it had to say; that it did not end then is no harm.
        (Cause::Responded, How::Told(_)) => said(about, Exit::Code(0), parsed, &tails),
        (Cause::Ended, How::Told(_)) => {
            let message = "the run was ended by a signal from someone else than Polity";
            RunEnd::Failed(system_error(message))
        }
        (Cause::Ended | Cause::Late(_) | Cause::Responded, How::ByItself(exit)) => {
            said(about, exit, parsed, &tails)
        }
    };
    report.last_words = match end {
        RunEnd::Answered(_) => String::new(),
        RunEnd::Failed(_) | RunEnd::TimedOut(_) | RunEnd::Stopped => tails.stderr,
    };
    RunOutcome { end, report, usage }
}

fn said(about: &About<'_>, exit: Exit, parsed: Result<Parsed, String>, tails: &Tails) -> RunEnd {
    let judged = match parsed {
        Ok(parsed) => verdict::judge(&about.settled, exit, &parsed, &tails.stderr, &tails.stdout),
        Err(message) => Err(agent_error(message, &tails.stderr)),
    };
    match judged {
        Ok(answer) => RunEnd::Answered(answer),
        Err(failure) => RunEnd::Failed(failure),
    }
}

/// What the program said on stdout; or why that cannot be known.
pub(super) fn parsed(stdout: Read) -> Result<Parsed, String> {
    match stdout {
        Read::Answer(parsed) => Ok(parsed),
        Read::Response(Some(Response::Answer(answer))) => {
            Ok(Parsed { answer: Some(answer), ..Parsed::default() })
        }
        Read::Response(Some(Response::Error(error))) => {
            Ok(Parsed { error: Some(error), ..Parsed::default() })
        }
        Read::Response(Some(Response::Invalid(line))) => {
            Err(format!("the program wrote a line that is no JSON-RPC 2.0; {line}"))
        }
        Read::Response(None) => {
            Err("the program ended without a response to its request; it must \
                                     write a JSON-RPC 2.0 response to \"execute\" to its stdout"
                .to_owned())
        }
        Read::Nothing => Ok(Parsed::default()),
    }
}

/// What the program said in its output file; or why that cannot be known.
fn from_file(prepared: &Prepared<'_>, path: &Path) -> Result<Parsed, String> {
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut bytes));
    read.map_err(|error| {
        format!("the output file {} of the program cannot be read: {error}", path.display())
    })?;
    let mut parser = Parser::new(&prepared.about.settled.parser);
    // No one looks on any more.
    let _ = parser.push(&prepared.mask.mask_bytes(&bytes));
    Ok(parser.finish())
}

fn agent_error(message: String, stderr: &str) -> Failure {
    let message = if stderr.is_empty() {
        message
    } else {
        format!("{message}; its last words were:\n{stderr}")
    };
    verdict::failure(ErrorCategory::AgentError, &message)
}

fn exceeded(about: &About<'_>, limit: Limit) -> Failure {
    let limits = &about.agent.resource_limits;
    let (what, field, most) = match limit {
        Limit::Memory => ("megabytes of memory", "memory_mb", limits.memory_mb.map(u64::from)),
        Limit::Cpu => {
            ("seconds of processor time", "cpu_seconds", limits.cpu_seconds.map(u64::from))
        }
        Limit::Processes => {
            ("processes", "processes", limits.processes.map(|most| u64::from(most.get())))
        }
    };
    let most = most.unwrap_or_default();
    let message = format!(
        "the program of \"{}\" used more than {most} {what} and was ended; if it needs more, raise \
         resource_limits.{field} in the agent's file",
        about.name
    );
    verdict::failure(ErrorCategory::Permanent, &message)
}
