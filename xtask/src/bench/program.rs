//! The program from the outside: startup time and memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Figure;
use crate::run::root;

const SLOW_SCRIPT: &str = "default: {reply: \"Hello, $input.\", delay_ms: 500}\n";

pub(super) fn measure(quick: bool) -> Result<Vec<Figure>> {
    let polity = root().join("target/release/polity");
    let rounds = if quick { 5 } else { 50 };
    let home = ScratchFolder::new()?;
    let mut init = Command::new(&polity);
    init.arg("init").arg(&home.0);
    timed(init)?;
    let version = median(rounds, || {
        let mut command = Command::new(&polity);
        command.arg("--version");
        timed(command)
    })?;
    let run = median(rounds, || {
        let mut command = Command::new(&polity);
        command.arg("--home").arg(&home.0).args(["run", "greeter", "Ada"]);
        timed(command)
    })?;
    fs::write(home.0.join("scripts/greeter.yaml"), SLOW_SCRIPT)?;
    let memory_kb = peak_memory_kb(&polity, &home.0)?;
    Ok(vec![
        time_figure("`polity --version`, median", version, 10),
        time_figure("`polity run greeter`, median, durable", run, 60),
        Figure {
            what: "resident memory of `polity run`, peak".into(),
            #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
            measured: format!("{:.1} MB", memory_kb as f64 / 1024.0),
            target: "< 30 MB".into(),
            kept: memory_kb < 30 * 1024,
        },
    ])
}

fn time_figure(what: &str, took: Duration, limit_ms: u64) -> Figure {
    Figure {
        what: what.into(),
        measured: format!("{:.1} ms", took.as_secs_f64() * 1e3),
        target: format!("< {limit_ms} ms"),
        kept: took < Duration::from_millis(limit_ms),
    }
}

fn timed(mut command: Command) -> Result<Duration> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(began.elapsed())
}

fn median(rounds: usize, mut run: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut times = (0..rounds).map(|_| run()).collect::<Result<Vec<_>>>()?;
    times.sort();
    times.get(rounds / 2).copied().context("there must be a round")
}

/// Reads the peak memory while the process waits for its model.
fn peak_memory_kb(polity: &Path, home: &Path) -> Result<u64> {
    let mut child = Command::new(polity)
        .arg("--home")
        .arg(home)
        .args(["run", "greeter", "Ada"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    child.wait()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
        .context("the process status has no VmHWM line")
}

/// A folder that is removed when dropped.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new() -> Result<Self> {
        let path = root().join("target").join(format!("bench-{}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // `cargo clean` removes a folder that is left.
        let _ = fs::remove_dir_all(&self.0);
    }
}
