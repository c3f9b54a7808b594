//! The parser of server-sent events: model providers, A2A agents and MCP servers stream in them.

use memchr::memchr2;

/// The name of an event without an `event` field.
const DEFAULT_NAME: &[u8] = b"message";

/// One complete event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event` field, or `message`.
    pub name: &'a [u8],
    /// The `data` lines, joined by line feeds.
    pub data: &'a [u8],
}

/// The fields from which an interrupted stream can be resumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamPosition {
    /// The id of the last event that has one.
    pub id: Option<String>,
    /// The delay before a reconnect that the server asks for, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// Assembles events from the chunks of a stream, which may end anywhere.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    has_events: bool,
    /// The position of the incomplete event.
    next_position: StreamPosition,
    position: StreamPosition,
    /// True if the last chunk ended with a carriage return; its line feed may follow.
    after_return: bool,
}

impl SseParser {
    /// Parses the next chunk and calls `on_event` for each event that it completes.
    pub fn push<E>(
        &mut self,
        mut chunk: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.after_return && !chunk.is_empty() {
            self.after_return = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = memchr2(b'\n', b'\r', chunk) {
            let (line, rest) = chunk.split_at(end);
            chunk = &rest[1..];
            if rest[0] == b'\r' {
                self.after_return = chunk.is_empty();
                chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
            }
            if self.line.is_empty() {
                self.push_line(line, &mut on_event)?;
            } else {
                self.line.extend_from_slice(line);
                let mut line = std::mem::take(&mut self.line);
                self.push_line(&line, &mut on_event)?;
                line.clear();
                self.line = line;
            }
        }
        self.line.extend_from_slice(chunk);
        Ok(())
    }

    /// Ends the stream. Some servers omit the empty line after their last event.
    pub fn finish<E>(
        &mut self,
        on_event: impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push(b"\n\n", on_event)
    }

    /// True if no event has been completed yet.
    pub fn is_empty(&self) -> bool {
        !self.has_events
    }

    /// The size of the incomplete event.
    pub fn pending_bytes(&self) -> usize {
        let id_bytes = self.next_position.id.as_ref().map_or(0, String::len);
        self.line.len() + self.name.len() + self.data.len() + id_bytes
    }

    /// Takes the position after the last complete event, if it has changed.
    pub fn take_position(&mut self) -> Option<StreamPosition> {
        let position = std::mem::take(&mut self.position);
        (position != StreamPosition::default()).then_some(position)
    }

    fn push_line<E>(
        &mut self,
        line: &[u8],
        on_event: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if line.is_empty() {
            let outcome = if std::mem::take(&mut self.has_data) {
                self.has_events = true;
                let name = if self.name.is_empty() { DEFAULT_NAME } else { &self.name };
                on_event(SseEvent { name, data: &self.data })
            } else {
                Ok(())
            };
            self.name.clear();
            self.data.clear();
            let StreamPosition { id, retry_ms } = std::mem::take(&mut self.next_position);
            self.position.id = id.or(self.position.id.take());
            self.position.retry_ms = retry_ms.or(self.position.retry_ms);
            return outcome;
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"id" => self.next_position.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" => {
                let delay = std::str::from_utf8(value).ok();
                self.next_position.retry_ms = delay.and_then(|delay| delay.parse().ok());
            }
            // Comments and unknown fields.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names and data of all events, parsed in chunks of this size.
    fn parse(text: &str, chunk_bytes: usize, is_finished: bool) -> Vec<(String, String)> {
        let mut events = Vec::new();
        let mut parser = SseParser::default();
        let mut on_event = |event: SseEvent<'_>| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            events.push((text(event.name), text(event.data)));
            Ok::<(), ()>(())
        };
        for chunk in text.as_bytes().chunks(chunk_bytes) {
            parser.push(chunk, &mut on_event).unwrap();
        }
        if is_finished {
            parser.finish(&mut on_event).unwrap();
        }
        assert_eq!(parser.is_empty(), events.is_empty());
        assert_eq!(parser.pending_bytes(), 0);
        events
    }

    #[test]
    fn data_is_the_same_however_the_stream_is_split() {
        let cases: [(&str, &[&str]); 8] = [
            ("data: one\n\ndata: two\n\n", &["one", "two"]),
            ("data: one\r\n\r\ndata:two\r\n\r\n", &["one", "two"]),
            ("event: ping\n\n: comment\n\nid: 7\ndata: x\n\n", &["x"]),
            ("data: first\ndata: second\n\n", &["first\nsecond"]),
            ("data:  kept space\n\n", &[" kept space"]),
            ("data: without an empty line", &["without an empty line"]),
            ("data: ends with a return\r", &["ends with a return"]),
            ("\n\n\n", &[]),
        ];
        for (text, expected) in cases {
            for chunk_bytes in [1, 2, 3, 7, 1000] {
                let data: Vec<_> =
                    parse(text, chunk_bytes, true).into_iter().map(|(_, data)| data).collect();
                assert_eq!(data, expected, "{text:?} by {chunk_bytes}");
            }
        }
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_split() {
        let stream = "\u{feff}: hello\nevent: endpoint\ndata: /message\n\n\
                      data: {\"a\":\r\ndata:  1}\r\n\r\nid: 7\n\ndata\n\nevent: x\rdata: é\r\r";
        let event = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        let expected = [
            event("endpoint", "/message"),
            event("message", "{\"a\":\n 1}"),
            event("message", ""),
            event("x", "é"),
        ];
        for chunk_bytes in 1..=stream.len() {
            assert_eq!(parse(stream, chunk_bytes, false), expected, "by {chunk_bytes}");
        }
    }

    #[test]
    fn position_is_that_of_the_last_complete_event() {
        let stream = "id: 1\nretry: 20\ndata: a\n\nid: 2\n\ndata: b\n\nid: 3\ndata: c\n";
        for chunk_bytes in 1..=stream.len() {
            let (mut parser, mut last) = (SseParser::default(), StreamPosition::default());
            for chunk in stream.as_bytes().chunks(chunk_bytes) {
                let Ok(()) = parser.push(chunk, |_| Ok::<(), std::convert::Infallible>(()));
                if let Some(StreamPosition { id, retry_ms }) = parser.take_position() {
                    last =
                        StreamPosition { id: id.or(last.id), retry_ms: retry_ms.or(last.retry_ms) };
                }
            }
            let expected = StreamPosition { id: Some("2".to_owned()), retry_ms: Some(20) };
            assert_eq!(last, expected, "by {chunk_bytes}");
        }
    }
}
