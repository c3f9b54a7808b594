//! A client of the HTTP API with little cost of its own, over one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::SoakServerAddress;

/// The longest wait for bytes.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {}", self.body))
    }
}

/// A connection that is kept open between requests.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
    host: String,
    token: String,
}

impl Connection {
    /// Connects to a server.
    pub(crate) fn open(address: &SoakServerAddress) -> Result<Self> {
        let stream = TcpStream::connect(&address.host)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream);
        Ok(Self { reader, host: address.host.clone(), token: address.token.clone() })
    }

    /// Reads a path.
    pub(crate) fn get(&mut self, path: &str) -> Result<Answer> {
        self.send("GET", path, "", "")
    }

    /// Posts a JSON document. Each header ends with a line end.
    pub(crate) fn post(&mut self, path: &str, headers: &str, body: &Value) -> Result<Answer> {
        let headers = format!("Content-Type: application/json\r\n{headers}");
        self.send("POST", path, &headers, &body.to_string())
    }

    fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<Answer> {
        let (host, token, length) = (&self.host, &self.token, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {length}\r\n{headers}\r\n{body}"
        );
        self.reader.get_mut().write_all(request.as_bytes())?;
        let (status, length) = self.read_head()?;
        let mut bytes = vec![0; length.context("the answer has no length")?];
        self.reader.read_exact(&mut bytes)?;
        Ok(Answer { status, body: String::from_utf8(bytes)? })
    }

    /// Reads the head of an answer: its status and the length of its body.
    fn read_head(&mut self) -> Result<(u16, Option<usize>)> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("the server has closed the connection");
        }
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("not an answer: {line}"))?;
        let mut length = None;
        loop {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                bail!("the server has closed the connection within an answer");
            }
            let field = line.trim_end();
            if field.is_empty() {
                return Ok((status, length));
            }
            let (name, value) = field.split_once(':').unwrap_or((field, ""));
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse()?);
            }
        }
    }
}

/// An event of a stream.
#[derive(Debug, Default)]
pub(crate) struct EventFrame {
    /// The position in the journal; none for `resume`.
    pub(crate) id: Option<u64>,
    /// The name of the event.
    pub(crate) event: String,
    /// Its JSON.
    pub(crate) data: String,
}

/// A stream of events.
pub(crate) struct SoakEventReader {
    reader: BufReader<TcpStream>,
}

impl SoakEventReader {
    /// Follows all events after a position.
    pub(crate) fn open(address: &SoakServerAddress, after: u64) -> Result<Self> {
        let mut connection = Connection::open(address)?;
        let (host, token) = (&connection.host, &connection.token);
        let request = format!(
            "GET /api/v1/events?after={after} HTTP/1.1\r\nHost: {host}\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        connection.reader.get_mut().write_all(request.as_bytes())?;
        match connection.read_head()? {
            (200, _) => Ok(Self { reader: connection.reader }),
            (status, _) => bail!("the stream of events was refused with {status}"),
        }
    }

    /// Sets the longest wait for bytes.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> Result<()> {
        Ok(self.reader.get_ref().set_read_timeout(Some(timeout))?)
    }

    /// The next event. The sizes of chunks are between its lines and are skipped. An error is the
    /// end of the stream.
    pub(crate) fn next_event(&mut self) -> Result<EventFrame> {
        let mut frame = EventFrame::default();
        let mut line = String::new();
        loop {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                bail!("the stream has ended");
            }
            let field = line.trim_end();
            if let Some(id) = field.strip_prefix("id: ") {
                frame.id = id.parse().ok();
            } else if let Some(event) = field.strip_prefix("event: ") {
                event.clone_into(&mut frame.event);
            } else if let Some(data) = field.strip_prefix("data: ") {
                data.clone_into(&mut frame.data);
            } else if field.is_empty() && !frame.event.is_empty() {
                return Ok(frame);
            }
        }
    }
}
