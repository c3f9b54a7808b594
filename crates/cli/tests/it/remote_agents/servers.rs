//! A2A servers: those of the SDKs, a stub with canned answers, and a TCP relay that can be cut.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use polity_testkit::peers;
use serde_json::Value;

use crate::sandbox::HomeSandbox;

/// The path of a card.
const CARD: &str = ".well-known/agent-card.json";

/// A server of an SDK.
pub(super) struct SdkServer {
    child: Child,
    pub(super) port: u16,
    log: PathBuf,
}

impl SdkServer {
    /// Starts the Python SDK's server with these arguments.
    pub(super) fn python(sandbox: &HomeSandbox, args: &[&str]) -> Self {
        let log = sandbox.file("python.log");
        let mut command = Command::new(peers::a2a_python());
        command.arg(peers::script("python-a2a/agent.py")).arg("--log").arg(&log).args(args);
        Self::start(command, log)
    }

    /// Starts a server of the Python SDK before 1.0.
    pub(super) fn python_03(sandbox: &HomeSandbox) -> Self {
        let log = sandbox.file("python-03.log");
        let mut command = Command::new(peers::a2a_python_03());
        command.arg(peers::script("python-a2a-03/agent.py")).arg("--log").arg(&log);
        Self::start(command, log)
    }

    /// Starts the JavaScript SDK's server with these interfaces.
    pub(super) fn javascript(sandbox: &HomeSandbox, offers: &str) -> Self {
        let log = sandbox.file("javascript.log");
        let mut command = Command::new("node");
        command.current_dir(peers::a2a_javascript());
        command.arg(peers::script("npm-a2a/agent.cjs")).arg(&log).arg(offers);
        Self::start(command, log)
    }

    fn start(mut command: Command, log: PathBuf) -> Self {
        // The server exits when its stdin closes, so it cannot outlive the test.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self { child, port, log }
    }

    pub(super) fn card(&self) -> String {
        card(self.port)
    }

    /// The recorded events of one kind.
    pub(super) fn events(&self, event: &str) -> Vec<Value> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|found| found["event"] == event).collect()
    }

    /// The messages it received.
    pub(super) fn messages(&self) -> Vec<Value> {
        self.events("message")
    }

    /// The texts of the messages it received.
    pub(super) fn texts(&self) -> Vec<String> {
        self.messages().iter().map(|message| message["text"].as_str().unwrap().to_owned()).collect()
    }

    /// The number of cancel requests it received.
    pub(super) fn cancelled(&self) -> usize {
        self.events("cancel").len()
    }
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn card(port: u16) -> String {
    format!("http://127.0.0.1:{port}/{CARD}")
}

/// A server that gives every GET the same answer and never answers a POST.
pub(super) struct StubServer {
    pub(super) port: u16,
    posts: Arc<AtomicUsize>,
}

impl StubServer {
    /// Answers with this status line and body; `PORT` in the body becomes the server's port.
    pub(super) fn new(status: &'static str, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let body = body.replace("PORT", &port.to_string());
        let posts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&posts);
        std::thread::spawn(move || {
            let mut waiting = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut head = [0; 4096];
                let read = stream.read(&mut head).unwrap_or(0);
                if head[..read].starts_with(b"POST") {
                    counted.fetch_add(1, Ordering::SeqCst);
                    waiting.push(stream);
                    continue;
                }
                let bytes = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
                     content-length: {bytes}\r\nconnection: close\r\n\r\n"
                );
                // The client may have closed the connection.
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(body.as_bytes());
            }
        });
        Self { port, posts }
    }

    pub(super) fn card(&self) -> String {
        card(self.port)
    }

    pub(super) fn posts(&self) -> usize {
        self.posts.load(Ordering::SeqCst)
    }
}

/// A TCP relay to a server, which can be cut and opened again.
pub(super) struct TcpRelay {
    pub(super) port: u16,
    to: Arc<Mutex<u16>>,
    is_open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl TcpRelay {
    pub(super) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let relay = Self {
            port,
            to: Arc::default(),
            is_open: Arc::new(AtomicBool::new(true)),
            streams: Arc::default(),
        };
        let (to, is_open) = (Arc::clone(&relay.to), Arc::clone(&relay.is_open));
        let streams = Arc::clone(&relay.streams);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                if !is_open.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", *to.lock().unwrap())) else {
                    continue;
                };
                streams
                    .lock()
                    .unwrap()
                    .extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                copy_stream(near.try_clone().unwrap(), far.try_clone().unwrap());
                copy_stream(far, near);
            }
        });
        relay
    }

    /// Forwards new connections to this port.
    pub(super) fn forward_to(&self, port: u16) {
        *self.to.lock().unwrap() = port;
    }

    pub(super) fn cut(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

fn copy_stream(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}
