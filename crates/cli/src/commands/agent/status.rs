//! `polity agent status`: running and queued executions, and free slots.

use polity_host::{AgentStatus, find_agent};
use serde_json::json;

use crate::app::AppContext;
use crate::args::{AgentStatusArgs, GlobalOptions};
use crate::error::CliResult;
use crate::view::table;

pub(super) async fn status(app: &AppContext, args: &AgentStatusArgs) -> CliResult {
    let home = app.valid_definitions()?;
    let agents: Vec<_> = match &args.name {
        Some(name) => vec![find_agent(&app.context, &home, name)?],
        None => home.agents.values().cloned().collect(),
    };
    let queries = app.queries()?;
    let (toggles, programs) = (queries.agent_toggles().await?, app.context.programs(&home)?);
    let mut statuses = Vec::with_capacity(agents.len());
    for agent in &agents {
        statuses.push(queries.agent_status(agent, &toggles, &*programs).await?);
    }
    print(&app.options, &statuses, args.name.is_some())
}

/// Prints the load of agents, or of the one that was asked for.
pub(crate) fn print(options: &GlobalOptions, statuses: &[AgentStatus], is_one: bool) -> CliResult {
    let document = match (is_one, statuses) {
        (true, [one]) => json!(one),
        (true | false, _) => json!(statuses),
    };
    let rows = statuses.iter().map(|agent| {
        let slots = match agent.pool.capacity {
            None => "unlimited".to_owned(),
            Some(capacity) => format!("{} of {capacity} in use", agent.pool.in_use),
        };
        [
            agent.name.to_string(),
            if agent.enabled { "yes" } else { "no" }.to_owned(),
            agent.running.to_string(),
            agent.queued.to_string(),
            slots,
        ]
    });
    options.print(&document, || table(["NAME", "ENABLED", "RUNNING", "QUEUED", "SLOTS"], rows))
}
