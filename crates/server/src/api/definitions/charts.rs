//! `/api/v1/charts`: lists, shows, draws and fires charts.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use polity_host::ErrorReport;
use polity_host::simulations::charts::{ChartDrawing, chart_details, chart_summary, draw_chart};
use polity_host::simulations::firing::{ChartFiring, fire_trigger};
use polity_host::simulations::{LoadedChart, SimulationDefinitions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::drawing::{DrawingFormat, GraphQuery, answer_text};
use crate::api::route::{AnswerBody, Route};
use crate::auth::ApiCaller;
use crate::http::{ApiJson, ApiPath, ApiQuery, Page, Problem, optional_whole, run_blocking};
use crate::state::ServerState;

/// The media type of SCXML.
const SCXML: &str = "application/scxml+xml";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/charts", "listCharts", "Lists charts.", list)
            .answers::<Page<Map<String, Value>>>(200),
        Route::get("/api/v1/charts/{name}", "showChart", "Shows its definition.", show)
            .answers::<Map<String, Value>>(200),
        Route::get("/api/v1/charts/{name}/graph", "drawChart", "Draws a chart.", graph)
            .query::<ChartGraphQuery>()
            .answers_one_of(200, AnswerBody::DRAWINGS)
            .answers_one_of(200, &[SCXML]),
        Route::post(
            "/api/v1/charts/{name}/fire",
            "fireChart",
            crate::auth::Scope::Run,
            "Fires a trigger in a state and shows the transition. Nothing is stored.",
            fire,
        )
        .takes::<FireRequest>()
        .example(json!({"trigger": "feed_ready"}))
        .answers::<Map<String, Value>>(200),
    ]
}

/// Does something with the charts and scenarios of the home, on a thread of its own.
async fn with_charts<T: Send + 'static>(
    state: &ServerState,
    work: impl FnOnce(&SimulationDefinitions) -> Result<T, ErrorReport> + Send + 'static,
) -> Result<T, Problem> {
    let context = state.context.clone();
    run_blocking(move || work(&context.folder().simulations()?)).await
}

async fn with_chart<T: Send + 'static>(
    state: &ServerState,
    name: String,
    work: impl FnOnce(&LoadedChart) -> Result<T, ErrorReport> + Send + 'static,
) -> Result<T, Problem> {
    with_charts(state, move |charts| work(charts.chart(&name)?)).await
}

async fn list(
    State(state): State<Arc<ServerState>>,
    _: ApiCaller,
) -> Result<Json<Page<Value>>, Problem> {
    let items = with_charts(&state, |definitions| {
        let charts = definitions.charts.values();
        Ok(charts.map(|read| chart_summary(&read.chart)).collect())
    });
    Ok(Json(Page { items: items.await?, next_cursor: None }))
}

async fn show(
    State(state): State<Arc<ServerState>>,
    _: ApiCaller,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<Value>, Problem> {
    with_chart(&state, name, |read| Ok(chart_details(read))).await.map(Json)
}

/// A format of chart drawings.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ChartFormatName {
    /// A picture.
    Svg,
    /// The text form of Mermaid.
    Mermaid,
    /// The text form of Graphviz.
    Dot,
    /// State Chart XML.
    Scxml,
}

/// The query of a chart's drawing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChartGraphQuery {
    /// The format. By default the first one that the header `Accept` lists, else `svg`.
    format: Option<ChartFormatName>,
}

async fn graph(
    State(state): State<Arc<ServerState>>,
    _: ApiCaller,
    headers: HeaderMap,
    ApiPath(name): ApiPath<String>,
    ApiQuery(query): ApiQuery<ChartGraphQuery>,
) -> Result<Response, Problem> {
    let (drawing, media_type) = match query.format {
        Some(ChartFormatName::Scxml) => (ChartDrawing::Scxml, SCXML),
        Some(ChartFormatName::Svg) => (ChartDrawing::Svg, DrawingFormat::Svg.media_type()),
        Some(ChartFormatName::Mermaid) => {
            (ChartDrawing::Mermaid, DrawingFormat::Mermaid.media_type())
        }
        Some(ChartFormatName::Dot) => (ChartDrawing::Dot, DrawingFormat::Dot.media_type()),
        None => {
            let format = GraphQuery::default().format(&headers);
            let drawing = match format {
                DrawingFormat::Svg => ChartDrawing::Svg,
                DrawingFormat::Mermaid => ChartDrawing::Mermaid,
                DrawingFormat::Dot => ChartDrawing::Dot,
            };
            (drawing, format.media_type())
        }
    };
    let text = with_chart(&state, name, move |read| draw_chart(&read.chart, drawing)).await?;
    Ok(answer_text(text, media_type))
}

/// A trigger to fire.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FireRequest {
    /// The trigger.
    trigger: String,
    /// The state of the agent. By default the initial state of the chart.
    #[serde(default)]
    state: Option<String>,
    /// The context that guards read.
    #[serde(default)]
    context: Map<String, Value>,
    /// The values of the agent's fields.
    #[serde(default)]
    fields: Map<String, Value>,
    /// The seed of random draws.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = crate::http::WHOLE_NUMBER_MAX))]
    seed: Option<u64>,
}

async fn fire(
    State(state): State<Arc<ServerState>>,
    _: ApiCaller,
    ApiPath(name): ApiPath<String>,
    body: ApiJson<FireRequest>,
) -> Result<Json<Value>, Problem> {
    let FireRequest { trigger, state: from, context, fields, seed } = body.value;
    let firing = ChartFiring {
        trigger,
        state: from,
        context: Value::Object(context),
        fields: fields.into_iter().collect(),
        seed: seed.unwrap_or_default(),
    };
    let outcome = with_chart(&state, name, move |read| fire_trigger(&read.chart, &firing)).await?;
    Ok(Json(outcome.to_json()))
}
