//! `polity agent`: lists, shows, adds, enables and disables agents.

mod add;
mod status;
mod toggle;
mod yaml;

use polity_engine::commands::ToggleAgent;
use polity_host::find_agent;
use polity_host::views::{agent_details, agent_engine, agent_summary};
use serde_json::Value;

use crate::app::AppContext;
use crate::args::{AgentArgs, AgentCommand};
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
    app.print_list(&documents, empty, || {
        let rows = home.agents.values().map(|agent| {
            let is_off = !toggles.is_enabled(agent);
            let kind = format!("{}{}", agent.kind.label(), if is_off { " (disabled)" } else { "" });
            let role = agent.role().unwrap_or_default().to_owned();
            [agent.name.to_string(), kind, agent_engine(agent), role]
        });
        table(["NAME", "KIND", "USES", "ROLE"], rows)
    })
}

async fn show(app: &AppContext, args: &AgentArgs) -> CliResult {
    let home = app.folder().read()?;
    let agent = find_agent(&app.context, &home, &args.name)?;
    let toggles = app.queries()?.agent_toggles().await?;
    let said = toggles.of(&agent.name);
    let unreadable = |error| CliError::usage(format!("the definition cannot be shown: {error}"));
    if app.json() {
        print_json(&agent_details(&agent, &toggles).map_err(unreadable)?)?;
        return Ok(ExitStatus::Done);
    }
    let definition: Value = serde_json::from_str(&agent.canonical_json()).map_err(unreadable)?;
    if let Value::Object(fields) = &definition {
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            say!("{} {}", style::label(&format!("{name}:")), plain(value))?;
        }
    }
    say!("{} {}", style::label("digest:"), agent.digest())?;
    if let Some(said) = said {
        say!("{} {}", style::label("override:"), toggle::override_text(said))?;
    }
    Ok(ExitStatus::Done)
}

/// A value of a definition as text.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim_end().replace('\n', "\n  "),
        other => other.to_string(),
    }
}
