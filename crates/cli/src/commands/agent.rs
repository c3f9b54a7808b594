//! `polity agent`: who there is.

use polity_model::definition::{AgentDefinition, AgentKind, Lookup};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{AgentArgs, AgentCommand};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{print_json, say, style, table};

pub(crate) fn agent(app: &App, command: &AgentCommand) -> CliResult {
    match command {
        AgentCommand::List => list(app),
        AgentCommand::Show(args) => show(app, args),
    }
}

fn list(app: &App) -> CliResult {
    let home = app.listed()?;
    if app.json() {
        let agents: Vec<_> = home
            .agents
            .values()
            .map(|agent| {
                json!({
                    "name": agent.name,
                    "kind": agent.kind.label(),
                    "role": agent.role(),
                    "uses": uses(agent),
                    "digest": agent.digest(),
                })
            })
            .collect();
        print_json(&agents)?;
    } else if home.agents.is_empty() {
        say!("no agents in {}", app.folder.root().display())?;
    } else {
        let rows = home.agents.values().map(|agent| {
            let role = agent.role().unwrap_or_default().to_owned();
            [agent.name.to_string(), agent.kind.label().to_owned(), uses(agent), role]
        });
        say!("{}", table(["NAME", "KIND", "USES", "ROLE"], rows))?;
    }
    Ok(Exit::Done)
}

/// The model, the program or the address behind an agent.
fn uses(agent: &AgentDefinition) -> String {
    match &agent.kind {
        AgentKind::Llm(llm) => {
            let config = &llm.llm_config;
            let model = config.model.as_ref().map(ToString::to_string);
            let script = config.script.as_ref().map(ToString::to_string);
            let which = model.or(script).unwrap_or_default();
            format!("{}/{which}", config.provider.as_str())
        }
        AgentKind::Cli(cli) => cli.program().to_owned(),
        AgentKind::Remote(remote) => remote.card_url.to_string(),
    }
}

fn show(app: &App, args: &AgentArgs) -> CliResult {
    let home = app.folder.read()?;
    let agent = match home.find(&args.name) {
        Lookup::Agent(agent) => agent,
        Lookup::Broken(problems) => {
            let message = format!("the definition of \"{}\" is not valid", args.name);
            return Err(CliError::invalid(message, problems));
        }
        Lookup::Workflow(_) => {
            return Err(CliError::unknown_agent(format!(
                "\"{}\" is a workflow, not an agent",
                args.name
            )));
        }
        Lookup::Unknown { suggestion } => {
            let suggestion = suggestion.map(|name| name.to_string());
            return Err(super::run::unknown(app, &args.name, suggestion));
        }
    };
    let canonical = agent.canonical_json();
    let definition: Value = serde_json::from_str(&canonical)
        .map_err(|error| CliError::usage(format!("the definition cannot be shown: {error}")))?;
    if app.json() {
        let mut definition = definition;
        definition["digest"] = json!(agent.digest());
        print_json(&definition)?;
        return Ok(Exit::Done);
    }
    if let Value::Object(fields) = &definition {
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            say!("{} {}", style::label(&format!("{name}:")), plain(value))?;
        }
    }
    say!("{} {}", style::label("digest:"), agent.digest())?;
    Ok(Exit::Done)
}

/// A value of a definition as people read it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim_end().replace('\n', "\n  "),
        other => other.to_string(),
    }
}
