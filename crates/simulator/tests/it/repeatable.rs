//! The same scenario and seed give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU64;

use polity_simulator::lifecycle::{LifecycleAction, LifecycleOperation};
use polity_simulator::run::{RunControl, SimulationRun};
use polity_simulator::scenario::EventFile;
use polity_simulator::simulation::Simulation;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::fixture::{SimulationFixture, stop_after};

#[test]
fn threads_do_not_change_checkpoints() {
    let fixture = SimulationFixture::society();
    let one = fixture.run("one", 1);
    for threads in [2, 4] {
        let many = fixture.run(&threads.to_string(), threads);
        assert_eq!(many.digest, one.digest);
    }
    let last = fixture.scenario().turns;
    let text = |run| fs::read(fixture.checkpoint_path(run, last)).unwrap();
    assert_eq!(text("one"), text("4"));
}

#[test]
fn threads_do_not_change_large_populations() {
    let mut fixture = SimulationFixture::society();
    fixture.file.population.as_mut().unwrap()[0].count = Some(20_000);
    fixture.file.max_agents = Some(30_000);
    fixture.file.turns = Some(9);
    let one = fixture.run("one", 1);
    assert_eq!(fixture.run("four", 4).digest, one.digest);
    assert_eq!((one.agents, one.warnings.len()), (20_007, 0));
}

#[test]
fn seed_changes_the_digest() {
    let mut fixture = SimulationFixture::society();
    let one = fixture.run("one", 1);
    fixture.file.seed = Some(8);
    assert_ne!(fixture.run("other", 1).digest, one.digest);
}

#[test]
fn digest_covers_simulated_time() {
    let mut fixture = SimulationFixture::society();
    let one = fixture.run("one", 1);
    fixture.file.tick_seconds = Some(2.5);
    assert_ne!(fixture.run("slower", 1).digest, one.digest);
    fixture.file.tick_seconds = None;
    fixture.file.start_time = Some("2027-01-01T00:00:00Z".to_owned());
    assert_ne!(fixture.run("later", 1).digest, one.digest);
}

#[test]
fn resume_from_any_turn_gives_the_same_result() {
    let fixture = SimulationFixture::society();
    let straight = fixture.run("straight", 2);
    let last = fixture.scenario().turns;
    let ended = fs::read(fixture.checkpoint_path("straight", last)).unwrap();
    for turn in 0..=last {
        let resumed = fixture.resume("straight", Some(turn));
        assert_eq!(resumed, straight, "from turn {turn}");
        assert_eq!(fs::read(fixture.checkpoint_path("straight", last)).unwrap(), ended);
    }
}

#[test]
fn stopped_run_resumes_to_the_same_result() {
    let fixture = SimulationFixture::society();
    let straight = fixture.run("straight", 1);
    let stopped = fixture.run_until("stopped", 6);
    assert_eq!(stopped.turns, 6);
    assert_eq!(fixture.resume("stopped", None).digest, straight.digest);
}

#[test]
fn only_a_fork_with_changes_diverges() {
    let mut fixture = SimulationFixture::society();
    let straight = fixture.run("straight", 1);
    assert_eq!(fixture.fork("straight", 5, "same").digest, straight.digest);
    fixture.file.seed = Some(99);
    let other = fixture.fork("straight", 5, "other");
    assert_ne!(other.digest, straight.digest);
    assert_eq!(other.turns, straight.turns);
}

#[test]
fn outside_request_repeats_after_resume() {
    let fixture = SimulationFixture::society();
    let mut run = fixture.begin("asked", 1);
    run.run(stop_after(4)).unwrap();
    let folder = fixture.open("asked");
    let mut add = LifecycleAction::new(LifecycleOperation::AddAgent, "grace");
    add.initial_state = Some(Map::new());
    folder.submit_request("one", add).unwrap();
    folder
        .submit_request("two", LifecycleAction::new(LifecycleOperation::PauseAgent, "reader_1"))
        .unwrap();
    let straight = run.run(|_| RunControl::Continue).unwrap();
    drop(run);
    let answer = folder.find_answer("one").unwrap().unwrap();
    assert_eq!((answer.turn, answer.verdict.name.as_deref()), (5, Some("grace")));
    for turn in 0..10 {
        assert_eq!(fixture.resume("asked", Some(turn)), straight, "from turn {turn}");
    }
}

#[test]
fn fork_repeats_later_requests() {
    let mut fixture = SimulationFixture::society();
    let mut run = fixture.begin("asked", 1);
    let folder = fixture.open("asked");
    let ask = |id: &str, operation, name: &str| {
        let initial_state = (operation == LifecycleOperation::AddAgent).then(Map::new);
        let action = LifecycleAction { initial_state, ..LifecycleAction::new(operation, name) };
        folder.submit_request(id, action).unwrap();
    };
    ask("one", LifecycleOperation::AddAgent, "grace");
    run.run(stop_after(4)).unwrap();
    ask("two", LifecycleOperation::PauseAgent, "reader_1");
    ask("three", LifecycleOperation::RemoveAgent, "nobody");
    run.run(stop_after(11)).unwrap();
    ask("four", LifecycleOperation::ResumeAgent, "reader_1");
    let straight = run.run(|_| RunControl::Continue).unwrap();
    assert_eq!(straight.warnings.len(), 1);
    drop(run);
    for at in [0, 1, 4, 5, 11, 12, 20] {
        let fork = fixture.fork("asked", at, &format!("fork{at}"));
        assert_eq!(
            (fork.digest, fork.warnings.len()),
            (straight.digest.clone(), 1),
            "at turn {at}"
        );
    }
    // A fork answers requests itself, and so does a fork of a fork.
    assert_eq!(fixture.open("fork4").find_answer("two").unwrap().unwrap().turn, 5);
    assert_eq!(fixture.open("fork5").find_answer("two").unwrap(), None);
    assert_eq!(fixture.resume("fork4", Some(6)).digest, straight.digest);
    assert_eq!(fixture.fork("fork4", 8, "second").digest, straight.digest);
    fixture.file.seed = Some(99);
    assert_ne!(fixture.fork("asked", 4, "other").digest, straight.digest);
    assert!(fixture.open("other").find_answer("four").unwrap().unwrap().verdict.result.valid);
}

/// Agents that do not interact.
const WANDERERS: &str = "
name: wanderer
states: [here, there, away]
initial: here
fields: {luck: 0}
transitions:
  - {trigger: go, source: here, target: there, guard: chance(0.4), action: set agent.luck = draw()}
  - {trigger: go, source: there, target: away, guard: draw() < 0.5}
  - {trigger: go, source: [there, away], target: here}
";

/// Returns the final records of the agents after these lifecycle changes.
fn fates(groups: &str, lifecycle: &str) -> BTreeMap<String, Value> {
    let fixture = SimulationFixture::new(
        WANDERERS,
        &format!(
            "{{name: wanderers, chart: wanderer, turns: 12, ticks_per_turn: 5, max_agents: 5000, \
             population: [{groups}], world: {{rates: [{{trigger: go, rate: 0.7}}]}}, \
             lifecycle: [{lifecycle}]}}"
        ),
    );
    fixture.run("run", 2);
    let simulation = Simulation::restore(&fixture.open("run"), None, &fixture.scenario(), None);
    let simulation = simulation.unwrap();
    let checkpoint = fixture.checkpoint("run", 12);
    let fate = |name: String| {
        let fields = &checkpoint["agents"][&name]["state"]["fields"];
        let fate = json!({"export": simulation.export(&name).unwrap(), "fields": fields});
        (name, fate)
    };
    simulation.names().map(fate).collect()
}

#[test]
fn draws_do_not_depend_on_other_agents() {
    let groups = "{name: a, count: 3}, {name: b, count: 1500}, {name: c}";
    let add = |turn: u64, name: &str| {
        format!(
            "{{turn: {turn}, operation: add_agent, target_agent_name: {name}, initial_state: {{}}}}"
        )
    };
    let late = add(4, "late");
    let plain = fates(groups, &late);
    let early = format!("{}, {late}, {}", add(2, "early"), add(4, "twin"));
    let pause = format!("{{turn: 1, operation: pause_agent, target_agent_name: a_2}}, {late}");
    let remove = format!("{{turn: 2, operation: remove_agent, target_agent_name: b_7}}, {late}");
    for (what, others, groups, lifecycle) in [
        ("one more before it", 2, groups, &early),
        ("one that is paused", 0, groups, &pause),
        ("one that is removed", 0, groups, &remove),
        ("a larger group", 4, "{name: a, count: 7}, {name: b, count: 1500}, {name: c}", &late),
        ("a smaller group", 0, "{name: a, count: 3}, {name: b, count: 1200}, {name: c}", &late),
        ("another group", 2000, "{name: z, count: 2000}, {name: c}, {name: a, count: 3}", &late),
    ] {
        let changed = fates(groups, lifecycle);
        let both = changed.iter().filter(|(name, _)| plain.contains_key(*name));
        let mut alike = 0;
        for (name, fate) in both.filter(|(name, _)| what != "one that is paused" || *name != "a_2")
        {
            assert_eq!(fate, &plain[name], "{name}, with {what}");
            alike += 1;
        }
        assert_eq!(changed.len() - alike - usize::from(what.contains("paused")), others, "{what}");
        assert!(changed.contains_key("late"), "{what}");
    }
}

#[test]
fn new_agent_with_an_old_name_has_other_draws() {
    let comes_and_goes = |away: &str| {
        format!(
            "{{turn: 1, operation: remove_agent, target_agent_name: a}}, \
             {{turn: {away}, operation: add_agent, target_agent_name: a, initial_state: {{}}}}"
        )
    };
    let first = fates("{name: a}, {name: b}", "");
    let again = fates("{name: a}, {name: b}", &comes_and_goes("1"));
    let later = fates("{name: a}, {name: b}", &comes_and_goes("2"));
    assert_eq!((&first["b"], &first["b"]), (&again["b"], &later["b"]));
    let luck = |fates: &BTreeMap<String, Value>| fates["a"]["fields"]["luck"].clone();
    assert_ne!(luck(&first), luck(&again));
    assert_ne!(luck(&again), luck(&later));
}

/// This digest must never change: runs are repeated from their seeds.
#[test]
fn digest_of_the_example_is_fixed() {
    let fixture = SimulationFixture::society();
    let summary = fixture.run("run", 1);
    let digest = "794f55f61964d669e797373b47b60685613d4c84d812da657f2b90fce9130934";
    assert_eq!(summary.digest, digest);
}

#[test]
fn example_reaches_every_state() {
    let fixture = SimulationFixture::society();
    fixture.run("society", 1);
    let mut reached = BTreeSet::new();
    for turn in 0..=fixture.scenario().turns {
        let checkpoint = fixture.checkpoint("society", turn);
        for agent in checkpoint["agents"].as_object().unwrap().values() {
            for past in agent["state"]["state_history"].as_array().unwrap() {
                reached.insert(past[2].as_str().unwrap().to_owned());
            }
        }
    }
    let scenario = fixture.scenario();
    let chart = &scenario.chart;
    let all: BTreeSet<String> =
        chart.states().map(|state| chart.state_name(state).to_owned()).collect();
    assert_eq!(reached, all);
}

#[test]
fn empty_population_runs() {
    let mut fixture = SimulationFixture::society();
    fixture.file.population = None;
    fixture.file.lifecycle = None;
    let summary = fixture.run("nobody", 1);
    assert_eq!((summary.agents, summary.turns), (0, 20));
    assert_eq!(fixture.resume("nobody", Some(3)), summary);
}

#[test]
fn run_without_checkpoint_restarts() {
    let fixture = SimulationFixture::society();
    let straight = fixture.run("straight", 1);
    drop(fixture.begin("died", 1));
    fs::remove_file(fixture.checkpoint_path("died", 0)).unwrap();
    assert_eq!(fixture.resume("died", None).digest, straight.digest);
    assert_eq!(fixture.open("died").checkpoints().unwrap().len(), 21);
}

#[test]
fn resume_discards_later_checkpoints() {
    let fixture = SimulationFixture::society();
    fixture.run("run", 1);
    let unfinished = fixture.checkpoint_path("run", 9).with_extension("unfinished");
    fs::write(&unfinished, "half").unwrap();
    let run =
        SimulationRun::resume(fixture.open("run"), Some(5), Some(8), &fixture.scenario(), None);
    assert_eq!(fixture.open("run").checkpoints().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(!unfinished.exists());
    assert_eq!(run.unwrap().run(|_| RunControl::Continue).unwrap().turns, 8);
    assert_eq!(fixture.open("run").checkpoints().unwrap().last(), Some(&8));
}

/// A change of the population, with few names so that changes interact.
fn change() -> impl Strategy<Value = EventFile> {
    let operation = prop_oneof![
        Just(LifecycleOperation::AddAgent),
        Just(LifecycleOperation::RemoveAgent),
        Just(LifecycleOperation::PauseAgent),
        Just(LifecycleOperation::ResumeAgent),
    ];
    let name = prop_oneof![Just("ada"), Just("ada_1"), Just("reader_1"), Just("reader_2")];
    (1..8_u64, operation, name, prop::option::of(1..4_i64)).prop_map(
        |(turn, operation, name, turns)| EventFile {
            turn: NonZeroU64::new(turn),
            operation: Some(operation),
            target_agent_name: Some(name.to_owned()),
            initiating_agent: None,
            initial_state: (operation == LifecycleOperation::AddAgent).then(Map::new),
            auto_resume_turns: turns.filter(|_| operation == LifecycleOperation::PauseAgent),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_lifecycle_resumes_to_the_same_result(
        lifecycle in prop::collection::vec(change(), 0..16),
        seed in any::<u64>(),
        turn in 0..9_u64,
    ) {
        let mut fixture = SimulationFixture::society();
        fixture.file.lifecycle = Some(lifecycle);
        fixture.file.seed = Some(seed);
        fixture.file.turns = Some(9);
        let straight = fixture.run("run", 2);
        prop_assert_eq!(fixture.resume("run", Some(turn)), straight.clone());
        let checkpoint = fixture.checkpoint("run", 9);
        let agents = checkpoint["agents"].as_object().unwrap();
        prop_assert_eq!(agents.len() as u64, straight.agents);
        prop_assert!(straight.agents <= fixture.scenario().max_agents);
        for paused in checkpoint["paused_agents"].as_array().unwrap() {
            prop_assert!(agents.contains_key(paused.as_str().unwrap()));
        }
        for (name, turns) in checkpoint["auto_resume"].as_object().unwrap() {
            prop_assert!(checkpoint["paused_agents"].as_array().unwrap().contains(&json!(name)));
            prop_assert!(turns.as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn rejects_fewer_turns_than_done() {
    let fixture = SimulationFixture::society();
    fixture.run("run", 1);
    let shorter =
        SimulationRun::resume(fixture.open("run"), None, Some(5), &fixture.scenario(), None);
    let error = shorter.unwrap_err().to_string();
    assert_eq!(error, "the run has 5 turns, but continues from the end of turn 20");
    assert_eq!(fixture.open("run").checkpoints().unwrap().len(), 21);
}
