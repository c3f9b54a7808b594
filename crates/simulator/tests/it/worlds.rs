//! Where agents begin and what the world is like, as a scenario says and a fork changes it.

use polity_simulator::lifecycle::{AskedBy, Done, LifecycleAction, Operation};
use polity_simulator::run::{GoOn, Summary};
use serde_json::json;

use crate::stage::Theatre;

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

fn cases(summary: &Summary) -> f64 {
    summary.world["cases"].as_f64().unwrap()
}

#[test]
fn a_group_begins_in_the_state_that_it_is_given() {
    let mut theatre = Theatre::new(CHART, SCENARIO);
    theatre.file.turns = Some(0);
    let first = theatre.run("first", 1);
    assert_eq!(
        ["healthy", "ill", "immune"].map(|state| first.states.get(state)),
        [Some(90), Some(10), Some(0)]
    );
    theatre.file.turns = Some(30);
    let last = theatre.run("last", 1);
    assert_eq!(last.states.get("healthy"), Some(90), "no one falls ill where beta is 0");
    assert_eq!(last.states.get("immune"), Some(10));
}

#[test]
fn a_fork_begins_with_the_values_of_the_world_that_it_changes_and_no_others() {
    let mut theatre = Theatre::new(CHART, SCENARIO);
    theatre.file.world.as_mut().unwrap().values = serde_json::from_value(json!({"cases": 3})).ok();
    let straight = theatre.run("straight", 1);
    assert!(cases(&straight) > 5.0 && cases(&straight) < 60.0, "{straight:?}");
    assert_eq!(theatre.fork("straight", 10, "same").digest, straight.digest);
    // What is not asked for is not changed, and what was once may be so again.
    let again = theatre.fork_with("straight", 10, "again", &["cases"]);
    assert!(cases(&again) < cases(&straight) && again.states == straight.states);
    theatre.file.world.as_mut().unwrap().values =
        serde_json::from_value(json!({"cases": 3, "beta": 1})).ok();
    let all = theatre.fork_with("straight", 10, "all", &["beta"]);
    assert_eq!(all.states.get("healthy"), Some(0));
    assert_eq!((cases(&all), &all.world["beta"]), (93.0, &json!(1)), "cases were counted on");
}

#[test]
fn what_is_done_to_the_population_is_told_to_whoever_wants_to_know() {
    let theatre = Theatre::society();
    let mut run = theatre.begin("run", 1);
    run.note_done();
    let outside = LifecycleAction::new(Operation::RemoveAgent, "reader_2");
    theatre.open("run").ask("x", outside).unwrap();
    let mut told = Vec::new();
    run.go(|progress| {
        told.extend(progress.done.iter().map(|done| (progress.turn, done.clone())));
        GoOn::Yes
    })
    .unwrap();
    let done = |operation, name: &str, instead_of: Option<&str>, asked_by| Done {
        operation,
        name: name.to_owned(),
        instead_of: instead_of.map(str::to_owned),
        asked_by,
    };
    let removed = (1, done(Operation::RemoveAgent, "reader_2", None, AskedBy::Outside));
    assert!(told.contains(&removed), "{told:?}");
    let added = |(_, done): &&(u64, Done)| done.operation == Operation::AddAgent;
    let expected = done(Operation::AddAgent, "ada_1", Some("ada"), AskedBy::Scenario);
    assert_eq!(&told.iter().find(added).unwrap().1, &expected, "{told:?}");
    let ended = |(_, done): &&(u64, Done)| done.asked_by == AskedBy::Time;
    assert_eq!(told.iter().filter(ended).count(), 1, "{told:?}");
}
