//! Tests of categories, error rules and failure messages.

use super::*;
use crate::cli::invocation::presets::resolve;
use crate::cli::test_agents::agent;

fn resolved(lines: &str) -> ResolvedAgent {
    resolve(&agent(&format!("executable_path: coder\n{lines}")))
}

fn answered(text: &str) -> ParsedOutput {
    ParsedOutput { answer: Some(text.to_owned()), ..ParsedOutput::default() }
}

fn category(resolved: &ResolvedAgent, exit: ProcessExit, stderr: &str) -> Option<ErrorCategory> {
    judge(resolved, exit, &answered("done"), stderr, "").err().map(|failure| failure.category)
}

#[test]
fn categorizes_exit_codes_signals_and_messages() {
    use ErrorCategory::{AgentError, Permanent, SystemError, Transient};
    let plain = resolved("");
    for (exit, stderr, expected) in [
        (ProcessExit::Code(0), "", None),
        // A successful run may log errors that it recovered from.
        (ProcessExit::Code(0), "429 rate limit, trying again", None),
        (ProcessExit::Code(1), "", Some(AgentError)),
        (ProcessExit::Code(1), "HTTP 429 too many requests", Some(Transient)),
        (ProcessExit::Code(1), "status 503", Some(Transient)),
        (ProcessExit::Code(1), "read ECONNRESET", Some(Transient)),
        (ProcessExit::Code(1), "request timed out", Some(Transient)),
        (ProcessExit::Code(1), "429: insufficient_quota", Some(Permanent)),
        (ProcessExit::Code(1), "401 Unauthorized", Some(Permanent)),
        (ProcessExit::Code(1), "You are not logged in", Some(Permanent)),
        (ProcessExit::Code(1), "The model `x` does not exist", Some(Permanent)),
        (ProcessExit::Code(126), "", Some(SystemError)),
        (ProcessExit::Code(127), "sh: 1: foo: not found", Some(SystemError)),
        (ProcessExit::Code(137), "", Some(SystemError)),
        (ProcessExit::Code(143), "", Some(Transient)),
        (ProcessExit::Code(145), "", Some(AgentError)),
        (ProcessExit::Signal(9), "", Some(SystemError)),
        (ProcessExit::Signal(11), "", Some(AgentError)),
        (ProcessExit::Signal(15), "", Some(Transient)),
    ] {
        assert_eq!(category(&plain, exit, stderr), expected, "{exit} {stderr}");
    }
    let lenient = resolved("success_exit_codes: [0, 3]\n");
    assert_eq!(category(&lenient, ProcessExit::Code(3), ""), None);
    assert_eq!(category(&lenient, ProcessExit::Code(4), ""), Some(AgentError));
}

#[test]
fn error_rules_of_the_definition_come_first() {
    let rules = resolved(
        "error_rules:\n- {pattern: \"401\", category: transient}\n\
         - {pattern: broken, category: permanent, stream: stdout}\n",
    );
    assert_eq!(category(&rules, ProcessExit::Code(0), "401"), Some(ErrorCategory::Transient));
    assert_eq!(category(&rules, ProcessExit::Code(0), "broken"), None);
    let answer = answered("Hello.\nit is broken, 403\nGoodbye.");
    let failure = judge(&rules, ProcessExit::Code(0), &answer, "", "").unwrap_err();
    assert_eq!(failure.category, ErrorCategory::Permanent);
    let expected = "error_rules[1] (exit code 0): it is broken, 403; check its key";
    assert!(failure.message.contains(expected), "{failure}");
}

#[test]
fn failure_has_description_hint_and_stderr_tail() {
    let failure = judge(
        &resolved(""),
        ProcessExit::Code(1),
        &ParsedOutput::default(),
        "Loading\nError: 401 invalid key\n",
        "",
    );
    insta::assert_snapshot!(failure.unwrap_err().message);
}

#[test]
fn requires_an_answer_or_the_final_event() {
    let json = "parser: {format: json, answer: /a/b}\n";
    let events = "parser: {format: stream-json, answer: /a, terminal: /end}\n";
    let complete = |parsed| ParsedOutput { terminal_event_seen: true, ..parsed };
    for (lines, parsed, expected) in [
        ("", ParsedOutput::default(), Err("its output is empty")),
        ("empty_output: accept\n", ParsedOutput::default(), Ok("")),
        (json, ParsedOutput::default(), Err("there is no JSON")),
        (
            "parser: {format: json, answer: /a/b}\nempty_output: accept\n",
            ParsedOutput::default(),
            Ok(""),
        ),
        (
            "parser: {format: json, answer: /a/b}\nempty_output: accept\n",
            ParsedOutput { documents: 1, ..ParsedOutput::default() },
            Err("the JSON in its output has no \"/a/b\""),
        ),
        (
            json,
            ParsedOutput { documents: 1, ..ParsedOutput::default() },
            Err("the JSON in its output has no \"/a/b\""),
        ),
        (events, answered("done"), Err("its final event is missing")),
        (events, complete(answered("done")), Ok("done")),
        (events, complete(ParsedOutput::default()), Ok("")),
        (
            events,
            complete(ParsedOutput { error: Some("no".into()), ..answered("done") }),
            Err("it reported an error (exit code 0): no"),
        ),
    ] {
        let end = judge(&resolved(lines), ProcessExit::Code(0), &parsed, "", "");
        match (end, expected) {
            (Ok(answer), Ok(expected)) => assert_eq!(answer, expected, "{lines}"),
            (Err(failure), Err(expected)) => {
                assert_eq!(failure.category, ErrorCategory::AgentError, "{failure}");
                assert!(failure.message.contains(expected), "{failure}");
            }
            (end, expected) => panic!("{end:?}, not {expected:?}: {lines}"),
        }
    }
}

#[test]
fn start_errors_are_transient_or_permanent() {
    use ErrorCategory::{Permanent, SystemError, Transient};
    for (errno, expected) in [
        (rustix::io::Errno::NOENT, Permanent),
        (rustix::io::Errno::ACCESS, Permanent),
        (rustix::io::Errno::NOEXEC, Permanent),
        (rustix::io::Errno::TOOBIG, Permanent),
        (rustix::io::Errno::AGAIN, Transient),
        (rustix::io::Errno::NOMEM, Transient),
        (rustix::io::Errno::MFILE, Transient),
        (rustix::io::Errno::IO, SystemError),
    ] {
        let failure = not_started(&resolved(""), &errno.into());
        assert_eq!(failure.category, expected, "{failure}");
    }
}
