//! A fake model server: local HTTP in the providers' wire formats, with scripted turns and faults.
//!
//! It refuses requests that the real servers refuse, so a passing test also shows that every
//! request was valid.

mod answer;
mod request;
mod responses;
mod turn;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

pub use request::{RecordedRequest, WireFormat};
pub use turn::{ModelCall, ModelEnding, ModelFault, ModelTurn, UsageForm};

type ServerBody = BoxBody<Bytes, io::Error>;
type TurnFunction = dyn Fn(&RecordedRequest) -> ModelTurn + Send + Sync;

/// The size of the pieces of an endless answer.
const ENDLESS_PIECE_BYTES: usize = 1024 * 1024;

/// A running model server. Dropping it stops the server.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<ModelServerState>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct ModelServerState {
    answerer: Box<TurnFunction>,
    requests: Mutex<Vec<RecordedRequest>>,
    connections: AtomicUsize,
}

impl ModelServer {
    /// A server that replies with these turns in order, and then with "done".
    pub fn with(turns: impl IntoIterator<Item = ModelTurn>) -> Self {
        let turns: Mutex<VecDeque<ModelTurn>> = Mutex::new(turns.into_iter().collect());
        Self::answering(move |_| {
            turns.lock().unwrap().pop_front().unwrap_or_else(|| ModelTurn::text("done"))
        })
    }

    /// A server that computes each reply from the request.
    pub fn answering(
        answerer: impl Fn(&RecordedRequest) -> ModelTurn + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ModelServerState {
            answerer: Box::new(answerer),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, serving) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// The base address, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests received so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server was printed, and the test fails without a reply.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: tokio::net::TcpListener, shared: Arc<ModelServerState>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let service = service_fn(|request| answer_request(&shared, connection, request));
            let connection = hyper::server::conn::http1::Builder::new();
            // A disconnecting client and a deliberately cut stream both end here as errors.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer_request(
    shared: &ModelServerState,
    connection: usize,
    request: Request<Incoming>,
) -> Result<Response<ServerBody>, Infallible> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request.headers().iter();
    let headers = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
        .collect();
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(document(400, "text/plain", error.to_string())),
    };
    let Some(wire) = WireFormat::of_path(&path) else {
        return Ok(document(404, "text/plain", "404 page not found".into()));
    };
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(error) => return Ok(json_document(400, &answer::error(wire, 400, &error.to_string()))),
    };
    let request = RecordedRequest { wire, path, query, headers, body, connection };
    shared.requests.lock().unwrap().push(request.clone());
    if let Some(problem) = request.problem() {
        return Ok(json_document(400, &answer::error(wire, 400, &problem)));
    }
    let turn = (shared.answerer)(&request);
    pause(turn.first_byte_after).await;
    Ok(answer_with(turn, &request))
}

fn answer_with(turn: ModelTurn, request: &RecordedRequest) -> Response<ServerBody> {
    if let Some((status, body)) =
        turn.fault.as_ref().and_then(|fault| answer::failure(fault, request))
    {
        let mut response = json_document(status, &body);
        if let Some(ModelFault::Status { headers, .. }) = &turn.fault {
            for (name, value) in headers {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
        }
        return response;
    }
    if matches!(turn.fault, Some(ModelFault::Page)) {
        return document(200, "text/html; charset=utf-8", "<h1>Welcome!</h1>".into());
    }
    if request.wire == WireFormat::OpenAi && request.body["stream"] != true {
        return json_document(200, &answer::openai_document(&turn));
    }
    let (sender, body) = Channel::new(1);
    tokio::spawn(stream(sender, turn, request.wire));
    response(200, "text/event-stream; charset=utf-8", body.boxed())
}

/// Streams a reply event by event, each split in two unless the turn is sent in one piece.
async fn stream(mut sender: Sender<Bytes, io::Error>, turn: ModelTurn, wire: WireFormat) {
    let mut events = answer::events(wire, &turn);
    let closing = answer::closing_events(wire);
    match &turn.fault {
        Some(ModelFault::Cut | ModelFault::Unfinished | ModelFault::Endless) => {
            events.truncate(events.len() - closing);
        }
        Some(ModelFault::EndWithoutReason) => {
            events.truncate(events.len() - closing);
            events.extend(answer::end_without_reason(wire));
        }
        Some(ModelFault::NoEvents) => events = vec![": processing\n\n".to_owned()],
        Some(ModelFault::InvalidJson) => {
            events.truncate(events.len() - closing);
            events.push("data: {\"choices\": [{\"del\n\n".to_owned());
        }
        Some(ModelFault::ErrorInStream) => {
            events.truncate(events.len() - closing);
            let error = answer::error(
                wire,
                if wire == WireFormat::Anthropic { 529 } else { 503 },
                "Overloaded",
            );
            events.push(format!("event: error\ndata: {error}\n\n"));
        }
        Some(
            ModelFault::Status { .. }
            | ModelFault::ContextFull
            | ModelFault::Filtered
            | ModelFault::EchoKey
            | ModelFault::NoTemperature
            | ModelFault::Page,
        )
        | None => {}
    }
    if turn.in_one_piece {
        events = vec![events.concat()];
    }
    for event in events {
        let event = Bytes::from(event);
        let middle = if turn.in_one_piece { 0 } else { event.len() / 2 };
        for piece in [event.slice(..middle), event.slice(middle..)] {
            if !piece.is_empty() && sender.send_data(piece).await.is_err() {
                return;
            }
        }
        pause(turn.between_chunks).await;
    }
    match turn.fault {
        Some(ModelFault::Cut) => sender.abort(io::Error::other("scripted cut")),
        Some(ModelFault::Endless) => {
            let piece = Bytes::from(vec![b':'; ENDLESS_PIECE_BYTES]);
            while sender.send_data(piece.clone()).await.is_ok() {}
        }
        _ => {}
    }
}

/// Sleeps, unless the duration is zero: even the shortest sleep takes a millisecond.
async fn pause(duration: Duration) {
    if duration > Duration::ZERO {
        tokio::time::sleep(duration).await;
    }
}

fn json_document(status: u16, body: &Value) -> Response<ServerBody> {
    document(status, "application/json", json!(body).to_string())
}

fn document(status: u16, kind: &str, body: String) -> Response<ServerBody> {
    response(status, kind, body.map_err(|never| match never {}).boxed())
}

fn response(status: u16, kind: &str, body: ServerBody) -> Response<ServerBody> {
    let builder = Response::builder().status(status).header("content-type", kind);
    builder.body(body).unwrap()
}
