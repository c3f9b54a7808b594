//! Invalid checkpoints are rejected with the reason.

use std::fmt::Write;
use std::fs;

use insta::assert_snapshot;
use polity_simulator::error::SimError;
use serde_json::{Value, json};

use crate::fixture::{SimulationFixture, to_end};

/// Lists the errors of checkpoints in which one value is replaced, or removed where it is null.
fn refusals<const N: usize>(changes: [(&str, Value); N]) -> String {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    let valid = fixture.checkpoint("run", 6);
    let mut text = String::new();
    for (pointer, value) in changes {
        writeln!(text, "{pointer}: {:.80}", value.to_string()).unwrap();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let mut checkpoint = valid.clone();
        let parent = checkpoint.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(key).unwrap();
        } else {
            parent.insert(key.to_owned(), value);
        }
        fixture.replace_checkpoint("run", 6, checkpoint);
        let message = fixture.restore("run", Some(6)).unwrap_err().to_string();
        let (_, message) = message.split_once("turn_000006.json: ").unwrap();
        let message = message.strip_suffix("; continue from the end of turn 5 instead").unwrap();
        writeln!(text, "    {message}").unwrap();
    }
    text
}

#[test]
fn rejects_invalid_agents() {
    let past = json!([1, "idle", "scrolling", "feed_ready"]);
    assert_snapshot!(refusals([
        ("/agents/ada", json!(3)),
        ("/agents/ada/name", json!("eve")),
        ("/agents/ada/state/serial", json!("x")),
        ("/agents/ada_1/state/turn_added", json!(7)),
        ("/agents/reader_2/state/turn_added", json!(2)),
        ("/agents/reader_2/state/serial", json!(0)),
        ("/agents/reader_2/state/ticks_in_state", json!(-1)),
        ("/agents/reader_2/state/ticks_in_state", json!(187)),
        ("/agents/reader_2/state/ticks_in_state", json!(3)),
        ("/agents/reader_2/state/current_state", json!("asleep")),
        ("/agents/reader_2/state/fields/engagement_threshold", json!(1.5)),
        ("/agents/reader_2/state/fields/timeout_threshold", json!(0)),
        ("/agents/reader_2/state/fields/timeout_threshold", json!(null)),
        ("/agents/reader_2/state/fields/mood", json!(0)),
        ("/agents/reader_2/state/state_history", json!([[1, "idle", "idle", "feed_ready"]])),
        ("/agents/reader_2/state/state_history", json!(vec![past; 51])),
        ("/paused_agents", json!(["ghost"])),
        ("/paused_agents", json!(["ada", "ada"])),
        ("/auto_resume", json!({"reader_1": 2})),
        ("/auto_resume/ada", json!(-3)),
        ("/auto_resume/ada", json!(0)),
    ]));
}

#[test]
fn rejects_invalid_heads() {
    assert_snapshot!(refusals([
        ("/global_state/visits/idle", json!(null)),
        ("/global_state/world/replies", json!("many")),
        ("/global_state/format", json!(1)),
        ("/global_state/next_serial", json!(3)),
        ("/global_state/next_serial", json!(281_474_976_710_657_u64)),
        ("/global_state/name_numbers/reader", json!(0)),
        ("/global_state/chart", json!("other")),
        ("/global_state/seed", json!(8)),
        ("/global_state/tick_seconds", json!(-1)),
        ("/global_state/start_time", json!("2027-01-01T00:00:00Z")),
    ]));
}

#[test]
fn rejects_binary_and_oversized_checkpoints() {
    let mut fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    fs::write(fixture.checkpoint_path("run", 6), b"\xff\x00").unwrap();
    let error = fixture.restore("run", Some(6)).unwrap_err();
    assert!(matches!(error, SimError::DamagedCheckpoint { .. }), "{error}");
    assert!(error.to_string().contains("it is not text in UTF-8"), "{error}");

    fixture.run_until("crowd", 6);
    fixture.file.max_agents = Some(25);
    let error = fixture.restore("crowd", Some(6)).unwrap_err();
    assert!(matches!(error, SimError::DamagedCheckpoint { .. }), "{error}");
    assert!(error.to_string().contains("it has 26 agents, and max_agents of the run is 25"));
}

#[test]
fn rejects_truncated_checkpoint_but_reads_an_older_one() {
    let fixture = SimulationFixture::society();
    let uninterrupted = fixture.run("straight", 1);
    fixture.run_until("run", 6);
    let path = fixture.checkpoint_path("run", 6);
    let text = fs::read(&path).unwrap();
    for length in [0, 1, text.len() / 2, text.len() - 3] {
        fs::write(&path, &text[..length]).unwrap();
        let message = fixture.restore("run", Some(6)).unwrap_err().to_string();
        assert!(message.contains("it is truncated"), "{message}");
    }
    assert_eq!(fixture.resume("run", Some(5)).digest, uninterrupted.digest);
}

/// A changed digit leaves a readable file. Only the checksum shows the damage.
#[test]
fn changed_byte_is_detected_in_both_formats() {
    let mut fixture = SimulationFixture::society();
    let small = fixture.run("small", 1);
    let path = fixture.checkpoint_path("small", 20);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"ticks_in_state\":0", "\"ticks_in_state\":1", 1)).unwrap();
    let error = fixture.reopen("small", None, None).unwrap_err().to_string();
    let expected = "turn_000020.json: the checkpoint cannot be used: its content does not match its \
        checksum: the file was damaged or edited; continue from the end of turn 19 instead";
    assert!(error.ends_with(expected), "{error}");
    // The checkpoint that is named must be intact itself.
    let earlier = fixture.checkpoint_path("small", 19);
    let text = fs::read_to_string(&earlier).unwrap();
    fs::write(&earlier, text.replacen("20", "21", 1)).unwrap();
    let error = fixture.reopen("small", None, None).unwrap_err().to_string();
    assert!(error.ends_with("; continue from the end of turn 18 instead"), "{error}");
    assert_eq!(fixture.resume("small", Some(18)).digest, small.digest);

    fixture.file.population.as_mut().unwrap()[0].count = Some(12_000);
    fixture.file.max_agents = Some(20_000);
    fixture.file.turns = Some(2);
    fixture.file.checkpoint_every = 1.try_into().ok();
    let large = fixture.run("large", 1);
    for turn in [2, 1] {
        let path = fixture.checkpoint_path("large", turn).with_extension("sim");
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 40;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = fixture.reopen("large", None, None).unwrap_err();
        let SimError::DamagedCheckpoint { earlier, .. } = error else { panic!("{error}") };
        assert_eq!(earlier, Some(turn - 1));
    }
    assert_eq!(fixture.resume("large", Some(0)).digest, large.digest);
}

#[test]
fn run_without_an_intact_checkpoint_says_so() {
    let mut fixture = SimulationFixture::society();
    fixture.file.turns = Some(1);
    fixture.run("run", 1);
    for turn in [0, 1] {
        fs::write(fixture.checkpoint_path("run", turn), "{}").unwrap();
    }
    let error = fixture.restore("run", None).unwrap_err().to_string();
    assert!(error.ends_with("; no earlier checkpoint is intact"), "{error}");
}

#[test]
fn run_of_another_format_is_not_continued() {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 3);
    let path = fixture.path("run").join("run.json");
    let text = fs::read_to_string(&path).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    let polity = env!("CARGO_PKG_VERSION");
    assert_eq!(record["version"], json!({"polity": polity, "format": 4}));
    let write = |version: Option<Value>| {
        let mut record = record.clone();
        match version {
            Some(version) => record["version"] = version,
            None => drop(record.as_object_mut().unwrap().remove("version").unwrap()),
        }
        fs::write(&path, record.to_string()).unwrap();
    };
    for (version, expected) in [
        (
            Some(json!({"polity": "9.0.0", "format": 5})),
            format!(
                "has format 5, written by Polity 9.0.0, and Polity {polity} continues runs of format 4 only"
            ),
        ),
        (None, format!("has an older format, and Polity {polity} continues runs of format 4 only")),
    ] {
        write(version);
        let errors = [
            fixture.reopen("run", None, None).unwrap_err(),
            fixture.restore("run", Some(2)).unwrap_err(),
            fixture.try_fork("run", 2, "fork", &[]).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().ends_with(&expected), "{error}");
        }
        assert!(!fixture.path("fork").exists());
    }
    // Another program with the same format gives the same results.
    write(Some(json!({"polity": "9.0.0", "format": 4})));
    assert_eq!(fixture.resume("run", None).digest, fixture.run("straight", 1).digest);
    assert_eq!(fixture.open("run").record().unwrap().version.unwrap().polity, polity);
}

#[test]
fn missing_checkpoint_names_the_newest() {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 3);
    let error = fixture.restore("run", Some(9)).unwrap_err();
    assert_snapshot!(error, @"the run has no checkpoint of turn 9: the newest is of turn 3");
}

#[test]
fn run_is_locked_by_one_process() {
    let fixture = SimulationFixture::society();
    let run = fixture.begin("run", 1);
    assert!(run.folder().is_locked().unwrap());
    let second = fixture.reopen("run", None, None);
    assert!(matches!(second, Err(SimError::InUse)));
    drop(run);
    assert!(!fixture.open("run").is_locked().unwrap());
    assert_eq!(fixture.resume("run", None).turns, 20);
}

#[test]
fn large_population_writes_compact_checkpoints() {
    let mut fixture = SimulationFixture::society();
    fixture.file.population.as_mut().unwrap()[0].count = Some(12_000);
    fixture.file.max_agents = Some(20_000);
    fixture.file.turns = Some(30);
    fixture.file.ticks_per_turn = 2.try_into().ok();
    let uninterrupted = fixture.run("run", 2);
    assert_eq!(fixture.checkpoints("run"), [0, 13, 26, 30]);
    let path = fixture.checkpoint_path("run", 13).with_extension("sim");
    assert_eq!(fixture.resume("run", Some(13)), uninterrupted);
    assert_eq!(fixture.resume("run", Some(0)), uninterrupted);
    assert_eq!(fixture.run("alone", 1).digest, uninterrupted.digest);

    let bytes = fs::read(&path).unwrap();
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        fixture.restore("run", Some(13)).unwrap_err().to_string()
    };
    assert!(message(&bytes[..bytes.len() / 2]).contains("it is truncated: it ends within agent "));
    assert!(message(&bytes[..bytes.len() - 1]).contains("it ends within its checksum"));
    assert!(message(b"something else altogether").contains("not the checkpoint of a simulation"));
    assert!(message(&[&*bytes, b"\0"].concat()).contains("something stands behind its end"));
    let mut changed = bytes;
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    assert!(message(&changed).contains("the checkpoint cannot be used"));
}

#[test]
fn digest_does_not_depend_on_checkpoint_interval() {
    let mut fixture = SimulationFixture::society();
    let every = fixture.run("every", 1);
    fixture.file.checkpoint_every = 7.try_into().ok();
    assert_eq!(fixture.run("some", 1).digest, every.digest);
    assert_eq!(fixture.checkpoints("some"), [0, 7, 14, 20]);
}

#[test]
fn failed_checkpoint_ends_the_run() {
    let fixture = SimulationFixture::society();
    let mut run = fixture.begin("run", 1);
    fs::remove_dir_all(fixture.path("run").join("checkpoints")).unwrap();
    let error = run.run(to_end).unwrap_err();
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
    let uninterrupted = fixture.run("run", 1);
    assert_eq!(fixture.resume("run", Some(1)), uninterrupted);
    let mut checkpoint = fixture.checkpoint("run", 2);
    assert_eq!(checkpoint["agents"]["m"]["state"]["memories"].as_array().unwrap().len(), 1);
    checkpoint["agents"]["m"]["state"]["memories"] = json!([9]);
    fixture.replace_checkpoint("run", 2, checkpoint);
    let message = fixture.restore("run", Some(2)).unwrap_err().to_string();
    assert!(message.contains("agent \"m\": it remembers a state that the chart"), "{message}");
}

#[test]
fn rejects_duplicate_agents() {
    let fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    let path = fixture.checkpoint_path("run", 6);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"reader_2\": {", "\"reader_1\": {", 1)).unwrap();
    let message = fixture.restore("run", Some(6)).unwrap_err().to_string();
    assert!(message.contains("agent \"reader_1\" stands there twice"), "{message}");
}

#[test]
fn fork_respects_max_agents() {
    let mut fixture = SimulationFixture::society();
    fixture.run_until("run", 6);
    let agents = fixture.restore("run", Some(6)).unwrap().len();
    assert_eq!(agents, 26, "one was added");
    fixture.file.max_agents = Some(25);
    let error = fixture.try_fork("run", 6, "fork", &[]).unwrap_err();
    assert_snapshot!(error, @"26 agents exceed max_agents, which is 25");
}
