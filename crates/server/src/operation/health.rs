//! `/healthz` and `/readyz`, for load balancers and supervisors.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::state::ServerState;

/// Answers as long as the process works.
pub(crate) async fn healthz() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

/// Answers 200 if the server takes work, with the problems of its definitions.
pub(crate) async fn readyz(State(state): State<Arc<ServerState>>) -> Response {
    let home = state.home();
    let store = state.host.queries().store().last_position().await;
    let reason = match &store {
        Err(error) => Some(format!("the store does not answer: {error}")),
        Ok(_) if state.is_draining() => Some("the server is shutting down".to_owned()),
        Ok(_) => match state.resources.shortage() {
            Some(shortage) => Some(shortage.message()),
            None => state.definition_failure(),
        },
    };
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let problems: Vec<_> = home.problems.iter().map(ToString::to_string).collect();
    let body = json!({"ready": reason.is_none(), "reason": reason, "problems": problems});
    (status, Json(body)).into_response()
}
