//! `polity sim lifecycle`: changes the population of a run.

use std::time::{Duration, Instant};

use polity_host::HostError;
use polity_host::simulations::lifecycle::LifecycleBatch;
use polity_host::simulations::runs::run_name;
use polity_simulator::error::SimError;
use polity_simulator::folder::{RunFolder, RunStatus, SimulationRecord};
use polity_simulator::lifecycle::{LifecycleAction, LifecycleOperation, RequestVerdict};
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
    let ended = |error| match error {
        HostError::Simulation(SimError::Ended(_)) => ended(app, &folder, &record),
        error => error.into(),
    };
    let submitted = LifecycleBatch::submit(folder.clone(), vec![action.clone()]);
    let mut batch = submitted.map_err(ended)?;
    let asked_at = Instant::now();
    let mut is_to_be_noted = app.shows_progress();
    while !batch.poll().map_err(ended)? {
        if is_to_be_noted && asked_at.elapsed() > WAIT_NOTED_AFTER {
            is_to_be_noted = false;
            note!("waiting for the end of the turn; the request remains after Ctrl-C");
        }
        std::thread::sleep(LOOK_EVERY);
    }
    batch.outcomes().try_fold(ExitStatus::Done, |_, outcome| {
        let when = match outcome.turn {
            Some(turn) => format!("in turn {turn}"),
            None => WHEN_RESUMED.to_owned(),
        };
        tell(app, &action, &outcome.verdict, &when)
    })
}

const WHEN_RESUMED: &str = "when the run is resumed";

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
