//! `cargo xtask soak`: a server under mixed work that is killed and restarted at random.
//!
//! At the end every accepted task has ended exactly once, every due time has one record, listeners
//! have missed nothing, and memory has not grown. The seed is printed, and repeats the choices.

mod choices;
mod load;
mod memory;
mod schedules;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, step, target_folder};
use crate::served::{ServedHome, write_home};
use choices::Choices;
use load::SoakLoad;

/// The duration in the short run of the tests, and in the long one.
pub(crate) const SHORT_RUN: Duration = Duration::from_secs(10);
pub(crate) const LONG_RUN: Duration = Duration::from_mins(10);

/// The part of the duration in which the server is killed. In the rest its memory is watched.
const CHAOS_PERCENT: u32 = 70;

/// The shortest and longest life of a server, in milliseconds.
const LIFE_MS: (u64, u64) = (500, 8000);

/// The longest wait for the end of all work after the load.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(3);

/// The files of the home.
const FILES: [(&str, &str); 9] = [
    ("polity.yaml", "server: {drain_seconds: 1}\nlimits: {concurrent_tasks: 16}\n"),
    (
        "agents/greeter.yaml",
        "{name: greeter, kind: llm, role: r, system_prompt: p, llm_config: {provider: scripted, \
         script: greeter}}",
    ),
    ("scripts/greeter.yaml", "default: {reply: \"Hello, $input.\"}\n"),
    (
        "agents/thinker.yaml",
        "{name: thinker, kind: llm, role: r, system_prompt: p, llm_config: {provider: scripted, \
         script: thinker}}",
    ),
    ("scripts/thinker.yaml", "default: {reply: \"Hm, $input.\", delay_ms: 300}\n"),
    (
        "agents/program.yaml",
        "{name: program, kind: cli, executable_path: sh, cli_args: [-c, \"sleep 0.1; cat\"], \
         working_directory: ., access_type: read-only, idempotent: true, grace_seconds: 1, \
         queue_limit: 100000}",
    ),
    (
        "workflows/reviewed.yaml",
        "{name: reviewed, agents: {writer: greeter}, entry_point: draft, nodes: {draft: {type: \
         agent, agent: greeter, input: \"{{ input }}\"}, review: {type: human, question: \
         \"Good?\"}}, edges: [{from: draft, to: review}]}",
    ),
    ("schedules/tick.yaml", schedules::FILE),
    ("config/retention_policy.yaml", "{default_days: 1}\n"),
];

/// Runs the soak test for a duration, with the choices of a seed.
pub(crate) fn soak(duration: Duration, seed: Option<u64>) -> Result<()> {
    step("the program", cargo(&["build", "--quiet", "--package", "polity"]))?;
    let polity = target_folder().join("debug/polity");
    let seed = seed.unwrap_or_else(choices::random_seed);
    eprintln!("── soak: {} s, seed {seed}", duration.as_secs());
    let folder = tempfile::tempdir()?;
    let outcome = run(&polity, folder.path(), duration, seed);
    if outcome.is_err() {
        let kept: PathBuf = folder.keep();
        eprintln!("── soak: the home is kept in {}", kept.display());
    }
    outcome.with_context(|| format!("seed {seed}"))
}

fn run(polity: &Path, home: &Path, duration: Duration, seed: u64) -> Result<()> {
    write_home(home, &FILES)?;
    let mut choices = Choices::new(seed);
    let load = SoakLoad::default();
    let (server, kills) = thread::scope(|scope| {
        load.start(scope, seed);
        let outcome = chaos(polity, home, duration, &mut choices, &load);
        if outcome.is_err() {
            // Nobody waits for a server that will not come back.
            load.move_to(None);
        }
        load.is_over.store(true, Ordering::Relaxed);
        outcome
    })?;
    let accepted = load.outcome()?;
    ensure!(!accepted.is_empty(), "no task was accepted");
    let began = Instant::now();
    verdict::wait_until_settled(&server.address, began + SETTLE_TIMEOUT)?;
    let tasks = verdict::check_tasks(&server.address, &accepted)?;
    server.stop()?;
    let due_times = schedules::check(polity, home)?;
    eprintln!(
        "── soak: {} tasks accepted, {tasks} ended once each, {kills} restarts, {due_times}",
        accepted.len()
    );
    Ok(())
}

/// Kills and restarts the server, and then lets it live while its memory is watched.
fn chaos(
    polity: &Path,
    home: &Path,
    duration: Duration,
    choices: &mut Choices,
    load: &SoakLoad,
) -> Result<(ServedHome, usize)> {
    let began = Instant::now();
    let chaos_time = duration * CHAOS_PERCENT / 100;
    let mut kills = 0;
    let mut server = ServedHome::start(polity, home)?;
    load.move_to(Some(&server.address));
    while began.elapsed() < chaos_time {
        let rest = chaos_time.saturating_sub(began.elapsed());
        let life = Duration::from_millis(choices.between(LIFE_MS.0, LIFE_MS.1));
        thread::sleep(life.min(rest));
        load.move_to(None);
        if choices.between(0, 2) == 0 {
            server.stop()?;
        } else {
            server.kill()?;
        }
        kills += 1;
        server = ServedHome::start(polity, home)?;
        load.move_to(Some(&server.address));
    }
    memory::watch(server.pid(), duration.saturating_sub(began.elapsed()))?;
    Ok((server, kills))
}
