//! Charts from the outside: what is refused, and what firing does.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod bad_charts;
mod export;
mod firing;
mod guards;
mod inside;
mod social;

use std::sync::Arc;

use polity_statechart::{Chart, ChartInstance, StateId, TriggerId};

/// A chart that must be sound.
fn chart(text: &str) -> Arc<Chart> {
    Arc::new(Chart::from_text(text).unwrap_or_else(|errors| panic!("{errors}")))
}

fn state(agent: &ChartInstance) -> &str {
    agent.chart().state_name(agent.state())
}

fn trigger(chart: &Chart, name: &str) -> TriggerId {
    chart.trigger(name).unwrap()
}

fn named(chart: &Chart, name: &str) -> StateId {
    chart.state(name).unwrap()
}
