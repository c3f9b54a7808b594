//! The HTTP API: a table of routes with their handlers, scopes and documentation.

mod agents;
mod cost;
mod definitions;
mod events;
mod executions;
mod lookups;
mod openapi;
mod reviews;
mod route;
mod schedules;
mod simulations;
mod task_actions;
mod task_waiting;
mod tasks;
mod workflows;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::auth::authenticate;
use crate::http::{Problem, check_origin, tag_request};
use crate::operation::{health, metrics};
use crate::state::ServerState;

pub use openapi::openapi_document;
use route::Route;

/// The bytes of a body beyond its input: other fields, and escapes in the JSON.
const BODY_OVERHEAD_BYTES: u64 = 1 << 20;

/// All routes of the API.
fn routes() -> Vec<Route> {
    [
        tasks::routes(),
        task_actions::routes(),
        events::routes(),
        reviews::routes(),
        agents::routes(),
        executions::routes(),
        lookups::routes(),
        workflows::routes(),
        definitions::routes(),
        simulations::routes(),
        schedules::routes(),
        cost::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The router of the server.
pub(crate) fn router(state: &Arc<ServerState>) -> Router {
    let limit = state.home().settings.limits.input_bytes.get().saturating_mul(2);
    let body_bytes_max =
        usize::try_from(limit.saturating_add(BODY_OVERHEAD_BYTES)).unwrap_or(usize::MAX);
    let mut router = Router::new();
    for route in routes() {
        let guard = from_fn_with_state((Arc::clone(state), route.scope), authenticate);
        router = router.route(route.path, route.handler.layer(guard));
    }
    let metrics_guard =
        from_fn_with_state((Arc::clone(state), crate::auth::Scope::Read), authenticate);
    router
        .route("/api/openapi.json", get(openapi::show))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics).layer(metrics_guard))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(map_response(protect))
        .layer(from_fn_with_state(Arc::clone(state), check_origin))
        .layer(from_fn_with_state(Arc::clone(state), tag_request))
        .with_state(Arc::clone(state))
}

async fn unknown_path() -> Response {
    Problem::not_found("there is no such path")
        .hint("/api/openapi.json lists all paths")
        .into_response()
}

async fn unknown_method() -> Response {
    let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, "method_not_allowed", "the path does not take this method")
        .hint("/api/openapi.json lists all paths with their methods")
        .into_response()
}

/// Adds headers that keep browsers from guessing types and from caching answers.
async fn protect(mut response: Response) -> Response {
    use axum::http::{HeaderValue, header};
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
