//! `polity sim lifecycle`: changes the population of a run.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_host::simulations::runs::{pinned_scenario, run_name};
use polity_model::ids::RunId;
use polity_simulator::folder::{RunFolder, RunStatus, SimulationRecord};
use polity_simulator::lifecycle::{LifecycleAction, LifecycleOperation, RequestVerdict};
use polity_simulator::simulation::Simulation;
use serde_json::{Map, Value};

use super::find;
use crate::app::AppContext;
use crate::args::{LifecycleAddArgs, LifecycleCommand, SimLifecycleArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{note, print_json, say};
use crate::view::style;

/// The interval between two reads of the answer.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time after which a note says that the turn has not ended yet.
const WAIT_NOTED_AFTER: Duration = Duration::from_secs(2);

pub(super) fn lifecycle(app: &AppContext, args: SimLifecycleArgs) -> CliResult {
    let (folder, record) = find(app, &args.run)?;
    let action = action_of(args.operation)?;
    if record.status == RunStatus::Ended {
        return Err(ended(app, &folder, &record));
    }
    if !folder.is_locked()? {
        return later(app, &folder, &action);
    }
    let request_id = RunId::from_random_bytes(SystemEntropy.seed()).to_string();
    let mut watch = folder.submit_request(&request_id, action.clone())?;
    let asked_at = Instant::now();
    let mut is_to_be_noted = app.shows_progress();
    loop {
        // Ownership is read first: an owner answers before it exits.
        let at_work = folder.is_locked()?;
        if let Some(answer) = watch.poll()? {
            return tell(app, &action, &answer.verdict, &format!("in turn {}", answer.turn));
        }
        if !at_work {
            let record = folder.record()?;
            let reason = match record.status {
                RunStatus::Ended => "the run had ended",
                RunStatus::Running | RunStatus::Stopped => "the run was stopped",
            };
            // Another process may have resumed the run and answered just now.
            if let Some(answer) = folder.withdraw(&request_id, reason)? {
                return tell(app, &action, &answer.verdict, &format!("in turn {}", answer.turn));
            }
            return match record.status {
                RunStatus::Ended => Err(ended(app, &folder, &record)),
                // A valid request is queued again for the process that resumes the run.
                RunStatus::Running | RunStatus::Stopped => later(app, &folder, &action),
            };
        }
        if is_to_be_noted && asked_at.elapsed() > WAIT_NOTED_AFTER {
            is_to_be_noted = false;
            note!("waiting for the end of the turn; the request remains after Ctrl-C");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

const WHEN_RESUMED: &str = "when the run is resumed";

/// Queues a valid request for the process that resumes the run.
fn later(app: &AppContext, folder: &RunFolder, action: &LifecycleAction) -> CliResult {
    let opinion = opinion(folder, action)?;
    if opinion.result.valid {
        let request_id = RunId::from_random_bytes(SystemEntropy.seed()).to_string();
        folder.submit_request(&request_id, action.clone())?;
    }
    tell(app, action, &opinion, WHEN_RESUMED)
}

/// The validation of a request against the newest checkpoint.
fn opinion(folder: &RunFolder, action: &LifecycleAction) -> Result<RequestVerdict, CliError> {
    let scenario = Arc::new(pinned_scenario(folder)?.scenario);
    let simulation = Simulation::restore(folder, None, &scenario, Some(NonZeroUsize::MIN))?;
    Ok(simulation.preview_request(folder, action)?)
}

fn ended(app: &AppContext, folder: &RunFolder, record: &SimulationRecord) -> CliError {
    let run = run_name(app.folder(), folder, record);
    CliError::conflict(format!("the run {run} has ended and accepts no requests"))
        .hint(format!("start a new run from one of its turns: `polity sim fork {run} --at TURN`"))
}

fn action_of(command: LifecycleCommand) -> Result<LifecycleAction, CliError> {
    Ok(match command {
        LifecycleCommand::Add(args) => {
            let initial_state = Some(initial_state(&args)?);
            let name = args.name;
            LifecycleAction {
                initial_state,
                ..LifecycleAction::new(LifecycleOperation::AddAgent, name)
            }
        }
        LifecycleCommand::Remove(args) => {
            LifecycleAction::new(LifecycleOperation::RemoveAgent, args.name)
        }
        LifecycleCommand::Pause(args) => LifecycleAction {
            auto_resume_turns: args.auto_resume_turns,
            ..LifecycleAction::new(LifecycleOperation::PauseAgent, args.name)
        },
        LifecycleCommand::Resume(args) => {
            LifecycleAction::new(LifecycleOperation::ResumeAgent, args.name)
        }
    })
}

/// The initial state of a new agent, from `--initial-state` and `--state`.
fn initial_state(args: &LifecycleAddArgs) -> Result<Map<String, Value>, CliError> {
    let mut initial: Map<String, Value> = match &args.initial_state {
        Some(text) => serde_json::from_str(text).map_err(|error| {
            CliError::usage(format!("--initial-state is not a JSON object: {error}"))
        })?,
        None => Map::new(),
    };
    if let Some(state) = &args.state
        && initial.insert("state".to_owned(), Value::from(state.as_str())).is_some()
    {
        return Err(CliError::usage("--state and --initial-state both name a state: use one"));
    }
    Ok(initial)
}

fn tell(
    app: &AppContext,
    action: &LifecycleAction,
    opinion: &RequestVerdict,
    when: &str,
) -> CliResult {
    if app.json() {
        print_json(opinion)?;
        return Ok(if opinion.result.valid { ExitStatus::Done } else { ExitStatus::Failed });
    }
    let operation = action.operation.as_str();
    if !opinion.result.valid {
        let reason = opinion.result.reason.clone().unwrap_or_default();
        return Err(CliError::conflict(format!("{operation}: {reason}")));
    }
    for warning in &opinion.result.warnings {
        note!("{}: {warning}", style::warning("warning"));
    }
    let name = opinion.name.as_deref().unwrap_or(&action.target_agent_name);
    say!("{operation} \"{name}\": done {when}")?;
    Ok(ExitStatus::Done)
}
