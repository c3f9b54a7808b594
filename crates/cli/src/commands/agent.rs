//! `polity agent`: who there is.

use std::sync::Arc;

use polity_engine::runtime::Owners;
use polity_model::definition::{AgentDefinition, AgentKind, Home, Lookup};
use polity_model::machine::execution::ExecutionState;
use polity_store::{ExecutionFilter, Store};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{AgentArgs, AgentCommand, AgentStatusArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{print_json, say, style, table};

pub(crate) fn agent(app: &App, command: &AgentCommand) -> CliResult {
    match command {
        AgentCommand::List => list(app),
        AgentCommand::Show(args) => show(app, args),
        AgentCommand::Status(args) => status(app, args),
    }
}

/// What runs of an agent, and what waits.
fn status(app: &App, args: &AgentStatusArgs) -> CliResult {
    let home = app.listed()?;
    let agents: Vec<_> = match &args.name {
        Some(name) => vec![found(app, &home, name)?],
        None => home.agents.values().cloned().collect(),
    };
    let store = app.reader()?;
    let instances = app.instances();
    let mut seen = Vec::new();
    for agent in agents {
        let filter = ExecutionFilter {
            agent: Some(agent.name.to_string()),
            open_only: true,
            ..ExecutionFilter::default()
        };
        let (mut running, mut queued) = (0u32, 0u32);
        for row in store.execution_rows(&filter)? {
            if !row.owner.is_some_and(|owner| Owners::is_alive(&instances, owner)) {
                continue;
            }
            match row.execution.state {
                ExecutionState::Idle => queued += 1,
                ExecutionState::Starting
                | ExecutionState::Running
                | ExecutionState::Completed
                | ExecutionState::Failed
                | ExecutionState::Timeout
                | ExecutionState::Cancelled
                | ExecutionState::Cleanup => running += 1,
            }
        }
        let (enabled, capacity) = match &agent.kind {
            AgentKind::Cli(cli) => (cli.enabled, Some(cli.max_concurrent_executions.get())),
            AgentKind::Llm(_) | AgentKind::Remote(_) => (true, None),
        };
        seen.push(json!({
            "name": agent.name,
            "enabled": enabled,
            "running": running,
            "queued": queued,
            "pool": {"in_use": running, "capacity": capacity},
        }));
    }
    if app.json() {
        match (&args.name, seen.as_slice()) {
            (Some(_), [one]) => print_json(one)?,
            (Some(_) | None, _) => print_json(&seen)?,
        }
        return Ok(Exit::Done);
    }
    let rows = seen.iter().map(|agent| {
        let capacity = agent["pool"]["capacity"].as_u64();
        [
            plain(&agent["name"]),
            if agent["enabled"] == true { "yes" } else { "no" }.to_owned(),
            plain(&agent["running"]),
            plain(&agent["queued"]),
            capacity.map_or_else(|| "unlimited".to_owned(), |capacity| capacity.to_string()),
        ]
    });
    say!("{}", table(["NAME", "ENABLED", "RUNNING", "QUEUED", "PLACES"], rows))?;
    Ok(Exit::Done)
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

/// The agent of that name.
fn found(app: &App, home: &Home, name: &str) -> Result<Arc<AgentDefinition>, CliError> {
    match home.find(name) {
        Lookup::Agent(agent) => Ok(agent),
        Lookup::Broken(problems) => {
            let message = format!("the definition of \"{name}\" is not valid");
            Err(CliError::invalid(message, problems))
        }
        Lookup::Workflow(_) => {
            Err(CliError::unknown_agent(format!("\"{name}\" is a workflow, not an agent")))
        }
        Lookup::Unknown { suggestion } => {
            let suggestion = suggestion.map(|name| name.to_string());
            Err(super::run::unknown(app, name, suggestion))
        }
    }
}

fn show(app: &App, args: &AgentArgs) -> CliResult {
    let home = app.folder.read()?;
    let agent = found(app, &home, &args.name)?;
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
