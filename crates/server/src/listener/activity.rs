//! The open requests of a connection, by which idle connections are found.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::timeout;

/// The longest time until the first request of a connection has arrived, with its TLS handshake.
const FIRST_REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest time without an open request.
const IDLE_TIME_MAX: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy, Default)]
struct RequestCount {
    open: usize,
    all: u64,
}

/// The requests of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestActivity(Arc<watch::Sender<RequestCount>>);

impl RequestActivity {
    /// Counts a request as open until its guard is dropped.
    pub(super) fn begin(&self) -> OpenRequest {
        self.0.send_modify(|count| {
            count.open += 1;
            count.all += 1;
        });
        OpenRequest(self.clone())
    }

    /// Waits until the connection has been idle for too long.
    pub(super) async fn idle(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let RequestCount { open, all } = *changes.borrow_and_update();
            let limit = match (open, all) {
                (0, 0) => FIRST_REQUEST_TIME_MAX,
                (0, _) => IDLE_TIME_MAX,
                (_, _) => Duration::MAX,
            };
            if timeout(limit, changes.changed()).await.is_err() {
                return;
            }
        }
    }
}

/// A request that has no complete answer yet.
#[derive(Debug)]
pub(super) struct OpenRequest(RequestActivity);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| count.open -= 1);
    }
}

/// The body of an answer. Its request is open until the body is sent.
pub(super) struct AnswerBytes {
    pub(super) body: Body,
    pub(super) _request: OpenRequest,
}

impl hyper::body::Body for AnswerBytes {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connection_is_idle_only_without_open_requests() {
        let activity = RequestActivity::default();
        let start = Instant::now();
        activity.idle().await;
        assert_eq!(start.elapsed().as_secs(), FIRST_REQUEST_TIME_MAX.as_secs());
        let request = activity.begin();
        let day = Duration::from_hours(24);
        assert!(timeout(day, activity.idle()).await.is_err());
        drop(request);
        let start = Instant::now();
        activity.idle().await;
        assert_eq!(start.elapsed().as_secs(), IDLE_TIME_MAX.as_secs());
    }
}
