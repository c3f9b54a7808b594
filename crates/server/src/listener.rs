//! Connections: accepts them up to a limit, and gives up on slow ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower::Service as _;

/// The most open connections.
pub(crate) const CONNECTIONS_MAX: usize = 10_000;

/// The longest time in which a client sends the head of a request.
const HEADER_SECONDS_MAX: u64 = 10;

/// The largest head of a request, in bytes.
const HEADER_BYTES_MAX: u16 = u16::MAX;

/// The time after which the listener tries again if the system refuses connections.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves connections until `stop` is set. Returns the connections that are still open.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let closing = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => return connections,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The system is out of files; the next attempt may succeed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(limit = CONNECTIONS_MAX, "too many connections");
            continue;
        };
        let (router, closing) = (router.clone(), closing.clone());
        connections.spawn(async move {
            handle(stream, address, router, closing).await;
            drop(permit);
        });
    }
}

/// Waits until the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is a stop too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Serves one connection. When the server stops, the current request is still answered.
async fn handle(
    stream: TcpStream,
    address: SocketAddr,
    router: Router,
    mut closing: watch::Receiver<bool>,
) {
    // Answers are small, and a delay of their last packet would show.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot switch off delays");
    }
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(ConnectInfo(address));
        router.clone().call(request)
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEADER_SECONDS_MAX))
        .max_buf_size(HEADER_BYTES_MAX.into());
    builder.http2().timer(TokioTimer::new()).max_header_list_size(HEADER_BYTES_MAX.into());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, %address, "connection ended");
    }
}
