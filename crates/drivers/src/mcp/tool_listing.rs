//! Lists the tools of servers and builds an agent's toolbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use polity_definition::{McpServerDefinition, Text, nearest};
use polity_engine::driver::{ToolSpec, Toolbox};
use polity_model::failure::AttemptFailure;
use polity_model::tool::{ToolName, ToolPattern};
use rmcp::ServiceError;
use rmcp::model::PaginatedRequestParams;

use super::connection::McpConnection;
use super::server::McpServer;
use super::{permanent, transient};
use crate::json_size::count_json_values;

/// The longest wait for a server's tool list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest number of pages; a faulty server may repeat pages forever.
const PAGES_MAX: usize = 100;

/// The most bytes of all tools of a server together.
const LISTING_BYTES_MAX: usize = 16 << 20;

/// The most JSON values of all tools of a server together. Each takes memory in its schema and in
/// the compiled form of that.
const LISTING_VALUES_MAX: usize = 250_000;

type ToolList = Arc<[Arc<ToolSpec>]>;

/// Builds the toolbox of the tools that match the patterns, with their fallback tools.
pub(super) async fn build_toolbox<'s>(
    find: impl Fn(&str) -> Result<&'s Arc<McpServer>, AttemptFailure>,
    patterns: &[ToolPattern],
) -> Result<Toolbox, AttemptFailure> {
    let names: BTreeSet<_> = patterns.iter().map(ToolPattern::server).collect();
    let servers = names.into_iter().map(&find).collect::<Result<Vec<_>, _>>()?;
    let mut listed = BTreeMap::new();
    for (server, tools) in servers.iter().zip(join_all(servers.iter().map(|s| s.tools())).await) {
        listed.insert(server.name().to_owned(), Ok(tools?));
    }
    let offered = match_patterns(&listed, patterns)?;
    let in_reserve = collect_fallbacks(&offered, find, listed).await;
    Ok(Toolbox::new(offered, in_reserve))
}

fn match_patterns(
    listed: &BTreeMap<String, Result<ToolList, AttemptFailure>>,
    patterns: &[ToolPattern],
) -> Result<Vec<Arc<ToolSpec>>, AttemptFailure> {
    let mut offered: Vec<Arc<ToolSpec>> = Vec::new();
    for pattern in patterns {
        let Some(Ok(tools)) = listed.get(pattern.server()) else { continue };
        let covered: Vec<_> = tools.iter().filter(|tool| pattern.covers(&tool.name)).collect();
        if let (Some(name), true) = (pattern.tool(), covered.is_empty()) {
            return Err(unknown_tool(pattern.server(), name, tools));
        }
        for tool in covered {
            if !offered.iter().any(|known| known.name == tool.name) {
                offered.push(Arc::clone(tool));
            }
        }
    }
    Ok(offered)
}

fn unknown_tool(server: &str, name: &str, tools: &[Arc<ToolSpec>]) -> AttemptFailure {
    let names: Vec<_> = tools.iter().map(|tool| tool.name.tool()).collect();
    let near = nearest(name, names.iter().copied())
        .map_or_else(|| ".".to_owned(), |near| format!("; did you mean \"{server}/{near}\"?"));
    let all = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    permanent(format!("MCP server \"{server}\" has no tool \"{name}\"{near} It has: {all}"))
}

/// Collects fallback tools transitively. A missing one is only logged.
async fn collect_fallbacks<'s>(
    offered: &[Arc<ToolSpec>],
    find: impl Fn(&str) -> Result<&'s Arc<McpServer>, AttemptFailure>,
    mut listed: BTreeMap<String, Result<ToolList, AttemptFailure>>,
) -> Vec<Arc<ToolSpec>> {
    let mut known: BTreeSet<ToolName> = offered.iter().map(|tool| tool.name.clone()).collect();
    let mut wanted: Vec<ToolName> =
        offered.iter().flat_map(|tool| tool.fallback_tools.iter().cloned()).collect();
    let mut reserve = Vec::new();
    while !wanted.is_empty() {
        let servers: BTreeSet<_> = wanted.iter().map(ToolName::server).collect();
        let new = servers.into_iter().filter(|server| !listed.contains_key(*server));
        let asked: Vec<_> = new.map(|name| (name.to_owned(), find(name))).collect();
        listed.extend(join_all(asked.into_iter().map(list_fallback_server)).await);
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

async fn list_fallback_server(
    (name, server): (String, Result<&Arc<McpServer>, AttemptFailure>),
) -> (String, Result<ToolList, AttemptFailure>) {
    let tools = match server {
        Ok(server) => server.list_fallback_tools().await,
        Err(failure) => Err(failure),
    };
    (name, tools)
}

/// Returns a server's tools, listed once per connection and again after a change.
pub(super) async fn list_tools(
    connection: &McpConnection,
    definition: &McpServerDefinition,
) -> Result<ToolList, AttemptFailure> {
    let mut cached = connection.tools.lock().await;
    if connection.changed.take() {
        *cached = None;
    }
    if let Some(tools) = &*cached {
        return Ok(Arc::clone(tools));
    }
    let _in_use = connection.start_request();
    let failure = match tokio::time::timeout(LIST_TIMEOUT, list_pages(connection)).await {
        Ok(Ok(found)) => {
            let tools = found.into_iter();
            let tools: ToolList =
                tools.filter_map(|tool| describe_tool(tool, connection, definition)).collect();
            return Ok(Arc::clone(cached.insert(tools)));
        }
        Ok(Err(error)) => listing_error(connection, &error).await,
        Err(_) => {
            let (server, seconds) = (&connection.server, LIST_TIMEOUT.as_secs());
            transient(format!(
                "MCP server \"{server}\" did not list its tools within {seconds} seconds"
            ))
        }
    };
    Err(connection.secrets.redact_failure(&failure))
}

async fn list_pages(connection: &McpConnection) -> Result<Vec<rmcp::model::Tool>, ListingError> {
    let mut found = Vec::new();
    let mut cursor = None;
    let (mut bytes, mut values) = (0, 0);
    for _ in 0..PAGES_MAX {
        let from = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let page = connection.peer.list_tools(from).await?;
        for tool in &page.tools {
            let text = serde_json::to_vec(tool).unwrap_or_default();
            bytes += text.len();
            values += count_json_values(&text);
        }
        let limit = [
            (bytes > LISTING_BYTES_MAX, LISTING_BYTES_MAX, "bytes"),
            (values > LISTING_VALUES_MAX, LISTING_VALUES_MAX, "JSON values"),
        ];
        if let Some((_, most, what)) = limit.into_iter().find(|(exceeded, ..)| *exceeded) {
            return Err(ListingError::TooLarge(format!("{most} {what}")));
        }
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

/// An error of a listing.
enum ListingError {
    Service(ServiceError),
    /// The tools exceed a limit, with its unit.
    TooLarge(String),
}

impl From<ServiceError> for ListingError {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

async fn listing_error(connection: &McpConnection, error: &ListingError) -> AttemptFailure {
    let server = &connection.server;
    let error = match error {
        ListingError::Service(error) => error,
        ListingError::TooLarge(most) => {
            return permanent(format!(
                "MCP server \"{server}\" lists tools of more than {most}, the most that all tools of \
                 a server may have"
            ));
        }
    };
    match error {
        ServiceError::McpError(error) => {
            permanent(format!("MCP server \"{server}\" does not list its tools: {}", error.message))
        }
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            connection.retire();
            let details = connection.exit_details().await;
            transient(format!(
                "MCP server \"{server}\" was lost while it listed its tools{details}"
            ))
        }
        other => permanent(format!("MCP server \"{server}\" does not list its tools: {other}")),
    }
}

/// Merges a server's description of a tool with the home's settings.
fn describe_tool(
    tool: rmcp::model::Tool,
    connection: &McpConnection,
    definition: &McpServerDefinition,
) -> Option<Arc<ToolSpec>> {
    let server = definition.name.as_str();
    let Ok(name) = format!("{server}/{}", tool.name).parse::<ToolName>() else {
        let tool = connection.secrets.redact(&tool.name);
        tracing::warn!(server, tool, "a tool is left out: its name cannot be written");
        return None;
    };
    let settings = name.tool().parse::<Text>().ok();
    let settings =
        settings.and_then(|name| definition.tools.get(&name)).cloned().unwrap_or_default();
    let hints = tool.annotations.unwrap_or_default();
    let harmless = hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true);
    let description = tool.description.map(String::from).or(tool.title).unwrap_or_default();
    Some(Arc::new(ToolSpec::new(
        name,
        description,
        (*tool.input_schema).clone(),
        tool.output_schema.map(|schema| (*schema).clone()),
        settings.idempotent.unwrap_or(harmless),
        Duration::from_secs(settings.timeout_seconds.get()),
        settings.fallback_tools,
    )))
}
