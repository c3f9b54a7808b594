//! `/api/v1/agents/{name}/pool`: the queue and the slots of an agent.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use polity_host::{AgentStatus, find_agent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::api::route::Route;
use crate::auth::ApiCaller;
use crate::http::{ApiPath, ApiQuery, Problem, WAIT_PATTERN, WaitTime};
use crate::state::ServerState;

/// The interval after which a wait looks again without an event: a process that dies leaves none.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The time in which events are collected before a wait looks again.
const SETTLE_TIME: Duration = Duration::from_millis(50);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/agents/{name}/pool",
            "showAgentPool",
            "Shows an agent's queue length and slots. `?wait` waits until it has no work.",
            pool,
        )
        .query::<PoolQuery>()
        .answers::<PoolMetrics>(200),
    ]
}

/// The query of a pool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoolQuery {
    /// The time to wait until the agent has no running and no queued execution, such as `30s`.
    #[schemars(with = "Option<String>", regex(pattern = WAIT_PATTERN))]
    wait: Option<WaitTime>,
}

/// The use of an agent's slots.
#[derive(Debug, Serialize, JsonSchema)]
struct PoolMetrics {
    /// The agent.
    name: String,
    /// The number of executions that wait for a slot.
    queue_length: u32,
    /// The number of executions that run.
    running: u32,
    /// The number of slots; null if unlimited. Agents with the same lock share them.
    capacity: Option<u32>,
    /// The number of slots taken.
    in_use: u32,
    /// The number of free slots; null if unlimited.
    available: Option<u32>,
    /// The share of slots taken, from 0 to 1; null if unlimited.
    utilization: Option<f64>,
    /// True if no execution runs or waits.
    idle: bool,
}

async fn pool(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    ApiQuery(query): ApiQuery<PoolQuery>,
) -> Result<Json<PoolMetrics>, Problem> {
    let agent = find_agent(&state.context, &state.home(), &name)?;
    caller.expect_agent(&agent.name)?;
    let deadline = query.wait.map(|WaitTime(time)| Instant::now() + time);
    let queries = state.host.queries();
    let programs = state.context.programs(&state.home())?;
    let mut live = state.hub.subscribe();
    loop {
        let toggles = queries.agent_toggles().await?;
        let status = queries.agent_status(&agent, &toggles, &*programs).await?;
        let is_idle = status.running == 0 && status.queued == 0;
        let Some(deadline) = deadline.filter(|end| !is_idle && Instant::now() < *end) else {
            return Ok(Json(metrics(&status)));
        };
        let look = deadline.min(Instant::now() + LOOK_INTERVAL);
        match tokio::time::timeout_at(look, live.recv()).await {
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => tokio::time::sleep(SETTLE_TIME).await,
            Ok(Err(RecvError::Closed)) => return Ok(Json(metrics(&status))),
            Err(_) => {}
        }
    }
}

fn metrics(status: &AgentStatus) -> PoolMetrics {
    let (capacity, in_use) = (status.pool.capacity, status.pool.in_use);
    PoolMetrics {
        name: status.name.to_string(),
        queue_length: status.queued,
        running: status.running,
        capacity,
        in_use,
        available: capacity.map(|capacity| capacity.saturating_sub(in_use)),
        utilization: capacity.map(|capacity| f64::from(in_use) / f64::from(capacity)),
        idle: status.running == 0 && status.queued == 0,
    }
}
