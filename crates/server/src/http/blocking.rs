//! Work that blocks on the file system, on a thread of its own.

use axum::http::StatusCode;
use polity_host::ErrorReport;

use super::problem::Problem;

/// Runs work that blocks, so that no other request waits for it.
pub(crate) async fn run_blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Problem>
where
    T: Send + 'static,
    E: Into<ErrorReport> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Problem::from(error.into())),
        Err(error) => {
            tracing::error!(%error, "a thread of a request failed");
            let detail = "the server failed to handle the request";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
                .hint("see the log of the server"))
        }
    }
}
