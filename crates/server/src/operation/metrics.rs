//! `/metrics` in the text format of Prometheus.

mod histogram;
mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use polity_model::name::Name;

use super::task_times::TaskTimes;
use crate::auth::ApiCaller;
use crate::http::Problem;
use crate::state::ServerState;

pub(crate) use histogram::Histogram;

/// The upper bounds of the request duration buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Default, Clone)]
struct RouteCount {
    by_status: BTreeMap<u16, u64>,
    times: Histogram<{ BUCKETS.len() }>,
}

/// The most schedules that are counted one by one.
const SCHEDULES_MAX: usize = 1_000;

/// The label of all schedules beyond [`SCHEDULES_MAX`].
const OTHER_SCHEDULES: &str = "(others)";

/// The counters of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics {
    ticks: Mutex<BTreeMap<String, BTreeMap<&'static str, u64>>>,
    routes: Mutex<BTreeMap<String, RouteCount>>,
    /// The durations of tasks.
    pub(crate) task_times: TaskTimes,
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
        count.times.record(took, BUCKETS);
    }

    /// Counts due times of a schedule with their outcome.
    pub(crate) fn count_ticks(&self, schedule: &Name, outcome: &'static str, count: u64) {
        let mut ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_counted = ticks.contains_key(schedule.as_str()) || ticks.len() < SCHEDULES_MAX;
        let label = if is_counted { schedule.as_str() } else { OTHER_SCHEDULES };
        let by_outcome = ticks.entry(label.to_owned()).or_default();
        *by_outcome.entry(outcome).or_default() += count;
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let name = "polity_schedule_ticks_total";
        writeln!(out, "# HELP {name} Due times of schedules, by outcome.")?;
        writeln!(out, "# TYPE {name} counter")?;
        for (schedule, by_outcome) in &ticks {
            for (outcome, count) in by_outcome {
                writeln!(out, "{name}{{schedule=\"{schedule}\",outcome=\"{outcome}\"}} {count}")?;
            }
        }
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
        for (route, count) in &routes {
            count.times.write(out, name, &format!("route=\"{route}\""), BUCKETS)?;
        }
        self.task_times.write(out)
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
    work::write_work(&state, &mut out).await?.map_err(unwritable)?;
    work::write_store(&state, &mut out).map_err(unwritable)?;
    let mut response = out.into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
