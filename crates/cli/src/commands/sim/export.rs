//! `polity sim export`: one agent with its transitions.

use std::num::NonZeroUsize;
use std::sync::Arc;

use polity_definition::nearest;
use polity_host::simulations::runs::{pinned_scenario, run_name};
use polity_simulator::simulation::Simulation;

use super::{find, run_error};
use crate::app::AppContext;
use crate::args::SimExportArgs;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::print_json;

pub(super) fn export(app: &AppContext, args: &SimExportArgs) -> CliResult {
    let (folder, record) = find(app, &args.run)?;
    let run = run_name(app.folder(), &folder, &record);
    let scenario = Arc::new(pinned_scenario(&folder)?.scenario);
    let simulation = Simulation::restore(&folder, args.at, &scenario, Some(NonZeroUsize::MIN));
    let simulation = simulation.map_err(|error| run_error(error, &run))?;
    if let Some(agent) = simulation.export(&args.agent) {
        print_json(&agent)?;
        return Ok(ExitStatus::Done);
    }
    let (turn, agent) = (simulation.turn(), &args.agent);
    let missing = format!("there is no agent \"{agent}\" at the end of turn {turn}");
    let seen = simulation.last_seen_turn(&folder, agent).map_err(|error| run_error(error, &run))?;
    if let Some(seen) = seen {
        let removed = seen + 1;
        let error = CliError::not_found(format!("{missing}: it was removed in turn {removed}"));
        return Err(error.hint(format!(
            "see it as it was before: `polity sim export {run} --agent {agent} --at {seen}`"
        )));
    }
    let names: Vec<String> = simulation.names().collect();
    let error = CliError::not_found(missing);
    Err(match nearest(agent, names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean \"{near}\"?")),
        None => error.hint("name a turn in which it existed with --at"),
    })
}
