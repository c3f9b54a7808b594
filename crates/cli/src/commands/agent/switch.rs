//! `polity agent enable` and `disable`: overrides of an agent's definition.

use std::sync::Arc;

use polity_engine::agent_toggles::AgentToggle;
use polity_engine::clock::SystemClock;
use polity_engine::commands::ToggleAgent;
use polity_engine::runtime::toggle_agent;
use polity_host::find_agent;
use polity_store::Store;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::CliResult;
use crate::exit::Exit;
use crate::view::{print_json, say, task as view};

pub(super) async fn switch(app: &App, name: &str, switch: &ToggleAgent) -> CliResult {
    let home = app.definitions()?;
    let agent = find_agent(&app.context, &home, name)?;
    let store: Arc<dyn Store> = Arc::new(app.context.open_writer(&home)?);
    let changed = toggle_agent(&store, &SystemClock, &agent.name, switch).await?;
    let (enabled, reason) = match switch {
        ToggleAgent::Enable => (true, None),
        ToggleAgent::Disable { reason } => (false, reason.as_ref()),
    };
    if app.json() {
        let (name, changed) = (&agent.name, changed);
        let told = json!({"name": name, "enabled": enabled, "reason": reason, "changed": changed});
        print_json(&told)?;
    } else {
        let so = if changed { "is" } else { "was already" };
        say!("agent {} {so} {}", agent.name, word(enabled))?;
    }
    Ok(Exit::Done)
}

fn word(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

/// The override of an agent, as text.
pub(super) fn told(switch: &AgentToggle) -> String {
    let reason = switch.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} since {}{reason}", word(switch.enabled), view::time(switch.at))
}

/// The override of an agent, as JSON.
pub(super) fn as_json(switch: &AgentToggle) -> Value {
    json!({"enabled": switch.enabled, "reason": switch.reason, "at": switch.at})
}
