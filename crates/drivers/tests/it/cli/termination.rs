//! How runs end, and that nothing is left of them.

use std::fs;
use std::path::Path;

use polity_engine::driver::RunEnd;
use polity_model::ids::ExecutionId;
use polity_model::run::ProcessExit;
use serde_json::json;
use tokio::sync::watch;

use super::fixture::{
    CliFixture, ProgressRecorder, answer, eventually, is_alive, python, random, sh,
};

/// Starts a process in a session of its own that ignores SIGTERM, with a child; notes both.
const FAMILY: &str =
    r#"setsid sh -c 'trap "" TERM; sleep 1000 & echo $! $$ > pids; wait' & sleep 1000"#;

/// Forks twice, the second time in a session of its own, and ends; what is left holds the pipes.
const DOUBLE_FORK: &str = r"
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open('pids', 'w') as pids: pids.write(f'{os.getpid()}\n')
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists('pids') or not open('pids').read(): time.sleep(0.01)
print('done')
";

async fn stopped(
    fixture: &CliFixture,
    script: &str,
    more: serde_json::Value,
) -> (RunEnd, Option<ProcessExit>) {
    let (tell, stop) = watch::channel(false);
    let agent = sh(script, &more);
    let progress = ProgressRecorder::default();
    let id = ExecutionId::from_random_bytes(random());
    let run = fixture.stoppable(&agent, "", &progress, &stop, id);
    let end = async {
        fixture.numbers("pids").await;
        tell.send_replace(true);
    };
    let (outcome, ()) = tokio::join!(run, end);
    (outcome.end, outcome.report.exit)
}

#[tokio::test]
async fn a_family_ends_when_its_run_is_stopped() {
    let fixture = CliFixture::new();
    let (end, exit) = stopped(&fixture, FAMILY, json!({})).await;
    assert_eq!((end, exit), (RunEnd::Stopped, Some(ProcessExit::Signal(15))));
    let family = fixture.numbers("pids").await;
    assert_eq!(family.len(), 2);
    assert!(family.iter().all(|pid| !is_alive(*pid)));
}

#[tokio::test]
async fn a_program_may_tidy_up_when_it_is_told_to_end() {
    let fixture = CliFixture::new();
    let script =
        "trap 'echo tidied > note; exit 9' INT; echo $$ > pids; while :; do sleep 0.01; done";
    let (end, exit) = stopped(&fixture, script, json!({"stop_signal": "SIGINT"})).await;
    assert_eq!((end, exit), (RunEnd::Stopped, Some(ProcessExit::Code(9))));
    assert_eq!(fixture.read("note"), "tidied\n");
}

#[tokio::test]
async fn a_program_that_ignores_the_signal_is_killed() {
    let fixture = CliFixture::new();
    let script = "trap '' TERM; echo $$ > pids; while :; do sleep 0.01; done";
    let (end, exit) = stopped(&fixture, script, json!({})).await;
    assert_eq!((end, exit), (RunEnd::Stopped, Some(ProcessExit::Signal(9))));
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it_and_does_not_hold_its_pipes() {
    let fixture = CliFixture::new();
    let outcome = fixture.run(&python(DOUBLE_FORK, &json!({})), "").await;
    assert_eq!(answer(&outcome), "done");
    assert!(fixture.numbers("pids").await.iter().all(|pid| !is_alive(*pid)));
}

#[tokio::test]
async fn a_pipe_that_an_outsider_holds_does_not_hold_up_the_run() {
    let fixture = CliFixture::new();
    let agent = sh("echo x; echo $$ > pids; while [ ! -e go ]; do sleep 0.01; done", &json!({}));
    let hold = async {
        let pid = fixture.numbers("pids").await[0];
        let held = fs::File::options().write(true).open(format!("/proc/{pid}/fd/2")).unwrap();
        fs::write(fixture.path("go"), "").unwrap();
        held
    };
    let (outcome, _held) = tokio::join!(fixture.run(&agent, ""), hold);
    assert_eq!(answer(&outcome), "x");
}

#[tokio::test]
async fn who_loses_the_shim_is_told_so() {
    let fixture = CliFixture::new();
    let progress = ProgressRecorder::default();
    let agent = sh("echo $$ > pids; exec sleep 1000", &json!({}));
    let kill = async {
        let program = fixture.numbers("pids").await[0];
        let shim = progress.started.lock().unwrap().unwrap().cast_signed();
        for pid in [shim, program] {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    };
    let (outcome, ()) = tokio::join!(fixture.watched(&agent, "", &progress), kill);
    assert!(super::fixture::failure(&outcome).message.contains("was killed"), "{:?}", outcome.end);
}

#[tokio::test]
async fn a_family_ends_when_no_one_waits_for_it_any_more() {
    let fixture = CliFixture::new();
    let agent = sh(FAMILY, &json!({}));
    let progress = ProgressRecorder::default();
    tokio::select! {
        _ = fixture.watched(&agent, "", &progress) => panic!("it does not end by itself"),
        _ = fixture.numbers("pids") => {}
    }
    let family = fixture.numbers("pids").await;
    eventually("the family is gone", || family.iter().all(|pid| !is_alive(*pid)).then_some(()))
        .await;
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended() {
    let fixture = CliFixture::new();
    for (script, more, field) in [
        ("while :; do echo x; sleep 0.1; done", json!({"timeout": 1}), "raise timeout "),
        ("sleep 1000", json!({"start_timeout": 1}), "raise start_timeout "),
        (
            "echo x; sleep 1000",
            json!({"start_timeout": 1, "idle_timeout": 2}),
            "raise idle_timeout ",
        ),
        ("echo x; exec >&- 2>&-; sleep 1000", json!({"idle_timeout": 1}), "raise idle_timeout "),
    ] {
        let outcome = fixture.run(&sh(script, &more), "").await;
        let RunEnd::TimedOut(message) = &outcome.end else { panic!("{script}: {:?}", outcome.end) };
        assert!(message.contains(field), "{script}: {message}");
        assert_eq!(outcome.report.exit, Some(ProcessExit::Signal(15)), "{script}");
    }
}

#[tokio::test]
async fn a_place_is_taken_for_as_long_as_anything_is_left() {
    let fixture = CliFixture::new();
    let agent = sh(FAMILY, &json!({}));
    let (tell, stop) = watch::channel(false);
    let progress = ProgressRecorder::default();
    let id = ExecutionId::from_random_bytes(random());
    let others = fixture.someone_else();
    let free = || {
        use polity_engine::driver::Programs;
        let taken: Vec<_> =
            std::iter::from_fn(|| others.take_place("fixture", 100).unwrap()).collect();
        taken.len()
    };
    let run = fixture.stoppable(&agent, "", &progress, &stop, id);
    let look = async {
        fixture.numbers("pids").await;
        assert_eq!(free(), 99);
        tell.send_replace(true);
    };
    tokio::join!(run, look);
    assert_eq!(free(), 100);
}

#[tokio::test]
async fn no_descriptor_and_no_process_is_left_after_many_runs() {
    let fixture = CliFixture::new();
    let children = || {
        let me = std::process::id();
        fs::read_to_string(format!("/proc/{me}/task/{me}/children")).unwrap_or_default()
    };
    let mut pids = Vec::new();
    for _ in 0..20 {
        let outcome = fixture.sh("echo x").await;
        pids.push(outcome.report.process_id.unwrap());
    }
    let me = children();
    let mine: Vec<&str> = me.split_whitespace().collect();
    assert!(pids.iter().all(|pid| !mine.contains(&pid.to_string().as_str())), "{me}");
    let home = fixture.path("");
    let held = fs::read_dir("/proc/self/fd").unwrap();
    let held: Vec<_> = held.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).collect();
    assert!(!held.iter().any(|path| Path::new(path).starts_with(&home)), "{held:?}");
}
