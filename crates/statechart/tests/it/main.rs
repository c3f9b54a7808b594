//! Integration tests: invalid charts, and firing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod export;
mod firing;
mod guards;
mod invalid_charts;
mod nested_states;
mod social;

use std::sync::Arc;

use polity_statechart::{Chart, ChartInstance, ChartSource, FireContext, StateId, TriggerId};

/// Compiles a valid chart.
fn chart(text: &str) -> Arc<Chart> {
    Arc::new(Chart::from_text(text).unwrap_or_else(|errors| panic!("{errors}")))
}

/// Compiles a valid source.
fn build(source: &ChartSource) -> Arc<Chart> {
    Arc::new(Chart::build(source).unwrap_or_else(|errors| panic!("{errors}")))
}

/// Returns a new agent in the initial state.
fn agent(chart: &Arc<Chart>) -> ChartInstance {
    ChartInstance::new(Arc::clone(chart))
}

/// Fires a trigger without context.
fn fire(agent: &mut ChartInstance, name: &str) -> Option<StateId> {
    let chart = Arc::clone(agent.chart());
    agent.fire(trigger(&chart, name), &FireContext::new(&chart))
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
