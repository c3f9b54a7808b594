//! Input, output and secrets.

use std::path::Path;

use polity_engine::driver::{ProgramPreparation, RunEnd, RunOverrides};
use polity_model::run::ProcessExit;
use serde_json::json;

use super::fixture::{
    CliFixture, OUTPUT_BYTES, ProgressRecorder, SECRET, agent, answer, failure, python, sh,
};
use crate::waiting::wait_until;

#[tokio::test]
async fn passes_input_and_returns_the_answer() {
    let fixture = CliFixture::new();
    let progress = ProgressRecorder::default();
    let outcome = fixture.run_watched(&agent("cat", &[], &json!({})), "hello", &progress).await;
    assert_eq!(answer(&outcome), "hello");
    assert_eq!(progress.shown(), "hello");
    assert_eq!(outcome.report.process_id, *progress.started.lock().unwrap());
    assert_eq!(outcome.report.exit, Some(ProcessExit::Code(0)));
    assert_eq!((outcome.report.output.stdout_bytes, outcome.report.output.stderr_bytes), (5, 0));
    assert_eq!(fixture.stored_output(&outcome, "stdout"), b"hello");
}

#[tokio::test]
async fn stores_nothing_for_a_silent_process() {
    let fixture = CliFixture::new();
    let outcome = fixture.sh("exit 3").await;
    assert_eq!(outcome.report.exit, Some(ProcessExit::Code(3)));
    assert_eq!(outcome.report.output.folder, "");
    assert!(!fixture.path("data/output").exists());
}

#[tokio::test]
async fn failure_ends_with_the_stderr_tail() {
    let fixture = CliFixture::new();
    let outcome = fixture.sh("echo first >&2; echo last >&2; exit 3").await;
    assert!(failure(&outcome).message.ends_with("first\nlast"), "{:?}", outcome.end);
    assert_eq!(outcome.report.last_words, "first\nlast");
    assert_eq!(fixture.stored_output(&outcome, "stderr"), b"first\nlast\n");
}

#[tokio::test]
async fn process_may_ignore_its_input() {
    let fixture = CliFixture::new();
    let input = "x".repeat(4 << 20);
    for script in ["echo done", "exec <&-; echo done", "sleep 0.2; echo done"] {
        let outcome = fixture.run(&sh(script, &json!({})), &input).await;
        assert_eq!(answer(&outcome), "done", "{script}");
    }
}

#[tokio::test]
async fn unused_stdin_is_empty() {
    let fixture = CliFixture::new();
    let agent =
        agent("sh", &["-c", "cat; echo $1", "sh", "{{prompt}}"], &json!({"input_pattern": "args"}));
    assert_eq!(answer(&fixture.run(&agent, "the prompt").await), "the prompt");
}

#[tokio::test]
async fn input_and_output_files_are_removed_after_the_run() {
    let fixture = CliFixture::new();
    let script = "cat $1 > $2; echo talk";
    let agent = agent(
        "sh",
        &["-c", script, "sh", "{{input_file}}", "{{output_file}}"],
        &json!({"input_pattern": "file", "output_pattern": "file"}),
    );
    let progress = ProgressRecorder::default();
    let outcome = fixture.run_watched(&agent, "in a file", &progress).await;
    assert_eq!(answer(&outcome), "in a file");
    assert_eq!(progress.shown(), "talk\n");
    let left: Vec<_> = std::fs::read_dir(fixture.path("data/runs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| Path::new(name).extension().is_none_or(|ending| ending != "json"))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn large_output_is_counted_and_stored_up_to_the_limit() {
    let fixture = CliFixture::new();
    let script = "import sys\nfor _ in range(8 << 10): sys.stdout.write('x' * 1023 + '\\n')";
    let outcome = fixture.run(&python(script, &json!({})), "").await;
    assert_eq!(outcome.report.output.stdout_bytes, 8 << 20);
    assert!(outcome.report.output.is_cut);
    let kept = String::from_utf8(fixture.stored_output(&outcome, "stdout")).unwrap();
    assert_eq!(kept.matches('x').count() as u64, OUTPUT_BYTES - (OUTPUT_BYTES >> 10));
    assert_eq!(kept.lines().last(), Some("[polity: the output is cut here]"));
}

#[tokio::test]
async fn answer_over_16_mib_is_truncated_not_a_success() {
    let fixture = CliFixture::new();
    let script = "import sys\nfor _ in range(17 << 10): sys.stdout.write('x' * 1023 + '\\n')";
    let to_stdout = python(script, &json!({}));
    let to_file = agent(
        "sh",
        &["-c", "head -c 17825792 /dev/zero | tr '\\0' x > $1", "sh", "{{output_file}}"],
        &json!({"output_pattern": "file"}),
    );
    for agent in [to_stdout, to_file] {
        match fixture.run(&agent, "").await.end {
            RunEnd::Truncated { answer, message } => {
                assert!((16 << 20) - 1 <= answer.len() && answer.len() <= 16 << 20);
                assert!(message.contains("an answer has at most 16 MiB"), "{message}");
            }
            end => panic!("{end:?}"),
        }
    }
}

#[tokio::test]
async fn json_answer_over_16_mib_is_truncated_not_without_json() {
    let fixture = CliFixture::new();
    let huge = "import sys\nsys.stdout.write(BEGIN + 'x' * (17 << 20) + '\"}\\n')\n";
    let response = r#"{"jsonrpc":"2.0","id":1,"result":""#;
    for (begin, more) in [
        (r#"{"a":""#, json!({"parser": {"format": "json", "answer": "/a"}})),
        (r#"{"a":""#, json!({"parser": {"format": "jsonl", "answer": "/a"}})),
        (
            r#"{"a":""#,
            json!({"parser": {"format": "stream-json", "answer": "/a", "terminal": "/end"}}),
        ),
        (response, json!({"agent_type": "json-rpc"})),
    ] {
        let script = format!("BEGIN = '{begin}'\n{huge}");
        match fixture.run(&python(&script, &more), "").await.end {
            RunEnd::Truncated { answer, message } => {
                assert_eq!(answer, "", "{more}");
                assert!(message.contains("an answer has at most 16 MiB"), "{message}");
            }
            end => panic!("{more}: {end:?}"),
        }
    }
}

#[tokio::test]
async fn agent_limit_reduces_stored_output() {
    let fixture = CliFixture::new();
    let agent = sh("echo 123456789", &json!({"resource_limits": {"output_bytes": 4}}));
    let outcome = fixture.run(&agent, "").await;
    assert_eq!(answer(&outcome), "123456789");
    assert!(fixture.stored_output(&outcome, "stdout").starts_with(b"1234\n["));
}

#[tokio::test]
async fn split_characters_are_joined() {
    let fixture = CliFixture::new();
    let script = "printf 'a\\303'; sleep 0.4; printf '\\251z\\n'";
    let progress = ProgressRecorder::default();
    let outcome = fixture.run_watched(&sh(script, &json!({})), "", &progress).await;
    assert_eq!(answer(&outcome), "a\u{e9}z");
    assert_eq!(progress.shown(), "a\u{e9}z\n");
    assert_eq!(fixture.stored_output(&outcome, "stdout"), "a\u{e9}z\n".as_bytes());

    let outcome = fixture.sh("printf 'half \\303'").await;
    assert_eq!(answer(&outcome), "half \u{fffd}");
    assert_eq!(fixture.stored_output(&outcome, "stdout"), b"half \xc3");
}

#[tokio::test]
async fn secrets_appear_nowhere() {
    let fixture = CliFixture::new();
    let (first, last) = SECRET.split_at(9);
    let script = format!(
        "printf {first}; sleep 0.4; echo {last}; printf {first} >&2; sleep 0.4; echo {last} >&2; \
         [ $KEY = {SECRET} ] && exit 5"
    );
    let agent = sh(&script, &json!({"envs": {"KEY": "${TOKEN}"}}));
    let progress = ProgressRecorder::default();
    let outcome = fixture.run_watched(&agent, "", &progress).await;
    assert_eq!(outcome.report.exit, Some(ProcessExit::Code(5)));
    let kept =
        [fixture.stored_output(&outcome, "stdout"), fixture.stored_output(&outcome, "stderr")]
            .concat();
    let (shown, kept_text) = (progress.shown(), String::from_utf8_lossy(&kept));
    let text = format!("it is {SECRET}.").into();
    let masked = fixture.driver.mask_secrets(&agent, &RunOverrides::default(), text);
    let everything = format!("{outcome:?} {shown} {kept_text} {masked}");
    assert!(!everything.contains(SECRET), "{everything}");
    assert_eq!(kept, b"***aple\n***aple\n");
}

#[tokio::test]
async fn prompt_without_line_end_is_shown() {
    let fixture = CliFixture::new();
    let progress = ProgressRecorder::default();
    let agent = sh("printf 'Continue? '; while [ ! -e go ]; do sleep 0.01; done", &json!({}));
    let run = fixture.run_watched(&agent, "", &progress);
    let look = async {
        wait_until("the question is shown", || progress.shown() == "Continue? ").await;
        std::fs::write(fixture.path("go"), "").unwrap();
    };
    let (outcome, ()) = tokio::join!(run, look);
    assert_eq!(answer(&outcome), "Continue?");
    assert_eq!(progress.shown(), "Continue? ");
}
