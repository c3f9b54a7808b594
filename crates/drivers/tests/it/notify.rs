//! Notifications with real commands and servers.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use polity_definition::{OnReview, ProgramCommand};
use polity_drivers::EnvSource;
use polity_drivers::notify::{NotificationPayload, NotifyError, NotifyOptions, send_notification};
use polity_drivers::process::ProcessLauncher;

/// A timeout that is long enough to start a process.
const LIMIT: Duration = Duration::from_millis(300);

fn options(home: &Path) -> NotifyOptions {
    let environment = EnvSource::new(|name| (name == "PATH").then(|| "/usr/bin:/bin".to_owned()));
    NotifyOptions::new(home.to_owned(), environment, ProcessLauncher::Direct)
}

fn payload(question: &str) -> NotificationPayload {
    let variables = vec![("QUESTION", question.to_owned())];
    NotificationPayload { json: b"{}".to_vec(), variables }
}

fn command(text: &str) -> OnReview {
    let command = ["sh", "-c", text].map(str::to_owned).to_vec();
    OnReview { command: Some(ProgramCommand::try_from(command).unwrap()), webhook: None }
}

#[tokio::test]
async fn ends_hanging_command_with_its_process_tree() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(home.path());
    options.command_timeout = LIMIT;
    let hangs = command("echo waiting; sleep 600 & echo $! > pid; wait");
    let errors = send_notification(&hangs, &payload("?"), &options).await;
    let [NotifyError::TookTooLong { words, .. }] = errors.as_slice() else {
        panic!("{errors:?}");
    };
    assert_eq!(words, ": waiting");
    let pid = fs::read_to_string(home.path().join("pid")).unwrap();
    let pid: u32 = pid.trim().parse().unwrap();
    let stat = format!("/proc/{pid}/stat");
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn command_may_ignore_stdin_and_gets_any_text() {
    let home = tempfile::tempdir().unwrap();
    let options = options(home.path());
    let mut payload = payload(&format!("what\0is {}", "ß".repeat(1 << 20)));
    payload.json = vec![b' '; 1 << 20];
    let reads_nothing = command("printf %s \"$QUESTION\" > said; seq 100000");
    let errors = send_notification(&reads_nothing, &payload, &options).await;
    assert!(errors.is_empty(), "{errors:?}");
    let question = fs::read_to_string(home.path().join("said")).unwrap();
    assert!(
        question.starts_with("what\u{fffd}is ßß") && question.ends_with("ß…"),
        "{}",
        question.len()
    );
}

#[tokio::test]
async fn webhook_times_out_if_the_server_is_silent() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(home.path());
    options.webhook_timeout = LIMIT;
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let hook = OnReview { command: None, webhook: Some(url.parse().unwrap()) };
    let errors = send_notification(&hook, &payload("?"), &options).await;
    assert!(matches!(errors.as_slice(), [NotifyError::NotInTime { .. }]), "{errors:?}");
}

#[tokio::test]
async fn runs_command_and_webhook_independently() {
    let home = tempfile::tempdir().unwrap();
    let fails = command("exit 3");
    let both = OnReview { webhook: Some("${NONE}".parse().unwrap()), ..fails };
    let errors = send_notification(&both, &payload("?"), &options(home.path())).await;
    let [NotifyError::Failed { .. }, NotifyError::Unset { .. }] = errors.as_slice() else {
        panic!("{errors:?}");
    };
    assert!(
        send_notification(&OnReview::default(), &payload("?"), &options(home.path()))
            .await
            .is_empty()
    );
}
