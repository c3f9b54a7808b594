//! `polity sim status`: the status of runs.

use polity_host::simulations::runs::{RunOverview, run_name};
use polity_simulator::folder::RunStatus;
use polity_simulator::folder::version::RunVersion;

use super::{find, runs};
use crate::app::AppContext;
use crate::args::SimStatusArgs;
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::simulation::print_summary;
use crate::view::{style, table};

pub(super) fn status(app: &AppContext, args: &SimStatusArgs) -> CliResult {
    if let Some(run) = &args.run {
        let (folder, record) = find(app, run)?;
        return one(app, &RunOverview::read(folder, record)?);
    }
    let read = |(folder, record)| RunOverview::read(folder, record);
    let all: Vec<RunOverview> = runs(app)?.into_iter().map(read).collect::<Result<_, _>>()?;
    let documents: Vec<_> = all.iter().map(RunOverview::to_json).collect();
    let empty = format!("no runs in {}", app.folder().root().display());
    app.print_list(&documents, empty, || {
        let rows = all.iter().map(|overview| {
            let short: String = overview.record.run_id.chars().take(8).collect();
            let turns = format!("{}/{}", overview.turn(), overview.record.turns);
            let begun = overview.record.created_at.strftime("%Y-%m-%d %H:%M:%S").to_string();
            [short, overview.status().to_owned(), overview.record.scenario.clone(), turns, begun]
        });
        table(["RUN", "STATUS", "SCENARIO", "TURNS", "STARTED"], rows)
    })
}

fn one(app: &AppContext, overview: &RunOverview) -> CliResult {
    if app.json() {
        print_json(&overview.to_json())?;
        return Ok(ExitStatus::Done);
    }
    let record = &overview.record;
    say!("{} {}", style::label("run:"), record.run_id)?;
    say!("{} {}", style::label("scenario:"), record.scenario)?;
    say!("{} {}", style::label("status:"), overview.status())?;
    say!("{} {} of {}", style::label("turns:"), overview.turn(), record.turns)?;
    if let Some(fork) = &record.forked_from {
        say!("{} {} at turn {}", style::label("forked from:"), fork.run_id, fork.turn)?;
    }
    if let (Some(first), Some(last)) = (overview.checkpoints.first(), overview.checkpoints.last()) {
        let number = overview.checkpoints.len();
        say!("{} {number}, of turns {first} to {last}", style::label("checkpoints:"))?;
    }
    if let Some(RunVersion { polity, format }) = &record.version {
        say!("{} {polity}, format {format}", style::label("version:"))?;
    }
    say!("{} {}", style::label("folder:"), overview.folder.path().display())?;
    match (&record.summary, record.status) {
        (Some(summary), RunStatus::Stopped | RunStatus::Ended) => {
            print_summary(app, summary, None)?;
        }
        (Some(_), RunStatus::Running) | (None, _) => {}
    }
    if overview.interrupted || record.status == RunStatus::Stopped {
        let run = run_name(app.folder(), &overview.folder, record);
        say!("continue with `polity sim resume {run}`")?;
    }
    Ok(ExitStatus::Done)
}
