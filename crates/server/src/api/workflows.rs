//! `/api/v1/workflows`: lists, shows and draws workflows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use polity_definition::WorkflowDefinition;
use polity_diagram::{GraphFormat, NodeMarks, draw_workflow};
use polity_host::find_workflow;
use polity_host::views::{WorkflowDetails, workflow_summary};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::route::Route;
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
            .answers_text(200, "*/*"),
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

/// A format of drawings.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum DrawingFormat {
    /// A picture.
    #[default]
    Svg,
    /// The text form of Mermaid.
    Mermaid,
    /// The text form of Graphviz.
    Dot,
}

/// The query of a drawing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GraphQuery {
    /// The format.
    #[serde(default)]
    format: DrawingFormat,
}

async fn graph(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    ApiQuery(query): ApiQuery<GraphQuery>,
) -> Result<Response, Problem> {
    let workflow = find(&state, &caller, &name)?;
    let (format, media_type) = match query.format {
        DrawingFormat::Svg => (GraphFormat::Svg, "image/svg+xml"),
        DrawingFormat::Mermaid => (GraphFormat::Mermaid, "text/vnd.mermaid; charset=utf-8"),
        DrawingFormat::Dot => (GraphFormat::Dot, "text/vnd.graphviz; charset=utf-8"),
    };
    let mut response = draw_workflow(&workflow, format, &NodeMarks::new()).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    Ok(response)
}
