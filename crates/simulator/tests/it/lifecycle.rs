//! Populations that change during a run.

use insta::assert_snapshot;
use polity_simulator::folder::RunStatus;
use polity_simulator::lifecycle::LifecycleAction;
use polity_simulator::run::{RunControl, RunSummary};
use serde_json::{Value, json};

use crate::fixture::{SimulationFixture, add, pause, remove, resume, stop_after, to_end};

const CHART: &str = "
name: clock
states: [tick, tock]
initial: tick
fields: {swings: 0}
transitions:
  - {trigger: swing, source: tick, target: tock, action: add agent.swings = 1}
  - {trigger: swing, source: tock, target: tick, action: add agent.swings = 1}
";

/// Three clocks that swing in every tick.
fn clocks(events: &[(u64, LifecycleAction)]) -> SimulationFixture {
    let scenario = "{name: clocks, chart: clock, turns: 10, ticks_per_turn: 4, max_agents: 4, \
        population: [{name: clock, count: 3}], world: {rates: [{trigger: swing, rate: 1}]}}";
    SimulationFixture::new(CHART, scenario).with_events(events)
}

fn pause_for(turns: i64, name: &str) -> LifecycleAction {
    LifecycleAction { auto_resume_turns: Some(turns), ..pause(name) }
}

/// Agents with the trigger `step` in every tick. The settings are those of the scenario.
fn stepping(chart: &str, settings: &str) -> SimulationFixture {
    let scenario = format!(
        "{{name: any, chart: any, world: {{rates: [{{trigger: step, rate: 1}}]}}, {settings}}}"
    );
    SimulationFixture::new(&format!("name: any\n{chart}"), &scenario)
}

fn agents(fixture: &SimulationFixture, turn: u64) -> Vec<String> {
    let checkpoint = fixture.checkpoint("run", turn);
    checkpoint["agents"].as_object().unwrap().keys().cloned().collect()
}

fn reasons(summary: &RunSummary) -> Vec<&str> {
    summary.warnings.iter().map(|warning| warning.reason.as_str()).collect()
}

fn swings(checkpoint: &Value, agent: &str) -> Option<u64> {
    checkpoint["agents"].get(agent)?["state"]["fields"]["swings"].as_u64()
}

#[test]
fn paused_agent_does_not_act() {
    let fixture = clocks(&[(3, pause("clock_2"))]);
    let summary = fixture.run("run", 1);
    assert_eq!(summary.paused, ["clock_2"]);
    let then = fixture.checkpoint("run", 3)["agents"]["clock_2"].clone();
    for turn in 4..=10 {
        let checkpoint = fixture.checkpoint("run", turn);
        assert_eq!(checkpoint["agents"]["clock_2"], then, "turn {turn}");
        assert_eq!(checkpoint["paused_agents"], json!(["clock_2"]));
        assert_eq!(checkpoint["auto_resume"], json!({}));
        assert_eq!(swings(&checkpoint, "clock_1"), Some(4 * turn));
    }
}

#[test]
fn auto_resume_skips_exactly_its_turns() {
    let fixture = clocks(&[(3, pause_for(2, "clock_2"))]);
    fixture.run("run", 1);
    let expected = [
        (2, 8, json!([]), json!({})),
        (3, 12, json!(["clock_2"]), json!({"clock_2": 2})),
        (4, 12, json!(["clock_2"]), json!({"clock_2": 1})),
        (5, 12, json!([]), json!({})),
        (6, 16, json!([]), json!({})),
        (7, 20, json!([]), json!({})),
    ];
    for (turn, number, paused, auto_resume) in expected {
        let checkpoint = fixture.checkpoint("run", turn);
        assert_eq!(swings(&checkpoint, "clock_2"), Some(number), "turn {turn}");
        assert_eq!(checkpoint["paused_agents"], paused, "turn {turn}");
        assert_eq!(checkpoint["auto_resume"], auto_resume, "turn {turn}");
    }
}

#[test]
fn removed_agent_leaves_no_pause() {
    let fixture = clocks(&[(2, pause_for(5, "clock_2")), (3, remove("clock_2"))]);
    let summary = fixture.run("run", 1);
    let checkpoint = fixture.checkpoint("run", 3);
    assert_eq!(checkpoint["agents"].get("clock_2"), None);
    assert_eq!(checkpoint["paused_agents"], json!([]));
    assert_eq!(checkpoint["auto_resume"], json!({}));
    assert_eq!(summary.agents, 2);
}

#[test]
fn new_agent_acts_from_the_next_turn() {
    let initial_state = json!({"swings": 100, "state": "tock"}).as_object().cloned();
    let fixture = clocks(&[(2, LifecycleAction { initial_state, ..add("clock_2") })]);
    fixture.run("run", 1);
    let name = "clock_4";
    assert_eq!(swings(&fixture.checkpoint("run", 1), name), None);
    let entered = fixture.checkpoint("run", 2);
    assert_eq!(swings(&entered, name), Some(100));
    assert_eq!(entered["agents"][name]["state"]["current_state"], "tock");
    assert_eq!(swings(&fixture.checkpoint("run", 3), name), Some(104));
}

#[test]
fn refused_requests_are_warnings() {
    let events = [(1, resume("clock_1")), (1, add("d")), (1, add("e")), (2, remove("nobody"))];
    let fixture = clocks(&events);
    let mut run = fixture.begin("run", 1);
    let by_nobody =
        LifecycleAction { initiating_agent: Some("nobody".to_owned()), ..pause("clock_1") };
    fixture.ask("run", "1", pause_for(0, "clock_1"));
    fixture.ask("run", "2", LifecycleAction { initial_state: None, ..add("f") });
    fixture.ask("run", "3", by_nobody);
    let summary = run.run(to_end).unwrap();
    assert_eq!(summary.agents, 4);
    let warnings: Vec<String> = summary
        .warnings
        .iter()
        .map(|warning| {
            format!("{} {:?}: {}", warning.turn, warning.operation.unwrap(), warning.reason)
        })
        .collect();
    assert_snapshot!(warnings.join("\n"), @r#"
    1 ResumeAgent: "clock_1" is not paused
    1 AddAgent: there are 4 agents, and max_agents is 4
    1 PauseAgent: auto_resume_turns must be a whole number from 1 to 4294967295, found 0
    1 AddAgent: initial_state is missing: a new agent needs one, {} will do
    1 PauseAgent: initiating_agent: there is no agent "nobody"
    2 RemoveAgent: there is no agent "nobody"
    "#);
}

#[test]
fn strict_run_rejects_a_whole_turn() {
    let fixture = clocks(&[(1, remove("clock_1")), (1, remove("nobody")), (2, remove("clock_2"))]);
    let summary = fixture.begin_strict("run").run(to_end).unwrap();
    assert_eq!(summary.agents, 2);
    assert_eq!(summary.warnings.len(), 2);
    assert!(fixture.checkpoint("run", 10)["agents"].get("clock_1").is_some());
}

#[test]
fn run_continues_without_agents() {
    let removals = ["clock_1", "clock_2", "clock_3"].map(|name| (2, remove(name)));
    let summary = clocks(&removals).run("run", 1);
    assert_eq!((summary.agents, summary.turns), (0, 10));
}

#[test]
fn actions_make_lifecycle_requests() {
    let chart = "
states: [young, old, tired]
initial: young
transitions:
  - {trigger: step, source: young, target: old, action: [copy, pause 2]}
  - {trigger: step, source: old, target: tired, action: remove}
";
    let settings = "turns: 6, ticks_per_turn: 1, max_agents: 3, population: [{name: cell}]";
    let fixture = stepping(chart, settings);
    let summary = fixture.run("run", 1);
    // The copy has the state of the cell at the end of the turn: old. Both are removed when they
    // grow.
    assert_eq!(agents(&fixture, 1), ["cell", "cell_1"]);
    assert_eq!(fixture.checkpoint("run", 1)["auto_resume"], json!({"cell": 2}));
    assert_eq!(agents(&fixture, 2), ["cell"]);
    assert_eq!(agents(&fixture, 3), ["cell"]);
    assert_eq!(agents(&fixture, 4), Vec::<String>::new());
    assert_eq!((summary.agents, summary.warnings.len()), (0, 0));
}

#[test]
fn preview_does_not_apply_a_request() {
    let fixture = clocks(&[]);
    fixture.run_until("run", 3);
    let folder = fixture.open("run");
    let simulation = fixture.restore("run", Some(3)).unwrap();
    let reason = |request: &LifecycleAction| {
        simulation.preview_request(&folder, request).unwrap().result.reason
    };
    let clock = pause("clock_1");
    assert_eq!(reason(&clock), None);
    assert_eq!(reason(&clock), None);
    assert_eq!(reason(&pause("nobody")).as_deref(), Some("there is no agent \"nobody\""));
    // A pending request counts.
    fixture.ask("run", "one", clock.clone());
    assert_eq!(reason(&clock).as_deref(), Some("\"clock_1\" is paused already"));
}

#[test]
fn remaining_agents_keep_names_and_draws() {
    let chart = "
name: plague
states: [well, ill]
initial: well
fields: {days: 0}
transitions:
  - {trigger: dawn, source: well, target: ill, guard: 'chance(0.5)', action: remove}
  - {trigger: dawn, source: ill, target: well, action: add agent.days = 1}
  - {trigger: noon, source: '*', target: well, action: add agent.days = 1}
";
    let scenario = "{name: town, chart: plague, turns: 5, ticks_per_turn: 2, max_agents: 5000, \
        checkpoint_every: 1, population: [{name: first, count: 2}, {name: other, count: 4000}], \
        world: {rates: [{trigger: dawn, rate: 0.6}]}}";
    let fixture = SimulationFixture::new(chart, scenario);
    let uninterrupted = fixture.run("run", 2);
    assert!((1..1000).contains(&uninterrupted.agents), "{}", uninterrupted.agents);
    assert_eq!(uninterrupted.warnings, []);
    for turn in 0..5 {
        assert_eq!(fixture.resume("run", Some(turn)), uninterrupted, "from turn {turn}");
    }
    let checkpoint = fixture.checkpoint("run", 5);
    for (name, agent) in checkpoint["agents"].as_object().unwrap() {
        let serial = agent["state"]["serial"].as_u64().unwrap();
        let (stem, number) = name.rsplit_once('_').unwrap();
        let first = if stem == "first" { 0 } else { 2 };
        assert_eq!(number.parse::<u64>().unwrap(), serial - first + 1, "{name}");
    }
}

#[test]
fn invalid_request_line_is_answered() {
    let fixture = clocks(&[]);
    let mut run = fixture.begin("run", 1);
    let line = "{\"request\": {\"request_id\": \"x\", \"operation\": \"dance\"}}\nnonsense\n";
    std::fs::write(fixture.path("run").join("requests.jsonl"), line).unwrap();
    assert_eq!(run.run(to_end).unwrap().turns, 10);
    let answer = fixture.open("run").find_answer("x").unwrap().unwrap();
    assert!(!answer.verdict.result.valid);
    assert!(answer.verdict.result.reason.unwrap().starts_with("this is no request"));
}

#[test]
fn equal_requests_are_one_warning() {
    let chart = "
states: [calm, angry]
initial: calm
transitions:
  - {trigger: step, source: calm, target: angry, action: ['remove \"king\"', 'pause \"queen\"']}
";
    let mut fixture = stepping(
        chart,
        "turns: 2, ticks_per_turn: 1, population: [{name: king, behaviour: still}, \
         {name: queen, behaviour: still}, {name: man, count: 9}]",
    );
    fixture.file.world.as_mut().unwrap().behaviours = Some([("still".to_owned(), vec![])].into());
    let summary = fixture.run("run", 1);
    assert_eq!((summary.agents, &*summary.paused), (10, &["queen".to_owned()][..]));
    let expected =
        ["there is no agent \"king\" (8 times)", "\"queen\" is paused already (8 times)"];
    assert_eq!(reasons(&summary), expected);
}

#[test]
fn repeated_requests_count_once() {
    let chart = "
states: [up, down]
initial: up
transitions:
  - {trigger: step, source: up, target: down, action: pause 2}
  - {trigger: step, source: down, target: up, action: pause 2}
";
    let fixture = stepping(chart, "turns: 4, ticks_per_turn: 6, population: [{name: cat}]");
    assert_eq!(fixture.run("run", 1).warnings, []);
}

#[test]
fn undone_requests_are_applied_again() {
    let chart = "
states: [first, second, third, fourth]
initial: first
fields: {asks: false}
transitions:
  - {trigger: step, source: first, target: second, guard: agent.asks, action: ['pause \"cat\"', 'copy \"x\"']}
  - {trigger: step, source: second, target: third, guard: agent.asks, action: ['resume \"cat\"', 'remove \"x\"']}
  - {trigger: step, source: third, target: fourth, guard: agent.asks, action: ['pause \"cat\"', 'copy \"x\"', 'remove \"x\"']}
";
    let settings = "turns: 1, ticks_per_turn: 4, \
        population: [{name: cat}, {name: dog, fields: {asks: true}}]";
    let summary = stepping(chart, settings).run("run", 1);
    assert_eq!(summary.warnings, []);
    assert_eq!((summary.paused, summary.agents), (vec!["cat".to_owned()], 2));
}

/// A request of an agent about itself does not apply to another agent that gets its name.
#[test]
fn self_request_does_not_apply_to_a_new_agent_with_the_name() {
    let chart = "
states: [up, down, aside]
initial: up
fields: {asks: false}
transitions:
  - {trigger: step, source: up, target: down, guard: '!agent.asks', action: [copy, remove]}
  - {trigger: step, source: down, target: up, guard: '!agent.asks', action: [copy, remove]}
  - {trigger: step, source: up, target: aside, guard: agent.asks, action: 'pause \"owl\"'}
";
    for others in ["", ", {name: owl, fields: {asks: true}}"] {
        let settings = format!("turns: 1, ticks_per_turn: 2, population: [{{name: crab}}{others}]");
        let fixture = stepping(chart, &settings);
        fixture.run("run", 1);
        let mut names = agents(&fixture, 1);
        names.retain(|name| name.starts_with("crab"));
        assert_eq!(names, ["crab", "crab_1"], "with {others:?}");
    }
}

/// A single request is accepted however often others repeat theirs.
#[test]
fn repeated_requests_do_not_displace_others() {
    let chart = "
states: [a, z, b]
initial: a
transitions:
  - {trigger: step, source: a, target: a, action: resume 'boss'}
  - {trigger: q, source: a, target: z}
timeouts:
  - {state: z, threshold: 900, target: b, action: remove}
";
    let settings = "turns: 1, ticks_per_turn: 1100, max_agents: 1100, \
        population: [{name: boss}, {name: x, count: 998}, {name: zed, state: z}]";
    let summary = stepping(chart, settings).run("run", 1);
    assert_eq!(summary.agents, 999, "zed has gone");
    assert_eq!(reasons(&summary), ["\"boss\" is not paused (1998 times)"]);
}

#[test]
fn copy_has_the_state_of_its_original() {
    let chart = "
name: cells
states: [young, old]
initial: young
fields: {age: 0, kind: seed, ripe: false}
transitions:
  - {trigger: grow, source: young, target: old, action: [copy 'bud', add agent.age = 1, set agent.kind = 'leaf', set agent.ripe = true]}
";
    let scenario = "{name: growth, chart: cells, turns: 1, ticks_per_turn: 1, \
        population: [{name: tree, behaviour: keen}], \
        world: {rates: [], behaviours: {keen: [{trigger: grow, rate: 1}]}}}";
    let fixture = SimulationFixture::new(chart, scenario);
    assert_eq!(fixture.run("run", 1).warnings, []);
    let agents = &fixture.checkpoint("run", 1)["agents"];
    let (bud, tree) = (&agents["bud"]["state"], &agents["tree"]["state"]);
    assert_eq!(bud["fields"], json!({"age": 1, "kind": "leaf", "ripe": true}));
    assert_eq!((&bud["current_state"], &bud["behaviour"]), (&json!("old"), &json!("keen")));
    assert_eq!(bud["fields"], tree["fields"]);
}

#[test]
fn ended_run_rejects_requests() {
    let fixture = clocks(&[]);
    fixture.run("run", 1);
    let refused = fixture.open("run").submit_request("late", remove("a")).unwrap_err();
    assert!(refused.to_string().ends_with("has ended and accepts no requests"), "{refused}");
}

#[test]
fn record_follows_the_status_of_the_run() {
    let fixture = SimulationFixture::society();
    let mut run = fixture.begin("run", 1);
    run.run(stop_after(3)).unwrap();
    let status = || fixture.open("run").record().unwrap().status;
    assert_eq!(status(), RunStatus::Stopped);
    run.run(|progress| {
        assert_eq!(status(), RunStatus::Running, "in turn {}", progress.turn);
        RunControl::Continue
    })
    .unwrap();
    assert_eq!(status(), RunStatus::Ended);
    fixture.fork("run", 5, "other");
    let fork = fixture.open("other").record().unwrap().forked_from.unwrap();
    assert_eq!((fork.run_id.as_str(), fork.turn), ("run", 5));
}
