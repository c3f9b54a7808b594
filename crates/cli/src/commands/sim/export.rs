//! `polity sim export`: one agent, and the way that it came.

use std::num::NonZeroUsize;
use std::sync::Arc;

use polity_model::definition::nearest;
use polity_simulator::simulation::Simulation;

use super::{find, pinned};
use crate::app::App;
use crate::args::SimExportArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::print_json;

pub(super) fn export(app: &App, args: &SimExportArgs) -> CliResult {
    let (folder, _) = find(app, &args.run)?;
    let scenario = Arc::new(pinned(&folder)?.scenario);
    let simulation = Simulation::restore(&folder, args.at, &scenario, Some(NonZeroUsize::MIN))?;
    let Some(agent) = simulation.export(&args.agent) else {
        let turn = simulation.turn();
        let message = format!("there is no agent \"{}\" at the end of turn {turn}", args.agent);
        let names: Vec<String> = simulation.names().collect();
        let near = nearest(&args.agent, names.iter().map(String::as_str));
        let error = CliError::not_found(message);
        return Err(match near {
            Some(near) => error.hint(format!("did you mean \"{near}\"?")),
            None => {
                error.hint("one that was removed is in earlier checkpoints: name one with --at")
            }
        });
    };
    print_json(&agent)?;
    Ok(Exit::Done)
}
