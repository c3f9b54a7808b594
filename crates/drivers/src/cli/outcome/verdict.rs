//! Decides whether a run succeeded: an answer, or a failure with a hint.
//!
//! The exit code is not enough: some programs exit with 0 if the model refused their key. A run
//! succeeds if its exit code is a success code, no error rule matches, the program reported no
//! error, and its final event or an answer is present.

mod failure_patterns;
mod signals;

#[cfg(test)]
#[path = "verdict/verdict_tests.rs"]
mod tests;

use std::io;

use polity_definition::{ErrorStream, OutputFormat};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::run::ProcessExit;
use regex::Regex;

use self::failure_patterns::{COMMON, FailurePattern, hint};
use crate::cli::invocation::presets::ResolvedAgent;
use crate::cli::output::parser::{ANSWER_BYTES_MAX, ParsedOutput};

/// Exit codes of shells for a command that cannot be run or is not found.
const EXIT_NOT_RUN: [i32; 2] = [126, 127];

/// The maximum length of a quoted error, in characters.
const ERROR_CHARACTERS_MAX: usize = 2000;

/// The verdict on a run that exited. Both tails are the last lines of the streams.
pub(crate) fn judge(
    settled: &ResolvedAgent,
    exit: ProcessExit,
    parsed: &ParsedOutput,
    stderr_tail: &str,
    stdout_tail: &str,
) -> Result<String, AttemptFailure> {
    let heard = MessageSources {
        error: parsed.error.as_deref().unwrap_or_default(),
        stderr: stderr_tail,
        stdout: stdout_tail,
        answer: parsed.answer.as_deref().unwrap_or_default(),
    };
    let told = FailureBuilder { settled, stderr_tail };
    if let Some(RuleMatch { category, rule, line }) = decided(settled, &heard)? {
        let what = format!("its output has what {rule} looks for ({exit})");
        let error = if heard.error.is_empty() { line } else { heard.error };
        return Err(told.failure(category, &what, error));
    }
    if parsed.error.is_some() {
        let category = common(&heard).unwrap_or(ErrorCategory::AgentError);
        let what = format!("it reported an error ({exit})");
        return Err(told.failure(category, &what, heard.error));
    }
    let went_well = match exit {
        ProcessExit::Code(code) => settled.success_exit_codes.contains(&code),
        ProcessExit::Signal(_) => false,
    };
    if !went_well {
        return Err(told.ended_badly(exit, &heard));
    }
    answer(&told, parsed, &heard)
}

/// A failure whose message starts with its category.
pub(crate) fn failure(category: ErrorCategory, message: &str) -> AttemptFailure {
    AttemptFailure { category, message: format!("{} error: {message}", kind_of(category)) }
}

fn kind_of(category: ErrorCategory) -> String {
    category.label().trim_end_matches("_error").replace('_', " ")
}

/// The failure of a process that could not be started.
pub(crate) fn not_started(settled: &ResolvedAgent, error: &io::Error) -> AttemptFailure {
    use io::ErrorKind as Kind;
    let told = FailureBuilder { settled, stderr_tail: "" };
    let category = match error.kind() {
        Kind::NotFound
        | Kind::PermissionDenied
        | Kind::IsADirectory
        | Kind::NotADirectory
        | Kind::ArgumentListTooLong
        | Kind::InvalidInput => ErrorCategory::Permanent,
        Kind::WouldBlock | Kind::OutOfMemory | Kind::ResourceBusy | Kind::ExecutableFileBusy => {
            ErrorCategory::Transient
        }
        // `ErrorKind` has no variants for these.
        _ => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOEXEC) => ErrorCategory::Permanent,
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => ErrorCategory::Transient,
            Some(_) | None => ErrorCategory::SystemError,
        },
    };
    told.failure(category, &format!("it could not be started: {error}"), "")
}

/// The texts in which error rules and patterns are searched.
struct MessageSources<'a> {
    error: &'a str,
    stderr: &'a str,
    stdout: &'a str,
    answer: &'a str,
}

impl<'a> MessageSources<'a> {
    fn on(&self, stream: ErrorStream) -> Vec<&'a str> {
        match stream {
            ErrorStream::Stderr => vec![self.error, self.stderr],
            ErrorStream::Stdout => vec![self.error, self.answer, self.stdout],
            ErrorStream::Both => vec![self.error, self.stderr, self.answer, self.stdout],
        }
    }
}

/// A match of an error rule.
struct RuleMatch<'a> {
    category: ErrorCategory,
    /// The rule's name.
    rule: String,
    /// The line in which the match starts.
    line: &'a str,
}

/// The first match of the error rules. Those of the definition precede those of the preset.
fn decided<'a>(
    settled: &ResolvedAgent,
    heard: &MessageSources<'a>,
) -> Result<Option<RuleMatch<'a>>, AttemptFailure> {
    let own = settled.error_rules.iter().enumerate().map(|(index, rule)| {
        (rule.pattern.as_str(), rule.stream, rule.category, format!("error_rules[{index}]"))
    });
    let known = settled
        .known_rules
        .iter()
        .map(|rule| (rule.pattern, rule.stream, rule.category, "a rule of the preset".to_owned()));
    for (pattern, stream, category, rule) in own.chain(known) {
        let regex = Regex::new(pattern).map_err(|error| AttemptFailure {
            category: ErrorCategory::Permanent,
            message: format!("permanent error: {rule} cannot be used: {error}; make it simpler"),
        })?;
        let mut texts = heard.on(stream).into_iter();
        if let Some(line) = texts.find_map(|text| line_at(text, regex.find(text)?.start())) {
            return Ok(Some(RuleMatch { category, rule, line }));
        }
    }
    Ok(None)
}

/// The line of a text that contains this position.
fn line_at(text: &str, position: usize) -> Option<&str> {
    let begin = text.get(..position)?.rfind('\n').map_or(0, |newline| newline + 1);
    Some(text.get(begin..)?.lines().next().unwrap_or_default())
}

/// The category of a common error message. It classifies failures but does not detect them: an
/// answer may mention any message.
fn common(heard: &MessageSources<'_>) -> Option<ErrorCategory> {
    reason(heard).map(|reason| reason.category)
}

fn reason<'r>(heard: &MessageSources<'_>) -> Option<&'r FailurePattern> {
    [heard.error, heard.stderr]
        .into_iter()
        .find_map(|text| COMMON.iter().find(|reason| reason.pattern.is_match(text)))
}

fn answer(
    told: &FailureBuilder<'_>,
    parsed: &ParsedOutput,
    heard: &MessageSources<'_>,
) -> Result<String, AttemptFailure> {
    let parser = &told.settled.parser;
    let failed = |what: &str| {
        let category = common(heard).unwrap_or(ErrorCategory::AgentError);
        Err(told.failure(category, what, ""))
    };
    if parser.terminal.is_some() && !parsed.terminal_event_seen {
        return failed(&if parsed.lines_dropped > 0 {
            format!(
                "it printed a line of more than {ANSWER_BYTES_MAX} bytes, and the event that ends \
                 a run did not come"
            )
        } else {
            "the event that ends a run did not come, so its output is not whole".to_owned()
        });
    }
    match (&parsed.answer, parser.format) {
        (Some(answer), _) => Ok(answer.clone()),
        // An agent that reports completion may have nothing to say.
        (None, _) if parsed.terminal_event_seen => Ok(String::new()),
        (None, OutputFormat::Text) => failed("it gave no answer: its output is empty"),
        (None, OutputFormat::Json | OutputFormat::Jsonl | OutputFormat::StreamJson) => {
            failed(&if parsed.documents == 0 {
                "it gave no answer: there is no JSON in its output".to_owned()
            } else {
                let at = parser.answer.as_ref().map_or("", |pick| pick.at.as_str());
                format!("it gave no answer: nothing stands at \"{at}\" of the JSON in its output")
            })
        }
    }
}

/// Builds failure messages.
struct FailureBuilder<'a> {
    settled: &'a ResolvedAgent,
    stderr_tail: &'a str,
}

impl FailureBuilder<'_> {
    fn ended_badly(&self, exit: ProcessExit, heard: &MessageSources<'_>) -> AttemptFailure {
        let signal = match exit {
            ProcessExit::Signal(number) => Some(number),
            ProcessExit::Code(code) => signals::told_by(code),
        };
        let by_code = match exit {
            ProcessExit::Code(code) => {
                self.settled.exit_categories.iter().find(|(known, _)| *known == code)
            }
            ProcessExit::Signal(_) => None,
        };
        let (category, what) = if let Some((_, category)) = by_code {
            (*category, format!("it ended with {exit}"))
        } else if let Some(category) = common(heard) {
            (category, format!("it ended with {exit}"))
        } else if let Some(number) = signal {
            (signals::category(number), signals::in_words(number))
        } else if EXIT_NOT_RUN.map(ProcessExit::Code).contains(&exit) {
            let what = format!("it ended with {exit}: something that it runs is not there");
            (ErrorCategory::SystemError, what)
        } else {
            (ErrorCategory::AgentError, format!("it ended with {exit}"))
        };
        self.failure(category, &what, heard.error)
    }

    /// A failure with its category, description, hint and the last lines of stderr.
    fn failure(&self, category: ErrorCategory, what: &str, error: &str) -> AttemptFailure {
        let (kind, program) = (kind_of(category), &self.settled.executable);
        let mut message = format!("{kind} error of the program \"{program}\": {what}");
        let error: String = error.trim().chars().take(ERROR_CHARACTERS_MAX).collect();
        if !error.is_empty() {
            message.push_str(": ");
            message.push_str(&error);
        }
        let heard =
            MessageSources { error: &error, stderr: self.stderr_tail, stdout: "", answer: "" };
        let specific = reason(&heard).filter(|reason| reason.category == category);
        message.push_str("; ");
        message.push_str(specific.map_or_else(|| hint(category), |reason| reason.hint));
        if !self.stderr_tail.trim().is_empty() {
            message.push_str("\nthe last lines of its stderr:\n");
            message.push_str(self.stderr_tail.trim_end());
        }
        AttemptFailure { category, message }
    }
}
