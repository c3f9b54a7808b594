//! `polity check`: every definition, every problem.

use serde_json::json;

use crate::app::App;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{count, print_json, say};

pub(crate) fn check(app: &App) -> CliResult {
    app.folder.must_exist()?;
    let root = app.folder.root();
    let home = app.folder.read()?;
    let valid = home.problems.is_empty();
    if app.json() {
        print_json(&json!({"valid": valid, "errors": home.problems}))?;
        return Ok(if valid { Exit::Done } else { Exit::Usage });
    }
    if !valid {
        let message = count(home.problems.len(), "problem");
        return Err(CliError::invalid(message, home.problems));
    }
    let parts = [
        count(home.agents.len(), "agent"),
        count(home.workflows.len(), "workflow"),
        count(home.schedules.len(), "schedule"),
        count(home.scripts.len(), "script"),
        count(home.mcp_servers.len(), "MCP server"),
    ];
    say!("{} is valid: {}", root.display(), parts.join(", "))?;
    Ok(Exit::Done)
}
