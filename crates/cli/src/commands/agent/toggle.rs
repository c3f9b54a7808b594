//! `polity agent enable` and `disable`: overrides of an agent's definition.

use std::sync::Arc;

use jiff::Timestamp;
use polity_engine::clock::SystemClock;
use polity_engine::commands::ToggleAgent;
use polity_engine::runtime::toggle_agent;
use polity_host::find_agent;
use polity_store::Store;
use serde_json::{Value, json};

use crate::app::AppContext;
use crate::args::GlobalOptions;
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
    print(&app.options, &document)
}

/// Prints the outcome of a toggle.
pub(crate) fn print(options: &GlobalOptions, document: &Value) -> CliResult {
    options.print(document, || {
        let so = if document["changed"] == true { "is" } else { "was already" };
        let name = document["name"].as_str().unwrap_or_default();
        format!("agent {name} {so} {}", enabled_label(document["enabled"] == true))
    })
}

fn enabled_label(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

/// The override of an agent, as text; none if there is none.
pub(super) fn override_text(toggle: &Value) -> Option<String> {
    let at: Timestamp = toggle["at"].as_str()?.parse().ok()?;
    let reason = toggle["reason"].as_str().map(|reason| format!(": {reason}"));
    let (enabled, reason) = (toggle["enabled"] == true, reason.unwrap_or_default());
    Some(format!("{} since {}{reason}", enabled_label(enabled), view::time(at)))
}
