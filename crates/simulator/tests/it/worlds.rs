//! Initial states and world values, in scenarios and forks.

use polity_simulator::lifecycle::{LifecycleEvent, LifecycleOperation, RequestSource};
use polity_simulator::run::{RunControl, RunSummary};
use serde_json::json;

use crate::fixture::{SimulationFixture, remove};

const CHART: &str = "
name: illness
states: [healthy, ill, immune]
initial: healthy
world: {beta: 0.01, cases: 0}
transitions:
  - {trigger: day, source: healthy, target: ill, guard: draw() < world.beta, action: add world.cases = 1}
  - {trigger: day, source: ill, target: immune, guard: chance(0.2)}
";

const SCENARIO: &str = "
name: town
chart: illness
population: [{name: healthy, count: 90}, {name: ill, count: 10, state: ill}]
world:
  rates: [{trigger: day, rate: 1}]
  values: {beta: 0}
turns: 30
ticks_per_turn: 1
seed: 5
max_agents: 100
";

fn cases(summary: &RunSummary) -> f64 {
    summary.world["cases"].as_f64().unwrap()
}

#[test]
fn group_starts_in_its_state() {
    let mut fixture = SimulationFixture::new(CHART, SCENARIO);
    fixture.file.turns = Some(0);
    let first = fixture.run("first", 1);
    assert_eq!(
        ["healthy", "ill", "immune"].map(|state| first.states.get(state)),
        [Some(90), Some(10), Some(0)]
    );
    fixture.file.turns = Some(30);
    let last = fixture.run("last", 1);
    assert_eq!(last.states.get("healthy"), Some(90), "without infections all agents stay healthy");
    assert_eq!(last.states.get("immune"), Some(10));
}

#[test]
fn fork_resets_only_listed_world_values() {
    let mut fixture = SimulationFixture::new(CHART, SCENARIO);
    fixture.file.world.as_mut().unwrap().values = serde_json::from_value(json!({"cases": 3})).ok();
    let uninterrupted = fixture.run("straight", 1);
    assert!(cases(&uninterrupted) > 5.0 && cases(&uninterrupted) < 60.0, "{uninterrupted:?}");
    assert_eq!(fixture.fork("straight", 10, "same").digest, uninterrupted.digest);
    // Values that are not listed keep their state; a listed one is reset.
    let again = fixture.fork_with("straight", 10, "again", &["cases"]);
    assert!(cases(&again) < cases(&uninterrupted) && again.states == uninterrupted.states);
    fixture.file.world.as_mut().unwrap().values =
        serde_json::from_value(json!({"cases": 3, "beta": 1})).ok();
    let all = fixture.fork_with("straight", 10, "all", &["beta"]);
    assert_eq!(all.states.get("healthy"), Some(0));
    assert_eq!((cases(&all), &all.world["beta"]), (93.0, &json!(1)), "cases were counted on");
}

#[test]
fn progress_lists_lifecycle_events() {
    let fixture = SimulationFixture::society();
    let mut run = fixture.begin("run", 1);
    run.record_events();
    fixture.ask("run", "x", remove("reader_2"));
    let mut events = Vec::new();
    run.run(|progress| {
        events.extend(progress.events.iter().map(|done| (progress.turn, done.clone())));
        RunControl::Continue
    })
    .unwrap();
    let done = |operation, name: &str, instead_of: Option<&str>, asked_by| LifecycleEvent {
        operation,
        name: name.to_owned(),
        instead_of: instead_of.map(str::to_owned),
        asked_by,
    };
    let removed =
        (1, done(LifecycleOperation::RemoveAgent, "reader_2", None, RequestSource::Outside));
    assert!(events.contains(&removed), "{events:?}");
    let added = |(_, done): &&(u64, LifecycleEvent)| done.operation == LifecycleOperation::AddAgent;
    let expected =
        done(LifecycleOperation::AddAgent, "ada_1", Some("ada"), RequestSource::Scenario);
    assert_eq!(&events.iter().find(added).unwrap().1, &expected, "{events:?}");
    let ended = |(_, done): &&(u64, LifecycleEvent)| done.asked_by == RequestSource::PauseEnded;
    assert_eq!(events.iter().filter(ended).count(), 1, "{events:?}");
}
