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
    restore_and_run(CheckpointFormat::Json, bytes);
}

/// Restores a simulation from a compact checkpoint and runs a turn.
pub fn compact_checkpoint(bytes: &[u8]) {
    restore_and_run(CheckpointFormat::Compact, bytes);
}

/// The result of the turn survives a checkpoint in either format.
fn restore_and_run(format: CheckpointFormat, bytes: &[u8]) {
    let Some(scenario) = scenario() else { return };
    let Some(mut simulation) = restore(format, bytes, &scenario) else { return };
    simulation.run_ticks();
    drop(simulation.change_population(&[], false));
    let digest = checkpoint::digest(&simulation).ok();
    for format in [CheckpointFormat::Json, CheckpointFormat::Compact] {
        let written = checkpoint::encode(format, &simulation).unwrap_or_default();
        let restored = restore(format, &written, &scenario);
        let restored = restored.and_then(|simulation| checkpoint::digest(&simulation).ok());
        assert_eq!(restored, digest, "{format:?}: a written checkpoint restores another state");
    }
}

fn scenario() -> Option<Arc<Scenario>> {
    let chart = Chart::from_text(CHART).ok()?;
    let file = serde_json::from_str(SCENARIO).ok()?;
    Scenario::new(&file, Arc::new(chart)).ok().map(Arc::new)
}

fn restore(format: CheckpointFormat, bytes: &[u8], scenario: &Arc<Scenario>) -> Option<Simulation> {
    let threads = std::num::NonZeroUsize::new(1);
    let mut simulation = Simulation::empty(Arc::clone(scenario), threads).ok()?;
    checkpoint::parse(format, bytes, [scenario, scenario], &mut simulation).ok()?;
    Some(simulation)
}
