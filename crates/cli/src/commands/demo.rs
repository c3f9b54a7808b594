//! `polity demo`: the main job on embedded defaults, with no key and no network.

use std::path::PathBuf;

use polity_engine::entropy::{EntropySource, SystemEntropy};

use super::init::{Files, write_home};
use super::run::{closure, follow, present, resolve};
use super::task::trace_of;
use crate::app::{App, Workshop, block_on};
use crate::args::Options;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::home::is_home;
use crate::view::{note, print_json, say, steps, style};
use polity_engine::commands::CreateTask;
use serde_json::Map;

const FILES: Files = &[
    ("polity.yaml", include_str!("../../../../examples/02-retries/polity.yaml")),
    (
        "agents/forecaster.yaml",
        include_str!("../../../../examples/02-retries/agents/forecaster.yaml"),
    ),
    (
        "scripts/forecaster.yaml",
        include_str!("../../../../examples/02-retries/scripts/forecaster.yaml"),
    ),
];

pub(crate) fn demo(options: &Options) -> CliResult {
    let folder = match &options.home {
        Some(home) => home.clone(),
        None => fresh_folder(),
    };
    if is_home(&folder) {
        return Err(CliError::conflict(format!("{} is a home already", folder.display()))
            .hint("nothing was changed; without --home the demo makes a folder of its own"));
    }
    write_home(&folder, FILES)?;
    let app = App::new(Options { home: Some(folder.clone()), ..options.clone() })?;
    if app.shows_progress() {
        note!("{}", style::dim(&format!("a new home in {}", folder.display())));
        note!(
            "an agent is asked for a forecast; its model is overloaded at first, so it waits and \
             tries again\n"
        );
    }
    let home = app.definitions()?;
    let agent = resolve(&app, &home, "forecaster")?;
    let create = CreateTask {
        closure: closure(&home, agent)?,
        description: "What will the weather be in Oslo?".to_owned(),
        parameters: Map::new(),
        class: None,
        retention_days: None,
    };
    block_on(async {
        let workshop = Workshop::open(&app, &home)?;
        let live = workshop.runtime.subscribe();
        let handle = workshop.runtime.create(create).await?;
        let task = follow(&app, &workshop, handle, live).await?;
        if app.json() {
            print_json(&task)?;
            return Ok(Exit::of_task(&task));
        }
        let exit = present(&app, &task)?;
        let row = workshop
            .store
            .task_row(task.id)?
            .ok_or_else(|| CliError::not_found(format!("task {} is not in the store", task.id)))?;
        let trace = trace_of(&*workshop.store, &row)?;
        say!("\n{}\n", steps::tree(&task, &trace))?;
        let (polity, home) = (program(), folder.display());
        say!("{}", style::label("Where to look next"))?;
        say!("  {polity} --home {home} task show {}", task.id)?;
        say!("  {polity} --home {home} run forecaster \"What will the weather be in Bergen?\"")?;
        say!("  {polity} init hello && {polity} --home hello run greeter \"Ada\"")?;
        Ok(exit)
    })
}

/// This program as it was called, so that what is shown can be copied.
fn program() -> String {
    std::env::args_os()
        .next()
        .map_or_else(|| "polity".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn fresh_folder() -> PathBuf {
    let [a, b, c, d, ..] = SystemEntropy.seed();
    std::env::temp_dir().join(format!("polity-demo-{a:02x}{b:02x}{c:02x}{d:02x}"))
}
