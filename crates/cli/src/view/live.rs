//! Steps as they happen, on stderr: finished ones as lines, and on a terminal the one under way
//! with its growing time.

use jiff::Timestamp;
use polity_model::event::{JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::name::Name;
use polity_model::trace::TraceBuilder;

use super::{duration, steps, style};
use crate::args::{GlobalOptions, OutputVerbosity};
use crate::terminal::{note, rewrite_line};

/// The width of the name of the current step, so that times are aligned.
const WAIT_WIDTH: usize = 16;

/// The length of streamed model output on the line of the current step.
const OUTPUT_CHARACTERS_MAX: usize = 44;

/// Prints a line that is not a step, while steps may be shown.
pub(crate) fn print_line(options: &GlobalOptions, line: &str) {
    if options.is_live() {
        rewrite_line("");
    }
    note!("{line}");
}

/// Shows one task's steps.
pub(crate) struct LiveView {
    trace: Option<TraceBuilder>,
    seen: StreamSequence,
    /// The position up to which steps are known and not shown.
    known: JournalPosition,
    /// The number of steps shown.
    shown: usize,
    show: DetailLevel,
    /// True if the line of the current step is on the screen.
    under_way: bool,
    /// Model output since the last event.
    text: String,
    /// The prefix of each line of a sub-agent.
    indent: String,
}

/// The level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DetailLevel {
    /// Nothing.
    Nothing,
    /// Finished steps, line by line.
    Steps,
    /// Also the step under way, on a line that is rewritten.
    CurrentStep,
    /// Also every event.
    Events,
}

impl LiveView {
    /// A view with the detail that the options and the terminal allow.
    pub(crate) fn new(options: &GlobalOptions) -> Self {
        let show = match (options.shows_progress(), options.verbosity()) {
            (false, _) => DetailLevel::Nothing,
            (true, OutputVerbosity::Verbose) => DetailLevel::Events,
            (true, _) if options.is_live() => DetailLevel::CurrentStep,
            (true, _) => DetailLevel::Steps,
        };
        let seen = StreamSequence::default();
        let (text, indent) = (String::new(), String::new());
        let known = JournalPosition::default();
        Self { trace: None, seen, known, shown: 0, show, under_way: false, text, indent }
    }

    /// Shows only the steps after this position.
    pub(crate) fn after(self, known: JournalPosition) -> Self {
        Self { known, ..self }
    }

    /// Shows only the steps after this position from now on.
    pub(crate) fn show_after(&mut self, known: JournalPosition) {
        self.known = known;
    }

    /// A view of a sub-agent at this depth. Its current step is not shown, because the line of the
    /// current step belongs to the task at the top.
    pub(crate) fn nested(options: &GlobalOptions, depth: usize, agent: &Name) -> Self {
        let mut view = Self::new(options);
        view.show = match view.show {
            DetailLevel::CurrentStep => DetailLevel::Steps,
            show @ (DetailLevel::Nothing | DetailLevel::Steps | DetailLevel::Events) => show,
        };
        view.indent = format!("{}{}  ", "   ".repeat(depth), style::dim(agent.as_str()));
        view
    }

    /// The newest event that was applied.
    pub(crate) fn seen(&self) -> StreamSequence {
        self.seen
    }

    /// Applies one event of the task. An event that was applied before has no effect.
    pub(crate) fn see(&mut self, recorded: &RecordedEvent) {
        if recorded.sequence <= self.seen {
            return;
        }
        self.seen = recorded.sequence;
        self.text.clear();
        match (&mut self.trace, &recorded.stream) {
            (Some(trace), _) => trace.apply(recorded),
            (None, StreamId::Task(id)) => self.trace = TraceBuilder::begin(*id, recorded),
            (None, StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_)) => {}
        }
        if recorded.position <= self.known {
            self.shown = self.trace.as_ref().map_or(0, |trace| trace.steps().len());
            return;
        }
        if self.show == DetailLevel::Events {
            self.clear();
            let line = format!("  {} {}", recorded.sequence.0, recorded.event.label());
            note!("{}{}", self.indent, style::dim(&line));
        }
        self.show_finished();
    }

    fn show_finished(&mut self) {
        let Some(trace) = &self.trace else { return };
        let is_nested = !self.indent.is_empty();
        let new: Vec<String> = trace.steps()[self.shown..]
            .iter()
            // The call in the parent's view shows that a sub-agent is running.
            .filter(|step| !(is_nested && steps::is_beginning(step)))
            .map(steps::line)
            .collect();
        self.shown = trace.steps().len();
        if self.show == DetailLevel::Nothing || new.is_empty() {
            return;
        }
        self.clear();
        for line in new {
            note!("  {}{line}", self.indent);
        }
    }

    /// Appends streamed model output, of which the end is shown with the current step.
    pub(crate) fn append_output(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.text.len() > 2 * OUTPUT_CHARACTERS_MAX * 4 {
            let newest = self.text.char_indices().rev().nth(OUTPUT_CHARACTERS_MAX);
            let start = newest.map_or(0, |(start, _)| start);
            self.text.drain(..start);
        }
    }

    /// The end of the streamed model output, on one line.
    fn model_output(&self) -> String {
        let line: Vec<&str> = self.text.split_whitespace().collect();
        let line = line.join(" ");
        let start = line.char_indices().rev().nth(OUTPUT_CHARACTERS_MAX).map_or(0, |(at, _)| at);
        line[start..].to_owned()
    }

    /// Shows the elapsed time of the current step, or the time until the next attempt.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        let (DetailLevel::CurrentStep, Some(trace)) = (self.show, &self.trace) else { return };
        let ms = |from: Timestamp, to: Timestamp| {
            duration(u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0))
        };
        let line = match (trace.in_progress(), trace.retry_at()) {
            (Some((what, since)), _) => {
                let what = what.replace('_', " ");
                format!("… {what:WAIT_WIDTH$} {}  {}", ms(since, now), self.model_output())
            }
            (None, Some(retry_at)) => {
                format!("… {:WAIT_WIDTH$} {}", "next try in", ms(now, retry_at))
            }
            (None, None) => return,
        };
        rewrite_line(&format!("  {}", style::dim(&line)));
        self.under_way = true;
    }

    /// Clears the line of the current step.
    pub(crate) fn clear(&mut self) {
        if self.under_way {
            rewrite_line("");
            self.under_way = false;
        }
    }
}
