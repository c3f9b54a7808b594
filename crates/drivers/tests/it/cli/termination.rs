//! The end of runs and of their process trees.

use std::fs;
use std::path::Path;

use polity_engine::driver::RunEnd;
use polity_model::run::ProcessExit;
use polity_store::SlotPools;
use serde_json::json;
use tokio::sync::watch;

use super::fixture::{CliFixture, ProgressRecorder, answer, failure, new_execution, python, sh};
use crate::waiting::{is_alive, kill, wait_until};

/// Starts a process and its child in a new session, ignores SIGTERM, and writes both pids.
const PROCESS_TREE: &str =
    r#"setsid sh -c 'trap "" TERM; sleep 1000 & echo $! $$ > pids; wait' & sleep 1000"#;

/// Double fork into a new session: the daemon holds the pipes.
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

async fn stop_run(
    fixture: &CliFixture,
    script: &str,
    more: serde_json::Value,
) -> (RunEnd, Option<ProcessExit>) {
    let (stop_sender, stop) = watch::channel(false);
    let agent = sh(script, &more);
    let progress = ProgressRecorder::default();
    let run = fixture.run_stoppable(&agent, "", &progress, &stop, new_execution());
    let end = async {
        let pids = fixture.read_pids("pids").await;
        assert!(pids.iter().all(|pid| is_alive(*pid)));
        stop_sender.send_replace(true);
    };
    let (outcome, ()) = tokio::join!(run, end);
    (outcome.end, outcome.report.exit)
}

#[tokio::test]
async fn stopping_a_run_ends_its_process_tree() {
    let fixture = CliFixture::new();
    let (end, exit) = stop_run(&fixture, PROCESS_TREE, json!({})).await;
    assert_eq!((end, exit), (RunEnd::Stopped, Some(ProcessExit::Signal(15))));
    let tree = fixture.read_pids("pids").await;
    assert_eq!(tree.len(), 2);
    assert!(tree.iter().all(|pid| !is_alive(*pid)));
}

#[tokio::test]
async fn process_may_clean_up_on_the_stop_signal_and_is_killed_if_it_ignores_it() {
    let wait = "echo $$ > pids; while :; do sleep 0.01; done";
    let fixture = CliFixture::new();
    let script = format!("trap 'echo tidied > note; exit 9' INT; {wait}");
    let stopped = stop_run(&fixture, &script, json!({"stop_signal": "SIGINT"})).await;
    assert_eq!(stopped, (RunEnd::Stopped, Some(ProcessExit::Code(9))));
    assert_eq!(fixture.read("note"), "tidied\n");

    let stopped = stop_run(&CliFixture::new(), &format!("trap '' TERM; {wait}"), json!({})).await;
    assert_eq!(stopped, (RunEnd::Stopped, Some(ProcessExit::Signal(9))));
}

#[tokio::test]
async fn daemons_end_with_the_run() {
    let fixture = CliFixture::new();
    let outcome = fixture.run(&python(DOUBLE_FORK, &json!({})), "").await;
    assert_eq!(answer(&outcome), "done");
    assert!(fixture.read_pids("pids").await.iter().all(|pid| !is_alive(*pid)));
}

#[tokio::test]
async fn pipe_held_by_an_outsider_does_not_block_the_run() {
    let fixture = CliFixture::new();
    let agent = sh("echo x; echo $$ > pids; while [ ! -e go ]; do sleep 0.01; done", &json!({}));
    let hold = async {
        let pid = fixture.read_pids("pids").await[0];
        let held = fs::File::options().write(true).open(format!("/proc/{pid}/fd/2")).unwrap();
        fs::write(fixture.path("go"), "").unwrap();
        held
    };
    let (outcome, _held) = tokio::join!(fixture.run(&agent, ""), hold);
    assert_eq!(answer(&outcome), "x");
}

#[tokio::test]
async fn reports_a_killed_shim() {
    let fixture = CliFixture::new();
    let progress = ProgressRecorder::default();
    let agent = sh("echo $$ > pids; exec sleep 1000", &json!({}));
    let kill = async {
        let program = fixture.read_pids("pids").await[0];
        kill(progress.started.lock().unwrap().unwrap());
        kill(program);
    };
    let (outcome, ()) = tokio::join!(fixture.run_watched(&agent, "", &progress), kill);
    assert!(failure(&outcome).message.contains("was killed"), "{:?}", outcome.end);
}

#[tokio::test]
async fn dropping_a_run_ends_its_process_tree() {
    let fixture = CliFixture::new();
    let agent = sh(PROCESS_TREE, &json!({}));
    let progress = ProgressRecorder::default();
    tokio::select! {
        _ = fixture.run_watched(&agent, "", &progress) => panic!("the run must not end on its own"),
        _ = fixture.read_pids("pids") => {}
    }
    let tree = fixture.read_pids("pids").await;
    wait_until("the tree is gone", || tree.iter().all(|pid| !is_alive(*pid))).await;
}

#[tokio::test]
async fn ends_runs_at_their_deadlines() {
    let fixture = CliFixture::new();
    for (script, more, field) in [
        ("while :; do echo x; sleep 0.1; done", json!({"timeout": 1}), "timeout"),
        ("sleep 1000", json!({"start_timeout": 1}), "start_timeout"),
        ("echo x; sleep 1000", json!({"start_timeout": 1, "idle_timeout": 2}), "idle_timeout"),
        ("echo x; exec >&- 2>&-; sleep 1000", json!({"idle_timeout": 1}), "idle_timeout"),
    ] {
        let outcome = fixture.run(&sh(script, &more), "").await;
        let RunEnd::TimedOut(message) = &outcome.end else { panic!("{script}: {:?}", outcome.end) };
        assert!(message.contains(&format!("raise {field} ")), "{script}: {message}");
        assert_eq!(outcome.report.exit, Some(ProcessExit::Signal(15)), "{script}");
    }
}

#[tokio::test]
async fn slot_is_held_until_the_process_tree_has_ended() {
    let fixture = CliFixture::new();
    let agent = sh(PROCESS_TREE, &json!({}));
    let (stop_sender, stop) = watch::channel(false);
    let progress = ProgressRecorder::default();
    let free = || {
        let others = fixture.slots();
        let take = || others.acquire("fixture", 100).wait().unwrap();
        std::iter::from_fn(take).collect::<Vec<_>>().len()
    };
    let run = fixture.run_stoppable(&agent, "", &progress, &stop, new_execution());
    let look = async {
        fixture.read_pids("pids").await;
        assert_eq!(free(), 99);
        stop_sender.send_replace(true);
    };
    tokio::join!(run, look);
    assert_eq!(free(), 100);
}

#[tokio::test]
async fn many_runs_leave_no_descriptors_or_processes() {
    let fixture = CliFixture::new();
    for _ in 0..20 {
        let outcome = fixture.sh("echo x").await;
        // An unreaped process is still listed.
        let listed = format!("/proc/{}", outcome.report.process_id.unwrap());
        assert!(!Path::new(&listed).exists(), "{listed}");
    }
    let home = fixture.path("");
    let held = fs::read_dir("/proc/self/fd").unwrap();
    let held: Vec<_> = held.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).collect();
    assert!(!held.is_empty());
    assert!(!held.iter().any(|path| Path::new(path).starts_with(&home)), "{held:?}");
}
