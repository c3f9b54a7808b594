//! Server-sent events, from pieces of a stream that end anywhere.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name, "message" unless the server gives another.
    pub(super) name: String,
    /// Its lines of data, joined.
    pub(super) data: String,
}

/// What has been read of a stream of events and is no whole event yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    after_return: bool,
}

impl Events {
    /// Reads a piece of the stream and gives the events that end in it.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut rest = piece;
        // A line ends with a return, a newline, or both; the second of both may come later.
        if self.after_return && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        self.after_return &= piece.is_empty();
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.line.extend_from_slice(&rest[..end]);
            let is_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_return {
                self.after_return = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            let line = std::mem::take(&mut self.line);
            events.extend(self.read(&String::from_utf8_lossy(&line)));
        }
        self.line.extend_from_slice(rest);
        events
    }

    /// How much has been read of an event that has not ended.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Reads a line; an empty one ends an event.
    fn read(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            let name = if name.is_empty() { "message".to_owned() } else { name };
            return std::mem::take(&mut self.has_data).then_some(Event { name, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            // Comments, ids and times to wait before asking again mean nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_wherever_the_stream_is_cut() {
        let stream = "\u{feff}: hello\nevent: endpoint\ndata: /message\n\n\
                      data: {\"a\":\r\ndata:  1}\r\n\r\nid: 7\n\ndata\n\nevent: x\rdata: é\r\r";
        let event = |name: &str, data: &str| Event { name: name.into(), data: data.into() };
        let expected = [
            event("endpoint", "/message"),
            event("message", "{\"a\":\n 1}"),
            event("message", ""),
            event("x", "é"),
        ];
        for size in 1..=stream.len() {
            let mut events = Events::default();
            let pieces = stream.as_bytes().chunks(size);
            let read: Vec<_> = pieces.flat_map(|piece| events.feed(piece)).collect();
            assert_eq!(read, expected, "in pieces of {size}");
        }
    }
}
