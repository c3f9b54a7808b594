//! `polity agent`: lists, shows, adds, enables and disables agents.

mod add;
pub(super) mod status;
pub(super) mod toggle;

use polity_engine::commands::ToggleAgent;
use polity_host::find_agent;
use polity_host::views::{agent_details, agent_summary};
use serde_json::Value;

use crate::app::AppContext;
use crate::args::{AgentArgs, AgentCommand, GlobalOptions};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::{style, table};

pub(crate) async fn agent(app: &AppContext, command: &AgentCommand) -> CliResult {
    match command {
        AgentCommand::List => list(app).await,
        AgentCommand::Show(args) => show(app, args).await,
        AgentCommand::Status(args) => status::status(app, args).await,
        AgentCommand::Add(args) => add::add(app, args),
        AgentCommand::Enable(args) => toggle::toggle(app, &args.name, &ToggleAgent::Enable).await,
        AgentCommand::Disable(args) => {
            let disable = ToggleAgent::Disable { reason: args.message.clone() };
            toggle::toggle(app, &args.agent.name, &disable).await
        }
    }
}

async fn list(app: &AppContext) -> CliResult {
    let home = app.valid_definitions()?;
    let toggles = app.queries()?.agent_toggles().await?;
    let documents: Vec<_> =
        home.agents.values().map(|agent| agent_summary(agent, &toggles)).collect();
    let empty = format!("no agents in {}", app.folder().root().display());
    print_list(&app.options, &documents, &empty)
}

/// Prints summaries of agents.
pub(crate) fn print_list(options: &GlobalOptions, agents: &[Value], empty: &str) -> CliResult {
    options.print_list(agents, empty, || {
        let rows = agents.iter().map(|agent| {
            let is_off = agent["enabled"] == false;
            let text = |field: &str| agent[field].as_str().unwrap_or_default().to_owned();
            let kind = format!("{}{}", text("kind"), if is_off { " (disabled)" } else { "" });
            [text("name"), kind, text("uses"), text("role")]
        });
        table(["NAME", "KIND", "USES", "ROLE"], rows)
    })
}

async fn show(app: &AppContext, args: &AgentArgs) -> CliResult {
    let home = app.folder().read()?;
    let agent = find_agent(&app.context, &home, &args.name)?;
    let toggles = app.queries()?.agent_toggles().await?;
    let unreadable = |error| CliError::usage(format!("the definition cannot be shown: {error}"));
    print_details(&app.options, &agent_details(&agent, &toggles).map_err(unreadable)?)
}

/// Prints the definition of an agent.
pub(crate) fn print_details(options: &GlobalOptions, details: &Value) -> CliResult {
    if options.json {
        print_json(details)?;
        return Ok(ExitStatus::Done);
    }
    let fields = details.as_object().into_iter().flatten();
    let is_shown = |name: &str, value: &Value| !ADDED_FIELDS.contains(&name) && !value.is_null();
    for (name, value) in fields.filter(|(name, value)| is_shown(name, value)) {
        say!("{} {}", style::label(&format!("{name}:")), plain(value))?;
    }
    say!("{} {}", style::label("digest:"), plain(&details["digest"]))?;
    if let Some(text) = toggle::override_text(&details["override"]) {
        say!("{} {text}", style::label("override:"))?;
    }
    Ok(ExitStatus::Done)
}

/// The fields that are not part of the definition.
const ADDED_FIELDS: [&str; 2] = ["digest", "override"];

/// A value of a definition as text.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim_end().replace('\n', "\n  "),
        other => other.to_string(),
    }
}
