//! `/metrics` in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use polity_model::machine::task::TaskStatus;
use polity_store::{ExecutionFilter, TaskFilter};

use crate::auth::ApiCaller;
use crate::http::Problem;
use crate::state::ServerState;

/// The upper bounds of the request duration buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Default, Clone)]
struct RouteCount {
    by_status: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    seconds: f64,
    count: u64,
}

/// The counters of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics {
    routes: Mutex<BTreeMap<String, RouteCount>>,
}

impl ServerMetrics {
    /// Counts an answered request. Routes are those of the table, so their number is bounded.
    pub(crate) fn count_request(&self, route: &str, status: u16, took: Duration) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match routes.get_mut(route) {
            Some(count) => count,
            None => routes.entry(route.to_owned()).or_default(),
        };
        *count.by_status.entry(status).or_default() += 1;
        for (bucket, bound) in count.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(took.as_secs_f64() <= bound);
        }
        count.seconds += took.as_secs_f64();
        count.count += 1;
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        writeln!(out, "# HELP polity_http_requests_total Answered requests.")?;
        writeln!(out, "# TYPE polity_http_requests_total counter")?;
        for (route, count) in &routes {
            for (status, number) in &count.by_status {
                writeln!(
                    out,
                    "polity_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {number}"
                )?;
            }
        }
        let name = "polity_http_request_duration_seconds";
        writeln!(out, "# HELP {name} The time until the answer.")?;
        writeln!(out, "# TYPE {name} histogram")?;
        for (route, RouteCount { buckets, seconds, count, .. }) in &routes {
            for (number, bound) in buckets.iter().zip(BUCKETS) {
                writeln!(out, "{name}_bucket{{route=\"{route}\",le=\"{bound}\"}} {number}")?;
            }
            writeln!(out, "{name}_bucket{{route=\"{route}\",le=\"+Inf\"}} {count}")?;
            writeln!(out, "{name}_sum{{route=\"{route}\"}} {seconds}")?;
            writeln!(out, "{name}_count{{route=\"{route}\"}} {count}")?;
        }
        Ok(())
    }
}

/// Answers with all metrics.
pub(crate) async fn metrics(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
) -> Result<Response, Problem> {
    if caller.grant.agents().is_some() {
        return Err(Problem::forbidden("this token is limited to some agents")
            .hint("metrics cover all agents: use a token without a list"));
    }
    let mut out = String::new();
    let unwritable = |_| Problem::unavailable("metrics", "the metrics cannot be written");
    state.metrics.write(&mut out).map_err(unwritable)?;
    write_work(&state, &mut out).await?.map_err(unwritable)?;
    let mut response = out.into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Writes the tasks, executions, usage and listeners as they are now.
async fn write_work(state: &ServerState, out: &mut String) -> Result<std::fmt::Result, Problem> {
    let queries = state.host.queries();
    let active = [TaskStatus::Pending, TaskStatus::Running, TaskStatus::AwaitingHuman];
    let filter = TaskFilter { statuses: active.to_vec(), ..TaskFilter::default() };
    let rows = queries.task_rows(&filter).await?;
    let open = ExecutionFilter { open_only: true, ..ExecutionFilter::default() };
    let mut executions: BTreeMap<String, u64> = BTreeMap::new();
    for row in queries.store().execution_rows(&open).await? {
        *executions.entry(row.execution.state.to_string()).or_default() += 1;
    }
    let spending = queries.spending().await?;
    let position = queries.store().last_position().await?;
    let write = |out: &mut String| {
        writeln!(out, "# HELP polity_tasks Tasks that have not ended, by status.")?;
        writeln!(out, "# TYPE polity_tasks gauge")?;
        for status in active {
            let number = rows.iter().filter(|row| row.status == status).count();
            writeln!(out, "polity_tasks{{status=\"{status}\"}} {number}")?;
        }
        writeln!(out, "# HELP polity_executions Executions that have not ended, by state.")?;
        writeln!(out, "# TYPE polity_executions gauge")?;
        for (state, number) in &executions {
            writeln!(out, "polity_executions{{state=\"{state}\"}} {number}")?;
        }
        let mut by_agent: BTreeMap<String, polity_model::usage::Usage> = BTreeMap::new();
        for row in &spending {
            *by_agent.entry(row.agent.to_string()).or_default() += row.usage;
        }
        writeln!(out, "# HELP polity_tokens_total Reported tokens of models, by agent.")?;
        writeln!(out, "# TYPE polity_tokens_total counter")?;
        for (agent, usage) in &by_agent {
            let report = usage.report();
            for (kind, tokens) in [("input", report.input_tokens), ("output", report.output_tokens)]
            {
                let tokens = tokens.unwrap_or(0);
                writeln!(out, "polity_tokens_total{{agent=\"{agent}\",kind=\"{kind}\"}} {tokens}")?;
            }
        }
        writeln!(out, "# HELP polity_cost_usd_total Known cost of models, by agent.")?;
        writeln!(out, "# TYPE polity_cost_usd_total counter")?;
        for (agent, usage) in &by_agent {
            let cost = usage.report().cost_usd.unwrap_or(0.0);
            writeln!(out, "polity_cost_usd_total{{agent=\"{agent}\"}} {cost}")?;
        }
        writeln!(out, "# HELP polity_journal_position The newest position of the journal.")?;
        writeln!(out, "# TYPE polity_journal_position counter")?;
        writeln!(out, "polity_journal_position {}", position.0)?;
        writeln!(out, "# HELP polity_event_listeners Open streams of events.")?;
        writeln!(out, "# TYPE polity_event_listeners gauge")?;
        writeln!(out, "polity_event_listeners {}", state.hub.listeners())
    };
    Ok(write(out))
}
