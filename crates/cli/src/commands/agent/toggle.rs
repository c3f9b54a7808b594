//! `polity agent enable` and `disable`: overrides of an agent's definition.

use std::sync::Arc;

use polity_engine::agent_toggles::AgentToggle;
use polity_engine::clock::SystemClock;
use polity_engine::commands::ToggleAgent;
use polity_engine::runtime::toggle_agent;
use polity_host::find_agent;
use polity_store::Store;
use serde_json::json;

use crate::app::AppContext;
use crate::error::CliResult;
use crate::view::task as view;

pub(super) async fn toggle(app: &AppContext, name: &str, toggle: &ToggleAgent) -> CliResult {
    let home = app.definitions()?;
    let agent = find_agent(&app.context, &home, name)?;
    let store: Arc<dyn Store> = Arc::new(app.context.open_writer(&home)?);
    let changed = toggle_agent(&*store, &SystemClock, &agent.name, toggle).await?;
    let (enabled, reason) = match toggle {
        ToggleAgent::Enable => (true, None),
        ToggleAgent::Disable { reason } => (false, reason.as_ref()),
    };
    let name = &agent.name;
    let document = json!({"name": name, "enabled": enabled, "reason": reason, "changed": changed});
    app.print(&document, || {
        let so = if changed { "is" } else { "was already" };
        format!("agent {name} {so} {}", enabled_label(enabled))
    })
}

fn enabled_label(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

/// The override of an agent, as text.
pub(super) fn override_text(toggle: &AgentToggle) -> String {
    let reason = toggle.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} since {}{reason}", enabled_label(toggle.enabled), view::time(toggle.at))
}
