//! Tools of MCP servers, listed and called by hand.

use std::time::Instant;

use polity_definition::Home;
use polity_drivers::mcp::McpTools;
use polity_engine::driver::{CallSite, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec};
use polity_model::tool::{ToolName, ToolPattern};
use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::report::ErrorReport;

/// The arguments of a call, before the tool is known.
pub type ToolArguments<'a> =
    dyn FnOnce(&ToolSpec) -> Result<Map<String, Value>, ErrorReport> + Send + 'a;

/// The tools that could be listed, and the errors of the servers that could not.
#[derive(Debug, Default)]
pub struct ListedTools {
    /// The tools.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The errors.
    pub errors: Vec<ErrorReport>,
}

/// Lists the tools of one server, or of all servers of a home. An unreachable server does not hide
/// the others.
pub async fn list_tools(tools: &McpTools, home: &Home, server: Option<&str>) -> ListedTools {
    let names: Vec<String> = match server {
        Some(server) => vec![server.to_owned()],
        None => home.mcp_servers.keys().map(ToString::to_string).collect(),
    };
    let mut listing = ListedTools::default();
    for name in names {
        match tools_of(tools, &name).await {
            Ok(tools) => listing.tools.extend(tools),
            Err(error) => listing.errors.push(error),
        }
    }
    listing
}

async fn tools_of(tools: &McpTools, server: &str) -> Result<Vec<Arc<ToolSpec>>, ErrorReport> {
    let pattern: ToolPattern = format!("{server}/*").parse().map_err(|_| {
        ErrorReport::usage(format!("\"{server}\" is not the name of an MCP server"))
            .hint("servers are declared in config/mcp_servers.yaml")
    })?;
    let toolbox = tools
        .toolbox(&[pattern], CallSite::OUTSIDE)
        .await
        .map_err(ErrorReport::tools_unavailable)?;
    Ok(toolbox.offered().to_vec())
}

/// The JSON form of a tool.
pub fn tool_summary(tool: &ToolSpec) -> Value {
    json!({
        "name": tool.name.tool(),
        "server": tool.name.server(),
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "timeout_seconds": tool.timeout.as_secs(),
        "fallback_tools": tool.fallback_tools,
        "idempotent": tool.repeatable,
    })
}

/// The result of a call.
#[derive(Debug, Clone)]
pub struct ToolCallOutcome {
    /// The reply.
    pub reply: ToolReply,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The error of a result that does not fit the tool's own output schema.
    pub unfit_result: Option<ErrorReport>,
}

impl ToolCallOutcome {
    /// The JSON form.
    pub fn to_json(&self) -> Value {
        json!({
            "content": self.reply.content,
            "structured": self.reply.structured,
            "is_error": self.reply.is_error,
            "duration_ms": self.duration_ms,
        })
    }
}

/// Calls a tool once, by its name as `SERVER/TOOL`.
pub async fn call_tool(
    tools: &McpTools,
    name: &str,
    arguments: Box<ToolArguments<'_>>,
) -> Result<ToolCallOutcome, ErrorReport> {
    let name: ToolName = name.parse().map_err(|_| {
        ErrorReport::usage(format!("\"{name}\" is not the name of a tool"))
            .hint("write it as SERVER/TOOL; `polity tool list` lists the tools")
    })?;
    let pattern: ToolPattern = name
        .as_str()
        .parse()
        .map_err(|error| ErrorReport::usage(format!("\"{name}\" is not a tool: {error}")))?;
    let toolbox = tools
        .toolbox(&[pattern], CallSite::OUTSIDE)
        .await
        .map_err(ErrorReport::tools_unavailable)?;
    let tool = toolbox
        .find(name.server(), name.tool())
        .ok_or_else(|| ErrorReport::not_found(format!("there is no tool {name}")))?;
    let arguments = arguments(tool)?;
    tool.check_arguments(&arguments).map_err(|problem| {
        ErrorReport::usage(format!("{name} does not take these arguments: {problem}"))
            .hint(format!("see its input schema: `polity tool list {} --json`", name.server()))
    })?;
    let began = Instant::now();
    let request = ToolRequest {
        tool: &name,
        arguments: &arguments,
        limit: tool.timeout,
        limited_by: None,
        call_site: CallSite::OUTSIDE,
        index: 0,
    };
    let reply =
        tools.call(request).await.map_err(|ToolFailure { failure, timed_out, .. }| {
            let message = format!("{name}: {}", failure.message);
            if timed_out {
                ErrorReport::timed_out(message)
            } else {
                ErrorReport::tool_failed(message)
            }
        })?;
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let unfit_result = match (&tool.output_schema, &reply.structured) {
        (Some(_), Some(result)) if !reply.is_error => tool.check_result(result).err(),
        (Some(_) | None, _) => None,
    };
    let unfit_result = unfit_result.map(|problem| {
        ErrorReport::tool_failed(format!(
            "the result does not fit the tool's own output schema: {problem}"
        ))
    });
    Ok(ToolCallOutcome { reply, duration_ms, unfit_result })
}
