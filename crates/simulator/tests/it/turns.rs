//! Turns only group ticks.

use polity_simulator::run::RunSummary;
use serde_json::{Value, json};

use crate::fixture::SimulationFixture;

/// Comparisons and draws: the SIMD path.
const COMPARISONS: &str = "
name: any
states: [a, b, c]
initial: a
fields: {level: 0.4, moves: 0}
transitions:
  - {trigger: go, source: a, target: b, guard: draw() < agent.level}
  - {trigger: go, source: b, target: c, guard: draw() < 0.3, action: add agent.moves = 1}
  - {trigger: go, source: [b, c], target: a}
timeouts:
  - {state: c, threshold: 3, target: b}
";

/// Arithmetic, texts, histories, a guard that fails and draws in actions: the batched path.
const ARITHMETIC: &str = "
name: any
states: [out, {name: in, initial: x, history: shallow, entry: add agent.moves = 1, states: [x, y]}]
initial: out
fields: {moves: 0, luck: 0, kind: seed}
world: {entries: 0}
transitions:
  - {trigger: go, source: out, target: in, guard: 'agent.luck * 2 + draw() > 0.5', action: add world.entries = 0.1}
  - {trigger: stay, source: x, target: y, guard: '1 / (agent.moves - 1) > 5'}
  - {trigger: go, source: x, target: y, action: [set agent.luck = draw(), set agent.kind = 'leaf']}
  - {trigger: stay, source: y, target: y, action: add agent.luck = draw() - 0.5}
  - {trigger: go, source: in, target: out, guard: chance(0.4) || agent.kind == 'seed'}
";

/// Agents that read the world which others change: one tick at a time.
const WORLD: &str = "
name: any
states: [well, ill]
initial: well
world: {ill: 1}
transitions:
  - {trigger: go, source: well, target: ill, guard: draw() < world.ill / 200, action: add world.ill = 1}
  - {trigger: go, source: ill, target: well, guard: chance(0.2), action: add world.ill = -1}
";

/// Runs 60 ticks in turns of this many ticks.
fn sixty_ticks(chart: &str, ticks_per_turn: u64) -> (RunSummary, Vec<Value>) {
    let stay = if chart.contains("stay") { ", {trigger: stay, rate: 0.3}" } else { "" };
    let scenario = format!(
        "{{name: any, chart: any, turns: {}, ticks_per_turn: {ticks_per_turn}, max_agents: 700, \
         population: [{{name: p, count: 700}}], \
         world: {{rates: [{{trigger: go, rate: 0.6}}{stay}]}}}}",
        60 / ticks_per_turn
    );
    let fixture = SimulationFixture::new(chart, &scenario);
    let summary = fixture.run("run", 2);
    let last = fixture.restore("run", None).unwrap();
    let agents = last.names().map(|name| json!(last.export(&name).unwrap())).collect();
    (summary, agents)
}

#[test]
fn grouping_of_ticks_does_not_change_the_result() {
    for chart in [COMPARISONS, ARITHMETIC, WORLD] {
        let (one, agents) = sixty_ticks(chart, 60);
        assert_eq!(one.warnings.len(), usize::from(chart == ARITHMETIC), "{:?}", one.warnings);
        assert!(one.visits.0.iter().all(|(_, visits)| *visits > 0), "{:?}", one.visits);
        for ticks_per_turn in [1, 10, 30] {
            let (other, others) = sixty_ticks(chart, ticks_per_turn);
            assert_eq!(others, agents, "{ticks_per_turn} ticks per turn: {chart}");
            assert_eq!(other.warnings.len(), one.warnings.len());
            assert_eq!(other.world, one.world);
            assert_eq!(other.visits, one.visits);
            assert_eq!(other.digest, one.digest, "{ticks_per_turn} ticks per turn: {chart}");
        }
    }
}

/// A turn that ends with `round_ends` takes as long as one without.
#[test]
fn end_of_a_round_takes_no_simulated_time() {
    let chart = "
name: any
states: [a, b, c]
initial: a
transitions:
  - {trigger: go, source: a, target: b}
  - {trigger: round_ends, source: b, target: c}
  - {trigger: go, source: c, target: a}
";
    let scenario = "{name: any, chart: any, turns: 2, ticks_per_turn: 1, \
        population: [{name: p}], world: {rates: [{trigger: go, rate: 1}]}}";
    let fixture = SimulationFixture::new(chart, scenario);
    fixture.run("run", 1);
    let agent = json!(fixture.restore("run", None).unwrap().export("p").unwrap());
    let past = agent["state_history"].as_array().unwrap().iter();
    let past: Vec<(&str, &str)> = past
        .map(|past| (past["trigger"].as_str().unwrap(), past["timestamp"].as_str().unwrap()))
        .collect();
    let expected = [
        ("go", "2026-01-01T00:00:00Z"),
        ("round_ends", "2026-01-01T00:00:01Z"),
        ("go", "2026-01-01T00:00:01Z"),
    ];
    assert_eq!(past, expected);
}
