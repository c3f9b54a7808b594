//! The id of each request, in the log and in the answer.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_model::ids::InstanceId;
use tokio::time::Instant;

use crate::auth::RequestToken;
use crate::state::ServerState;

/// The header with the id.
const REQUEST_ID: &str = "x-request-id";

/// The middleware of all routes: logs and counts requests.
pub(crate) async fn tag_request(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let id = InstanceId::from_random_bytes(SystemEntropy.seed()).to_string();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let started = Instant::now();
    let mut response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), started.elapsed());
    let token = response.extensions().get::<RequestToken>().map_or("none", |token| &token.0);
    let route = route.as_deref().unwrap_or("other");
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    tracing::info!(request = id, %method, route, path, status, took_us, token, "answered");
    state.metrics.count_request(route, status, took);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}
