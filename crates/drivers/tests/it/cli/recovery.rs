//! Recovery of runs whose owner or shim died.

use std::process::{Command, Stdio};

use polity_engine::driver::ProgramRunner;
use polity_model::failure::ErrorCategory;
use serde_json::json;

use super::fixture::{CliFixture, ProgressRecorder, answer, failure, new_execution, recover, sh};
use crate::waiting::{is_alive, kill, wait_until};

#[tokio::test]
async fn recovers_a_finished_run_until_it_is_forgotten() {
    let fixture = CliFixture::new();
    let agent = sh("echo ending >&2; echo well", &json!({}));
    let id = new_execution();
    let outcome = fixture.run_as(&agent, id, &ProgressRecorder::default()).await;
    let others = fixture.other_driver();
    let recovered = recover(&others, &agent, id, 0).await.unwrap();
    assert_eq!(answer(&recovered), answer(&outcome));
    assert_eq!(recovered.report.process_id, outcome.report.process_id);
    assert_eq!(recovered.report.output, outcome.report.output);
    assert_eq!(recovered.report.exit, outcome.report.exit);
    assert_eq!(recover(&others, &agent, id, 1).await, None);
    others.forget(id, 1);
    assert_eq!(recover(&others, &agent, id, 0).await, None);
}

#[tokio::test]
async fn recovery_ends_a_running_process() {
    let fixture = CliFixture::new();
    let agent = sh("echo $$ > pids; sleep 1000", &json!({}));
    let (id, progress) = (new_execution(), ProgressRecorder::default());
    let run = fixture.run_as(&agent, id, &progress);
    let find = async {
        let pids = fixture.read_pids("pids").await;
        assert!(is_alive(pids[0]));
        assert_eq!(recover(&fixture.other_driver(), &agent, id, 0).await, None);
        assert!(!is_alive(pids[0]));
    };
    let (outcome, ()) = tokio::join!(run, find);
    assert_eq!(failure(&outcome).category, ErrorCategory::SystemError);
}

#[tokio::test]
async fn tree_ends_when_its_owner_is_killed() {
    let fixture = CliFixture::new();
    let agent = sh("", &json!({}));
    let id = new_execution();
    std::fs::create_dir_all(fixture.path("data/runs")).unwrap();
    let record = fixture.path(&format!("data/runs/{id}-0.json"));
    let script = r#""$0" __supervise new $$ --grace-ms 100 --record "$1" -- sh -c "$2" & wait"#;
    let tree = r#"setsid sh -c 'trap "" TERM; sleep 1000 & echo $! $$ > pids; wait' & wait"#;
    #[expect(clippy::disallowed_methods, reason = "the owner must be a process that can be killed")]
    let mut owner = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_polity-shim")])
        .arg(&record)
        .arg(tree)
        .current_dir(fixture.path(""))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let tree = fixture.read_pids("pids").await;
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(recover(&fixture.driver, &agent, id, 0).await, None);
    assert!(tree.iter().all(|pid| !is_alive(*pid)));
    let record = std::fs::File::open(record).unwrap();
    wait_until("the record is free", || record.try_lock().is_ok()).await;
}

#[tokio::test]
async fn orphans_of_a_killed_shim_are_ended() {
    let fixture = CliFixture::new();
    // Later, the full shim has taken over from the stub.
    for wait in ["", "sleep 0.3;"] {
        let _ = std::fs::remove_file(fixture.path("pids"));
        let script = "setsid sh -c 'sleep 1000 & echo $! > pids; wait' & WAIT echo ready; wait";
        let agent = sh(&script.replace("WAIT", wait), &json!({}));
        let progress = ProgressRecorder::default();
        let run = fixture.run_watched(&agent, "", &progress);
        let kill = async {
            let pids = fixture.read_pids("pids").await;
            wait_until("it is ready", || progress.shown().contains("ready")).await;
            kill(progress.started.lock().unwrap().unwrap());
            pids
        };
        let (outcome, pids) = tokio::join!(run, kill);
        assert_eq!(failure(&outcome).category, ErrorCategory::SystemError, "{outcome:?}");
        wait_until("they are gone", || !is_alive(pids[0])).await;
    }
}
