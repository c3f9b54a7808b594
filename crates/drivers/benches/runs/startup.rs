//! Tasks with agents that exit at once, eight at a time, compared with plain spawning.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use polity_definition::AgentDefinition;
use polity_engine::commands::CreateTask;
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::Runtime;
use polity_model::machine::task::TaskStatus;
use polity_testkit::bench::figure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::fixture::{RunFixture, agent};
use crate::measure::cpu;

const AT_ONCE: usize = 8;

const CPU_MS_MAX: f64 = 2.5;
const RATE_LEAST: f64 = 0.45;

/// Extra memory of this process, to see whether it is copied for each spawn.
const BALLAST_BYTES: usize = 1 << 30;
const GROWN_MAX: f64 = 1.25;

/// The time of a batch of runs.
struct MeasuredTime {
    wall: Duration,
    cpu: Duration,
}

pub(crate) async fn measure(quick: bool) {
    let (runs, rounds) = if quick { (40, 1) } else { (1000, 3) };
    let agent = Arc::new(agent("/bin/true", &[]));
    let (in_memory, on_disk) = (RunFixture::new(), RunFixture::on_disk());
    let (in_memory, on_disk) = (in_memory.runtime(), on_disk.runtime());
    let (mut rates, mut times, mut shares, mut grown) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let bare = taken(runs, bare).await;
        let wrapped = taken(runs, || task(&in_memory, &agent)).await;
        let synced = taken(runs, || task(&on_disk, &agent)).await;
        // Touches every page, so that it would have to be copied.
        let ballast = vec![1_u8; BALLAST_BYTES];
        let large = taken(runs, || task(&in_memory, &agent)).await;
        drop(std::hint::black_box(ballast));
        rates.push(bare.wall.as_secs_f64() / wrapped.wall.as_secs_f64());
        times.push(wrapped.cpu.as_secs_f64() * 1e3 / f64::from(runs));
        shares.push(1.0 - wrapped.wall.as_secs_f64() / synced.wall.as_secs_f64());
        grown.push(large.cpu.as_secs_f64() / wrapped.cpu.as_secs_f64());
    }
    let (rate, each, share, grown) = (middle(rates), middle(times), middle(shares), middle(grown));
    figure(
        "a task for a supervised /bin/true, journal in memory: processor time with shim and program",
        &format!("{each:.2} ms"),
        &format!("≤ {CPU_MS_MAX} ms"),
        each <= CPU_MS_MAX,
    );
    figure(
        "such tasks, 8 at once, rate against bare spawning with three pipes",
        &format!("{rate:.2}"),
        &format!("≥ {RATE_LEAST}"),
        rate >= RATE_LEAST,
    );
    figure(
        "such tasks, share of the time that a durable journal adds with its syncs",
        &format!("{:.0} %", share.max(0.0) * 100.0),
        "stated",
        true,
    );
    figure(
        "such tasks from a process that holds 1 GiB: processor time, times that of a small one",
        &format!("{grown:.2}"),
        &format!("≤ {GROWN_MAX}"),
        grown <= GROWN_MAX,
    );
}

/// The median, because the best ratio is that of a disturbed round.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn task(runtime: &Runtime, agent: &Arc<AgentDefinition>) {
    let pinned = PinnedAgent::alone(Arc::clone(agent), None);
    let mut handle = runtime.create(CreateTask::new(pinned, "a question")).await.unwrap();
    // The agent is silent, which is no answer.
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Failed);
}

async fn taken<F: Future<Output = ()>>(runs: u32, run: impl Fn() -> F) -> MeasuredTime {
    let (begun, before) = (Instant::now(), cpu());
    stream::iter((0..runs).map(|_| run())).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    MeasuredTime { wall: begun.elapsed(), cpu: cpu().saturating_sub(before) }
}

async fn bare() {
    let mut child = Command::new("/bin/true")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout, mut stderr) =
        (child.stdin.take().unwrap(), child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let write = async move {
        // The process may have exited.
        let _ = stdin.write_all(b"a question").await;
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (status, (), _, _) = tokio::join!(
        child.wait(),
        write,
        stdout.read_to_end(&mut out),
        stderr.read_to_end(&mut err)
    );
    assert!(status.unwrap().success());
}
