//! `polity tool`: lists and calls the tools of the home's MCP servers.

use std::sync::Arc;
use std::time::Instant;

use polity_drivers::mcp::McpTools;
use polity_engine::driver::{CallSite, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec};
use polity_model::tool::{ToolName, ToolPattern};
use polity_model::trace::shorten;
use serde_json::{Map, Value, json};

use crate::app::AppContext;
use crate::args::{ToolCallArgs, ToolCommand, ToolListArgs};
use crate::error::{CliError, CliResult, print_error};
use crate::exit::ExitStatus;
use crate::terminal::{print_exact, print_json, say};
use crate::view::table;

/// The length of a description in a list; the JSON output has all of it.
const DESCRIPTION_CHARACTERS_MAX: usize = 80;

pub(crate) async fn tool(app: &AppContext, command: ToolCommand) -> CliResult {
    app.folder().must_exist()?;
    let home = app.definitions()?;
    let tools = app.context.tools(&home)?;
    let outcome = match command {
        ToolCommand::List(args) => list(app, &tools, &home, &args).await,
        ToolCommand::Call(args) => call(app, &tools, &args).await,
    };
    tools.shutdown().await;
    outcome
}

async fn list(
    app: &AppContext,
    tools: &McpTools,
    home: &polity_definition::Home,
    args: &ToolListArgs,
) -> CliResult {
    let names: Vec<String> = match &args.server {
        Some(server) => vec![server.clone()],
        None => home.mcp_servers.keys().map(ToString::to_string).collect(),
    };
    let mut found: Vec<Arc<ToolSpec>> = Vec::new();
    let mut exit = ExitStatus::Done;
    for name in names {
        match all_of(tools, &name).await {
            Ok(tools) => found.extend(tools),
            // An unreachable server must not hide the others.
            Err(error) => {
                print_error(&error, app.json());
                exit = ExitStatus::Failed;
            }
        }
    }
    if app.json() {
        print_json(&found.iter().map(|tool| described(tool)).collect::<Vec<_>>())?;
    } else if found.is_empty() && exit == ExitStatus::Done {
        say!("no tools; servers are declared in config/mcp_servers.yaml")?;
    } else {
        let rows = found.iter().map(|tool| {
            let repeat = if tool.repeatable { "yes" } else { "no" };
            let description = shorten(&tool.description, DESCRIPTION_CHARACTERS_MAX);
            [tool.name.to_string(), repeat.to_owned(), description]
        });
        say!("{}", table(["TOOL", "REPEATABLE", "DESCRIPTION"], rows))?;
    }
    Ok(exit)
}

async fn all_of(tools: &McpTools, server: &str) -> Result<Vec<Arc<ToolSpec>>, CliError> {
    let pattern: ToolPattern = format!("{server}/*").parse().map_err(|_| {
        CliError::usage(format!("\"{server}\" is not the name of an MCP server"))
            .hint("servers are declared in config/mcp_servers.yaml")
    })?;
    let toolbox =
        tools.toolbox(&[pattern], CallSite::OUTSIDE).await.map_err(CliError::tools_unavailable)?;
    Ok(toolbox.offered().to_vec())
}

fn described(tool: &ToolSpec) -> Value {
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

async fn call(app: &AppContext, tools: &McpTools, args: &ToolCallArgs) -> CliResult {
    let name: ToolName = args.tool.parse().map_err(|_| {
        CliError::usage(format!("\"{}\" is not the name of a tool", args.tool))
            .hint("write it as SERVER/TOOL; `polity tool list` lists the tools")
    })?;
    let pattern: ToolPattern = name
        .as_str()
        .parse()
        .map_err(|error| CliError::usage(format!("\"{name}\" is not a tool: {error}")))?;
    let toolbox =
        tools.toolbox(&[pattern], CallSite::OUTSIDE).await.map_err(CliError::tools_unavailable)?;
    let tool = toolbox
        .find(name.server(), name.tool())
        .ok_or_else(|| CliError::not_found(format!("there is no tool {name}")))?;
    let arguments = arguments(tool, args)?;
    tool.check_arguments(&arguments).map_err(|problem| {
        CliError::usage(format!("{name} does not take these arguments: {problem}"))
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
    let answer = tools.call(request).await;
    let reply = match answer {
        Ok(reply) => reply,
        Err(ToolFailure { failure, timed_out: true, .. }) => {
            return Err(CliError::timed_out(format!("{name}: {}", failure.message)));
        }
        Err(ToolFailure { failure, timed_out: false, .. }) => {
            return Err(CliError::tool_failed(format!("{name}: {}", failure.message)));
        }
    };
    let shown = show_reply(app, &reply, began)?;
    if let (false, Some(_), Some(result)) = (reply.is_error, &tool.output_schema, &reply.structured)
        && let Err(problem) = tool.check_result(result)
    {
        let message = format!("the result does not fit the tool's own output schema: {problem}");
        return Err(CliError::tool_failed(message));
    }
    Ok(shown)
}

fn show_reply(app: &AppContext, reply: &ToolReply, began: Instant) -> CliResult {
    if app.json() {
        print_json(&json!({
            "content": reply.content,
            "structured": reply.structured,
            "is_error": reply.is_error,
            "duration_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))?;
    } else {
        print_exact(&format!("{}\n", reply.content.trim_end_matches('\n')))?;
    }
    Ok(if reply.is_error { ExitStatus::Failed } else { ExitStatus::Done })
}

/// The arguments as they were typed: JSON where that is what the tool wants, else a text.
fn arguments(tool: &ToolSpec, args: &ToolCallArgs) -> Result<Map<String, Value>, CliError> {
    let mut arguments = match &args.json_arguments {
        None => Map::new(),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            CliError::usage(format!("--arguments is not a JSON object: {error}"))
        })?,
    };
    for arg in &args.args {
        let (name, text) =
            arg.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                CliError::usage(format!("\"{arg}\" is not an argument"))
                    .hint("write it as NAME=VALUE: --arg path=notes.txt")
            })?;
        let properties = tool.input_schema.get("properties");
        let wants_text = properties.is_some_and(|all| all[name]["type"] == "string");
        let value = match serde_json::from_str::<Value>(text) {
            Ok(value) if !wants_text || value.is_string() => value,
            Ok(_) | Err(_) => Value::from(text),
        };
        arguments.insert(name.to_owned(), value);
    }
    Ok(arguments)
}
