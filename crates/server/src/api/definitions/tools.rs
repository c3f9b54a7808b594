//! `/api/v1/tools`: lists and calls the tools of MCP servers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use polity_drivers::mcp::McpTools;
use polity_host::ErrorReport;
use polity_host::tools::{ListedTools, call_tool, list_tools, tool_summary};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::route::Route;
use crate::auth::{ApiCaller, Scope};
use crate::http::{ApiJson, ApiPath, ApiQuery, Problem, ProblemDetails};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/tools",
            "listTools",
            "Lists the tools of the MCP servers. Starts servers that do not run yet.",
            list,
        )
        .query::<ToolQuery>()
        .fails(&[501, 502, 504])
        .answers::<ToolPage>(200),
        Route::post(
            "/api/v1/tools/{server}/{tool}/call",
            "callTool",
            Scope::Run,
            "Calls a tool once.",
            call,
        )
        .takes::<ToolCallBody>()
        .example(json!({"arguments": {}}))
        .fails(&[501, 502, 504])
        .answers::<Map<String, Value>>(200),
    ]
}

fn tools(state: &ServerState) -> Result<&Arc<McpTools>, Problem> {
    state.host.tools().ok_or_else(|| {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "unsupported", "this server has no tools")
    })
}

/// The query of a list of tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolQuery {
    /// Only the tools of this MCP server.
    server: Option<String>,
}

/// The tools of the MCP servers that could be asked.
#[derive(Debug, Serialize, JsonSchema)]
struct ToolPage {
    /// The tools.
    items: Vec<Map<String, Value>>,
    /// Always null: all tools are on one page.
    next_cursor: Option<String>,
    /// The problems of the MCP servers that could not be asked.
    problems: Vec<ProblemDetails>,
}

async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiQuery(query): ApiQuery<ToolQuery>,
) -> Result<Json<ToolPage>, Problem> {
    caller.expect_unlimited("tools")?;
    let home = state.home();
    if let Some(server) = &query.server
        && !home.mcp_servers.keys().any(|name| name.as_str() == server)
    {
        return Err(Problem::not_found(format!("there is no MCP server \"{server}\""))
            .field("server")
            .hint("servers are declared in config/mcp_servers.yaml"));
    }
    let ListedTools { tools, errors } =
        list_tools(tools(&state)?, &home, query.server.as_deref()).await;
    let object = |value: Value| match value {
        Value::Object(fields) => Some(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            None
        }
    };
    let items = tools.iter().filter_map(|tool| object(tool_summary(tool))).collect();
    let problems = errors.into_iter().map(|error| Problem::from(error).into_details()).collect();
    Ok(Json(ToolPage { items, next_cursor: None, problems }))
}

/// The arguments of a call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolCallBody {
    /// The arguments, as the tool's input schema describes them.
    #[serde(default)]
    arguments: Map<String, Value>,
}

async fn call(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath((server, tool)): ApiPath<(String, String)>,
    body: ApiJson<ToolCallBody>,
) -> Result<Json<Value>, Problem> {
    caller.expect_unlimited("tools")?;
    state.expect_open()?;
    let missing = || Problem::not_found(format!("there is no tool {server}/{tool}"));
    if !state.home().mcp_servers.keys().any(|name| name.as_str() == server) {
        return Err(missing().hint("GET /api/v1/tools lists them"));
    }
    let listed = list_tools(tools(&state)?, &state.home(), Some(&server)).await;
    if let Some(error) = listed.errors.into_iter().next() {
        return Err(error.into());
    }
    if !listed.tools.iter().any(|listed| listed.name.tool() == tool) {
        return Err(missing().hint("GET /api/v1/tools lists them"));
    }
    let arguments = body.value.arguments;
    let name = format!("{server}/{tool}");
    let arguments = Box::new(|_: &_| Ok::<_, ErrorReport>(arguments));
    let outcome = call_tool(tools(&state)?, &name, arguments).await?;
    match outcome.unfit_result {
        Some(error) => Err(error.into()),
        None => Ok(Json(outcome.to_json())),
    }
}
