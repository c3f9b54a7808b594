//! Log output on stderr, one line per event, filtered by verbosity.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::args::OutputVerbosity;
use crate::terminal::note;

/// Installs the subscriber. A server, which nobody watches, logs what it does.
pub(crate) fn start(verbosity: OutputVerbosity, is_server: bool) {
    let most = match verbosity {
        OutputVerbosity::Normal if is_server => Level::INFO,
        OutputVerbosity::Quiet | OutputVerbosity::Normal => Level::ERROR,
        OutputVerbosity::Verbose => Level::DEBUG,
    };
    let stderr = StderrSubscriber { most, spans: AtomicU64::new(0) };
    // Fails only if a subscriber is already set, and this runs once.
    let _ = tracing::subscriber::set_global_default(stderr);
}

struct StderrSubscriber {
    most: Level,
    spans: AtomicU64,
}

impl Subscriber for StderrSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.most && metadata.target().starts_with("polity")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine::default();
        event.record(&mut line);
        let level = event.metadata().level().as_str().to_lowercase();
        note!("{level}: {}{}", line.message, line.fields);
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
