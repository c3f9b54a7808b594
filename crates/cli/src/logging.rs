//! Log output on stderr, one line per event, filtered by verbosity.

mod log_writer;

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polity_engine::clock::{Clock, SystemClock};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use self::log_writer::{LogEntry, LogWriter};
use crate::args::{LogFormat, OutputVerbosity};

/// The writer of a server's log. Other commands write each line themselves.
static WRITER: OnceLock<LogWriter> = OnceLock::new();

/// Installs the subscriber. A server, which nobody watches, logs what it does.
pub(crate) fn start(verbosity: OutputVerbosity, server: Option<LogFormat>) {
    let most = match verbosity {
        OutputVerbosity::Normal if server.is_some() => Level::INFO,
        OutputVerbosity::Quiet | OutputVerbosity::Normal => Level::ERROR,
        OutputVerbosity::Verbose => Level::DEBUG,
    };
    if let Some(writer) = server.and_then(|_| LogWriter::start()) {
        // Fails only if there is a writer already, and this runs once.
        let _ = WRITER.set(writer);
    }
    let format = server.unwrap_or_default();
    let stderr = StderrSubscriber { most, format, spans: AtomicU64::new(0) };
    // Fails only if a subscriber is already set, and this runs once.
    let _ = tracing::subscriber::set_global_default(stderr);
}

/// Writes the last lines before the process exits.
pub(crate) fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush();
    }
}

struct StderrSubscriber {
    most: Level,
    format: LogFormat,
    spans: AtomicU64,
}

impl Subscriber for StderrSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.most && metadata.target().starts_with("polity")
    }

    fn event(&self, event: &Event<'_>) {
        let level = event.metadata().level().as_str().to_lowercase();
        let entry = match self.format {
            LogFormat::Text => {
                let mut line = LogLine::default();
                event.record(&mut line);
                LogEntry::Text(format!("{level}: {}{}", line.message, line.fields))
            }
            LogFormat::Json => {
                let mut document = LogDocument::default();
                event.record(&mut document);
                document.put("at", SystemClock.now().to_string());
                document.put("level", level);
                document.put("target", event.metadata().target());
                LogEntry::Json(Value::Object(document.fields))
            }
        };
        match WRITER.get() {
            Some(writer) => writer.push(entry),
            None => entry.write(),
        }
    }

    fn new_span(&self, _attributes: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

#[derive(Default)]
struct LogLine {
    message: String,
    fields: String,
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

/// The fields of an event as JSON.
#[derive(Default)]
struct LogDocument {
    fields: Map<String, Value>,
}

impl LogDocument {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }
}

impl Visit for LogDocument {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field.name(), format!("{value:?}"));
    }
}
