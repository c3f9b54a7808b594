//! Connections: accepts them up to a limit, with TLS if it is set up, and gives up on slow ones.

mod activity;
mod tls;
mod write_deadline;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use self::activity::{AnswerBytes, RequestActivity};
pub use self::tls::TlsError;
pub(crate) use self::tls::tls_acceptor;
use self::write_deadline::WriteDeadline;

/// The most open connections.
pub(crate) const CONNECTIONS_MAX: usize = 10_000;

/// The longest time in which a client sends the head of a request.
const HEADER_SECONDS_MAX: u64 = 10;

/// The largest head of a request, in bytes.
const HEADER_BYTES_MAX: u16 = u16::MAX;

/// The longest time of a TLS handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest time in which a client takes nothing of its answer.
const WRITE_TIME_MAX: Duration = Duration::from_mins(1);

/// The time between two signs of life that an HTTP/2 client is asked for.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The time after which the listener tries again if the system refuses connections.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves connections until `stop` is set. Returns the connections that are still open.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
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
        let (router, tls, closing) = (router.clone(), tls.clone(), closing.clone());
        connections.spawn(async move {
            connect(stream, address, tls, router, closing).await;
            drop(permit);
        });
    }
}

/// Waits until the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is a stop too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Serves one connection, after its TLS handshake if there is one.
async fn connect(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
    closing: watch::Receiver<bool>,
) {
    // Answers are small, and a delay of their last packet would show.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot switch off delays");
    }
    let stream = WriteDeadline::new(stream, WRITE_TIME_MAX);
    let Some(tls) = tls else { return handle(stream, address, router, closing).await };
    match tokio::time::timeout(HANDSHAKE_TIME_MAX, tls.accept(stream)).await {
        Ok(Ok(stream)) => handle(stream, address, router, closing).await,
        Ok(Err(error)) => tracing::debug!(%error, %address, "TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "TLS handshake took too long"),
    }
}

/// Serves the requests of a connection. When the server stops, open ones are still answered.
async fn handle<S>(
    stream: S,
    address: SocketAddr,
    router: Router,
    mut closing: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = RequestActivity::default();
    let requests = activity.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let open = requests.begin();
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(ConnectInfo(address));
        let answer = router.clone().call(request);
        async move {
            let answer = answer.await?;
            Ok::<_, Infallible>(answer.map(|body| AnswerBytes { body, _request: open }))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEADER_SECONDS_MAX))
        .max_buf_size(HEADER_BYTES_MAX.into());
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_header_list_size(HEADER_BYTES_MAX.into());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = activity.idle() => {
            tracing::debug!(%address, "the connection is idle");
            connection.as_mut().graceful_shutdown();
            // No request is open, so nothing is lost if the client does not answer.
            match tokio::time::timeout(RETRY_DELAY, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, %address, "connection ended");
    }
}
