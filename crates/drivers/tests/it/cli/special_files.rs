//! FIFOs, sockets and devices in places where Polity expects regular files.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use polity_engine::driver::RunEnd;
use serde_json::json;

use super::fixture::{CliFixture, ProgressRecorder, answer, failure, new_execution, sh};

/// The kind of file that the attempt to make a device leaves.
fn device_kind() -> &'static str {
    let folder = tempfile::tempdir().unwrap();
    let (path, mode) = (folder.path().join("null"), rustix::fs::Mode::RWXU);
    let device = rustix::fs::makedev(1, 5);
    let kind = rustix::fs::FileType::CharacterDevice;
    let created = rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, device);
    if created.is_ok() { "a device" } else { "a symbolic link" }
}

#[tokio::test]
async fn fifo_as_output_file_ends_the_run() {
    let fixture = CliFixture::new();
    let bind = "import socket; socket.socket(socket.AF_UNIX).bind(\"out\")";
    for (script, kind) in [
        ("mkfifo out".to_owned(), "a FIFO"),
        (format!("python3 -c '{bind}'"), "a socket"),
        ("ln -s /dev/zero out".to_owned(), "a symbolic link"),
        ("mkdir out".to_owned(), "a folder"),
        // Only root may make one, and not in every container.
        ("mknod out c 1 5 2> /dev/null || ln -s /dev/zero out".to_owned(), device_kind()),
        // Past its time limit, the reason is the time limit.
        ("mkfifo out; sleep 1000".to_owned(), "timeout"),
    ] {
        let more = json!({"output_pattern": "file", "output_file_template": "out", "timeout": 2});
        let outcome = fixture.run(&sh(&script, &more), "").await;
        if kind == "timeout" {
            assert!(matches!(outcome.end, RunEnd::TimedOut(_)), "{:?}", outcome.end);
        } else {
            let message = &failure(&outcome).message;
            let expected = format!("the output file is {kind}, not a regular file");
            assert!(message.contains(&expected), "{script}: {message}");
        }
        let out = fixture.path("out");
        if out.is_dir() { fs::remove_dir(out) } else { fs::remove_file(out) }.unwrap();
    }
}

#[tokio::test]
async fn fifo_as_artifact_is_left_out() {
    let fixture = CliFixture::new();
    let script = "mkfifo a.md; ln -s a.md b.md; printf text > c.md; ln -s c.md d.md; echo done";
    let outcome = fixture.run(&sh(script, &json!({"artifacts": ["*.md"]})), "").await;
    assert_eq!(answer(&outcome), "done");
    let artifacts = outcome.report.artifacts;
    let paths: Vec<_> = artifacts.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["c.md", "d.md"]);
    let left_out: Vec<_> =
        artifacts.left_out.iter().map(|file| (file.path.as_str(), file.reason.as_str())).collect();
    let reason = "it is a FIFO, not a regular file";
    assert_eq!(left_out, [("a.md", reason), ("b.md", reason)]);
}

#[tokio::test]
async fn fifo_in_a_copied_folder_is_skipped() {
    let fixture = CliFixture::new();
    fixture.sh("mkfifo pipe; printf text > plain").await;
    assert!(fs::metadata(fixture.path("pipe")).unwrap().file_type().is_fifo());
    let more = json!({"workspace": "copy"});
    let outcome = fixture.run(&sh("ls; mkfifo other", &more), "").await;
    assert_eq!(answer(&outcome), "plain");
    assert_eq!(outcome.report.workspace.unwrap().changed_files, 0);
}

#[tokio::test]
async fn fifo_in_place_of_the_stored_output_does_not_block_the_run() {
    let fixture = CliFixture::new();
    let id = new_execution();
    let script = format!("mkdir -p data/output/{id}/0; mkfifo data/output/{id}/0/stdout; echo x");
    let outcome = fixture.run_as(&sh(&script, &json!({})), id, &ProgressRecorder::default()).await;
    assert_eq!(answer(&outcome), "x");
    assert_eq!(fixture.stored_output(&outcome, "stdout"), b"x\n");
}

#[tokio::test]
async fn linked_folder_of_the_output_file_is_not_followed() {
    let fixture = CliFixture::new();
    fs::create_dir(fixture.path("other")).unwrap();
    fs::write(fixture.path("other/answer"), "theirs").unwrap();
    let more = json!({"output_pattern": "file", "output_file_template": "d5/answer"});
    // The second run finds the link, and must not remove the file behind it either.
    for script in ["ln -s other d5", "true"] {
        let outcome = fixture.run(&sh(script, &more), "").await;
        let message = &failure(&outcome).message;
        assert!(message.contains("its folder d5 is a symbolic link"), "{script}: {message}");
    }
    assert_eq!(fixture.read("other/answer"), "theirs");
    let outcome = fixture.run(&sh("rm d5; mkdir d5; printf 42 > d5/answer", &more), "").await;
    failure(&outcome);
    fs::remove_file(fixture.path("d5")).unwrap();
    let outcome = fixture.run(&sh("mkdir d5; printf 42 > d5/answer", &more), "").await;
    assert_eq!(answer(&outcome), "42");
}
