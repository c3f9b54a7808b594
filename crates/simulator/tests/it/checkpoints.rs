//! Invalid checkpoints are rejected with the reason.

use std::fs;

use polity_simulator::error::SimError;
use polity_simulator::run::{RunControl, SimulationRun};
use polity_simulator::simulation::Simulation;
use serde_json::{Value, json};

use crate::fixture::SimulationFixture;

/// Returns the error for a modified checkpoint.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    let mut checkpoint = fixture.checkpoint("run", 6);
    change(&mut checkpoint);
    fs::write(fixture.checkpoint_path("run", 6), checkpoint.to_string()).unwrap();
    restored(&fixture).unwrap_err().to_string()
}

fn restored(fixture: &SimulationFixture) -> Result<Simulation, SimError> {
    Simulation::restore(&fixture.open("run"), Some(6), &fixture.scenario(), None)
}

type CorruptionCase = (&'static str, fn(&mut Value));

fn assert_refusals(cases: &[CorruptionCase]) {
    for (expected, change) in cases {
        let message = refusal(change);
        assert!(message.contains("turn_000006.json: the checkpoint cannot be used"), "{message}");
        assert!(message.contains(expected), "{message}\nand not\n{expected}");
    }
}

#[test]
fn rejects_invalid_agents() {
    assert_refusals(&[
        ("agent \"ada\": its name inside is \"eve\"", |c| {
            c["agents"]["ada"]["name"] = "eve".into();
        }),
        ("agent \"ghost\": it is paused, and there is no such agent", |c| {
            c["paused_agents"] = json!(["ghost"]);
        }),
        ("agent \"reader_1\": it stands in auto_resume, and it is not paused", |c| {
            c["auto_resume"] = json!({"reader_1": 2});
        }),
        ("agent \"ada\": auto_resume must be a whole number from 1 to 4294967295, found -3", |c| {
            c["auto_resume"]["ada"] = json!(-3);
        }),
        ("agent \"ada\": auto_resume must be a whole number from 1 to 4294967295, found 0", |c| {
            c["auto_resume"]["ada"] = json!(0);
        }),
        ("agent \"reader_2\": ticks_in_state must be from 0 to 4294967295, found -1", |c| {
            c["agents"]["reader_2"]["state"]["ticks_in_state"] = json!(-1);
        }),
        ("agent \"reader_2\": the chart has no state \"asleep\"", |c| {
            c["agents"]["reader_2"]["state"]["current_state"] = "asleep".into();
        }),
        ("agent \"reader_2\": engagement_threshold must be from 0 to 1, found 1.5", |c| {
            c["agents"]["reader_2"]["state"]["fields"]["engagement_threshold"] = json!(1.5);
        }),
        ("agent \"reader_2\": timeout_threshold must be at least 1, found 0", |c| {
            c["agents"]["reader_2"]["state"]["fields"]["timeout_threshold"] = json!(0);
        }),
        ("agent \"reader_2\": the chart has no field \"mood\"", |c| {
            c["agents"]["reader_2"]["state"]["fields"]["mood"] = json!(0);
        }),
        (
            "agent \"reader_2\": the history has a transition that the chart does not have: idle \
             to idle",
            |c| {
                c["agents"]["reader_2"]["state"]["state_history"] =
                    json!([[1, "idle", "idle", "feed_ready"]]);
            },
        ),
        ("agent \"reader_2\": it remembers 51 transitions, and max_history_depth is 50", |c| {
            let past = json!([1, "idle", "scrolling", "feed_ready"]);
            c["agents"]["reader_2"]["state"]["state_history"] = json!(vec![past; 51]);
        }),
        ("agent \"reader_2\": its field \"timeout_threshold\" is missing", |c| {
            let fields = &mut c["agents"]["reader_2"]["state"]["fields"];
            fields.as_object_mut().unwrap().remove("timeout_threshold");
        }),
        ("agent \"reader_2\": ticks_in_state is 187, and there were 186", |c| {
            c["agents"]["reader_2"]["state"]["ticks_in_state"] = json!(187);
        }),
        ("agent \"reader_2\": ticks_in_state is 3, and there were 0 since its last", |c| {
            let state = &mut c["agents"]["reader_2"]["state"];
            state["ticks_in_state"] = json!(3);
            assert_eq!(state["state_history"].as_array().unwrap().last().unwrap()[0], 186);
        }),
        ("agent \"ada\": invalid type: string \"x\", expected a whole number of 0 or more", |c| {
            c["agents"]["ada"]["state"]["serial"] = "x".into();
        }),
        ("agent \"ada\": invalid type: integer `3`, expected an agent with name and state", |c| {
            c["agents"]["ada"] = json!(3);
        }),
        ("agent \"ada\": it stands in paused_agents twice", |c| {
            c["paused_agents"] = json!(["ada", "ada"]);
        }),
        ("next_serial is 281474976710657; the maximum is 281474976710656", |c| {
            c["global_state"]["next_serial"] = json!(281_474_976_710_657_u64);
        }),
        ("agent \"reader_2\": it was there from the start, and not added in turn 2", |c| {
            c["agents"]["reader_2"]["state"]["turn_added"] = json!(2);
        }),
        ("agent \"ada_1\": turn_added is 7, and there were 6 turns", |c| {
            c["agents"]["ada_1"]["state"]["turn_added"] = json!(7);
        }),
    ]);
}

#[test]
fn rejects_invalid_heads() {
    assert_refusals(&[
        ("it does not count the visits of \"idle\"", |c| {
            c["global_state"]["visits"].as_object_mut().unwrap().remove("idle");
        }),
        ("world.replies is a number in the chart, found \"many\"", |c| {
            c["global_state"]["world"]["replies"] = "many".into();
        }),
        ("it has the format 1, and this version of Polity reads 3", |c| {
            c["global_state"]["format"] = json!(1);
        }),
        ("next_serial is 3, and there were 25 agents from the start", |c| {
            c["global_state"]["next_serial"] = json!(3);
        }),
        ("it is of the chart \"other\", not of \"social\"", |c| {
            c["global_state"]["chart"] = "other".into();
        }),
        ("its seed is 8, and that of the run is 7", |c| {
            c["global_state"]["seed"] = json!(8);
        }),
        ("its tick_seconds is -1, and that of the run is 1", |c| {
            c["global_state"]["tick_seconds"] = json!(-1);
        }),
        ("its start_time is 2027-01-01T00:00:00Z, and that of the run is 2026-01-01", |c| {
            c["global_state"]["start_time"] = "2027-01-01T00:00:00Z".into();
        }),
    ]);
}

#[test]
fn rejects_duplicate_serials() {
    let message = refusal(|checkpoint| {
        checkpoint["agents"]["reader_2"]["state"]["serial"] = json!(0);
    });
    assert!(message.contains("agent \"reader_2\": \"reader_1\" has the same serial"), "{message}");
}

#[test]
fn rejects_binary_and_oversized_checkpoints() {
    let mut fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    fs::write(fixture.checkpoint_path("run", 6), b"\xff\x00").unwrap();
    let error = restored(&fixture).unwrap_err();
    assert!(matches!(error, SimError::Damaged { .. }), "{error}");
    assert!(error.to_string().ends_with("it is not text in UTF-8"), "{error}");

    fixture.run_until("crowd", 6);
    fixture.file.max_agents = Some(25);
    let error = Simulation::restore(&fixture.open("crowd"), Some(6), &fixture.scenario(), None);
    let error = error.unwrap_err();
    assert!(matches!(error, SimError::Damaged { .. }), "{error}");
    assert!(error.to_string().ends_with("it has 26 agents, and max_agents of the run is 25"));
}

#[test]
fn rejects_truncated_checkpoint_but_reads_an_older_one() {
    let fixture = SimulationFixture::society();
    let straight = fixture.run("straight", 1);
    fixture.run_until("run", 6);
    let path = fixture.checkpoint_path("run", 6);
    let text = fs::read(&path).unwrap();
    for length in [0, 1, text.len() / 2, text.len() - 3] {
        fs::write(&path, &text[..length]).unwrap();
        let message = restored(&fixture).unwrap_err().to_string();
        assert!(message.contains("it is truncated"), "{message}");
    }
    assert_eq!(fixture.resume("run", Some(5)).digest, straight.digest);
}

#[test]
fn missing_checkpoint_names_the_newest() {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 3);
    let scenario = fixture.scenario();
    let error = Simulation::restore(&fixture.open("run"), Some(9), &scenario, None).unwrap_err();
    let expected = "the run has no checkpoint of turn 9: the newest is of turn 3";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn run_is_locked_by_one_process() {
    let fixture = SimulationFixture::society();
    let run = fixture.begin("run", 1);
    assert!(run.folder().is_locked().unwrap());
    let second = SimulationRun::resume(fixture.open("run"), None, None, &fixture.scenario(), None);
    assert!(matches!(second, Err(SimError::InUse)));
    drop(run);
    assert!(!fixture.open("run").is_locked().unwrap());
    assert_eq!(fixture.resume("run", None).turns, 20);
}

#[test]
fn large_population_writes_compact_checkpoints() {
    let mut fixture = SimulationFixture::society();
    let population = fixture.file.population.as_mut().unwrap();
    population[0].count = Some(12_000);
    fixture.file.max_agents = Some(20_000);
    fixture.file.turns = Some(30);
    fixture.file.ticks_per_turn = 2.try_into().ok();
    let straight = fixture.run("straight", 2);
    let folder = fixture.open("straight");
    assert_eq!(folder.checkpoints().unwrap(), [0, 13, 26, 30]);
    let path = fixture.checkpoint_path("straight", 13).with_extension("sim");
    assert_eq!(fixture.resume("straight", Some(13)), straight);
    assert_eq!(fixture.resume("straight", Some(0)), straight);
    assert_eq!(fixture.run("alone", 1).digest, straight.digest);

    let bytes = fs::read(&path).unwrap();
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let scenario = fixture.scenario();
        let error = Simulation::restore(&folder, Some(13), &scenario, None).unwrap_err();
        error.to_string()
    };
    assert!(message(&bytes[..bytes.len() / 2]).contains("it is truncated: it ends within agent "));
    assert!(message(&bytes[..bytes.len() - 1]).contains("it ends within its checksum"));
    assert!(message(b"something else altogether").contains("not the checkpoint of a simulation"));
    let mut changed = bytes.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    assert!(message(&changed).contains("the checkpoint cannot be used"));
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(message(&longer).contains("something stands behind its end"));
}

#[test]
fn digest_does_not_depend_on_checkpoint_interval() {
    let mut fixture = SimulationFixture::society();
    let every = fixture.run("every", 1);
    fixture.file.checkpoint_every = 7.try_into().ok();
    let some = fixture.begin("some", 1).run(|_| RunControl::Continue).unwrap();
    assert_eq!(some.digest, every.digest);
    assert_eq!(fixture.open("some").checkpoints().unwrap(), [0, 7, 14, 20]);
}

#[test]
fn failed_checkpoint_ends_the_run() {
    let fixture = SimulationFixture::society();
    let mut run = fixture.begin("run", 1);
    fs::remove_dir_all(fixture.path("run").join("checkpoints")).unwrap();
    let error = run.run(|_| RunControl::Continue).unwrap_err();
    assert!(matches!(error, SimError::Io { doing: "write", .. }), "{error}");
}

#[test]
fn rejects_unknown_last_active_child() {
    let chart = "
name: mind
states: [out, {name: in, initial: a, history: shallow, states: [a, b]}]
initial: out
transitions:
  - {trigger: go, source: out, target: in}
  - {trigger: go, source: a, target: b}
  - {trigger: go, source: b, target: out}
";
    let scenario = "{name: minds, chart: mind, turns: 3, ticks_per_turn: 2, \
        population: [{name: m}], world: {rates: [{trigger: go, rate: 1}]}}";
    let fixture = SimulationFixture::new(chart, scenario);
    let straight = fixture.run("run", 1);
    assert_eq!(fixture.resume("run", Some(1)), straight);
    let mut checkpoint = fixture.checkpoint("run", 2);
    assert_eq!(checkpoint["agents"]["m"]["state"]["memories"].as_array().unwrap().len(), 1);
    checkpoint["agents"]["m"]["state"]["memories"] = json!([9]);
    fs::write(fixture.checkpoint_path("run", 2), checkpoint.to_string()).unwrap();
    let refused = Simulation::restore(&fixture.open("run"), Some(2), &fixture.scenario(), None);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("agent \"m\": it remembers a state that the chart"), "{message}");
}

#[test]
fn rejects_duplicate_agents() {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    let path = fixture.checkpoint_path("run", 6);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"reader_2\": {", "\"reader_1\": {", 1)).unwrap();
    let message = restored(&fixture).unwrap_err().to_string();
    assert!(message.contains("agent \"reader_1\" stands there twice"), "{message}");
}

#[test]
fn fork_respects_max_agents() {
    let mut fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    let agents = restored(&fixture).unwrap().len();
    assert_eq!(agents, 26, "one was added");
    fixture.file.max_agents = Some(25);
    let message = fixture.try_fork("run", 6, "fork").unwrap_err().to_string();
    assert_eq!(message, "26 agents exceed max_agents, which is 25");
}
