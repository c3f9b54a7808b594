//! Progress and summaries of simulations.

use std::time::{Duration, Instant};

use polity_simulator::lifecycle::{LifecycleEvent, RequestSource};
use polity_simulator::run::{RunSummary, SimulationProgress};

use super::live::print_line;
use super::{count, duration, style, table, width_of_stderr};
use crate::app::AppContext;
use crate::error::CliError;
use crate::terminal::{rewrite_line, say};

/// The most warnings that are shown; the others are counted.
const WARNINGS_SHOWN_MAX: usize = 10;

/// The width of the bar, in characters.
const BAR_WIDTH: u64 = 24;

/// The refresh interval.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// A progress line on the terminal.
pub(crate) struct ProgressBar {
    live: bool,
    began: Instant,
    /// The last turn before this run started.
    first: Option<u64>,
    shown: Option<Instant>,
}

impl ProgressBar {
    /// A progress line, shown only on a terminal.
    pub(crate) fn new(app: &AppContext) -> Self {
        Self { live: app.options.is_live(), began: Instant::now(), first: None, shown: None }
    }

    /// Shows the progress, at most once per refresh interval.
    pub(crate) fn show(&mut self, progress: SimulationProgress<'_>) {
        let first = *self.first.get_or_insert(progress.turn.saturating_sub(1));
        if !self.live || self.shown.is_some_and(|shown| shown.elapsed() < SHOW_EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let lines = lines(progress, progress.turn - first, self.began.elapsed());
        let line = fitting(&lines, width_of_stderr());
        rewrite_line(line);
    }

    /// Clears the line.
    pub(crate) fn clear(&mut self) {
        if self.shown.take().is_some() {
            rewrite_line("");
        }
    }
}

/// `turn 120/1000 [===         ] 25 agents, 340 turns/s, 2.5 s left`, and the same with less and less.
fn lines(progress: SimulationProgress<'_>, done: u64, took: Duration) -> [String; 3] {
    let SimulationProgress { turn, turns, agents, events: _ } = progress;
    let filled = turn.saturating_mul(BAR_WIDTH).checked_div(turns).unwrap_or(BAR_WIDTH);
    let width = |cells: u64| usize::try_from(cells).unwrap_or_default();
    let bar = format!(
        "{}{}",
        "=".repeat(width(filled)),
        " ".repeat(width(BAR_WIDTH.saturating_sub(filled)))
    );
    #[expect(clippy::cast_precision_loss, reason = "it is shown with a few digits")]
    let rate = done as f64 / took.as_secs_f64().max(1e-6);
    #[expect(clippy::cast_precision_loss, reason = "it is shown with a few digits")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let left = (turns.saturating_sub(turn) as f64 / rate * 1000.0) as u64;
    let shown = if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") };
    let agents = count(usize::try_from(agents).unwrap_or(usize::MAX), "agent");
    let left = duration(left);
    [
        format!("  turn {turn}/{turns} [{bar}] {agents}, {shown} turns/s, {left} left"),
        format!("  turn {turn}/{turns}, {shown} turns/s, {left} left"),
        format!("{turn}/{turns}, {left}"),
    ]
}

/// The first line that fits, or nothing: one that does not would be left behind when it is rewritten.
fn fitting(lines: &[String], width: Option<usize>) -> &str {
    let fits = |line: &&String| width.is_none_or(|width| line.chars().count() < width);
    lines.iter().find(fits).map_or("", String::as_str)
}

/// Prints the lifecycle requests that were applied in a turn.
pub(crate) fn print_done(app: &AppContext, progress: SimulationProgress<'_>) {
    for LifecycleEvent { operation, name, instead_of, asked_by } in progress.events {
        let wanted = instead_of.as_ref().map(|wanted| format!(" (\"{wanted}\" is taken)"));
        let wanted = wanted.unwrap_or_default();
        let asked_by = match asked_by {
            RequestSource::Agent(agent) if agent == name => ", by itself".to_owned(),
            RequestSource::Agent(agent) => format!(", by \"{agent}\""),
            RequestSource::Scenario => ", by the scenario".to_owned(),
            RequestSource::Outside => ", from outside".to_owned(),
            RequestSource::PauseEnded => ", its pause is over".to_owned(),
        };
        let (turn, operation) = (progress.turn, operation.as_str());
        print_line(&app.options, &format!("turn {turn}: {operation} \"{name}\"{wanted}{asked_by}"));
    }
}

/// Prints the summary of a run, with its name if given.
pub(crate) fn print_summary(
    app: &AppContext,
    summary: &RunSummary,
    run: Option<&str>,
) -> Result<(), CliError> {
    let agents = count(usize::try_from(summary.agents).unwrap_or(usize::MAX), "agent");
    let turns = count(usize::try_from(summary.turns).unwrap_or(usize::MAX), "turn");
    let paused = match summary.paused.as_slice() {
        [] => String::new(),
        few if few.len() <= 5 => format!(", paused: {}", few.join(", ")),
        many => format!(", {} paused", many.len()),
    };
    say!("{}: {turns}, {agents}{paused}", summary.scenario)?;
    // Runs of older versions have no visit counts.
    let visits = summary.visits.0.iter().map(|(_, visits)| visits.to_string());
    let visits = visits.chain(std::iter::repeat(String::new()));
    let rows = summary.states.0.iter().zip(visits);
    let rows = rows.map(|((state, count), visits)| [state.clone(), count.to_string(), visits]);
    say!("{}", table(["STATE", "AGENTS", "VISITS"], rows))?;
    if !summary.world.is_empty() {
        let world = summary.world.iter().map(|(name, value)| format!("{name} {value}"));
        let world = world.collect::<Vec<_>>().join(", ");
        say!("{} {}", style::label("world:"), world)?;
    }
    for warning in summary.warnings.iter().take(WARNINGS_SHOWN_MAX) {
        let about = match (warning.operation, &warning.target_agent_name) {
            (Some(operation), Some(name)) => format!("{} \"{name}\": ", operation.as_str()),
            (Some(operation), None) => format!("{}: ", operation.as_str()),
            (None, Some(name)) => format!("agent \"{name}\": "),
            (None, None) => String::new(),
        };
        let told = format!("turn {}: {about}{}", warning.turn, warning.reason);
        say!("{} {}", style::warning("warning:"), on_one_line(&told))?;
    }
    if let Some(more @ 1..) = summary.warnings.len().checked_sub(WARNINGS_SHOWN_MAX) {
        say!("{}: use --json", count(more, "more warning"))?;
    }
    if let Some(run) = run.filter(|_| app.shows_progress()) {
        say!("{} {run}", style::label("run:"))?;
    }
    say!("{} {}", style::label("digest:"), summary.digest)
}

/// A text as one line.
fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_shows_rate_and_remaining_time() {
        let progress = SimulationProgress { turn: 250, turns: 1000, agents: 25, events: &[] };
        let lines_of = lines(progress, 200, Duration::from_secs(2));
        let full = "  turn 250/1000 [======                  ] 25 agents, 100 turns/s, 7.5 s left";
        let expected = [
            (None, full),
            (Some(80), full),
            (Some(60), "  turn 250/1000, 100 turns/s, 7.5 s left"),
            (Some(30), "250/1000, 7.5 s"),
            (Some(8), ""),
        ];
        for (width, line) in expected {
            assert_eq!(fitting(&lines_of, width), line, "{width:?}");
        }
        let slow = SimulationProgress { turn: 1, turns: 3, agents: 1, events: &[] };
        assert_eq!(
            lines(slow, 1, Duration::from_secs(4))[0],
            "  turn 1/3 [========                ] 1 agent, 0.2 turns/s, 8.0 s left"
        );
    }
}
