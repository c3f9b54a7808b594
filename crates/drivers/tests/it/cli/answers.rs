//! What programs are given, and what they say.

use std::path::Path;

use polity_engine::driver::{Programs, RunOverrides};
use polity_model::run::Exit;
use serde_json::json;

use super::stage::{OUTPUT_BYTES, Onlooker, SECRET, Stage, agent, answer, failure, python, sh};

#[tokio::test]
async fn the_input_goes_in_and_the_answer_comes_out() {
    let stage = Stage::new();
    let onlooker = Onlooker::default();
    let outcome = stage.watched(&agent("cat", &[], &json!({})), "hello", &onlooker).await;
    assert_eq!(answer(&outcome), "hello");
    assert_eq!(onlooker.seen(), "hello");
    assert_eq!(outcome.report.process_id, *onlooker.started.lock().unwrap());
    assert_eq!(outcome.report.exit, Some(Exit::Code(0)));
    assert_eq!((outcome.report.output.stdout_bytes, outcome.report.output.stderr_bytes), (5, 0));
    assert_eq!(stage.kept(&outcome, "stdout"), b"hello");
}

#[tokio::test]
async fn nothing_is_kept_of_a_program_that_says_nothing() {
    let stage = Stage::new();
    let outcome = stage.sh("exit 3").await;
    assert_eq!(outcome.report.exit, Some(Exit::Code(3)));
    assert_eq!(outcome.report.output.folder, "");
    assert!(!stage.path("data/output").exists());
}

#[tokio::test]
async fn what_goes_wrong_ends_with_the_last_words() {
    let stage = Stage::new();
    let outcome = stage.sh("echo first >&2; echo last >&2; exit 3").await;
    assert!(failure(&outcome).message.ends_with("first\nlast"), "{:?}", outcome.end);
    assert_eq!(outcome.report.last_words, "first\nlast");
    assert_eq!(stage.kept(&outcome, "stderr"), b"first\nlast\n");
}

#[tokio::test]
async fn a_program_need_not_read_its_input() {
    let stage = Stage::new();
    let input = "x".repeat(4 << 20);
    for script in ["echo done", "exec <&-; echo done", "sleep 0.2; echo done"] {
        let outcome = stage.run(&sh(script, &json!({})), &input).await;
        assert_eq!(answer(&outcome), "done", "{script}");
    }
}

#[tokio::test]
async fn stdin_that_is_not_used_is_empty() {
    let stage = Stage::new();
    let agent =
        agent("sh", &["-c", "cat; echo $1", "sh", "{{prompt}}"], &json!({"input_pattern": "args"}));
    assert_eq!(answer(&stage.run(&agent, "the prompt").await), "the prompt");
}

#[tokio::test]
async fn files_go_in_and_out_and_are_gone_afterwards() {
    let stage = Stage::new();
    let script = "cat $1 > $2; echo talk";
    let agent = agent(
        "sh",
        &["-c", script, "sh", "{{input_file}}", "{{output_file}}"],
        &json!({"input_pattern": "file", "output_pattern": "file"}),
    );
    let onlooker = Onlooker::default();
    let outcome = stage.watched(&agent, "in a file", &onlooker).await;
    assert_eq!(answer(&outcome), "in a file");
    assert_eq!(onlooker.seen(), "talk\n");
    let left: Vec<_> = std::fs::read_dir(stage.path("data/runs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| Path::new(name).extension().is_none_or(|ending| ending != "json"))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn a_lot_of_output_is_drained_and_counted_and_kept_up_to_the_limit() {
    let stage = Stage::new();
    let script = "import sys\nfor _ in range(8 << 10): sys.stdout.write('x' * 1023 + '\\n')";
    let outcome = stage.run(&python(script, &json!({})), "").await;
    assert_eq!(outcome.report.output.stdout_bytes, 8 << 20);
    assert!(outcome.report.output.is_cut);
    let kept = String::from_utf8(stage.kept(&outcome, "stdout")).unwrap();
    assert_eq!(kept.matches('x').count() as u64, OUTPUT_BYTES - (OUTPUT_BYTES >> 10));
    assert_eq!(kept.lines().last(), Some("[polity: the output is cut here]"));
}

#[tokio::test]
async fn an_agent_may_have_less_kept_than_the_settings_allow() {
    let stage = Stage::new();
    let agent = sh("echo 123456789", &json!({"resource_limits": {"output_bytes": 4}}));
    let outcome = stage.run(&agent, "").await;
    assert_eq!(answer(&outcome), "123456789");
    assert!(stage.kept(&outcome, "stdout").starts_with(b"1234\n["));
}

#[tokio::test]
async fn characters_survive_that_are_written_in_halves() {
    let stage = Stage::new();
    let script = "printf 'a\\303'; sleep 0.4; printf '\\251z\\n'";
    let onlooker = Onlooker::default();
    let outcome = stage.watched(&sh(script, &json!({})), "", &onlooker).await;
    assert_eq!(answer(&outcome), "a\u{e9}z");
    assert_eq!(onlooker.seen(), "a\u{e9}z\n");
    assert_eq!(stage.kept(&outcome, "stdout"), "a\u{e9}z\n".as_bytes());

    let outcome = stage.sh("printf 'half \\303'").await;
    assert_eq!(answer(&outcome), "half \u{fffd}");
    assert_eq!(stage.kept(&outcome, "stdout"), b"half \xc3");
}

#[tokio::test]
async fn a_secret_is_seen_nowhere_however_it_is_written() {
    let stage = Stage::new();
    let (first, last) = SECRET.split_at(9);
    let script = format!(
        "printf {first}; sleep 0.4; echo {last}; printf {first} >&2; sleep 0.4; echo {last} >&2; \
         [ $KEY = {SECRET} ] && exit 5"
    );
    let agent = sh(&script, &json!({"envs": {"KEY": "${TOKEN}"}}));
    let onlooker = Onlooker::default();
    let outcome = stage.watched(&agent, "", &onlooker).await;
    assert_eq!(outcome.report.exit, Some(Exit::Code(5)));
    let kept = [stage.kept(&outcome, "stdout"), stage.kept(&outcome, "stderr")].concat();
    let everything = format!(
        "{outcome:?} {} {} {}",
        onlooker.seen(),
        String::from_utf8_lossy(&kept),
        stage.programs.masked(&agent, &RunOverrides::default(), format!("it is {SECRET}.").into()),
    );
    assert!(!everything.contains(SECRET), "{everything}");
    assert_eq!(kept, b"***aple\n***aple\n");
}

#[tokio::test]
async fn a_question_without_an_end_is_shown_while_it_waits() {
    let stage = Stage::new();
    let onlooker = Onlooker::default();
    let agent = sh("printf 'Continue? '; while [ ! -e go ]; do sleep 0.01; done", &json!({}));
    let run = stage.watched(&agent, "", &onlooker);
    let look = async {
        super::stage::eventually("the question is shown", || {
            (onlooker.seen() == "Continue? ").then_some(())
        })
        .await;
        std::fs::write(stage.path("go"), "").unwrap();
    };
    let (outcome, ()) = tokio::join!(run, look);
    assert_eq!(answer(&outcome), "Continue?");
    assert_eq!(onlooker.seen(), "Continue? ");
}
