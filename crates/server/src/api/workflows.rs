//! `/api/v1/workflows`: lists, shows and draws workflows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use polity_definition::WorkflowDefinition;
use polity_diagram::NodeMarks;
use polity_host::find_workflow;
use polity_host::views::{WorkflowDetails, workflow_summary};
use serde_json::{Map, Value};

use super::definitions::drawing::{GraphQuery, draw};
use super::route::{AnswerBody, Route};
use crate::auth::ApiCaller;
use crate::http::{ApiPath, ApiQuery, Page, Problem};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/workflows", "listWorkflows", "Lists workflows.", list)
            .answers::<Page<Map<String, Value>>>(200),
        Route::get("/api/v1/workflows/{name}", "showWorkflow", "Shows its definition.", show)
            .answers::<Map<String, Value>>(200),
        Route::get("/api/v1/workflows/{name}/graph", "drawWorkflow", "Draws a workflow.", graph)
            .query::<GraphQuery>()
            .answers_one_of(200, AnswerBody::DRAWINGS),
    ]
}

fn find(
    state: &ServerState,
    caller: &ApiCaller,
    name: &str,
) -> Result<Arc<WorkflowDefinition>, Problem> {
    let workflow = find_workflow(&state.context, &state.home(), name)?;
    caller.expect_agent(&workflow.name)?;
    Ok(workflow)
}

async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
) -> Result<Json<Page<Value>>, Problem> {
    let home = state.home();
    let workflows = home.workflows.values().filter(|flow| caller.grant.may_use(&flow.name));
    let items = workflows.map(|workflow| workflow_summary(workflow)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<WorkflowDetails>, Problem> {
    let workflow = find(&state, &caller, &name)?;
    let details = WorkflowDetails::of(&workflow);
    details.map(Json).map_err(|error| Problem::unprocessable(error.to_string()))
}

async fn graph(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    headers: HeaderMap,
    ApiPath(name): ApiPath<String>,
    ApiQuery(query): ApiQuery<GraphQuery>,
) -> Result<Response, Problem> {
    let workflow = find(&state, &caller, &name)?;
    Ok(draw(&workflow, query.format(&headers), &NodeMarks::new()))
}
