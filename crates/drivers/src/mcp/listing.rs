//! What servers offer, as the tools of an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use polity_definition::{McpServerDefinition, Text, nearest};
use polity_engine::driver::{Tool, Toolbox};
use polity_model::failure::AttemptFailure;
use polity_model::tool::{ToolName, ToolPattern};
use rmcp::ServiceError;
use rmcp::model::PaginatedRequestParams;

use super::connection::Connection;
use super::server::Server;
use super::{permanent, transient};

/// How long a server may take to list its tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// How many pages a list of tools may have; a server that repeats itself has no end.
const PAGES_MAX: usize = 100;

type Listed = Arc<[Arc<Tool>]>;

/// The tools that patterns name, and those that may stand in for them.
pub(super) async fn toolbox<'s>(
    find: impl Fn(&str) -> Result<&'s Arc<Server>, AttemptFailure>,
    patterns: &[ToolPattern],
) -> Result<Toolbox, AttemptFailure> {
    let names: BTreeSet<_> = patterns.iter().map(ToolPattern::server).collect();
    let servers = names.into_iter().map(&find).collect::<Result<Vec<_>, _>>()?;
    let mut listed = BTreeMap::new();
    for (server, tools) in servers.iter().zip(join_all(servers.iter().map(|s| s.tools())).await) {
        listed.insert(server.name().to_owned(), Ok(tools?));
    }
    let offered = offered(&listed, patterns)?;
    let in_reserve = in_reserve(&offered, find, listed).await;
    Ok(Toolbox::new(offered, in_reserve))
}

fn offered(
    listed: &BTreeMap<String, Result<Listed, AttemptFailure>>,
    patterns: &[ToolPattern],
) -> Result<Vec<Arc<Tool>>, AttemptFailure> {
    let mut offered: Vec<Arc<Tool>> = Vec::new();
    for pattern in patterns {
        let Some(Ok(tools)) = listed.get(pattern.server()) else { continue };
        let covered: Vec<_> = tools.iter().filter(|tool| pattern.covers(&tool.name)).collect();
        if let (Some(name), true) = (pattern.tool(), covered.is_empty()) {
            return Err(no_such_tool(pattern.server(), name, tools));
        }
        for tool in covered {
            if !offered.iter().any(|known| known.name == tool.name) {
                offered.push(Arc::clone(tool));
            }
        }
    }
    Ok(offered)
}

fn no_such_tool(server: &str, name: &str, tools: &[Arc<Tool>]) -> AttemptFailure {
    let names: Vec<_> = tools.iter().map(|tool| tool.name.tool()).collect();
    let near = nearest(name, names.iter().copied())
        .map_or_else(|| ".".to_owned(), |near| format!("; did you mean \"{server}/{near}\"?"));
    let all = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    permanent(format!("MCP server \"{server}\" has no tool \"{name}\"{near} It has: {all}"))
}

/// The tools to fall back on, and those to fall back on from there. One that is not there is only
/// missed when it is needed.
async fn in_reserve<'s>(
    offered: &[Arc<Tool>],
    find: impl Fn(&str) -> Result<&'s Arc<Server>, AttemptFailure>,
    mut listed: BTreeMap<String, Result<Listed, AttemptFailure>>,
) -> Vec<Arc<Tool>> {
    let mut known: BTreeSet<ToolName> = offered.iter().map(|tool| tool.name.clone()).collect();
    let mut wanted: Vec<ToolName> = fallbacks(offered);
    let mut reserve = Vec::new();
    while !wanted.is_empty() {
        let servers: BTreeSet<_> = wanted.iter().map(ToolName::server).collect();
        let new = servers.into_iter().filter(|server| !listed.contains_key(*server));
        let asked: Vec<_> = new.map(|name| (name.to_owned(), find(name))).collect();
        listed.extend(join_all(asked.into_iter().map(listed_in_reserve)).await);
        for name in std::mem::take(&mut wanted) {
            if !known.insert(name.clone()) {
                continue;
            }
            match listed.get(name.server()) {
                Some(Ok(tools)) => {
                    if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
                        wanted.extend(tool.fallback_tools.iter().cloned());
                        reserve.push(Arc::clone(tool));
                    } else {
                        tracing::warn!("the fallback tool {name} is not there");
                    }
                }
                Some(Err(failure)) => {
                    tracing::warn!("the fallback tool {name} is not there: {}", failure.message);
                }
                None => {}
            }
        }
    }
    reserve
}

async fn listed_in_reserve(
    (name, server): (String, Result<&Arc<Server>, AttemptFailure>),
) -> (String, Result<Listed, AttemptFailure>) {
    let tools = match server {
        Ok(server) => server.tools_in_reserve().await,
        Err(failure) => Err(failure),
    };
    (name, tools)
}

fn fallbacks(tools: &[Arc<Tool>]) -> Vec<ToolName> {
    tools.iter().flat_map(|tool| tool.fallback_tools.iter().cloned()).collect()
}

/// The tools of a server, listed once per connection and again when they have changed.
pub(super) async fn tools(
    connection: &Connection,
    definition: &McpServerDefinition,
) -> Result<Listed, AttemptFailure> {
    let listed = list(connection, definition).await;
    listed.map_err(|failure| connection.secrets.removed_from_failure(&failure))
}

async fn list(
    connection: &Connection,
    definition: &McpServerDefinition,
) -> Result<Listed, AttemptFailure> {
    let mut kept = connection.tools.lock().await;
    if connection.changed.take() {
        *kept = None;
    }
    if let Some(tools) = &*kept {
        return Ok(Arc::clone(tools));
    }
    let _in_use = connection.in_use();
    let found = match tokio::time::timeout(LIST_TIMEOUT, pages(connection)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(not_listed(connection, &error).await),
        Err(_) => {
            let seconds = LIST_TIMEOUT.as_secs();
            let server = &connection.server;
            return Err(transient(format!(
                "MCP server \"{server}\" did not list its tools within {seconds} seconds"
            )));
        }
    };
    let tools: Listed =
        found.into_iter().filter_map(|tool| told(tool, connection, definition)).collect();
    *kept = Some(Arc::clone(&tools));
    Ok(tools)
}

async fn pages(connection: &Connection) -> Result<Vec<rmcp::model::Tool>, ServiceError> {
    let mut found = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let from = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let page = connection.peer.list_tools(from).await?;
        found.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(found);
        }
    }
    tracing::warn!(
        server = connection.server,
        "only the first {PAGES_MAX} pages of tools are read"
    );
    Ok(found)
}

async fn not_listed(connection: &Connection, error: &ServiceError) -> AttemptFailure {
    let server = &connection.server;
    match error {
        ServiceError::McpError(error) => {
            permanent(format!("MCP server \"{server}\" does not list its tools: {}", error.message))
        }
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            connection.retire();
            let signs = connection.last_signs().await;
            transient(format!("MCP server \"{server}\" was lost while it listed its tools{signs}"))
        }
        other => permanent(format!("MCP server \"{server}\" does not list its tools: {other}")),
    }
}

/// A tool as the server describes it and the home's settings have it.
fn told(
    tool: rmcp::model::Tool,
    connection: &Connection,
    definition: &McpServerDefinition,
) -> Option<Arc<Tool>> {
    let server = definition.name.as_str();
    let Ok(name) = format!("{server}/{}", tool.name).parse::<ToolName>() else {
        let tool = connection.secrets.removed_from(&tool.name);
        tracing::warn!(server, tool, "a tool is left out: its name cannot be written");
        return None;
    };
    let settings = name.tool().parse::<Text>().ok();
    let settings =
        settings.and_then(|name| definition.tools.get(&name)).cloned().unwrap_or_default();
    let hints = tool.annotations.unwrap_or_default();
    let harmless = hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true);
    let description = tool.description.map(String::from).or(tool.title).unwrap_or_default();
    Some(Arc::new(Tool::new(
        name,
        description,
        (*tool.input_schema).clone(),
        tool.output_schema.map(|schema| (*schema).clone()),
        settings.idempotent.unwrap_or(harmless),
        Duration::from_secs(settings.timeout_seconds.get()),
        settings.fallback_tools,
    )))
}
