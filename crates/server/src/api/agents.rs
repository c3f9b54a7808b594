//! `/api/v1/agents`: lists, shows, enables and disables agents.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use polity_definition::AgentDefinition;
use polity_engine::commands::ToggleAgent;
use polity_host::views::{agent_details, agent_summary};
use polity_host::{AgentStatus, find_agent};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::route::Route;
use crate::auth::{ApiCaller, Scope};
use crate::http::{ApiJson, ApiPath, Page, Problem};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/agents", "listAgents", "Lists agents.", list)
            .answers::<Page<Map<String, Value>>>(200),
        Route::get("/api/v1/agents/{name}", "showAgent", "Shows an agent's definition.", show)
            .answers::<Map<String, Value>>(200),
        Route::get(
            "/api/v1/agents/{name}/status",
            "showAgentStatus",
            "Shows an agent's running and queued executions, and its slots.",
            status,
        )
        .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/agents/{name}/enable",
            "enableAgent",
            Scope::Admin,
            "Enables an agent.",
            enable,
        )
        .takes::<ToggleRequest>()
        .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/agents/{name}/disable",
            "disableAgent",
            Scope::Admin,
            "Disables an agent: it takes no new work.",
            disable,
        )
        .takes::<ToggleRequest>()
        .answers::<Map<String, Value>>(200),
    ]
}

/// The agent of a path, if the caller may use it.
fn find(
    state: &ServerState,
    caller: &ApiCaller,
    name: &str,
) -> Result<Arc<AgentDefinition>, Problem> {
    let agent = find_agent(&state.context, &state.home(), name)?;
    caller.expect_agent(&agent.name)?;
    Ok(agent)
}

async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
) -> Result<Json<Page<Value>>, Problem> {
    let toggles = state.host.queries().agent_toggles().await?;
    let home = state.home();
    let agents = home.agents.values().filter(|agent| caller.grant.may_use(&agent.name));
    let items = agents.map(|agent| agent_summary(agent, &toggles)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<Value>, Problem> {
    let agent = find(&state, &caller, &name)?;
    let toggles = state.host.queries().agent_toggles().await?;
    let details = agent_details(&agent, &toggles);
    details.map(Json).map_err(|error| Problem::unprocessable(error.to_string()))
}

async fn status(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<AgentStatus>, Problem> {
    let agent = find(&state, &caller, &name)?;
    let queries = state.host.queries();
    let toggles = queries.agent_toggles().await?;
    let programs = state.context.programs(&state.home())?;
    Ok(Json(queries.agent_status(&agent, &toggles, &*programs).await?))
}

/// The reason of a toggle.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToggleRequest {
    /// The reason, for people.
    #[serde(default)]
    reason: Option<String>,
}

async fn enable(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    _: ApiJson<ToggleRequest>,
) -> Result<Response, Problem> {
    toggle(&state, &caller, &name, ToggleAgent::Enable).await
}

async fn disable(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    body: ApiJson<ToggleRequest>,
) -> Result<Response, Problem> {
    toggle(&state, &caller, &name, ToggleAgent::Disable { reason: body.value.reason }).await
}

async fn toggle(
    state: &ServerState,
    caller: &ApiCaller,
    name: &str,
    toggle: ToggleAgent,
) -> Result<Response, Problem> {
    let agent = find(state, caller, name)?;
    let changed = state.host.runtime().toggle_agent(&agent.name, &toggle).await?;
    let (enabled, reason) = match toggle {
        ToggleAgent::Enable => (true, None),
        ToggleAgent::Disable { reason } => (false, reason),
    };
    let document =
        json!({"name": agent.name, "enabled": enabled, "reason": reason, "changed": changed});
    Ok(Json(document).into_response())
}
