//! A server process and a client without any HTTP library, which sends exactly what a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::sandbox::{CommandOutput, HomeSandbox, finish, kill};

/// The longest time that a test waits for bytes.
const READ_TIMEOUT: Duration = Duration::from_mins(2);

/// A server of a home.
pub(super) struct ServerProcess<'h> {
    home: PhantomData<&'h HomeSandbox>,
    child: Option<Child>,
    address: String,
    pub(super) token: String,
}

/// An answer to a request.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl HttpAnswer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Checks the status and returns the body.
    #[track_caller]
    pub(super) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.json()
    }

    /// Checks that it is a problem with this status and code.
    #[track_caller]
    pub(super) fn expect_problem(&self, status: u16, code: &str) -> Value {
        let problem = self.expect(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["code"], code, "{problem}");
        problem
    }
}

impl<'h> ServerProcess<'h> {
    /// Starts a server on a free port and waits until it answers.
    pub(super) fn start(home: &'h HomeSandbox) -> Self {
        Self::start_at(home, "127.0.0.1:0")
    }

    /// Starts a server on this address and waits until it answers.
    pub(super) fn start_at(home: &'h HomeSandbox, address: &str) -> Self {
        Self::start_command(home, home.command(&["serve", "--listen", address]))
    }

    /// Starts a server with these environment variables.
    pub(super) fn start_with_variables(home: &'h HomeSandbox, variables: &[(&str, &str)]) -> Self {
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.envs(variables.iter().copied());
        Self::start_command(home, command)
    }

    /// Starts a server with more arguments.
    pub(super) fn start_with(home: &'h HomeSandbox, args: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        Self::start_command(home, home.command(&args))
    }

    /// Starts a server whose log is discarded. A pipe that nobody reads stops a server that logs much.
    pub(super) fn start_silent(home: &'h HomeSandbox) -> Self {
        Self::launch(home, home.command(&["serve", "--listen", "127.0.0.1:0"]), Stdio::null)
    }

    /// Starts a command that becomes a server, and waits until it answers.
    pub(super) fn start_command(home: &'h HomeSandbox, command: Command) -> Self {
        Self::launch(home, command, Stdio::piped)
    }

    fn launch(home: &'h HomeSandbox, mut command: Command, output: fn() -> Stdio) -> Self {
        let child = command.stdout(output()).stderr(output()).spawn().unwrap();
        let pid = u64::from(child.id());
        let mut server = Self {
            home: PhantomData,
            child: Some(child),
            address: String::new(),
            token: String::new(),
        };
        server.address = home.wait_until("the server", || {
            let text = std::fs::read_to_string(home.file("data/server.json")).ok()?;
            let address: Value = serde_json::from_str(&text).ok()?;
            let url = address["url"].as_str()?;
            let address_of = |url: &str| url.split_once("://").map(|(_, rest)| rest.to_owned());
            address_of(url).filter(|_| address["pid"] == pid)
        });
        server.token = std::fs::read_to_string(home.file("data/server.token")).unwrap();
        server.token.truncate(server.token.trim_end().len());
        server
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Sends bytes and reads the answer to its end.
    pub(super) fn send_raw(&self, request: &str) -> HttpAnswer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        parse(&bytes)
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        stream
    }

    /// Sends a request with the local token.
    pub(super) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> HttpAnswer {
        let headers = format!("Authorization: Bearer {}\r\n{headers}", self.token);
        self.send_with(method, path, &headers, body)
    }

    /// Sends a request with these headers only; each ends with a line end.
    pub(super) fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> HttpAnswer {
        let length = body.len();
        let host = &self.address;
        self.send_raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Content-Length: {length}\r\n{headers}\r\n{body}"
        ))
    }

    pub(super) fn get(&self, path: &str) -> HttpAnswer {
        self.send("GET", path, "", "")
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> HttpAnswer {
        self.send("POST", path, "Content-Type: application/json\r\n", &body.to_string())
    }

    /// Opens a stream of events and returns its lines.
    pub(super) fn follow(&self, path: &str, headers: &str) -> impl Iterator<Item = String> + use<> {
        let mut stream = self.connect();
        let (host, token) = (&self.address, &self.token);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream).lines().map_while(Result::ok)
    }

    /// Asks the server to stop.
    pub(super) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the end of the server.
    pub(super) fn wait(mut self) -> CommandOutput {
        finish(self.child.take().unwrap())
    }

    /// Stops the server and waits.
    pub(super) fn stop(self) -> CommandOutput {
        self.terminate();
        self.wait()
    }

    /// Kills the server without a warning.
    pub(super) fn kill(mut self) {
        kill(self.child.as_mut().unwrap());
        self.child = None;
    }
}

impl Drop for ServerProcess<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            kill(child);
        }
    }
}

pub(super) fn parse(bytes: &[u8]) -> HttpAnswer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    HttpAnswer { status, headers: lines.filter_map(header).collect(), body: body.to_owned() }
}
