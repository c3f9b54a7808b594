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

use polity_definition::{EmptyOutputPolicy, ErrorStream, OutputFormat};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::run::ProcessExit;
use regex::Regex;

use self::failure_patterns::{FAILURE_PATTERNS, FailurePattern, hint, script_hint};
use crate::cli::invocation::presets::ResolvedAgent;
use crate::cli::output::parser::ParsedOutput;

/// Exit codes of shells for a command that cannot be run or is not found.
const EXIT_NOT_RUN: [i32; 2] = [126, 127];

/// The maximum length of a quoted error, in characters.
const ERROR_CHARACTERS_MAX: usize = 2000;

/// The verdict on a run that exited. Both tails are the last lines of the streams.
pub(crate) fn judge(
    resolved: &ResolvedAgent,
    exit: ProcessExit,
    parsed: &ParsedOutput,
    stderr_tail: &str,
    stdout_tail: &str,
) -> Result<String, AttemptFailure> {
    let sources = MessageSources {
        error: parsed.error.as_deref().unwrap_or_default(),
        stderr: stderr_tail,
        stdout: stdout_tail,
        answer: parsed.answer.as_deref().unwrap_or_default(),
    };
    let failures = FailureBuilder { resolved, stderr_tail };
    if let Some(RuleMatch { category, rule, line }) = find_rule_match(resolved, &sources)? {
        let what = format!("its output matches {rule} ({exit})");
        let error = if sources.error.is_empty() { line } else { sources.error };
        return Err(failures.build(category, &what, error));
    }
    if parsed.error.is_some() {
        let category = common_category(&sources).unwrap_or(ErrorCategory::AgentError);
        let what = format!("it reported an error ({exit})");
        return Err(failures.build(category, &what, sources.error));
    }
    let is_success =
        matches!(exit, ProcessExit::Code(code) if resolved.success_exit_codes.contains(&code));
    if !is_success {
        return Err(failures.exit_failure(exit, &sources));
    }
    check_answer(&failures, parsed, &sources)
}

/// A failure whose message starts with its category.
pub(crate) fn failure(category: ErrorCategory, message: &str) -> AttemptFailure {
    AttemptFailure { category, message: format!("{} error: {message}", category_name(category)) }
}

fn category_name(category: ErrorCategory) -> String {
    category.label().trim_end_matches("_error").replace('_', " ")
}

/// The failure of a process that could not be started.
pub(crate) fn not_started(resolved: &ResolvedAgent, error: &io::Error) -> AttemptFailure {
    use io::ErrorKind as Kind;
    let failures = FailureBuilder { resolved, stderr_tail: "" };
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
    failures.build(category, &format!("it could not be started: {error}"), "")
}

/// The texts in which error rules and patterns are searched.
struct MessageSources<'a> {
    error: &'a str,
    stderr: &'a str,
    stdout: &'a str,
    answer: &'a str,
}

impl<'a> MessageSources<'a> {
    fn for_stream(&self, stream: ErrorStream) -> Vec<&'a str> {
        match stream {
            ErrorStream::Stderr => vec![self.error, self.stderr],
            ErrorStream::Stdout => vec![self.error, self.answer, self.stdout],
            ErrorStream::Both => vec![self.error, self.stderr, self.answer, self.stdout],
        }
    }
}

struct RuleMatch<'a> {
    category: ErrorCategory,
    rule: String,
    /// The line in which the match starts.
    line: &'a str,
}

/// The first match of the error rules. Those of the definition precede those of the preset.
fn find_rule_match<'a>(
    resolved: &ResolvedAgent,
    sources: &MessageSources<'a>,
) -> Result<Option<RuleMatch<'a>>, AttemptFailure> {
    let own = resolved.error_rules.iter().enumerate().map(|(index, rule)| {
        (rule.pattern.as_str(), rule.stream, rule.category, format!("error_rules[{index}]"))
    });
    let known = resolved.preset_rules.iter().map(|(pattern, category)| {
        (*pattern, ErrorStream::Stdout, *category, "a rule of the preset".to_owned())
    });
    for (pattern, stream, category, rule) in own.chain(known) {
        let regex = Regex::new(pattern).map_err(|error| AttemptFailure {
            category: ErrorCategory::Permanent,
            message: format!("permanent error: {rule} cannot be used: {error}; make it simpler"),
        })?;
        let mut texts = sources.for_stream(stream).into_iter();
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
fn common_category(sources: &MessageSources<'_>) -> Option<ErrorCategory> {
    find_pattern(sources).map(|reason| reason.category)
}

fn find_pattern<'r>(sources: &MessageSources<'_>) -> Option<&'r FailurePattern> {
    [sources.error, sources.stderr]
        .into_iter()
        .find_map(|text| FAILURE_PATTERNS.iter().find(|reason| reason.pattern.is_match(text)))
}

fn check_answer(
    failures: &FailureBuilder<'_>,
    parsed: &ParsedOutput,
    sources: &MessageSources<'_>,
) -> Result<String, AttemptFailure> {
    let parser = &failures.resolved.parser;
    let failed = |what: &str| {
        let category = common_category(sources).unwrap_or(ErrorCategory::AgentError);
        Err(failures.build(category, what, ""))
    };
    // The rest of a cut answer, or its final event, is beyond the size limit.
    if parsed.answer_is_cut {
        return Ok(parsed.answer.clone().unwrap_or_default());
    }
    // The output of a script is data, in which a replaced character is a wrong one.
    if let (Some(_), Some(offset)) = (&failures.resolved.script, parsed.invalid_utf8_at) {
        let what = format!(
            "byte {offset} of its stdout is not UTF-8 (counted from 0); a script prints JSON in UTF-8"
        );
        return Err(failures.build(ErrorCategory::AgentError, &what, ""));
    }
    if parser.terminal.is_some() && !parsed.terminal_event_seen {
        return failed("its final event is missing, so its output is incomplete");
    }
    let is_accepted = match failures.resolved.empty_output {
        EmptyOutputPolicy::Accept => parsed.documents == 0 && sources.stdout.trim().is_empty(),
        EmptyOutputPolicy::Fail => false,
    };
    match (&parsed.answer, parser.format) {
        (Some(answer), _) => Ok(answer.clone()),
        // An agent that reports completion may have nothing to say.
        (None, _) if parsed.terminal_event_seen => Ok(String::new()),
        (None, _) if is_accepted => Ok(String::new()),
        (None, OutputFormat::Text) => failed(match &failures.resolved.script {
            None => "it gave no answer: its output is empty (empty_output: accept allows that)",
            Some(_) => {
                "it printed nothing; a script prints one JSON value, such as null \
                 (empty_output: accept on the node allows an empty output)"
            }
        }),
        (None, OutputFormat::Json | OutputFormat::Jsonl | OutputFormat::StreamJson) => {
            failed(&if parsed.documents == 0 {
                "it gave no answer: there is no JSON in its output".to_owned()
            } else {
                let at = parser.answer.as_ref().map_or("", |pick| pick.at.as_str());
                format!("it gave no answer: the JSON in its output has no \"{at}\"")
            })
        }
    }
}

struct FailureBuilder<'a> {
    resolved: &'a ResolvedAgent,
    stderr_tail: &'a str,
}

impl FailureBuilder<'_> {
    fn exit_failure(&self, exit: ProcessExit, sources: &MessageSources<'_>) -> AttemptFailure {
        let (signal, by_code) = match exit {
            ProcessExit::Signal(number) => (Some(number), None),
            ProcessExit::Code(code) => (
                signals::from_exit_code(code),
                self.resolved.exit_categories.iter().find(|(known, _)| *known == code),
            ),
        };
        let (category, what) = if let Some((_, category)) = by_code {
            (*category, format!("it ended with {exit}"))
        } else if let Some(category) = common_category(sources) {
            (category, format!("it ended with {exit}"))
        } else if let Some(number) = signal {
            let has_limits = self.resolved.script.is_none();
            (signals::category(number), signals::describe(number, has_limits))
        } else if EXIT_NOT_RUN.map(ProcessExit::Code).contains(&exit) {
            let what = format!("it ended with {exit}: a command that it runs was not found");
            (ErrorCategory::SystemError, what)
        } else {
            (ErrorCategory::AgentError, format!("it ended with {exit}"))
        };
        self.build(category, &what, sources.error)
    }

    /// A failure with its category, description, hint and the last lines of stderr.
    fn build(&self, category: ErrorCategory, what: &str, error: &str) -> AttemptFailure {
        let mut message = if let Some(script) = &self.resolved.script {
            format!("script \"{}\": {what}", script.label())
        } else {
            let (kind, program) = (category_name(category), &self.resolved.executable);
            format!("{kind} error of the program \"{program}\": {what}")
        };
        let error: String = error.trim().chars().take(ERROR_CHARACTERS_MAX).collect();
        if !error.is_empty() {
            message.push_str(": ");
            message.push_str(&error);
        }
        let sources =
            MessageSources { error: &error, stderr: self.stderr_tail, stdout: "", answer: "" };
        let specific = find_pattern(&sources).filter(|reason| reason.category == category);
        message.push_str("; ");
        message.push_str(match (&self.resolved.script, specific) {
            (Some(script), _) => script_hint(script, category),
            (None, Some(reason)) => reason.hint,
            (None, None) => hint(category),
        });
        if !self.stderr_tail.trim().is_empty() {
            message.push_str("\nthe last lines of its stderr:\n");
            message.push_str(self.stderr_tail.trim_end());
        }
        AttemptFailure { category, message }
    }
}
