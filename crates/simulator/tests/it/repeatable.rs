//! The same scenario and seed give the same result, to the byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU64;

use polity_simulator::lifecycle::{LifecycleAction, Operation};
use polity_simulator::run::{GoOn, Run};
use polity_simulator::scenario::EventFile;
use polity_simulator::simulation::Simulation;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::stage::{Theatre, stop_after};

#[test]
fn one_thread_or_many_give_the_same_bytes() {
    let theatre = Theatre::society();
    let one = theatre.run("one", 1);
    for threads in [2, 4] {
        let many = theatre.run(&threads.to_string(), threads);
        assert_eq!(many.digest, one.digest);
    }
    let last = theatre.scenario().turns;
    let text = |run| fs::read(theatre.checkpoint_path(run, last)).unwrap();
    assert_eq!(text("one"), text("4"));
}

#[test]
fn thousands_of_agents_have_the_same_fate_with_one_thread_or_many() {
    let mut theatre = Theatre::society();
    theatre.file.population.as_mut().unwrap()[0].count = Some(20_000);
    theatre.file.max_agents = Some(30_000);
    theatre.file.turns = Some(9);
    let one = theatre.run("one", 1);
    assert_eq!(theatre.run("four", 4).digest, one.digest);
    assert_eq!((one.agents, one.warnings.len()), (20_007, 0));
}

#[test]
fn another_seed_gives_another_result() {
    let mut theatre = Theatre::society();
    let one = theatre.run("one", 1);
    theatre.file.seed = Some(8);
    assert_ne!(theatre.run("other", 1).digest, one.digest);
}

#[test]
fn a_digest_covers_simulated_time_too() {
    let mut theatre = Theatre::society();
    let one = theatre.run("one", 1);
    theatre.file.tick_seconds = Some(2.5);
    assert_ne!(theatre.run("slower", 1).digest, one.digest);
    theatre.file.tick_seconds = None;
    theatre.file.start_time = Some("2027-01-01T00:00:00Z".to_owned());
    assert_ne!(theatre.run("later", 1).digest, one.digest);
}

#[test]
fn a_run_that_is_resumed_from_any_turn_ends_like_one_that_was_never_stopped() {
    let theatre = Theatre::society();
    let straight = theatre.run("straight", 2);
    let last = theatre.scenario().turns;
    let ended = fs::read(theatre.checkpoint_path("straight", last)).unwrap();
    for turn in 0..=last {
        let resumed = theatre.resume("straight", Some(turn));
        assert_eq!(resumed, straight, "from turn {turn}");
        assert_eq!(fs::read(theatre.checkpoint_path("straight", last)).unwrap(), ended);
    }
}

#[test]
fn a_run_that_is_stopped_and_resumed_ends_like_one_that_was_never_stopped() {
    let theatre = Theatre::society();
    let straight = theatre.run("straight", 1);
    let stopped = theatre.run_until("stopped", 6);
    assert_eq!(stopped.turns, 6);
    assert_eq!(theatre.resume("stopped", None).digest, straight.digest);
}

#[test]
fn a_fork_that_changes_nothing_ends_alike_and_one_with_another_seed_does_not() {
    let mut theatre = Theatre::society();
    let straight = theatre.run("straight", 1);
    assert_eq!(theatre.fork("straight", 5, "same").digest, straight.digest);
    theatre.file.seed = Some(99);
    let other = theatre.fork("straight", 5, "other");
    assert_ne!(other.digest, straight.digest);
    assert_eq!(other.turns, straight.turns);
}

#[test]
fn a_request_from_outside_is_done_in_the_same_turn_after_a_resume() {
    let theatre = Theatre::society();
    let mut run = theatre.begin("asked", 1);
    run.go(stop_after(4)).unwrap();
    let folder = theatre.open("asked");
    let mut add = LifecycleAction::new(Operation::AddAgent, "grace");
    add.initial_state = Some(Map::new());
    folder.ask("one", add).unwrap();
    folder.ask("two", LifecycleAction::new(Operation::PauseAgent, "reader_1")).unwrap();
    let straight = run.go(|_| GoOn::Yes).unwrap();
    drop(run);
    let answer = folder.answer("one").unwrap().unwrap();
    assert_eq!((answer.turn, answer.opinion.name.as_deref()), (5, Some("grace")));
    for turn in 0..10 {
        assert_eq!(theatre.resume("asked", Some(turn)), straight, "from turn {turn}");
    }
}

#[test]
fn a_fork_is_asked_what_the_other_run_was_asked_later() {
    let mut theatre = Theatre::society();
    let mut run = theatre.begin("asked", 1);
    let folder = theatre.open("asked");
    let ask = |id: &str, operation, name: &str| {
        let initial_state = (operation == Operation::AddAgent).then(Map::new);
        let action = LifecycleAction { initial_state, ..LifecycleAction::new(operation, name) };
        folder.ask(id, action).unwrap();
    };
    ask("one", Operation::AddAgent, "grace");
    run.go(stop_after(4)).unwrap();
    ask("two", Operation::PauseAgent, "reader_1");
    ask("three", Operation::RemoveAgent, "nobody");
    run.go(stop_after(11)).unwrap();
    ask("four", Operation::ResumeAgent, "reader_1");
    let straight = run.go(|_| GoOn::Yes).unwrap();
    assert_eq!(straight.warnings.len(), 1);
    drop(run);
    for at in [0, 1, 4, 5, 11, 12, 20] {
        let fork = theatre.fork("asked", at, &format!("fork{at}"));
        assert_eq!(
            (fork.digest, fork.warnings.len()),
            (straight.digest.clone(), 1),
            "at turn {at}"
        );
    }
    // What comes of a request is the fork's own, and a fork of a fork has it too.
    assert_eq!(theatre.open("fork4").answer("two").unwrap().unwrap().turn, 5);
    assert_eq!(theatre.open("fork5").answer("two").unwrap(), None);
    assert_eq!(theatre.resume("fork4", Some(6)).digest, straight.digest);
    assert_eq!(theatre.fork("fork4", 8, "second").digest, straight.digest);
    theatre.file.seed = Some(99);
    assert_ne!(theatre.fork("asked", 4, "other").digest, straight.digest);
    assert!(theatre.open("other").answer("four").unwrap().unwrap().opinion.result.valid);
}

/// Agents that have nothing to do with each other.
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

/// What became of the agents of a population that changes like this.
fn fates(groups: &str, lifecycle: &str) -> BTreeMap<String, Value> {
    let theatre = Theatre::new(
        WANDERERS,
        &format!(
            "{{name: wanderers, chart: wanderer, turns: 12, ticks_per_turn: 5, max_agents: 5000, \
             population: [{groups}], world: {{rates: [{{trigger: go, rate: 0.7}}]}}, \
             lifecycle: [{lifecycle}]}}"
        ),
    );
    theatre.run("run", 2);
    let simulation = Simulation::restore(&theatre.open("run"), None, &theatre.scenario(), None);
    let simulation = simulation.unwrap();
    let checkpoint = theatre.checkpoint("run", 12);
    let fate = |name: String| {
        let fields = &checkpoint["agents"][&name]["state"]["fields"];
        let fate = json!({"export": simulation.export(&name).unwrap(), "fields": fields});
        (name, fate)
    };
    simulation.names().map(fate).collect()
}

#[test]
fn who_else_is_there_leaves_the_draws_of_an_agent_alone() {
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
fn one_that_comes_again_under_its_name_is_someone_else() {
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

/// These stay the same for ever: runs are repeated from their seeds.
#[test]
fn what_becomes_of_the_example_never_changes() {
    let theatre = Theatre::society();
    let summary = theatre.run("run", 1);
    let digest = "794f55f61964d669e797373b47b60685613d4c84d812da657f2b90fce9130934";
    assert_eq!(summary.digest, digest);
}

#[test]
fn every_state_of_the_social_chart_is_reached() {
    let theatre = Theatre::society();
    theatre.run("society", 1);
    let mut reached = BTreeSet::new();
    for turn in 0..=theatre.scenario().turns {
        let checkpoint = theatre.checkpoint("society", turn);
        for agent in checkpoint["agents"].as_object().unwrap().values() {
            for past in agent["state"]["state_history"].as_array().unwrap() {
                reached.insert(past[2].as_str().unwrap().to_owned());
            }
        }
    }
    let scenario = theatre.scenario();
    let chart = &scenario.chart;
    let all: BTreeSet<String> =
        chart.states().map(|state| chart.state_name(state).to_owned()).collect();
    assert_eq!(reached, all);
}

#[test]
fn a_population_of_none_is_simulated_too() {
    let mut theatre = Theatre::society();
    theatre.file.population = None;
    theatre.file.lifecycle = None;
    let summary = theatre.run("nobody", 1);
    assert_eq!((summary.agents, summary.turns), (0, 20));
    assert_eq!(theatre.resume("nobody", Some(3)), summary);
}

#[test]
fn a_run_without_any_checkpoint_begins_anew() {
    let theatre = Theatre::society();
    let straight = theatre.run("straight", 1);
    drop(theatre.begin("died", 1));
    fs::remove_file(theatre.checkpoint_path("died", 0)).unwrap();
    assert_eq!(theatre.resume("died", None).digest, straight.digest);
    assert_eq!(theatre.open("died").checkpoints().unwrap().len(), 21);
}

#[test]
fn what_came_after_the_turn_that_is_resumed_from_is_done_again() {
    let theatre = Theatre::society();
    theatre.run("run", 1);
    let unfinished = theatre.checkpoint_path("run", 9).with_extension("unfinished");
    fs::write(&unfinished, "half").unwrap();
    let run = Run::resume(theatre.open("run"), Some(5), Some(8), &theatre.scenario(), None);
    assert_eq!(theatre.open("run").checkpoints().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(!unfinished.exists());
    assert_eq!(run.unwrap().go(|_| GoOn::Yes).unwrap().turns, 8);
    assert_eq!(theatre.open("run").checkpoints().unwrap().last(), Some(&8));
}

/// A change of the population, on one of few names so that they meet.
fn change() -> impl Strategy<Value = EventFile> {
    let operation = prop_oneof![
        Just(Operation::AddAgent),
        Just(Operation::RemoveAgent),
        Just(Operation::PauseAgent),
        Just(Operation::ResumeAgent),
    ];
    let name = prop_oneof![Just("ada"), Just("ada_1"), Just("reader_1"), Just("reader_2")];
    (1..8_u64, operation, name, prop::option::of(1..4_i64)).prop_map(
        |(turn, operation, name, turns)| EventFile {
            turn: NonZeroU64::new(turn),
            operation: Some(operation),
            target_agent_name: Some(name.to_owned()),
            initiating_agent: None,
            initial_state: (operation == Operation::AddAgent).then(Map::new),
            auto_resume_turns: turns.filter(|_| operation == Operation::PauseAgent),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn whatever_happens_to_the_population_a_resumed_run_ends_alike(
        lifecycle in prop::collection::vec(change(), 0..16),
        seed in any::<u64>(),
        turn in 0..9_u64,
    ) {
        let mut theatre = Theatre::society();
        theatre.file.lifecycle = Some(lifecycle);
        theatre.file.seed = Some(seed);
        theatre.file.turns = Some(9);
        let straight = theatre.run("run", 2);
        prop_assert_eq!(theatre.resume("run", Some(turn)), straight.clone());
        let checkpoint = theatre.checkpoint("run", 9);
        let agents = checkpoint["agents"].as_object().unwrap();
        prop_assert_eq!(agents.len() as u64, straight.agents);
        prop_assert!(straight.agents <= theatre.scenario().max_agents);
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
fn a_run_that_has_come_farther_than_it_is_to_go_is_refused() {
    let theatre = Theatre::society();
    theatre.run("run", 1);
    let shorter = Run::resume(theatre.open("run"), None, Some(5), &theatre.scenario(), None);
    let error = shorter.unwrap_err().to_string();
    assert_eq!(error, "the run is to have 5 turns, and it goes on from the end of turn 20");
    assert_eq!(theatre.open("run").checkpoints().unwrap().len(), 21);
}
