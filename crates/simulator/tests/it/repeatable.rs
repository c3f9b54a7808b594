//! The same scenario and seed give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use insta::assert_snapshot;
use polity_simulator::lifecycle::LifecycleAction;
use polity_simulator::scenario::ScenarioFile;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{SimulationFixture, add, pause, remove, resume, stop_after, to_end};

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
fn digest_covers_seed_and_simulated_time() {
    let digest = SimulationFixture::society().run("run", 1).digest;
    let changes: [fn(&mut ScenarioFile); 3] = [
        |file| file.seed = Some(8),
        |file| file.tick_seconds = Some(2.5),
        |file| file.start_time = Some("2027-01-01T00:00:00Z".to_owned()),
    ];
    for change in changes {
        let mut fixture = SimulationFixture::society();
        change(&mut fixture.file);
        assert_ne!(fixture.run("run", 1).digest, digest, "{:?}", fixture.file);
    }
}

#[test]
fn resume_from_any_turn_gives_the_same_result() {
    let fixture = SimulationFixture::society();
    let uninterrupted = fixture.run("straight", 2);
    let last = fixture.scenario().turns;
    let ended = fs::read(fixture.checkpoint_path("straight", last)).unwrap();
    for turn in 0..=last {
        let resumed = fixture.resume("straight", Some(turn));
        assert_eq!(resumed, uninterrupted, "from turn {turn}");
        assert_eq!(fs::read(fixture.checkpoint_path("straight", last)).unwrap(), ended);
    }
}

#[test]
fn stopped_run_resumes_to_the_same_result() {
    let fixture = SimulationFixture::society();
    let uninterrupted = fixture.run("straight", 1);
    let stopped = fixture.run_until("stopped", 6);
    assert_eq!(stopped.turns, 6);
    assert_eq!(fixture.resume("stopped", None).digest, uninterrupted.digest);
}

#[test]
fn only_a_fork_with_changes_diverges() {
    let mut fixture = SimulationFixture::society();
    let uninterrupted = fixture.run("straight", 1);
    assert_eq!(fixture.fork("straight", 5, "same").digest, uninterrupted.digest);
    fixture.file.seed = Some(99);
    let other = fixture.fork("straight", 5, "other");
    assert_ne!(other.digest, uninterrupted.digest);
    assert_eq!(other.turns, uninterrupted.turns);
}

#[test]
fn outside_request_repeats_after_resume() {
    let fixture = SimulationFixture::society();
    let mut run = fixture.begin("asked", 1);
    run.run(stop_after(4)).unwrap();
    let folder = fixture.open("asked");
    fixture.ask("asked", "one", add("grace"));
    fixture.ask("asked", "two", pause("reader_1"));
    let uninterrupted = run.run(to_end).unwrap();
    drop(run);
    let answer = folder.find_answer("one").unwrap().unwrap();
    assert_eq!((answer.turn, answer.verdict.name.as_deref()), (5, Some("grace")));
    for turn in 0..10 {
        assert_eq!(fixture.resume("asked", Some(turn)), uninterrupted, "from turn {turn}");
    }
}

#[test]
fn fork_repeats_later_requests() {
    let mut fixture = SimulationFixture::society();
    let mut run = fixture.begin("asked", 1);
    fixture.ask("asked", "one", add("grace"));
    run.run(stop_after(4)).unwrap();
    fixture.ask("asked", "two", pause("reader_1"));
    fixture.ask("asked", "three", remove("nobody"));
    run.run(stop_after(11)).unwrap();
    fixture.ask("asked", "four", resume("reader_1"));
    let uninterrupted = run.run(to_end).unwrap();
    assert_eq!(uninterrupted.warnings.len(), 1);
    drop(run);
    for at in [0, 1, 4, 5, 11, 12, 20] {
        let fork = fixture.fork("asked", at, &format!("fork{at}"));
        assert_eq!(fork.digest, uninterrupted.digest, "at turn {at}");
        assert_eq!(fork.warnings.len(), 1, "at turn {at}");
    }
    // A fork answers requests itself, and so does a fork of a fork.
    assert_eq!(fixture.open("fork4").find_answer("two").unwrap().unwrap().turn, 5);
    assert_eq!(fixture.open("fork5").find_answer("two").unwrap(), None);
    assert_eq!(fixture.resume("fork4", Some(6)).digest, uninterrupted.digest);
    assert_eq!(fixture.fork("fork4", 8, "second").digest, uninterrupted.digest);
    fixture.file.seed = Some(99);
    assert_ne!(fixture.fork("asked", 4, "other").digest, uninterrupted.digest);
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
fn final_records(groups: &str, events: &[(u64, LifecycleAction)]) -> BTreeMap<String, Value> {
    let scenario = format!(
        "{{name: wanderers, chart: wanderer, turns: 12, ticks_per_turn: 5, max_agents: 5000, \
         population: [{groups}], world: {{rates: [{{trigger: go, rate: 0.7}}]}}}}"
    );
    let fixture = SimulationFixture::new(WANDERERS, &scenario).with_events(events);
    fixture.run("run", 2);
    let simulation = fixture.restore("run", None).unwrap();
    let checkpoint = fixture.checkpoint("run", 12);
    let record = |name: String| {
        let fields = &checkpoint["agents"][&name]["state"]["fields"];
        let record = json!({"export": simulation.export(&name).unwrap(), "fields": fields});
        (name, record)
    };
    simulation.names().map(record).collect()
}

#[test]
fn draws_do_not_depend_on_other_agents() {
    let groups = "{name: a, count: 3}, {name: b, count: 1500}, {name: c}";
    let late = &[(4, add("late"))][..];
    let plain = final_records(groups, late);
    let early = [(2, add("early")), (4, add("late")), (4, add("twin"))];
    let paused = [(1, pause("a_2")), (4, add("late"))];
    let removed = [(2, remove("b_7")), (4, add("late"))];
    for (what, others, groups, lifecycle) in [
        ("one more before it", 2, groups, &early[..]),
        ("one that is paused", 0, groups, &paused),
        ("one that is removed", 0, groups, &removed),
        ("a larger group", 4, "{name: a, count: 7}, {name: b, count: 1500}, {name: c}", late),
        ("a smaller group", 0, "{name: a, count: 3}, {name: b, count: 1200}, {name: c}", late),
        ("another group", 2000, "{name: z, count: 2000}, {name: c}, {name: a, count: 3}", late),
    ] {
        let changed = final_records(groups, lifecycle);
        let both = changed.iter().filter(|(name, _)| plain.contains_key(*name));
        let mut alike = 0;
        for (name, record) in
            both.filter(|(name, _)| what != "one that is paused" || *name != "a_2")
        {
            assert_eq!(record, &plain[name], "{name}, with {what}");
            alike += 1;
        }
        assert_eq!(changed.len() - alike - usize::from(what.contains("paused")), others, "{what}");
        assert!(changed.contains_key("late"), "{what}");
    }
}

#[test]
fn new_agent_with_an_old_name_has_other_draws() {
    let groups = "{name: a}, {name: b}";
    let first = final_records(groups, &[]);
    let again = final_records(groups, &[(1, remove("a")), (1, add("a"))]);
    let later = final_records(groups, &[(1, remove("a")), (2, add("a"))]);
    assert_eq!((&first["b"], &first["b"]), (&again["b"], &later["b"]));
    let luck =
        |final_records: &BTreeMap<String, Value>| final_records["a"]["fields"]["luck"].clone();
    assert_ne!(luck(&first), luck(&again));
    assert_ne!(luck(&again), luck(&later));
}

/// This digest changes only with the run format: runs are repeated from their seeds.
#[test]
fn digest_of_the_example_is_fixed() {
    let fixture = SimulationFixture::society();
    let summary = fixture.run("run", 1);
    let digest = "9189303e26124c0fa7d4f23083507c593785e75b0d69362e90736638a2c02655";
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
    let uninterrupted = fixture.run("straight", 1);
    drop(fixture.begin("died", 1));
    fs::remove_file(fixture.checkpoint_path("died", 0)).unwrap();
    assert_eq!(fixture.resume("died", None).digest, uninterrupted.digest);
    assert_eq!(fixture.checkpoints("died").len(), 21);
}

#[test]
fn resume_discards_later_checkpoints() {
    let fixture = SimulationFixture::society();
    fixture.run("run", 1);
    let unfinished = fixture.checkpoint_path("run", 9).with_extension("unfinished");
    fs::write(&unfinished, "half").unwrap();
    let run = fixture.reopen("run", Some(5), Some(8));
    assert_eq!(fixture.checkpoints("run"), [0, 1, 2, 3, 4, 5]);
    assert!(!unfinished.exists());
    assert_eq!(run.unwrap().run(to_end).unwrap().turns, 8);
    assert_eq!(fixture.checkpoints("run").last(), Some(&8));
}

/// A change of the population, with few names so that changes interact.
fn change() -> impl Strategy<Value = (u64, LifecycleAction)> {
    let name = prop_oneof![Just("ada"), Just("ada_1"), Just("reader_1"), Just("reader_2")];
    let request =
        (name, 0..4, prop::option::of(1..4_i64)).prop_map(
            |(name, operation, turns)| match operation {
                0 => add(name),
                1 => remove(name),
                2 => LifecycleAction { auto_resume_turns: turns, ..pause(name) },
                _ => resume(name),
            },
        );
    (1..8_u64, request)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_lifecycle_resumes_to_the_same_result(
        events in prop::collection::vec(change(), 0..16),
        seed in any::<u64>(),
        turn in 0..9_u64,
    ) {
        let mut fixture = SimulationFixture::society().with_events(&events);
        fixture.file.seed = Some(seed);
        fixture.file.turns = Some(9);
        let uninterrupted = fixture.run("run", 2);
        prop_assert_eq!(&fixture.run("alone", 1).digest, &uninterrupted.digest);
        prop_assert_eq!(&fixture.fork("run", turn, "fork").digest, &uninterrupted.digest);
        prop_assert_eq!(fixture.resume("run", Some(turn)), uninterrupted.clone());
        let checkpoint = fixture.checkpoint("run", 9);
        let agents = checkpoint["agents"].as_object().unwrap();
        prop_assert_eq!(agents.len() as u64, uninterrupted.agents);
        prop_assert!(uninterrupted.agents <= fixture.scenario().max_agents);
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
    let error = fixture.reopen("run", None, Some(5)).unwrap_err();
    assert_snapshot!(error, @"the run has 5 turns, but continues from the end of turn 20");
    assert_eq!(fixture.checkpoints("run").len(), 21);
}
