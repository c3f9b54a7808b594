//! `polity agent status`: what runs, what waits, and how many places there are.

use std::sync::Arc;

use polity_definition::{AgentDefinition, AgentKind};
use polity_engine::agent_toggles::AgentToggles;
use polity_engine::driver::{Programs, RunOverrides};
use polity_engine::runtime::Owners;
use polity_model::machine::execution::ExecutionState;
use polity_store::instances::Instances;
use polity_store::{ExecutionFilter, Store};
use serde_json::{Value, json};

use super::{found, plain};
use crate::app::App;
use crate::args::AgentStatusArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{print_json, say, table};

pub(super) fn status(app: &App, args: &AgentStatusArgs) -> CliResult {
    let home = app.listed()?;
    let agents: Vec<_> = match &args.name {
        Some(name) => vec![found(app, &home, name)?],
        None => home.agents.values().cloned().collect(),
    };
    let store = app.reader()?;
    let look = Look {
        agent_toggles: AgentToggles::read(&store)?,
        store: &store,
        instances: app.instances(),
        programs: app.programs(&home)?,
    };
    let seen = agents.iter().map(|agent| look.at(agent)).collect::<Result<Vec<_>, _>>()?;
    if app.json() {
        match (&args.name, seen.as_slice()) {
            (Some(_), [one]) => print_json(one)?,
            (Some(_) | None, _) => print_json(&seen)?,
        }
        return Ok(Exit::Done);
    }
    let rows = seen.iter().map(|agent| {
        let pool = &agent["pool"];
        let places = match &pool["capacity"] {
            Value::Null => "unlimited".to_owned(),
            capacity => format!("{} of {capacity} in use", pool["in_use"]),
        };
        [
            plain(&agent["name"]),
            if agent["enabled"] == true { "yes" } else { "no" }.to_owned(),
            plain(&agent["running"]),
            plain(&agent["queued"]),
            places,
        ]
    });
    say!("{}", table(["NAME", "ENABLED", "RUNNING", "QUEUED", "PLACES"], rows))?;
    Ok(Exit::Done)
}

/// What a look at agents needs.
struct Look<'a> {
    agent_toggles: AgentToggles,
    store: &'a dyn Store,
    instances: Instances,
    programs: Arc<dyn Programs>,
}

impl Look<'_> {
    fn at(&self, agent: &AgentDefinition) -> Result<Value, CliError> {
        let of_agent = ExecutionFilter {
            agent: Some(agent.name.to_string()),
            open_only: true,
            ..ExecutionFilter::default()
        };
        let (running, queued) = self.count(&of_agent)?;
        // The places may be shared with other agents, by the folder or by a lock_key.
        let pool = match &agent.kind {
            AgentKind::Cli(cli) => {
                let key = self.programs.pool(agent, &RunOverrides::default());
                let of_pool = ExecutionFilter {
                    pool: Some(key),
                    open_only: true,
                    ..ExecutionFilter::default()
                };
                let in_use = self.count(&of_pool)?.0;
                json!({"in_use": in_use, "capacity": cli.max_concurrent_executions})
            }
            AgentKind::Llm(_) | AgentKind::Remote(_) => {
                json!({"in_use": running, "capacity": null})
            }
        };
        Ok(json!({
            "name": agent.name,
            "enabled": self.agent_toggles.is_enabled(agent),
            "running": running,
            "queued": queued,
            "pool": pool,
        }))
    }

    /// How many run, and how many wait, in processes that are alive.
    fn count(&self, filter: &ExecutionFilter) -> Result<(u32, u32), CliError> {
        let (mut running, mut queued) = (0, 0);
        for row in self.store.execution_rows(filter)? {
            if !row.owner.is_some_and(|owner| Owners::is_alive(&self.instances, owner)) {
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
        Ok((running, queued))
    }
}
