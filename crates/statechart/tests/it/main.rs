//! Integration tests: invalid charts, and firing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod export;
mod firing;
mod guards;
mod invalid_charts;
mod nested_states;
mod social;

use std::sync::Arc;

use polity_statechart::{Chart, ChartInstance, StateId, TriggerId};

/// Compiles a valid chart.
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
