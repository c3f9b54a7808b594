//! `polity tool`: lists and calls the tools of the home's MCP servers.

use polity_definition::Home;
use polity_drivers::mcp::McpTools;
use polity_engine::driver::ToolSpec;
use polity_host::tools::{ListedTools, ToolCallOutcome, call_tool, list_tools, tool_summary};
use polity_model::trace::shorten;
use serde_json::{Map, Value};

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

async fn list(app: &AppContext, tools: &McpTools, home: &Home, args: &ToolListArgs) -> CliResult {
    let ListedTools { tools, errors } = list_tools(tools, home, args.server.as_deref()).await;
    for error in &errors {
        print_error(error, app.json());
    }
    let exit = if errors.is_empty() { ExitStatus::Done } else { ExitStatus::Failed };
    if app.json() {
        print_json(&tools.iter().map(|tool| tool_summary(tool)).collect::<Vec<_>>())?;
    } else if tools.is_empty() && errors.is_empty() {
        say!("no tools; servers are declared in config/mcp_servers.yaml")?;
    } else {
        let rows = tools.iter().map(|tool| {
            let repeat = if tool.repeatable { "yes" } else { "no" };
            let description = shorten(&tool.description, DESCRIPTION_CHARACTERS_MAX);
            [tool.name.to_string(), repeat.to_owned(), description]
        });
        say!("{}", table(["TOOL", "REPEATABLE", "DESCRIPTION"], rows))?;
    }
    Ok(exit)
}

async fn call(app: &AppContext, tools: &McpTools, args: &ToolCallArgs) -> CliResult {
    let arguments = |tool: &ToolSpec| arguments(tool, args);
    let outcome = call_tool(tools, &args.tool, Box::new(arguments)).await?;
    let shown = show_reply(app, &outcome)?;
    match outcome.unfit_result {
        Some(error) => Err(error),
        None => Ok(shown),
    }
}

fn show_reply(app: &AppContext, outcome: &ToolCallOutcome) -> CliResult {
    if app.json() {
        print_json(&outcome.to_json())?;
    } else {
        print_exact(&format!("{}\n", outcome.reply.content.trim_end_matches('\n')))?;
    }
    Ok(if outcome.reply.is_error { ExitStatus::Failed } else { ExitStatus::Done })
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
