//! Combines exit, output and shim record of a finished run into its outcome.

pub(crate) mod verdict;

use std::io::{self, Read as _};
use std::num::NonZeroU64;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use polity_engine::driver::{RunEnd, RunOutcome};
use polity_files::RegularFileError;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::run::{OutputFiles, ProcessExit, RunReport};
use polity_model::usage::Usage;

use crate::cli::invocation::answer_path::AnswerPath;
use crate::cli::output::json_rpc::RpcResponse;
use crate::cli::output::output_reader::{ParsedStream, StreamSummary};
use crate::cli::output::parser::{ANSWER_BYTES_MAX, AnswerParser, ParsedOutput};
use crate::cli::run::deadlines::MissedDeadline;
use crate::cli::run::{AgentInfo, PreparedRun, exit_without_record, system_error};
use crate::file_work::with_time_limit;
use crate::process::run_record::{EndEntry, ResourceLimit, RunExit, ShimRecord};

/// The maximum time to read the output file.
const ANSWER_FILE_WAIT: Duration = Duration::from_secs(30);

/// The reason that a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// The process exited.
    Ended,
    Stopped,
    /// A deadline passed.
    TimedOut(MissedDeadline),
    /// The process responded to its only request.
    Responded,
}

/// A run whose process tree has ended.
pub(crate) struct FinishedRun {
    pub(crate) cause: EndCause,
    pub(crate) process_id: u32,
    pub(crate) status: Option<ExitStatus>,
    pub(crate) duration: Duration,
    /// Both streams; `None` if they could not be read to the end.
    pub(crate) output: Option<OutputStreams>,
    /// The content of the output file, or the reason that it cannot be used, if there is to be one.
    pub(crate) output_file: Option<Result<Vec<u8>, String>>,
}

pub(crate) struct OutputTails {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) struct OutputStreams {
    pub(crate) stdout: StreamSummary,
    pub(crate) stderr: StreamSummary,
}

impl OutputStreams {
    fn stored(&self, folder: &str) -> OutputFiles {
        let is_stored = self.stdout.is_stored || self.stderr.is_stored;
        OutputFiles {
            folder: if is_stored { folder.to_owned() } else { String::new() },
            stdout_bytes: self.stdout.bytes,
            stderr_bytes: self.stderr.bytes,
            is_cut: self.stdout.is_truncated || self.stderr.is_truncated,
        }
    }
}

/// The outcome of a run. Writes the output entry of the record first, so that the run can be
/// recovered if this process dies before the outcome is journaled.
pub(crate) fn assemble(prepared: &PreparedRun<'_>, finished: FinishedRun) -> RunOutcome {
    let FinishedRun { cause, process_id, status, duration, output, output_file } = finished;
    let stored = output.as_ref().map(|output| output.stored(&prepared.files.output));
    let record = ShimRecord::open(&prepared.files.record).ok().flatten();
    if let (Some(record), Some(stored)) = (&record, &stored)
        && let Err(error) = record.write_output(stored)
    {
        tracing::warn!(path = %prepared.files.record.display(), %error, "cannot write the output entry of a run record");
    }
    let ended = record
        .as_ref()
        .and_then(ShimRecord::ended)
        .or_else(|| end_without_shim(prepared, cause, status, duration));
    let mut report = RunReport {
        process_id: Some(process_id),
        exit: None,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        output: stored.unwrap_or_default(),
        ..RunReport::default()
    };
    let Some(ended) = ended else {
        let stderr = output.map(|output| output.stderr.last_lines).unwrap_or_default();
        let end = match cause {
            // The process was stopped before the shim wrote its record.
            EndCause::Stopped => RunEnd::Stopped,
            _ => RunEnd::Failed(system_error(&missing_record_message(status, &stderr))),
        };
        return RunOutcome { end, report, usage: Usage::UNKNOWN };
    };
    report.resource_usage = ended.usage;
    let Some(OutputStreams { stdout, stderr }) = output else {
        let error = system_error("the output of the program could not be read completely");
        let end = RunEnd::Failed(error);
        return RunOutcome { end, report, usage: Usage::UNKNOWN };
    };
    let parsed = match output_file {
        Some(content) => content.map(|content| parse_output_file(prepared, &content)),
        None => stdout_result(stdout.parsed),
    };
    // A secret that was split across chunks may be complete now.
    let parsed = parsed.map(|parsed| parsed.masked(&prepared.mask));
    let tails = OutputTails { stdout: stdout.last_lines, stderr: stderr.last_lines };
    judge_run(&prepared.info, cause, ended.exit, (parsed, tails), report)
}

/// The message for a run without an end entry.
fn missing_record_message(status: Option<ExitStatus>, stderr: &str) -> String {
    match status.and_then(|status| status.code()) {
        Some(_) => format!("the program could not be supervised: {stderr}"),
        None => "the process that supervises the program was killed, so the exit of the program \
                 is unknown and processes of it may still run; find out what killed it, for \
                 example a lack of memory"
            .to_owned(),
    }
}

/// The end entry of a run without a shim.
fn end_without_shim(
    prepared: &PreparedRun<'_>,
    cause: EndCause,
    status: Option<ExitStatus>,
    duration: Duration,
) -> Option<EndEntry> {
    if prepared.is_shimmed {
        return None;
    }
    let status = status?;
    let exit = status.code().map(ProcessExit::Code).or(status.signal().map(ProcessExit::Signal))?;
    let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let usage = polity_model::run::ResourceUsage::default();
    Some(EndEntry { exit: exit_without_record(cause, exit), duration_ms, usage })
}

/// The outcome of a run with a complete record.
pub(crate) fn judge_run(
    info: &AgentInfo<'_>,
    cause: EndCause,
    exit: RunExit,
    (parsed, tails): (Result<ParsedOutput, String>, OutputTails),
    mut report: RunReport,
) -> RunOutcome {
    report.exit = match exit {
        RunExit::NotStarted { .. } => None,
        RunExit::Exited(exit) | RunExit::Stopped(exit) | RunExit::OverLimit(_, exit) => Some(exit),
    };
    let usage = match (exit, &parsed) {
        (RunExit::NotStarted { .. }, _) => Usage::default(),
        (_, Ok(parsed)) => parsed.usage(),
        (_, Err(_)) => Usage::UNKNOWN,
    };
    report.session_id = parsed.as_ref().ok().and_then(|parsed| parsed.session_id.clone());
    let end = match (cause, exit) {
        (_, RunExit::NotStarted { os_error }) => {
            let error = io::Error::from_raw_os_error(os_error);
            RunEnd::Failed(verdict::not_started(&info.resolved, &error))
        }
        (EndCause::Stopped, _) => RunEnd::Stopped,
        (_, RunExit::OverLimit(limit, _)) => RunEnd::Failed(limit_failure(info, limit)),
        (EndCause::TimedOut(late), RunExit::Stopped(_)) => RunEnd::TimedOut(late.message(info)),
        // The response is complete; a process that does not exit after it is no failure.
        (EndCause::Responded, RunExit::Stopped(_)) => {
            run_end(info, ProcessExit::Code(0), parsed, &tails)
        }
        (EndCause::Ended, RunExit::Stopped(_)) => {
            RunEnd::Failed(system_error("another process sent a signal that ended the run"))
        }
        (EndCause::Ended | EndCause::TimedOut(_) | EndCause::Responded, RunExit::Exited(exit)) => {
            run_end(info, exit, parsed, &tails)
        }
    };
    if !matches!(end, RunEnd::Answered(_) | RunEnd::Truncated { .. }) {
        report.last_words = tails.stderr;
    }
    RunOutcome { end, report, usage }
}

fn run_end(
    info: &AgentInfo<'_>,
    exit: ProcessExit,
    parsed: Result<ParsedOutput, String>,
    tails: &OutputTails,
) -> RunEnd {
    let parsed = parsed.map_err(|message| agent_error(message, &tails.stderr));
    let is_cut = parsed.as_ref().is_ok_and(|parsed| parsed.answer_is_cut);
    let cut_reason = parsed.as_ref().ok().and_then(|parsed| parsed.cut_reason.clone());
    let verdict = parsed.and_then(|parsed| {
        verdict::judge(&info.resolved, exit, &parsed, &tails.stderr, &tails.stdout)
    });
    match verdict {
        Ok(answer) if is_cut => {
            RunEnd::Truncated { answer, message: truncated_message(info, cut_reason.as_deref()) }
        }
        Ok(answer) => RunEnd::Answered(answer),
        Err(failure) => RunEnd::Failed(failure),
    }
}

fn truncated_message(info: &AgentInfo<'_>, cut_reason: Option<&str>) -> String {
    if let Some(reason) = cut_reason {
        return format!(
            "the answer of the program of \"{}\" is incomplete: its model stopped with the reason \
             \"{reason}\"; ask for less in one task, or use another model",
            info.name
        );
    }
    if let Some(script) = &info.resolved.script {
        return format!(
            "script \"{}\": its output was cut, because it is longer than {} MiB; have it write \
             long results to a file and print the path",
            script.label(),
            ANSWER_BYTES_MAX >> 20
        );
    }
    format!(
        "the answer of the program of \"{}\" was cut: an answer has at most {} MiB; have it write \
         long results to files and name them in the agent's artifacts",
        info.name,
        ANSWER_BYTES_MAX >> 20
    )
}

/// The parsed stdout, or the reason that it cannot be used.
pub(crate) fn stdout_result(stdout: ParsedStream) -> Result<ParsedOutput, String> {
    match stdout {
        ParsedStream::Answer(parsed) => Ok(parsed),
        ParsedStream::Response(Some(RpcResponse::Answer(answer))) => {
            Ok(ParsedOutput { answer: Some(answer), ..ParsedOutput::default() })
        }
        ParsedStream::Response(Some(RpcResponse::Error(error))) => {
            Ok(ParsedOutput { error: Some(error), ..ParsedOutput::default() })
        }
        ParsedStream::Response(Some(RpcResponse::TooLong)) => {
            Ok(ParsedOutput { answer_is_cut: true, ..ParsedOutput::default() })
        }
        ParsedStream::Response(Some(RpcResponse::Invalid(line))) => {
            Err(format!("the program wrote a line that is not JSON-RPC 2.0; {line}"))
        }
        ParsedStream::Response(None) => {
            Err("the program ended without a response to its request; it must \
                                     write a JSON-RPC 2.0 response to \"execute\" to its stdout"
                .to_owned())
        }
        ParsedStream::Nothing => Ok(ParsedOutput::default()),
    }
}

/// Reads an output file on another thread.
pub(crate) async fn read_answer_file(file: AnswerPath) -> Result<Vec<u8>, String> {
    let unreadable = unreadable_file(&file.path);
    let read = with_time_limit(ANSWER_FILE_WAIT, move || read_regular_answer(&file)).await;
    read.map_err(unreadable).flatten()
}

fn unreadable_file(path: &Path) -> impl Fn(io::Error) -> String + use<> {
    let path = path.to_owned();
    move |error| {
        format!("the output file {} of the program cannot be read: {error}", path.display())
    }
}

fn read_regular_answer(answer: &AnswerPath) -> Result<Vec<u8>, String> {
    let unreadable = unreadable_file(&answer.path);
    let file = answer.open().map_err(|error| match error {
        RegularFileError::NotRegular(kind) => format!(
            "the output file is {kind}, not a regular file: {}; the program must write its answer \
             to a regular file",
            answer.path.display()
        ),
        error @ (RegularFileError::LinkedFolder(_)
        | RegularFileError::TooLarge { .. }
        | RegularFileError::Io(_)) => unreadable(error.into()),
    })?;
    let mut bytes = Vec::new();
    file.take(ANSWER_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn parse_output_file(prepared: &PreparedRun<'_>, content: &[u8]) -> ParsedOutput {
    let is_cut = content.len() > ANSWER_BYTES_MAX;
    let resolved = &prepared.info.resolved;
    let mut parser = AnswerParser::new(&resolved.parser).with_events(&resolved.event_rules);
    // The run is over: live output is dropped.
    let _ = parser.push(&prepared.mask.mask_bytes(content));
    let parsed = parser.finish();
    ParsedOutput { answer_is_cut: parsed.answer_is_cut || is_cut, ..parsed }
}

fn agent_error(message: String, stderr: &str) -> AttemptFailure {
    let message = if stderr.is_empty() {
        message
    } else {
        format!("{message}; the last lines of its stderr:\n{stderr}")
    };
    verdict::failure(ErrorCategory::AgentError, &message)
}

fn limit_failure(info: &AgentInfo<'_>, limit: ResourceLimit) -> AttemptFailure {
    let limits = &info.agent.resource_limits;
    let (what, field, most) = match limit {
        ResourceLimit::Memory => ("megabytes of memory", "memory_mb", limits.memory_mb),
        ResourceLimit::Cpu => ("seconds of processor time", "cpu_seconds", limits.cpu_seconds),
        ResourceLimit::Processes => ("processes", "processes", limits.processes.map(Into::into)),
    };
    let most = most.map_or(0, NonZeroU64::get);
    let message = format!(
        "the program of \"{}\" used more than {most} {what} and was ended; if it needs more, raise \
         resource_limits.{field} in the agent's file",
        info.name
    );
    verdict::failure(ErrorCategory::Permanent, &message)
}
