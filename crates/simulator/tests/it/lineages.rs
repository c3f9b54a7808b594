//! Names of agents over many generations.

use std::collections::HashSet;

use polity_simulator::lifecycle::LifecycleOperation;
use polity_simulator::run::RunControl;

use crate::fixture::{SimulationFixture, add, remove};

/// Births and deaths have the same probability. With names that grow by generation, births end
/// after some 50 generations, and the population dies out.
#[test]
fn neutral_birth_death_process_survives_1700_turns_with_short_names() {
    let chart = "
name: cell
states: [alive, dead]
initial: alive
transitions:
  - {trigger: live, source: alive, target: alive, guard: chance(0.05), action: copy}
  - {trigger: live, source: alive, target: dead, guard: chance(0.05 / 0.95), action: remove}
";
    let scenario = "{name: culture, chart: cell, turns: 1700, ticks_per_turn: 1, seed: 3, \
        max_agents: 100000, checkpoint_every: 1700, population: [{name: cell, count: 500}], \
        world: {rates: [{trigger: live, rate: 1}]}}";
    let fixture = SimulationFixture::new(chart, scenario);
    let mut run = fixture.begin("run", 1);
    run.record_events();
    let mut born = HashSet::new();
    let summary = run
        .run(|progress| {
            for event in progress.events {
                if event.operation == LifecycleOperation::AddAgent {
                    assert!(born.insert(event.name.clone()), "{} was born twice", event.name);
                    assert!(event.name.len() <= "cell_99999".len(), "{}", event.name);
                }
            }
            RunControl::Continue
        })
        .unwrap();
    assert_eq!(summary.warnings, []);
    assert!(summary.agents > 100, "{} agents are left", summary.agents);
    assert!(born.len() > 10_000, "{} were born", born.len());
}

#[test]
fn number_of_a_removed_agent_is_not_reused_after_resume() {
    let events = [(1, add("ada")), (2, remove("ada_1")), (4, add("ada")), (5, add("ada_2"))];
    let fixture = SimulationFixture::society().with_events(&events);
    let uninterrupted = fixture.run("run", 1);
    let names = || -> Vec<String> {
        let simulation = fixture.restore("run", None).unwrap();
        simulation.names().filter(|name| name.starts_with("ada")).collect()
    };
    for turn in 0..6 {
        assert_eq!(fixture.resume("run", Some(turn)), uninterrupted, "from turn {turn}");
        assert_eq!(names(), ["ada", "ada_2", "ada_3"], "from turn {turn}");
    }
    assert_eq!(fixture.fork("run", 3, "fork").digest, uninterrupted.digest);
}
