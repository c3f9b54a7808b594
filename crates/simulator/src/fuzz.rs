//! Entry points for fuzzing: checkpoints of simulations.

use std::sync::Arc;

use polity_statechart::Chart;

use crate::checkpoint;
use crate::folder::CheckpointFormat;
use crate::scenario::Scenario;
use crate::simulation::Simulation;

const CHART: &str = "{name: lamp, states: [off, on], initial: off, fields: {watts: 40}, \
     transitions: [{trigger: press, source: off, target: on}, \
     {trigger: press, source: on, target: off}]}";

const SCENARIO: &str = r#"{"name": "lamps", "chart": "lamp", "turns": 5, "ticks_per_turn": 3,
     "population": [{"name": "hall", "count": 3}],
     "world": {"rates": [{"trigger": "press", "rate": 1}]}}"#;

/// Restores a simulation from a JSON checkpoint and runs a turn.
pub fn checkpoint(bytes: &[u8]) {
    restore(CheckpointFormat::Json, bytes);
}

/// Restores a simulation from a compact checkpoint and runs a turn.
pub fn compact_checkpoint(bytes: &[u8]) {
    restore(CheckpointFormat::Compact, bytes);
}

fn restore(format: CheckpointFormat, bytes: &[u8]) {
    let (Ok(chart), Ok(file)) = (Chart::from_text(CHART), serde_json::from_str(SCENARIO)) else {
        return;
    };
    let Ok(scenario) = Scenario::new(&file, Arc::new(chart)).map(Arc::new) else { return };
    let threads = std::num::NonZeroUsize::new(1);
    let Ok(mut simulation) = Simulation::empty(Arc::clone(&scenario), threads) else { return };
    if checkpoint::parse(format, bytes, [&scenario, &scenario], &mut simulation).is_ok() {
        simulation.run_ticks();
    }
}
