//! Retention of checkpoints, and replay of turns without one.

use insta::assert_snapshot;
use polity_simulator::error::SimError;
use polity_simulator::run::{RunControl, SimulationProgress};
use serde_json::json;

use crate::fixture::{SimulationFixture, pause, remove, stop_after, to_end};

/// The society with few kept checkpoints.
fn forgetful() -> SimulationFixture {
    let mut fixture = SimulationFixture::society();
    fixture.file.turns = Some(40);
    fixture.file.keep_checkpoints = 3.try_into().ok();
    fixture
}

#[test]
fn checkpoint_count_is_bounded() {
    let mut fixture = forgetful();
    fixture.run("short", 1);
    assert_eq!(fixture.checkpoints("short"), [0, 16, 32, 38, 39, 40]);
    fixture.file.turns = Some(300);
    fixture.file.ticks_per_turn = 1.try_into().ok();
    fixture.file.checkpoint_every = 1.try_into().ok();
    fixture.run("long", 1);
    let kept = fixture.checkpoints("long");
    assert_eq!(kept, [0, 128, 256, 298, 299, 300]);
    fixture.file.keep_checkpoints = None;
    fixture.run("default", 1);
    assert!(fixture.checkpoints("default").len() <= 41);
    fixture.file.keep_checkpoints = 1000.try_into().ok();
    fixture.run("all", 1);
    assert_eq!(fixture.checkpoints("all").len(), 301);
    // A long run writes no more of them by default.
    fixture.file.checkpoint_every = None;
    fixture.run("some", 1);
    assert_eq!(fixture.checkpoints("some").len(), 101);
}

#[test]
fn turn_with_an_answer_has_a_checkpoint() {
    let mut fixture = SimulationFixture::society();
    fixture.file.checkpoint_every = 9.try_into().ok();
    let mut run = fixture.begin("run", 1);
    run.run(stop_after(2)).unwrap();
    fixture.ask("run", "x", remove("reader_2"));
    run.run(to_end).unwrap();
    assert_eq!(fixture.checkpoints("run"), [0, 2, 3, 12, 20]);
}

#[test]
fn watcher_can_add_checkpoints() {
    let mut fixture = SimulationFixture::society();
    fixture.file.checkpoint_every = 9.try_into().ok();
    let uninterrupted = fixture.run("straight", 1);
    let mut run = fixture.begin("run", 1);
    let at_turn_4 = |progress: SimulationProgress<'_>| {
        if progress.turn == 4 { RunControl::Checkpoint } else { RunControl::Continue }
    };
    assert_eq!(run.run(at_turn_4).unwrap().digest, uninterrupted.digest);
    assert_eq!(fixture.checkpoints("straight"), [0, 9, 18, 20]);
    assert_eq!(fixture.checkpoints("run"), [0, 4, 13, 20]);
}

#[test]
fn resume_applies_retention() {
    let fixture = forgetful();
    let uninterrupted = fixture.run("run", 1);
    fixture.reopen("run", Some(5), None).unwrap().run(stop_after(12)).unwrap();
    assert_eq!(fixture.resume("run", Some(40)), uninterrupted);
    assert_eq!(fixture.checkpoints("run"), [0, 16, 32, 38, 39, 40]);
}

#[test]
fn missing_turn_is_replayed() {
    let mut fixture = forgetful();
    let mut run = fixture.begin("run", 1);
    run.run(stop_after(21)).unwrap();
    fixture.ask("run", "x", pause("reader_1"));
    let uninterrupted = run.run(to_end).unwrap();
    drop(run);
    let before = fixture.restore("run", Some(21)).unwrap();
    let after = fixture.restore("run", Some(22)).unwrap();
    assert_eq!((before.turn(), before.paused()), (21, vec![]));
    assert_eq!((after.turn(), after.paused()), (22, vec!["reader_1".to_owned()]));
    assert_eq!(fixture.fork("run", 21, "fork").digest, uninterrupted.digest);
    for turn in [23, 22, 17, 3] {
        assert_eq!(fixture.resume("run", Some(turn)), uninterrupted, "from turn {turn}");
    }

    // Replayed turns use the old seed, later turns the new one.
    fixture.file.keep_checkpoints = 1000.try_into().ok();
    fixture.run("whole", 1);
    fixture.file.keep_checkpoints = 3.try_into().ok();
    fixture.run("part", 1);
    fixture.file.seed = Some(99);
    let (part, complete) = (fixture.fork("part", 21, "p"), fixture.fork("whole", 21, "w"));
    assert_eq!(part.digest, complete.digest);
    assert_ne!(part.digest, uninterrupted.digest);
    assert_eq!(fixture.checkpoints("p")[0], 21);
}

#[test]
fn checkpoint_interval_follows_population_size() {
    let chart = "
name: cells
states: [young, old]
initial: young
transitions:
  - {trigger: grow, source: young, target: old, action: copy}
";
    let scenario = "{name: dish, chart: cells, turns: 8, ticks_per_turn: 1, max_agents: 2400, \
        population: [{name: cell, count: 1200}], \
        world: {rates: [{trigger: grow, rate: 1}]}, lifecycle: []}";
    let fixture = SimulationFixture::new(chart, scenario);
    assert_eq!(fixture.run("run", 1).agents, 2400);
    assert_eq!(fixture.checkpoints("run"), [0, 3, 6, 8]);
}

#[test]
fn superseded_checkpoints_stay_until_replaced() {
    let fixture = SimulationFixture::society();
    let uninterrupted = fixture.run("run", 1);
    let later = || {
        let path = fixture.path("run").join("later");
        std::fs::read_dir(path).map_or(0, Iterator::count)
    };
    let checkpoint_counts = || (fixture.checkpoints("run").len(), later());
    let again = || fixture.reopen("run", Some(5), None).unwrap();
    drop(again());
    assert_eq!(checkpoint_counts(), (6, 15));
    again().run(stop_after(9)).unwrap();
    assert_eq!(checkpoint_counts(), (10, 11));
    // Superseded checkpoints are still readable.
    assert_eq!(fixture.restore("run", Some(17)).unwrap().turn(), 17);
    assert!(fixture.restore("run", Some(21)).is_err());
    // The run can resume from a superseded checkpoint.
    assert_eq!(fixture.resume("run", Some(20)), uninterrupted);
    assert_eq!(checkpoint_counts(), (21, 0));
    drop(again());
    assert_eq!(fixture.resume("run", None), uninterrupted);
    assert_eq!(checkpoint_counts(), (21, 0));
    // A shorter run keeps superseded checkpoints after its end.
    fixture.reopen("run", Some(5), Some(9)).unwrap().run(to_end).unwrap();
    assert_eq!(checkpoint_counts(), (10, 11));
    drop(fixture.reopen("run", Some(20), Some(20)).unwrap());
    assert_eq!(checkpoint_counts(), (21, 0));

    // A new request invalidates them.
    let mut run = again();
    fixture.ask("run", "x", remove("reader_1"));
    run.run(stop_after(7)).unwrap();
    drop(run);
    assert_eq!(later(), 0);
    let refused = fixture.reopen("run", Some(20), None);
    assert!(matches!(refused, Err(SimError::NoCheckpoint { turn: 20, .. })));
    assert_eq!(fixture.resume("run", None).agents, uninterrupted.agents - 1);
}

#[test]
fn rejects_checkpoint_of_another_turn() {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    std::fs::copy(fixture.checkpoint_path("run", 4), fixture.checkpoint_path("run", 6)).unwrap();
    let message = fixture.restore("run", None).unwrap_err().to_string();
    assert!(message.contains("it is of turn 4, and not of turn 6"), "{message}");
}

#[test]
fn rejects_fork_that_ends_before_it_starts() {
    let mut fixture = SimulationFixture::society();
    fixture.run("run", 1);
    fixture.file.turns = Some(7);
    fixture.file.lifecycle = None;
    let error = fixture.try_fork("run", 8, "fork", &[]).unwrap_err();
    assert_snapshot!(error, @"the run has 7 turns, but continues from the end of turn 8");
    assert!(!fixture.path("fork").exists());
    assert_eq!(json!(fixture.fork("run", 7, "fork").turns), 7);
}
