//! The server from the outside: this process is the load, and the CPU time is that of the server.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Figure;
use crate::run::root;
use crate::served::{
    Connection, ServedHome, SoakEventReader, cpu_time, memory_kb, newest_position, write_home,
};

const FILES: [(&str, &str); 3] = [
    ("polity.yaml", ""),
    (
        "agents/greeter.yaml",
        "{name: greeter, kind: llm, role: r, system_prompt: p, llm_config: {provider: scripted, \
         script: greeter}}",
    ),
    ("scripts/greeter.yaml", "default: {reply: \"Hello, $input.\"}\n"),
];

/// The connections of the requests that read.
const READERS: usize = 8;

/// The connections of the requests that start tasks.
const SUBMITTERS: usize = 64;

/// The open files that the listeners need, in this process and in the server.
const OPEN_FILES: u32 = 20_000;

/// The time after which a server without work is idle.
const SETTLE_TIME: Duration = Duration::from_secs(15);

/// The bytes of a bare write, about those of a commit.
const SYNC_BYTES: usize = 4096;

pub(super) fn measure(quick: bool) -> Result<Vec<Figure>> {
    let polity = root().join("target/release/polity");
    let folder = tempfile::tempdir_in(root().join("target"))?;
    let home = folder.path();
    write_home(home, &FILES)?;
    allow_open_files()?;
    let server = ServedHome::start(&polity, home)?;
    let mut figures = idle(&server, quick)?;
    figures.push(reads(&server, quick)?);
    let syncs = syncs_per_second(home, quick)?;
    figures.extend(tasks(&server, syncs, quick)?);
    server.stop()?;
    // A fresh process: what the tasks have left does not count.
    let server = ServedHome::start(&polity, home)?;
    figures.push(listeners(&server, quick)?);
    server.stop()?;
    Ok(figures)
}

/// Raises the limit of this process, which the server inherits.
fn allow_open_files() -> Result<()> {
    let mut command = Command::new("prlimit");
    command.args(["--pid", &std::process::id().to_string()]);
    command.arg(format!("--nofile={OPEN_FILES}:{OPEN_FILES}"));
    let status = command.status().context("cannot start prlimit")?;
    ensure!(status.success(), "the listeners need {OPEN_FILES} open files: raise `ulimit -n`");
    Ok(())
}

/// CPU and memory of a server without work.
fn idle(server: &ServedHome, quick: bool) -> Result<Vec<Figure>> {
    let (settle, time) = if quick {
        (Duration::from_secs(1), Duration::from_secs(1))
    } else {
        (SETTLE_TIME, Duration::from_mins(1))
    };
    thread::sleep(settle);
    let (before, began) = (cpu_time(server.pid())?, Instant::now());
    thread::sleep(time);
    let used = cpu_time(server.pid())?.saturating_sub(before);
    let percent = used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    Ok(vec![
        Figure {
            what: "CPU of an idle server".into(),
            measured: format!("{percent:.2} % of a core"),
            target: "< 0.5 %".into(),
            kept: percent < 0.5,
        },
        memory_figure("resident memory of an idle server", memory_kb(server.pid())?, 40),
    ])
}

fn memory_figure(what: &str, kilobytes: u64, limit_mb: u64) -> Figure {
    Figure {
        what: what.into(),
        #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
        measured: format!("{:.1} MB", kilobytes as f64 / 1024.0),
        target: format!("< {limit_mb} MB"),
        kept: kilobytes < limit_mb * 1024,
    }
}

/// Starts a task and waits for its end.
fn run_task(connection: &mut Connection, input: &str) -> Result<String> {
    let body = json!({"agent": "greeter", "input": input});
    let answer = connection.post("/api/v1/tasks?wait=60s", "", &body)?;
    ensure!(answer.status == 200, "no task: {} {}", answer.status, answer.body);
    let task = answer.json()?;
    ensure!(task["status"] == "completed", "a task was lost: {task}");
    Ok(task["id"].as_str().context("a task has an id")?.to_owned())
}

/// Runs a function on several connections, and returns the CPU time of the server and the duration.
fn on_connections(
    server: &ServedHome,
    connections: usize,
    work: impl Fn(&mut Connection) -> Result<()> + Sync,
) -> Result<(Duration, Duration)> {
    let opened: Vec<Connection> =
        (0..connections).map(|_| Connection::open(&server.address)).collect::<Result<_>>()?;
    let (before, began) = (cpu_time(server.pid())?, Instant::now());
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = opened
            .into_iter()
            .map(|mut connection| scope.spawn(move || work(&mut connection)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| anyhow::bail!("a thread of the load has panicked"))
        })
    })?;
    Ok((cpu_time(server.pid())?.saturating_sub(before), began.elapsed()))
}

/// CPU per request that reads a task.
fn reads(server: &ServedHome, quick: bool) -> Result<Figure> {
    let rounds: u32 = if quick { 100 } else { 10_000 };
    let id = run_task(&mut Connection::open(&server.address)?, "Ada")?;
    let path = format!("/api/v1/tasks/{id}");
    let (cpu, _) = on_connections(server, READERS, |connection| {
        for _ in 0..rounds {
            let answer = connection.get(&path)?;
            ensure!(answer.status == 200, "no task: {}", answer.body);
        }
        Ok(())
    })?;
    let each = cpu / rounds / u32::try_from(READERS)?;
    Ok(micros_figure("CPU per request that reads a task", each, 60))
}

fn micros_figure(what: &str, each: Duration, limit_us: u64) -> Figure {
    Figure {
        what: what.into(),
        measured: format!("{:.0} µs", each.as_secs_f64() * 1e6),
        target: format!("<= {limit_us} µs"),
        kept: each <= Duration::from_micros(limit_us),
    }
}

/// CPU per durable task, and the rate of tasks against that of bare disk syncs.
fn tasks(server: &ServedHome, syncs_per_second: f64, quick: bool) -> Result<Vec<Figure>> {
    let rounds: u32 = if quick { 5 } else { 300 };
    let (cpu, took) = on_connections(server, SUBMITTERS, |connection| {
        (0..rounds).try_for_each(|_| run_task(connection, "Ada").map(|_| ()))
    })?;
    let number = rounds * u32::try_from(SUBMITTERS)?;
    let rate = f64::from(number) / took.as_secs_f64();
    let ratio = rate / syncs_per_second;
    Ok(vec![
        micros_figure("CPU per durable task over HTTP, 64 connections", cpu / number, 400),
        Figure {
            what: format!("{number} durable tasks over HTTP, against bare disk syncs"),
            measured: format!("{ratio:.1} times ({rate:.0} tasks/s)"),
            target: ">= 5 times, none lost".into(),
            kept: ratio >= 5.0,
        },
    ])
}

/// The rate at which this disk makes small appends durable, one after the other.
fn syncs_per_second(home: &Path, quick: bool) -> Result<f64> {
    let time = Duration::from_millis(if quick { 200 } else { 3000 });
    let mut file: File =
        OpenOptions::new().create(true).append(true).open(home.join("bare-syncs"))?;
    let (began, mut syncs) = (Instant::now(), 0_u32);
    while began.elapsed() < time {
        file.write_all(&[0; SYNC_BYTES])?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / began.elapsed().as_secs_f64())
}

/// The memory of a server with many idle listeners.
fn listeners(server: &ServedHome, quick: bool) -> Result<Figure> {
    let number = if quick { 100 } else { 5000 };
    let newest = newest_position(&server.address)?;
    let open: Vec<SoakEventReader> = (0..number)
        .map(|_| SoakEventReader::open(&server.address, newest))
        .collect::<Result<_>>()?;
    // What the first messages needed is given back.
    thread::sleep(Duration::from_secs(1));
    let figure = memory_figure(
        &format!("resident memory with {number} idle event listeners"),
        memory_kb(server.pid())?,
        100,
    );
    drop(open);
    Ok(figure)
}
