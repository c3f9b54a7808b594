//! `/api/v1/cost`: model usage by agent and day.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use polity_host::views::{CostKey, CostSum};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::route::Route;
use crate::auth::ApiCaller;
use crate::http::{ApiQuery, Page, Problem};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/cost", "showCost", "Sums tokens and cost of models.", cost)
            .query::<CostQuery>()
            .answers::<Page<Map<String, Value>>>(200),
    ]
}

/// The keys of the sums.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CostQuery {
    /// The keys: `agent`, `day` or `agent,day`.
    #[serde(default)]
    #[schemars(regex(pattern = "^(agent|day)(,(agent|day))?$"))]
    by: Option<String>,
}

async fn cost(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiQuery(query): ApiQuery<CostQuery>,
) -> Result<Json<Page<Value>>, Problem> {
    let by = query.by.as_deref().unwrap_or("agent");
    let key = |text: &str| match text {
        "agent" => Ok(CostKey::Agent),
        "day" => Ok(CostKey::Day),
        other => {
            Err(Problem::unprocessable(format!("\"{other}\" is not agent or day")).field("by"))
        }
    };
    let keys = by.split(',').map(key).collect::<Result<Vec<_>, _>>()?;
    let mut rows = state.host.queries().spending().await?;
    rows.retain(|row| caller.grant.may_use(&row.agent));
    let sums = CostSum::by_keys(&rows, &keys);
    let items = sums.iter().map(|sum| sum.to_json(&keys)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}
