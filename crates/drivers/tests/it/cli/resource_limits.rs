//! Resource usage and limits.

use std::path::Path;

use polity_model::failure::ErrorCategory;
use serde_json::json;

use super::fixture::{CliFixture, ProgressRecorder, answer, failure, python, sh};
use crate::waiting::is_alive;

const HOG: &str = "
import time
held = []
while True:
    held.append(bytearray(b'x' * (8 << 20)))
    time.sleep(0.005)
";

/// A bounded fork bomb that leaves its process group.
const BOMB: &str = "
import os, time
for _ in range(9):
    os.fork()
    os.setsid() if os.getpid() != os.getpgid(0) else None
time.sleep(1000)
";

#[tokio::test]
async fn ends_runs_that_exceed_a_limit() {
    let fixture = CliFixture::new();
    let spin = "while :; do :; done";
    for (agent, field) in [
        (python(HOG, &json!({"resource_limits": {"memory_mb": 100}})), "memory_mb"),
        (python(BOMB, &json!({"resource_limits": {"processes": 20}})), "processes"),
        (sh(spin, &json!({"resource_limits": {"cpu_seconds": 1}})), "cpu_seconds"),
    ] {
        let outcome = fixture.run(&agent, "").await;
        let failure = failure(&outcome);
        assert_eq!(failure.category, ErrorCategory::Permanent);
        assert!(failure.message.contains(&format!("resource_limits.{field}")), "{failure}");
    }
}

/// An unbounded fork bomb that doubles as fast as possible.
const FAST_BOMB: &str = "f() { f | f & }; f; sleep 5";

#[tokio::test]
async fn stops_a_fast_fork_bomb() {
    let fixture = CliFixture::new();
    let outcome =
        fixture.run(&sh(FAST_BOMB, &json!({"resource_limits": {"processes": 30}})), "").await;
    let failure = failure(&outcome);
    assert_eq!(failure.category, ErrorCategory::Permanent);
    assert!(failure.message.contains("more than 30 processes"), "{failure}");
}

#[tokio::test]
async fn ends_every_process_of_a_fork_bomb() {
    let fixture = CliFixture::new();
    let script = format!("import os\nopen('group', 'w').write(f'{{os.getpid()}}\\n')\n{BOMB}");
    let agent = python(&script, &json!({"resource_limits": {"processes": 20}}));
    let outcome = fixture.run(&agent, "").await;
    failure(&outcome);
    assert!(!is_alive(fixture.read_pids("group").await[0]));
    let home = fixture.path("").canonicalize().unwrap();
    let left = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let folder = std::fs::read_link(entry.ok()?.path().join("cwd")).ok()?;
        (folder == home).then_some(())
    });
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn measures_the_whole_process_tree() {
    let fixture = CliFixture::new();
    let script = "
import os, time
pid = os.fork()
held = b'x' * (64 << 20)
end = time.process_time() + 0.3
while time.process_time() < end: pass
time.sleep(0.7)
if pid:
    os.wait()
    print('done')
";
    let progress = ProgressRecorder::default();
    let outcome = fixture.run_watched(&python(script, &json!({})), "", &progress).await;
    assert_eq!(answer(&outcome), "done");
    let usage = outcome.report.resource_usage;
    assert!(usage.cpu_time_ms >= 580, "{usage:?}");
    assert!(usage.cpu_percent > 0.0, "{usage:?}");
    assert!((128..1024).contains(&usage.peak_memory_mb), "{usage:?}");
    assert_eq!(usage.memory_mb, 0);
    let samples = progress.usages.lock().unwrap();
    assert!(samples.iter().any(|usage| usage.memory_mb >= 64), "{samples:?}");
}

#[tokio::test]
async fn measures_disk_writes_of_short_runs() {
    let fixture = CliFixture::new();
    let script = "dd if=/dev/zero of=big bs=1M count=5 2>/dev/null; echo done";
    let outcome = fixture.run(&sh(script, &json!({})), "").await;
    assert_eq!(answer(&outcome), "done");
    let usage = outcome.report.resource_usage;
    let expected = if counts_writes(&fixture.path("probe")) { 5 } else { 0 };
    assert_eq!(usage.disk_write_mb, expected, "{usage:?}");
    assert_eq!(usage.disk_read_mb, 0, "{usage:?}");
}

/// True if the kernel counts writes to this file; in a memory file system it does not.
fn counts_writes(path: &Path) -> bool {
    let written = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = written();
    std::fs::write(path, vec![0; 1 << 20]).unwrap();
    written() > before
}
