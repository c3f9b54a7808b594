//! The MCP servers of the home: each is started and asked for its tools.

use std::sync::Arc;

use polity_definition::Home;
use polity_drivers::mcp::McpTools;
use polity_engine::driver::{CallSite, ToolDriver as _};
use polity_model::tool::ToolPattern;
use polity_model::trace::shorten;
use tokio::task::JoinSet;

use super::{CheckSubject, DoctorCheck, PROBE_TIMEOUT};
use crate::context::HostContext;
use crate::error::HostError;

/// The longest reason that is shown; servers may print a lot before they fail.
const REASON_CHARACTERS_MAX: usize = 300;

pub(super) async fn checks(
    context: &HostContext,
    home: &Home,
) -> Result<Vec<DoctorCheck>, HostError> {
    let tools = Arc::new(context.valid_tools(home)?);
    let mut probes = JoinSet::new();
    for name in home.mcp_servers.keys() {
        let (name, tools) = (name.to_string(), Arc::clone(&tools));
        probes.spawn(async move {
            let listed = tokio::time::timeout(PROBE_TIMEOUT, list(&tools, &name)).await;
            let listed = listed.unwrap_or_else(|_| {
                Err(format!("it did not list its tools within {} s", PROBE_TIMEOUT.as_secs()))
            });
            describe(&name, listed)
        });
    }
    let mut checks = probes.join_all().await;
    checks.sort_by(|a, b| a.name.cmp(&b.name));
    tools.shutdown().await;
    Ok(checks)
}

/// The number of tools of a server, or the reason why there are none.
async fn list(tools: &McpTools, name: &str) -> Result<usize, String> {
    let pattern: ToolPattern = format!("{name}/*")
        .parse()
        .map_err(|_| format!("\"{name}\" is not the name of an MCP server"))?;
    match tools.toolbox(&[pattern], CallSite::OUTSIDE).await {
        Ok(toolbox) => Ok(toolbox.offered().len()),
        Err(unavailable) => Err(unavailable.failure.message),
    }
}

fn describe(name: &str, listed: Result<usize, String>) -> DoctorCheck {
    const SUBJECT: CheckSubject = CheckSubject::Tools;
    match listed {
        Ok(0) => DoctorCheck::weaker(SUBJECT, name, "starts, and has no tools")
            .meaning("agents that name its tools are refused"),
        Ok(1) => DoctorCheck::ok(SUBJECT, name, "starts, 1 tool"),
        Ok(number) => DoctorCheck::ok(SUBJECT, name, format!("starts, {number} tools")),
        Err(reason) => DoctorCheck::missing(SUBJECT, name, shorten(&reason, REASON_CHARACTERS_MAX))
            .meaning("tasks of agents that use its tools fail")
            .fix(format!(
                "correct it in config/mcp_servers.yaml, and try `polity tool list {name}`"
            ))
            .needed(),
    }
}
