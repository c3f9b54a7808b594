//! Which checkpoints there are, and what is done where there is none.

use polity_simulator::error::SimError;
use polity_simulator::lifecycle::{LifecycleAction, Operation};
use polity_simulator::run::{GoOn, Run};
use polity_simulator::simulation::Simulation;
use serde_json::json;

use crate::stage::{Theatre, stop_after};

/// The society, of which few checkpoints are kept.
fn forgetful() -> Theatre {
    let mut theatre = Theatre::society();
    theatre.file.turns = Some(40);
    theatre.file.keep_checkpoints = 3.try_into().ok();
    theatre
}

#[test]
fn the_checkpoints_of_a_long_run_do_not_grow_with_it() {
    let mut theatre = forgetful();
    theatre.run("short", 1);
    assert_eq!(theatre.open("short").checkpoints().unwrap(), [0, 16, 32, 38, 39, 40]);
    theatre.file.turns = Some(300);
    theatre.file.ticks_per_turn = 1.try_into().ok();
    theatre.file.checkpoint_every = 1.try_into().ok();
    theatre.run("long", 1);
    let kept = theatre.open("long").checkpoints().unwrap();
    assert_eq!(kept, [0, 128, 256, 298, 299, 300]);
    theatre.file.keep_checkpoints = None;
    theatre.run("default", 1);
    assert!(theatre.open("default").checkpoints().unwrap().len() <= 41);
    theatre.file.keep_checkpoints = 1000.try_into().ok();
    theatre.run("all", 1);
    assert_eq!(theatre.open("all").checkpoints().unwrap().len(), 301);
    // A long run writes no more of them than a shorter one, unless it is told to.
    theatre.file.checkpoint_every = None;
    theatre.run("some", 1);
    assert_eq!(theatre.open("some").checkpoints().unwrap().len(), 101);
}

#[test]
fn a_turn_that_was_asked_for_something_has_a_checkpoint() {
    let mut theatre = Theatre::society();
    theatre.file.checkpoint_every = 9.try_into().ok();
    let mut run = theatre.begin("run", 1);
    run.go(stop_after(2)).unwrap();
    let asked = LifecycleAction::new(Operation::RemoveAgent, "reader_2");
    theatre.open("run").ask("x", asked).unwrap();
    run.go(|_| GoOn::Yes).unwrap();
    assert_eq!(theatre.open("run").checkpoints().unwrap(), [0, 2, 3, 12, 20]);
}

#[test]
fn whoever_watches_a_run_may_have_more_checkpoints_written() {
    let mut theatre = Theatre::society();
    theatre.file.checkpoint_every = 9.try_into().ok();
    let straight = theatre.run("straight", 1);
    let mut run = theatre.begin("run", 1);
    let kept = run.go(|progress| if progress.turn == 4 { GoOn::Keep } else { GoOn::Yes });
    assert_eq!(kept.unwrap().digest, straight.digest);
    assert_eq!(theatre.open("straight").checkpoints().unwrap(), [0, 9, 18, 20]);
    assert_eq!(theatre.open("run").checkpoints().unwrap(), [0, 4, 13, 20]);
}

#[test]
fn what_doing_turns_again_left_is_no_more_than_a_run_keeps() {
    let theatre = forgetful();
    let straight = theatre.run("run", 1);
    let folder = theatre.open("run");
    let mut again = Run::resume(folder.clone(), Some(5), None, &theatre.scenario(), None).unwrap();
    again.go(stop_after(12)).unwrap();
    drop(again);
    assert_eq!(theatre.resume("run", Some(40)), straight);
    assert_eq!(folder.checkpoints().unwrap(), [0, 16, 32, 38, 39, 40]);
}

#[test]
fn a_turn_whose_checkpoint_was_not_kept_is_computed_again() {
    let mut theatre = forgetful();
    let mut run = theatre.begin("run", 1);
    run.go(stop_after(21)).unwrap();
    theatre.open("run").ask("x", LifecycleAction::new(Operation::PauseAgent, "reader_1")).unwrap();
    let straight = run.go(|_| GoOn::Yes).unwrap();
    drop(run);
    let scenario = theatre.scenario();
    let before = Simulation::restore(&theatre.open("run"), Some(21), &scenario, None).unwrap();
    let after = Simulation::restore(&theatre.open("run"), Some(22), &scenario, None).unwrap();
    assert_eq!((before.turn(), before.paused()), (21, vec![]));
    assert_eq!((after.turn(), after.paused()), (22, vec!["reader_1".to_owned()]));
    assert_eq!(theatre.fork("run", 21, "fork").digest, straight.digest);
    for turn in [23, 22, 17, 3] {
        assert_eq!(theatre.resume("run", Some(turn)), straight, "from turn {turn}");
    }

    // What is done again is done as it was; what comes after is another matter.
    theatre.file.keep_checkpoints = 1000.try_into().ok();
    theatre.run("whole", 1);
    theatre.file.keep_checkpoints = 3.try_into().ok();
    theatre.run("part", 1);
    theatre.file.seed = Some(99);
    let (part, whole) = (theatre.fork("part", 21, "p"), theatre.fork("whole", 21, "w"));
    assert_eq!(part.digest, whole.digest);
    assert_ne!(part.digest, straight.digest);
    assert_eq!(theatre.open("p").checkpoints().unwrap()[0], 21);
}

#[test]
fn checkpoints_are_as_rare_as_the_population_is_large() {
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
    let theatre = Theatre::new(chart, scenario);
    assert_eq!(theatre.run("run", 1).agents, 2400);
    assert_eq!(theatre.open("run").checkpoints().unwrap(), [0, 3, 6, 8]);
}

#[test]
fn checkpoints_of_turns_that_are_done_again_stay_until_they_are_replaced() {
    let theatre = Theatre::society();
    let straight = theatre.run("run", 1);
    let folder = theatre.open("run");
    let later = || {
        let path = theatre.path("run").join("later");
        std::fs::read_dir(path).map_or(0, Iterator::count)
    };
    let again = || Run::resume(folder.clone(), Some(5), None, &theatre.scenario(), None).unwrap();
    drop(again());
    assert_eq!((folder.checkpoints().unwrap().len(), later()), (6, 15));
    again().go(stop_after(9)).unwrap();
    assert_eq!((folder.checkpoints().unwrap().len(), later()), (10, 11));
    // They can still be looked at.
    let restored = |turn| Simulation::restore(&folder, Some(turn), &theatre.scenario(), None);
    assert_eq!(restored(17).unwrap().turn(), 17);
    assert!(restored(21).is_err());
    // Whoever thinks better of it goes on from where it was.
    assert_eq!(theatre.resume("run", Some(20)), straight);
    assert_eq!((folder.checkpoints().unwrap().len(), later()), (21, 0));
    drop(again());
    assert_eq!(theatre.resume("run", None), straight);
    assert_eq!((folder.checkpoints().unwrap().len(), later()), (21, 0));
    // One that ends earlier now leaves what comes after it alone.
    let shorter = Run::resume(folder.clone(), Some(5), Some(9), &theatre.scenario(), None);
    shorter.unwrap().go(stop_after(99)).unwrap();
    assert_eq!((folder.checkpoints().unwrap().len(), later()), (10, 11));
    let longer = Run::resume(folder.clone(), Some(20), Some(20), &theatre.scenario(), None);
    drop(longer.unwrap());
    assert_eq!((folder.checkpoints().unwrap().len(), later()), (21, 0));

    // What was not asked before leads elsewhere.
    let mut run = again();
    folder.ask("x", LifecycleAction::new(Operation::RemoveAgent, "reader_1")).unwrap();
    run.go(stop_after(7)).unwrap();
    drop(run);
    assert_eq!(later(), 0);
    let refused = Run::resume(folder.clone(), Some(20), None, &theatre.scenario(), None);
    assert!(matches!(refused, Err(SimError::NoCheckpoint { turn: 20, .. })));
    assert_eq!(theatre.resume("run", None).agents, straight.agents - 1);
}

#[test]
fn a_checkpoint_under_the_name_of_another_turn_is_refused() {
    let theatre = Theatre::society();
    theatre.run_until("run", 6);
    std::fs::copy(theatre.checkpoint_path("run", 4), theatre.checkpoint_path("run", 6)).unwrap();
    let restored = Simulation::restore(&theatre.open("run"), None, &theatre.scenario(), None);
    let told = restored.unwrap_err().to_string();
    assert!(told.contains("it is of turn 4, and not of turn 6"), "{told}");
}

#[test]
fn a_fork_that_ends_before_it_begins_is_refused() {
    let mut theatre = Theatre::society();
    theatre.run("run", 1);
    theatre.file.turns = Some(7);
    theatre.file.lifecycle = None;
    let told = theatre.try_fork("run", 8, "fork").unwrap_err().to_string();
    assert_eq!(told, "the run is to have 7 turns, and it goes on from the end of turn 8");
    assert!(!theatre.path("fork").exists());
    assert_eq!(json!(theatre.fork("run", 7, "fork").turns), 7);
}
