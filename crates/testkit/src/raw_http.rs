//! An HTTP server that answers as no proper server does: endless bodies, cut streams, lost sessions.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// The size of the pieces of an endless body.
const PIECE_BYTES: usize = 64 * 1024;

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct RawRequest {
    /// The method.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl RawRequest {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The JSON-RPC method of the body.
    pub fn rpc_method(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }
}

/// The response to one request. The connection is closed after it.
pub struct RawResponse<'s> {
    stream: &'s mut TcpStream,
    counts: &'s RawCounts,
}

#[derive(Debug, Default)]
struct RawCounts {
    sent_bytes: AtomicU64,
    ended_bodies: AtomicUsize,
    requests: Mutex<Vec<RawRequest>>,
}

impl RawResponse<'_> {
    /// Writes the status and headers.
    pub fn start(&mut self, status: u16, headers: &[(&str, &str)]) -> io::Result<()> {
        let head = format!("HTTP/1.1 {status} Status\r\nconnection: close\r\n");
        let add = |head: String, (name, value): &(&str, &str)| head + name + ": " + value + "\r\n";
        let head = headers.iter().fold(head, add) + "\r\n";
        self.write(head.as_bytes())
    }

    /// Writes a part of the body.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()?;
        self.counts.sent_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// Writes a whole response.
    pub fn send(&mut self, status: u16, headers: &[(&str, &str)], body: &str) -> io::Result<()> {
        let length = body.len().to_string();
        self.start(status, &[headers, &[("content-length", length.as_str())]].concat())?;
        self.write(body.as_bytes())
    }

    /// Writes a byte until the client closes the connection.
    pub fn write_forever(&mut self, byte: u8) -> io::Result<()> {
        let piece = vec![byte; PIECE_BYTES];
        while self.write(&piece).is_ok() {}
        self.counts.ended_bodies.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A running server. Its threads end with the test.
pub struct RawHttpServer {
    port: u16,
    counts: Arc<RawCounts>,
}

impl RawHttpServer {
    /// Starts a server that answers with this function, each connection on a thread of its own. An
    /// error means that the client is gone.
    pub fn start(
        answer: impl Fn(&RawRequest, &mut RawResponse<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (counts, answer) = (Arc::<RawCounts>::default(), Arc::new(answer));
        let shared = Arc::clone(&counts);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (answer, counts) = (Arc::clone(&answer), Arc::clone(&shared));
                std::thread::spawn(move || {
                    let Some(request) = read_request(&stream) else { return };
                    counts.requests.lock().unwrap().push(request.clone());
                    let mut response = RawResponse { stream: &mut stream, counts: &counts };
                    // The client has gone, which a test may want.
                    let _ = answer(&request, &mut response);
                });
            }
        });
        Self { port, counts }
    }

    /// The address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The number of bytes that were written to all clients.
    pub fn sent_bytes(&self) -> u64 {
        self.counts.sent_bytes.load(Ordering::SeqCst)
    }

    /// The number of endless bodies whose client has closed the connection.
    pub fn ended_bodies(&self) -> usize {
        self.counts.ended_bodies.load(Ordering::SeqCst)
    }

    /// The requests received so far.
    pub fn requests(&self) -> Vec<RawRequest> {
        self.counts.requests.lock().unwrap().clone()
    }

    /// The number of requests with this JSON-RPC method.
    pub fn count_rpc(&self, method: &str) -> usize {
        self.requests().iter().filter(|request| request.rpc_method() == method).count()
    }
}

fn read_request(stream: &TcpStream) -> Option<RawRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(RawRequest { method, path, headers, body })
}
