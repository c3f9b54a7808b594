//! Programs that end at once, eight at a time, against the same without supervision.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::measure::{cpu, figure};
use crate::workshop::{Workshop, agent};

const AT_ONCE: usize = 8;

/// More than are needed: a program that is being started holds on to all places for a moment.
const PLACES: u32 = 64;

const CPU_MAX: Duration = Duration::from_micros(2500);
const RATE_LEAST: f64 = 0.45;

/// What so many runs took.
struct Taken {
    wall: Duration,
    cpu: Duration,
}

pub(crate) async fn measure(quick: bool) {
    let (runs, rounds) = if quick { (40, 1) } else { (1000, 3) };
    let workshop = Workshop::new();
    let agent = agent("/bin/true", &[]);
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let bare = taken(runs, |_| bare()).await;
        let wrapped = taken(runs, |number| {
            let run = workshop.run(&agent, round * runs + number, PLACES);
            async { assert!(run.await.report.exit.is_some()) }
        })
        .await;
        rates.push(bare.wall.as_secs_f64() / wrapped.wall.as_secs_f64());
        times.push(wrapped.cpu / u32::try_from(runs).unwrap());
    }
    // The ones in the middle: the best rate is that of the round in which the other side was
    // disturbed.
    rates.sort_by(f64::total_cmp);
    times.sort();
    let (rate, each) = (rates[rates.len() / 2], times[times.len() / 2]);
    let (shown, most) = (each.as_secs_f64() * 1e3, CPU_MAX.as_secs_f64() * 1e3);
    figure(
        "a supervised /bin/true, processor time with shim and program",
        &format!("{shown:.2} ms"),
        &format!("≤ {most} ms"),
        each <= CPU_MAX,
    );
    figure(
        "supervised /bin/true, 8 at once, rate against bare spawning with three pipes",
        &format!("{rate:.2}"),
        &format!("≥ {RATE_LEAST}"),
        rate >= RATE_LEAST,
    );
}

async fn taken<F: Future<Output = ()>>(runs: u64, run: impl Fn(u64) -> F) -> Taken {
    let (begun, before) = (Instant::now(), cpu());
    stream::iter((0..runs).map(run)).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    Taken { wall: begun.elapsed(), cpu: cpu().saturating_sub(before) }
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
        // It may have ended by now.
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
