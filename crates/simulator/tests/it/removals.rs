//! Exit actions of removed agents.

use polity_simulator::lifecycle::LifecycleAction;

use crate::fixture::{SimulationFixture, add, pause, remove};

/// Residents are counted when they enter and leave their home.
const TOWN: &str = "
name: town
states:
  - outside
  - name: home
    initial: kitchen
    entry: add world.inside = 1
    exit: add world.inside = -1
    states: [kitchen, {name: bed, entry: add world.asleep = 1, exit: add world.asleep = -1}]
initial: outside
world: {inside: 0, asleep: 0}
transitions:
  - {trigger: go, source: outside, target: home}
  - {trigger: go, source: kitchen, target: bed, guard: chance(0.5)}
  - {trigger: go, source: home, target: outside, guard: chance(0.3)}
  - {trigger: die, source: bed, target: bed, action: remove}
";

#[test]
fn counters_do_not_drift_when_agents_are_removed() {
    let scenario = "{name: any, chart: town, turns: 25, ticks_per_turn: 4, max_agents: 500, \
        checkpoint_every: 1, keep_checkpoints: 30, population: [{name: p, count: 400}], \
        world: {rates: [{trigger: die, rate: 0.02}, {trigger: go, rate: 0.5}]}}";
    let events: Vec<(u64, LifecycleAction)> = (1..=20)
        .flat_map(|number| {
            let name = format!("p_{number}");
            // A paused agent has not left its state; its removal counts like any other.
            [(number, pause(&name)), (number + 1, remove(&name)), (number + 1, add("q"))]
        })
        .collect();
    let fixture = SimulationFixture::new(TOWN, scenario).with_events(&events);
    let summary = fixture.run("run", 2);
    assert!((1..=300).contains(&summary.agents), "{} are left", summary.agents);
    for turn in 0..=25 {
        let checkpoint = fixture.checkpoint("run", turn);
        let agents = checkpoint["agents"].as_object().unwrap();
        let count = |states: &[&str]| {
            let its = |agent: &&serde_json::Value| {
                states.contains(&agent["state"]["current_state"].as_str().unwrap())
            };
            u32::try_from(agents.values().filter(its).count()).unwrap()
        };
        let world = |name: &str| checkpoint["global_state"]["world"][name].as_f64().unwrap();
        let expected = (f64::from(count(&["kitchen", "bed"])), f64::from(count(&["bed"])));
        assert_eq!((world("inside"), world("asleep")), expected, "turn {turn}");
    }
    for turn in [0, 7, 24] {
        assert_eq!(fixture.resume("run", Some(turn)), summary, "from turn {turn}");
    }
    assert_eq!(fixture.fork("run", 12, "fork").digest, summary.digest);
}

fn leavers(exit: &str, events: &[(u64, LifecycleAction)]) -> SimulationFixture {
    let chart = format!(
        "
name: any
states: [{{name: here, exit: [{exit}]}}, there]
initial: here
fields: {{number: 0}}
world: {{last: 0, sum: 0, seen: 0}}
transitions: [{{trigger: go, source: here, target: there}}]
"
    );
    let scenario = "{name: any, chart: any, turns: 3, ticks_per_turn: 1, population: \
        [{name: a, fields: {number: 1}}, {name: b, fields: {number: 2}}, \
        {name: c, fields: {number: 3}}]}";
    SimulationFixture::new(&chart, scenario).with_events(events)
}

/// The rule is that of a tick: all read the same world, and changes apply in agent order.
#[test]
fn exit_actions_read_one_world_and_apply_in_agent_order() {
    let exit = "set world.last = agent.number, add world.sum = agent.number, \
        set world.seen = world.seen + 1";
    let fixture = leavers(exit, &[(2, remove("c")), (2, remove("a")), (2, remove("b"))]);
    let summary = fixture.run("run", 1);
    assert_eq!(summary.agents, 0);
    let world = ["last", "sum", "seen"].map(|name| summary.world[name].as_f64());
    assert_eq!(world, [Some(3.0), Some(6.0), Some(1.0)]);
}

#[test]
fn removed_agent_makes_no_requests() {
    let exit = "copy, remove 'b', add world.sum = 1";
    let fixture = leavers(exit, &[(1, remove("a")), (2, remove("c"))]);
    let summary = fixture.run("run", 1);
    assert_eq!((summary.agents, summary.world["sum"].as_f64()), (1, Some(2.0)));
    let reasons: Vec<_> = summary.warnings.iter().map(|it| (it.turn, it.reason.as_str())).collect();
    let reason = "requests of exit actions are dropped if their agent was removed (2 times)";
    assert_eq!(reasons, [(1, reason), (2, reason)]);
}

#[test]
fn failed_exit_action_names_the_removed_agent() {
    let exit = "add world.sum = 1 / (agent.number - 2)";
    let fixture = leavers(exit, &[(1, add("d")), (2, remove("b")), (2, remove("c"))]);
    let summary = fixture.run("run", 1);
    assert_eq!(summary.world["sum"].as_f64(), Some(1.0));
    let [warning] = &*summary.warnings else { panic!("{:?}", summary.warnings) };
    assert_eq!((warning.turn, warning.target_agent_name.as_deref()), (2, Some("b")));
    assert!(warning.reason.contains("division by zero"), "{}", warning.reason);
}

#[test]
fn agent_added_and_removed_in_one_turn_exits() {
    let fixture = leavers("add world.sum = 1", &[(1, add("d")), (1, remove("d"))]);
    let summary = fixture.run("run", 1);
    assert_eq!((summary.agents, summary.world["sum"].as_f64()), (3, Some(1.0)));
}
