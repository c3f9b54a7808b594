//! What runs use, and what they may use.

use polity_model::failure::ErrorCategory;
use serde_json::json;

use super::fixture::{CliFixture, ProgressRecorder, answer, failure, is_alive, python, sh};

const HOG: &str = "
import time
held = []
while True:
    held.append(bytearray(b'x' * (8 << 20)))
    time.sleep(0.005)
";

/// A fork bomb that leaves its group, and does not fill the machine if no one stops it.
const BOMB: &str = "
import os, time
for _ in range(9):
    os.fork()
    os.setsid() if os.getpid() != os.getpgid(0) else None
time.sleep(1000)
";

#[tokio::test]
async fn who_uses_too_much_is_ended() {
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

/// Doubles as fast as the system makes processes, and never stops.
const FAST_BOMB: &str = "f() { f | f & }; f; sleep 5";

#[tokio::test]
async fn a_fork_bomb_does_not_outrun_its_limit() {
    let fixture = CliFixture::new();
    let outcome =
        fixture.run(&sh(FAST_BOMB, &json!({"resource_limits": {"processes": 30}})), "").await;
    let failure = failure(&outcome);
    assert_eq!(failure.category, ErrorCategory::Permanent);
    assert!(failure.message.contains("more than 30 processes"), "{failure}");
}

#[tokio::test]
async fn a_fork_bomb_is_ended_to_its_last_process() {
    let fixture = CliFixture::new();
    let script = format!("import os\nopen('group', 'w').write(f'{{os.getpid()}}\\n')\n{BOMB}");
    let agent = python(&script, &json!({"resource_limits": {"processes": 20}}));
    let outcome = fixture.run(&agent, "").await;
    failure(&outcome);
    assert!(!is_alive(fixture.numbers("group").await[0]));
    let home = fixture.path("").canonicalize().unwrap();
    let left = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let folder = std::fs::read_link(entry.ok()?.path().join("cwd")).ok()?;
        (folder == home).then_some(())
    });
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn what_a_family_uses_is_measured_together() {
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
    let outcome = fixture.watched(&python(script, &json!({})), "", &progress).await;
    assert_eq!(answer(&outcome), "done");
    let usage = outcome.report.resource_usage;
    assert!(usage.cpu_time_ms >= 580, "{usage:?}");
    assert!(usage.cpu_percent > 0.0, "{usage:?}");
    assert!((128..1024).contains(&usage.peak_memory_mb), "{usage:?}");
    assert_eq!(usage.memory_mb, 0);
    let told = progress.usages.lock().unwrap();
    assert!(told.iter().any(|usage| usage.memory_mb >= 64), "{told:?}");
}

#[tokio::test]
async fn what_is_written_to_the_disk_is_measured_also_of_short_runs() {
    let fixture = CliFixture::new();
    let script = "dd if=/dev/zero of=big bs=1M count=5 2>/dev/null; echo done";
    let outcome = fixture.run(&sh(script, &json!({})), "").await;
    assert_eq!(answer(&outcome), "done");
    let usage = outcome.report.resource_usage;
    // A folder in memory has no disk below it.
    assert!([0, 5].contains(&usage.disk_write_mb), "{usage:?}");
    assert_eq!(usage.disk_read_mb, 0, "{usage:?}");
}
