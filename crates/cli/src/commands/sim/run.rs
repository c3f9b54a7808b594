//! `polity sim run`, `resume` and `fork`: runs a simulation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polity_host::simulations::changes::{
    FieldChange, FixedFields, ScenarioChanges, SizeChange, apply_changes, reject_fixed_fields,
    values_set,
};
use polity_host::simulations::preparation::{NewRunOptions, PreparedSimulation, perform_run};
use polity_host::simulations::runs::{pinned_scenario, run_name};
use polity_simulator::folder::{ForkOrigin, RunStatus, SimulationRecord, sweep_unfinished};
use polity_simulator::run::{ForkBase, SimulationRun};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::{find, run_error};
use crate::app::AppContext;
use crate::args::{SimForkArgs, SimResumeArgs, SimRunArgs};
use crate::commands::set_option;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{note, print_json, rewrite_line};
use crate::view::simulation::{ProgressBar, print_done, print_summary};
use crate::view::style;

pub(super) fn run(app: &AppContext, args: &SimRunArgs) -> CliResult {
    let simulations = app.folder().simulations()?;
    let fields = field_changes(&args.set, &[("turns", args.turns), ("seed", args.seed)])?;
    reject_fixed_fields(&fields, FixedFields::InRun)?;
    let size =
        args.agents.map(|agents| SizeChange { agents, request: format!("--agents {agents}") });
    let changes = ScenarioChanges { after: 0, fields, size };
    let read = apply_changes(simulations.scenario(&args.scenario)?, changes)?;
    let options =
        NewRunOptions { strict: args.strict, threads: args.threads.threads, ..Default::default() };
    let prepared = PreparedSimulation::new(read, options)?;
    let path = run_path(app, args.out.as_deref(), prepared.id())?;
    perform(app, || Ok(prepared.start(&path)?))
}

pub(super) fn resume(app: &AppContext, args: &SimResumeArgs) -> CliResult {
    let (folder, record) = find(app, &args.run)?;
    let run = run_name(app.folder(), &folder, &record);
    let scenario = Arc::new(pinned_scenario(&folder)?.scenario);
    let threads = args.threads.threads;
    perform(app, || {
        let resumed = SimulationRun::resume(folder, args.from, args.turns, &scenario, threads);
        resumed.map_err(|error| run_error(error, &run))
    })
}

pub(super) fn fork(app: &AppContext, args: &SimForkArgs) -> CliResult {
    let (other, before) = find(app, &args.run)?;
    let run = run_name(app.folder(), &other, &before);
    let fields = field_changes(&args.set, &[("turns", args.turns)])?;
    reject_fixed_fields(&fields, FixedFields::InFork)?;
    let changes = ScenarioChanges { after: args.at, fields: fields.clone(), size: None };
    let mut pinned = pinned_scenario(&other)?;
    // The fork has as many turns as the original run, which may exceed those of its scenario.
    pinned.file.turns = Some(before.turns);
    let read = apply_changes(&pinned, changes)?;
    let values = values_set(&fields, &read.file);
    let scenario = Arc::new(pinned.scenario);
    let past = ForkBase { folder: &other, scenario: &scenario, turn: args.at, values: &values };
    let forked_from = ForkOrigin { run_id: before.run_id, turn: args.at };
    let options = NewRunOptions {
        strict: before.strict,
        threads: args.threads.threads,
        forked_from: Some(forked_from),
        ..Default::default()
    };
    let prepared = PreparedSimulation::new(read, options)?;
    let path = run_path(app, args.out.as_deref(), prepared.id())?;
    perform(app, || prepared.fork(&path, &past).map_err(|error| run_error(error, &run)))
}

/// The changes that `--set` and other flags ask for.
fn field_changes(
    set: &[String],
    flags: &[(&str, Option<u64>)],
) -> Result<Vec<FieldChange>, CliError> {
    let mut changes = Vec::new();
    for change in set {
        let (path, value) = set_option::change(change, "max_agents=100")?;
        let request = format!("--set {change}");
        changes.push(FieldChange { path: path.to_owned(), value, request });
    }
    for (field, value) in flags.iter().filter_map(|(field, value)| Some((field, (*value)?))) {
        let request = format!("--{field} {value}");
        changes.push(FieldChange { path: (*field).to_owned(), value: value.into(), request });
    }
    Ok(changes)
}

fn run_path(app: &AppContext, out: Option<&Path>, run_id: &str) -> Result<PathBuf, CliError> {
    if let Some(out) = out {
        return Ok(out.to_owned());
    }
    app.folder().must_exist()?;
    app.context.protect_data()?;
    let runs = app.folder().runs();
    // With `--json`, stderr contains only errors.
    for error in sweep_unfinished(&runs).iter().filter(|_| app.shows_progress()) {
        note!("{}: {error}", style::warning("warning"));
    }
    Ok(runs.join(run_id))
}

/// Runs to the last turn, or to the end of the turn in which a signal arrives.
fn perform(app: &AppContext, begin: impl FnOnce() -> Result<SimulationRun, CliError>) -> CliResult {
    let stop = listen(app)?;
    let mut run = begin()?;
    let mut bar = ProgressBar::new(app);
    if app.shows_events() {
        run.record_events();
    }
    let summary = perform_run(&mut run, |progress| {
        print_done(app, progress);
        bar.show(progress);
        stop.load(Ordering::Relaxed)
    });
    bar.clear();
    let name = run_name(app.folder(), run.folder(), run.record());
    let summary = summary.map_err(|error| run_error(error, &name))?;
    if app.json() {
        print_json(&summary)?;
    } else {
        print_summary(app, &summary, Some(&name))?;
    }
    let SimulationRecord { status, turns, .. } = run.record();
    match status {
        RunStatus::Running | RunStatus::Ended => Ok(ExitStatus::Done),
        RunStatus::Stopped => {
            if app.shows_progress() {
                let stopped = format!("stopped after turn {} of {turns}", summary.turns);
                note!("{}: continue with `polity sim resume {name}`", style::warning(&stopped));
            }
            Ok(ExitStatus::Cancelled)
        }
    }
}

/// A flag that the first signal sets. A second signal ends the process at once.
fn listen(app: &AppContext) -> Result<Arc<AtomicBool>, CliError> {
    const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
    let stop = Arc::new(AtomicBool::new(false));
    let io = |error| CliError::io("listen to", Path::new("signals"), &error);
    for signal in SIGNALS {
        let code = i32::from(ExitStatus::Cancelled.code());
        flag::register_conditional_shutdown(signal, code, Arc::clone(&stop)).map_err(io)?;
        flag::register(signal, Arc::clone(&stop)).map_err(io)?;
    }
    if app.shows_progress() {
        // A turn may take long, so the first signal is acknowledged.
        let (mut signals, is_live) = (Signals::new(SIGNALS).map_err(io)?, app.options.is_live());
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                if is_live {
                    rewrite_line("");
                }
                note!("stopping at the end of this turn; press Ctrl-C again to quit at once");
            }
        });
    }
    Ok(stop)
}
