//! `polity check`: validates every definition.

use polity_host::simulations::SimulationDefinitions;
use serde_json::json;

use crate::app::AppContext;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::count;

pub(crate) fn check(app: &AppContext) -> CliResult {
    app.folder().must_exist()?;
    let root = app.folder().root();
    let home = app.folder().read()?;
    let simulations = app.folder().simulations()?;
    let mut problems = home.problems;
    problems.extend_from_slice(&simulations.problems);
    problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    let valid = problems.is_empty();
    if app.json() {
        print_json(&json!({"valid": valid, "errors": problems}))?;
        return Ok(if valid { ExitStatus::Done } else { ExitStatus::Usage });
    }
    if !valid {
        let message = count(problems.len(), "problem");
        return Err(CliError::invalid(message, problems));
    }
    let mut parts = vec![
        count(home.agents.len(), "agent"),
        count(home.workflows.len(), "workflow"),
        count(home.schedules.len(), "schedule"),
        count(home.scripts.len(), "script"),
        count(home.mcp_servers.len(), "MCP server"),
    ];
    // Most homes have no scenarios.
    let SimulationDefinitions { charts, scenarios, .. } = simulations;
    if !charts.is_empty() || !scenarios.is_empty() {
        parts.extend([count(charts.len(), "chart"), count(scenarios.len(), "scenario")]);
    }
    say!("{} is valid: {}", root.display(), parts.join(", "))?;
    Ok(ExitStatus::Done)
}
