//! `polity sim`: running, stopping, resuming, forking and changing populations.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Child;

use serde_json::{Value, json};

use crate::sandbox::{CommandOutput, HomeSandbox, finish, kill};

/// More turns than any test runs.
const FOREVER: &str = "10000000";

/// Starts a run that continues until it is stopped, and returns its id.
fn start_run(sandbox: &HomeSandbox) -> (Child, String) {
    let every = "checkpoint_every=5";
    let child =
        sandbox.start(&["sim", "run", "society", "--turns", FOREVER, "--set", every, "--json"]);
    let id = sandbox.wait_until("a run has made ten turns", || {
        let runs = sandbox.json(&["sim", "status"]).0;
        let run = runs.as_array()?.first()?.clone();
        (run["turn"].as_u64()? >= 10).then(|| run["run_id"].as_str().unwrap().to_owned())
    });
    (child, id)
}

fn interrupt(child: Child) -> CommandOutput {
    press_ctrl_c(&child);
    finish(child)
}

fn press_ctrl_c(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn run_json_has_the_summary() {
    let sandbox = HomeSandbox::society();
    let answer = sandbox.get(&["sim", "run", "society"]);
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    let expected = [
        "agents", "digest", "paused", "run_id", "scenario", "seed", "states", "turns", "visits",
        "warnings", "world",
    ];
    assert_eq!(keys, expected);
    assert_eq!(answer["agents"], 25);
    assert_eq!((&answer["turns"], &answer["seed"]), (&json!(20), &json!(7)));
    assert_eq!(answer["warnings"], json!([]));
    assert_eq!(answer["states"].as_object().unwrap().len(), 8);
    // Every agent is idle at the end of a turn; `visits` counts the states in between.
    assert_eq!(answer["states"]["idle"], 25);
    let visits = answer["visits"].as_object().unwrap();
    assert_eq!(visits.keys().count(), 8);
    assert!(visits.values().all(|visits| visits.as_u64().unwrap() > 0), "{visits:?}");
    let entered = |state: &str| visits[state].as_u64().unwrap();
    assert_eq!(
        answer["world"]["replies"].as_f64(),
        Some(f64::from(u32::try_from(entered("engaging_reply")).unwrap()))
    );
    let status = sandbox.get(&["sim", "status", "last"]);
    assert_eq!(status["summary"], answer);
    sandbox.polity(&["sim", "status", "last"]).out_has("STATE             AGENTS  VISITS");
    let digest = answer["digest"].as_str().unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{digest}");
}

#[test]
fn result_depends_on_seed_not_on_threads() {
    let sandbox = HomeSandbox::society();
    let digest = |args: &[&str]| {
        let args = [&["sim", "run", "society"], args].concat();
        sandbox.get(&args)["digest"].as_str().unwrap().to_owned()
    };
    let one = digest(&["--threads", "1"]);
    assert_eq!(digest(&["--threads", "4"]), one);
    assert_eq!(digest(&["--seed", "7"]), one);
    assert_eq!(digest(&["--set", "seed=7"]), one);
    assert_ne!(digest(&["--seed", "8"]), one);
    for threads in ["0", "9999"] {
        sandbox.polity(&["sim", "run", "society", "--threads", threads]).exits(2);
    }
}

#[test]
fn large_population_is_identical_with_one_and_four_threads() {
    let sandbox = HomeSandbox::society();
    let run = |threads: &str| {
        let size = ["--agents", "20000", "--set", "max_agents=30000", "--turns", "9"];
        sandbox.get(&[&["sim", "run", "society", "--threads", threads], &size[..]].concat())
    };
    let (mut one, mut four) = (run("1"), run("4"));
    for summary in [&mut one, &mut four] {
        summary.as_object_mut().unwrap().remove("run_id");
    }
    assert_eq!(one, four);
    assert_eq!(one["agents"], 20_000, "one agent was added and one removed");
    assert!(one["world"]["replies"].as_f64().unwrap() > 1000.0, "{}", one["world"]);
}

#[test]
fn run_outside_the_home_is_named_by_its_folder() {
    let sandbox = HomeSandbox::society();
    let out = sandbox.file("elsewhere/run");
    let out = out.to_str().unwrap();
    sandbox.polity(&["sim", "run", "society", "--out", out]).out_has(&format!("run: {out}\n"));
    let digest = &sandbox.get(&["sim", "status", out])["summary"]["digest"];
    assert_eq!(&sandbox.get(&["sim", "resume", out, "--from", "6"])["digest"], digest);
    assert_eq!(&sandbox.get(&["sim", "fork", out, "--at", "6"])["digest"], digest);
    assert_eq!(sandbox.get(&["sim", "export", out, "--agent", "ada"])["agent_id"], "ada");
    for (args, hint) in [
        (vec!["lifecycle", out, "remove", "ada"], format!("`polity sim fork {out} --at TURN`")),
        (vec!["fork", out, "--at", "99"], format!("`polity sim status {out}`")),
        (vec!["export", out, "--agent", "ada", "--at", "99"], format!("`polity sim status {out}`")),
    ] {
        let output = sandbox.polity(&[&["sim"], &args[..], &["--json"]].concat());
        assert!(output.error().hint.contains(&hint), "{output:?}");
    }
}

#[test]
fn option_errors_name_the_option() {
    let sandbox = HomeSandbox::society();
    for (args, code, expected) in [
        (
            vec!["--set", "seed=3", "--set", "world.rates.decides.rate=2"],
            2,
            "not valid with --set world.rates.decides.rate=2: world.rates[3].rate must be from 0 \
             to 1",
        ),
        (vec!["--set", "sed=3"], 2, "not valid with --set sed=3: unknown field \"sed\""),
        (
            vec!["--set", "lifecycle.1.auto_resume_turns=0"],
            2,
            "--set lifecycle.1.auto_resume_turns=0: lifecycle[1].auto_resume_turns",
        ),
        (vec!["--set", "oracle.budget=3"], 2, "oracle: this version has no oracle yet"),
        (vec!["--set", "record=true"], 2, "record: this version has no record yet"),
        (vec!["--set", "chart=other"], 2, "\"chart\" cannot be changed in a run"),
        (vec!["--set", "name=other"], 2, "\"name\" cannot be changed in a run"),
        (vec!["--set", "lifecycle.0.turn=99"], 2, "turn 99 does not exist"),
        (vec!["--turns", "1000000000000"], 6, "turns must be at most"),
        (vec!["--set", "turns=1000000000000"], 6, "turns must be at most"),
        (vec!["--set", "max_agents=1000000000000"], 6, "max_agents must be at most"),
        (vec!["--set", "max_agents=3"], 6, "has 25 agents, and max_agents is 3"),
    ] {
        let error = sandbox.error(code, &[&["sim", "run", "society"], &args[..]].concat());
        assert!(error.message.contains(expected), "{error:?}");
    }
    sandbox.get(&["sim", "run", "society", "--turns", "1"]);
    let longer = ["sim", "resume", "last", "--turns", "1000000000000", "--json"];
    sandbox.polity(&longer).exits(6);

    // In a file, an exceeded limit makes the definition invalid.
    let path = sandbox.file("scenarios/society.yaml");
    let text = fs::read_to_string(&path).unwrap().replace("max_agents: 30", "max_agents: 3");
    fs::write(&path, text + "oracle: {llm_config: {}}\n").unwrap();
    let (answer, code) = sandbox.json(&["check"]);
    assert_eq!(code, 2);
    let fields: Vec<&Value> =
        answer["errors"].as_array().unwrap().iter().map(|error| &error["field"]).collect();
    assert_eq!(fields, ["max_agents", "oracle"], "{answer:#}");
    sandbox.polity(&["sim", "run", "society"]).exits(2);
}

#[test]
fn resume_from_any_turn_gives_the_same_result() {
    let sandbox = HomeSandbox::society();
    let uninterrupted = sandbox.get(&["sim", "run", "society"]);
    for turn in ["0", "4", "8", "19", "20"] {
        let resumed = sandbox.get(&["sim", "resume", "last", "--from", turn]);
        assert_eq!(resumed, uninterrupted, "from turn {turn}");
    }
    let longer = sandbox.get(&["sim", "resume", "last", "--turns", "23"]);
    let same = sandbox.get(&["sim", "run", "society", "--turns", "23"]);
    assert_eq!(longer["turns"], 23);
    assert_eq!(longer["digest"], same["digest"]);
}

#[test]
fn second_ctrl_c_quits_within_a_long_turn() {
    let sandbox = HomeSandbox::society();
    let long = ["--set", "ticks_per_turn=100000", "--set", "max_agents=30000", "--agents", "25000"];
    let mut child = sandbox.start(&[&["sim", "run", "society"], &long[..]].concat());
    sandbox.wait_until("the run has started", || {
        let runs = sandbox.json(&["sim", "status"]).0;
        runs.as_array().filter(|runs| !runs.is_empty()).map(drop)
    });
    press_ctrl_c(&child);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert_eq!(line, "stopping at the end of this turn; press Ctrl-C again to quit at once");
    press_ctrl_c(&child);
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(sandbox.json(&["sim", "status", "last"]).0["interrupted"], true);
}

#[test]
fn killed_run_resumes_to_the_same_result() {
    let sandbox = HomeSandbox::society();
    let (mut child, id) = start_run(&sandbox);
    let turn = || sandbox.get(&["sim", "status", &id])["turn"].as_u64().unwrap();
    for _ in 0..3 {
        kill(&mut child);
        let before = turn();
        child = sandbox.start(&["sim", "resume", &id]);
        sandbox.wait_until("the run continues", || (turn() >= before + 10).then_some(()));
    }
    kill(&mut child);
    let status = sandbox.get(&["sim", "status", &id]);
    assert_eq!((&status["status"], &status["interrupted"]), (&json!("running"), &json!(true)));
    let turns = (status["turn"].as_u64().unwrap() + 7).to_string();
    let resumed = sandbox.get(&["sim", "resume", &id[..8], "--turns", &turns]);
    let uninterrupted = sandbox.get(&["sim", "run", "society", "--turns", &turns]);
    assert_eq!(resumed["digest"], uninterrupted["digest"]);
    assert_eq!(sandbox.get(&["sim", "status", &id])["status"], "ended");
}

#[test]
fn lifecycle_changes_a_running_population() {
    let sandbox = HomeSandbox::society();
    let (child, id) = start_run(&sandbox);
    let ask = |args: &[&str]| sandbox.json(&[&["sim", "lifecycle", &id], args].concat());
    let (added, code) = ask(&["add", "ada", "--initial-state", r#"{"engagement_threshold": 0.1}"#]);
    assert_eq!(code, 0);
    let expected = json!({
        "valid": true,
        "reason": null,
        "warnings": ["the name \"ada\" is taken, the new agent is \"ada_2\""],
        "name": "ada_2",
    });
    assert_eq!(added, expected);
    assert_eq!(ask(&["remove", "reader_1"]).1, 0);
    assert_eq!(ask(&["pause", "reader_2"]).1, 0);
    for (args, reason) in [
        (vec!["pause", "reader_2"], "\"reader_2\" is paused already"),
        (vec!["resume", "reader_4"], "\"reader_4\" is not paused"),
        (vec!["remove", "reader_1"], "there is no agent \"reader_1\""),
        (
            vec!["pause", "reader_5", "--auto-resume-turns", "0"],
            "auto_resume_turns must be a whole number from 1 to 4294967295, found 0",
        ),
    ] {
        let (refused, code) = ask(&args);
        assert_eq!((&refused["valid"], code), (&json!(false), 1), "{refused}");
        assert_eq!(refused["reason"], reason);
        assert_eq!(refused["name"], Value::Null);
    }
    assert_eq!(sandbox.error(1, &["sim", "resume", &id]).code, "conflict");

    let stopped = interrupt(child).exits(4);
    let summary: Value = serde_json::from_str(&stopped.out).unwrap();
    assert_eq!(summary["paused"], json!(["reader_2"]));
    assert_eq!(summary["agents"], 25);

    // A stopped run accepts requests for its next turn.
    let (later, code) = ask(&["resume", "reader_2"]);
    assert_eq!((&later["valid"], code), (&json!(true), 0));
    let turns = (summary["turns"].as_u64().unwrap() + 2).to_string();
    let ended = sandbox.get(&["sim", "resume", &id, "--turns", &turns]);
    assert_eq!(ended["paused"], json!([]));
    let again = sandbox.get(&["sim", "resume", &id, "--from", "0"]);
    assert_eq!(again, ended);

    let late = sandbox.error(1, &["sim", "lifecycle", &id, "remove", "ada"]);
    assert!(late.code == "conflict" && late.message.contains("has ended"), "{late:?}");
}

#[test]
fn interrupted_run_shows_how_to_resume() {
    let sandbox = HomeSandbox::society();
    let child = sandbox.start(&["sim", "run", "society", "--turns", FOREVER]);
    sandbox.wait_until("a run has made a turn", || {
        let runs = sandbox.json(&["sim", "status"]).0;
        (runs.as_array()?.first()?["turn"].as_u64()? >= 1).then_some(())
    });
    let stopped = interrupt(child).exits(4);
    let id = sandbox.json(&["sim", "status", "last"]).0["run_id"].as_str().unwrap().to_owned();
    let hint = format!("continue with `polity sim resume {id}`");
    assert!(stopped.err.contains(&hint), "{stopped:?}");
    assert!(!stopped.err.contains("turns/s"), "no bar without a terminal: {stopped:?}");
}

#[test]
fn fork_shares_the_past_only() {
    let sandbox = HomeSandbox::society();
    let original = sandbox.get(&["sim", "run", "society"]);
    let id = original["run_id"].as_str().unwrap();
    let same = sandbox.get(&["sim", "fork", id, "--at", "10"]);
    assert_eq!(same["digest"], original["digest"]);
    assert_ne!(same["run_id"], original["run_id"]);
    let sets = ["--set", "world.rates.decides.rate=1", "--set", "turns=15"];
    let other = sandbox.get(&[&["sim", "fork", id, "--at", "10"], &sets[..]].concat());
    assert_ne!(other["digest"], original["digest"]);
    assert_eq!((&other["turns"], &same["turns"]), (&json!(15), &json!(20)));
    let short = sandbox.get(&["sim", "fork", id, "--at", "10", "--turns", "12"]);
    let status = sandbox.get(&["sim", "status", short["run_id"].as_str().unwrap()]);
    assert_eq!(status["forked_from"], json!({"run_id": id, "turn": 10}));
    assert_eq!(status["checkpoints"], json!([10, 11, 12]));

    for (args, code, message) in [
        (vec!["--at", "99"], 1, "no checkpoint of turn 99"),
        (vec!["--at", "10", "--turns", "9"], 2, "has 9 turns, but continues from the end"),
        (vec!["--at", "10", "--set", "turns=9"], 2, "has 9 turns, but continues from the end"),
        (vec!["--at", "3", "--set", "population.0.count=1"], 2, "cannot be changed in a fork"),
        (vec!["--at", "3", "--set", "world.rates.9.rate=1"], 2, "there is no item 9"),
        (vec!["--at", "3", "--set", "world.rates.0.rate=2"], 2, "is not valid"),
    ] {
        let error = sandbox.error(code, &[&["sim", "fork", id], &args[..]].concat());
        assert!(error.message.contains(message), "{error:?}");
    }
}

#[test]
fn export_shows_the_transitions_of_an_agent() {
    let sandbox = HomeSandbox::society();
    sandbox.get(&["sim", "run", "society"]);
    let agent = sandbox.get(&["sim", "export", "last", "--agent", "author_2"]);
    let keys: Vec<&String> = agent.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["agent_id", "current_state", "state_history", "ticks_in_state"]);
    assert_eq!(agent["agent_id"], "author_2");
    let history = agent["state_history"].as_array().unwrap();
    assert_eq!(history.len(), 50);
    for past in history {
        assert_ne!(past["from_state"], past["to_state"]);
        assert!(past["timestamp"].as_str().unwrap().starts_with("2026-01-01T00:"));
        assert_eq!(past["context"], Value::Null);
    }
    let missing = sandbox.error(1, &["sim", "export", "last", "--agent", "reader_3"]);
    let message = "there is no agent \"reader_3\" at the end of turn 20: it was removed in turn 8";
    assert_eq!((&*missing.code, &*missing.message), ("not_found", message));
    assert!(missing.hint.ends_with("--agent reader_3 --at 7`"), "{missing:?}");
    let never = sandbox.error(1, &["sim", "export", "last", "--agent", "nobody"]);
    assert_eq!(never.hint, "name a turn in which it existed with --at");
    let earlier = ["sim", "export", "last", "--agent", "reader_3", "--at", "7"];
    assert_eq!(sandbox.get(&earlier)["agent_id"], "reader_3");
}

#[test]
fn limits_are_named_and_an_empty_population_runs() {
    let sandbox = HomeSandbox::society();
    let many = sandbox.error(6, &["sim", "run", "society", "--agents", "31"]);
    assert_eq!(many.code, "limit_max_agents");
    assert!(many.message.contains("max_agents is 30"), "{many:?}");
    let raised =
        ["sim", "run", "society", "--agents", "50", "--set", "max_agents=60", "--turns", "2"];
    assert_eq!(sandbox.get(&raised)["agents"], 50);
    let none = ["sim", "run", "society", "--agents", "0", "--set", "lifecycle=[]"];
    let none = sandbox.get(&none);
    assert_eq!((&none["agents"], &none["turns"]), (&json!(0), &json!(20)));
}

#[test]
fn lifecycle_problems_have_line_and_column() {
    let sandbox = HomeSandbox::society();
    let path = sandbox.file("scenarios/society.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let (good, _) = text.split_once("lifecycle:").unwrap();
    let lifecycle = "lifecycle:
  - {turn: 1, operation: pause_agent, target_agent_name: ada, auto_resume_turns: 0}
  - {turn: 1, operation: add_agent, target_agent_name: eve, initial_state: {state: asleep}}
  - {turn: 1, operation: add_agent, target_agent_name: eve, initial_state: {mood: 1}}
  - {turn: 1, operation: add_agent, target_agent_name: eve}
  - {turn: 21, operation: remove_agent, target_agent_name: ada}
  - {turn: 1, operation: remove_agent, target_agent_name: ada, auto_resume_turns: 1}
  - {turn: 1, operation: remove_agent, target_agent_name: ada, initiating_agent: bob}
";
    fs::write(&path, format!("{good}{lifecycle}")).unwrap();
    let (answer, code) = sandbox.json(&["check"]);
    assert_eq!((code, &answer["valid"]), (2, &json!(false)));
    let first = u64::try_from(good.lines().count()).unwrap() + 2;
    let positions: Vec<(u64, u64, &str)> = answer["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            let number = |field: &str| error[field].as_u64().unwrap();
            (number("line") - first, number("column"), error["field"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        positions,
        [
            (0, 82, "lifecycle[0].auto_resume_turns"),
            (1, 84, "lifecycle[1].initial_state.state"),
            (2, 83, "lifecycle[2].initial_state.mood"),
            (3, 5, "lifecycle[3].initial_state"),
            (4, 12, "lifecycle[4].turn"),
            (5, 83, "lifecycle[5].auto_resume_turns"),
            (6, 82, "lifecycle[6].initiating_agent"),
        ],
        "{answer:#}"
    );
    let late = lifecycle.lines().nth(5).unwrap();
    fs::write(&path, format!("{good}lifecycle:\n{late}\n")).unwrap();
    let (answer, code) = sandbox.json(&["check"]);
    assert_eq!((code, &answer["errors"][0]["field"]), (2, &json!("lifecycle[0].turn")));
    // A shorter run drops requests for later turns.
    fs::write(&path, text).unwrap();
    sandbox.get(&["sim", "run", "society", "--turns", "4"]);
}

#[test]
fn strict_run_drops_all_requests_of_a_turn_with_an_invalid_one() {
    let sandbox = HomeSandbox::society();
    let lifecycle = r#"lifecycle=[
        {"turn": 2, "operation": "remove_agent", "target_agent_name": "ada"},
        {"turn": 2, "operation": "remove_agent", "target_agent_name": "nobody"}]"#;
    let args = ["sim", "run", "society", "--turns", "3", "--set", lifecycle];
    let lenient = sandbox.get(&args);
    assert_eq!(lenient["agents"], 24);
    let warning = json!([{
        "turn": 2,
        "operation": "remove_agent",
        "target_agent_name": "nobody",
        "reason": "there is no agent \"nobody\"",
    }]);
    assert_eq!(lenient["warnings"], warning);
    let strict = sandbox.get(&[&args[..], &["--strict"]].concat());
    assert_eq!(strict["agents"], 25);
    assert_eq!(strict["warnings"].as_array().unwrap().len(), 2);
}

#[test]
fn addition_without_an_initial_state_is_rejected() {
    let sandbox = HomeSandbox::society();
    let (child, id) = start_run(&sandbox);
    let add = |args: &[&str]| {
        sandbox.polity(&[&["sim", "lifecycle", &id, "add", "grace"], args, &["--json"]].concat())
    };
    let missing = add(&[]).exits(2);
    assert!(missing.err.contains("--initial-state <JSON>"), "{missing:?}");
    let twice = add(&["--state", "resting", "--initial-state", r#"{"state": "idle"}"#]).exits(2);
    assert!(twice.err.contains("both name a state"), "{twice:?}");
    let unknown = add(&["--state", "asleep"]).exits(1);
    assert!(unknown.out.contains("there is no state \\\"asleep\\\""), "{unknown:?}");
    for args in [
        &["--state", "resting"][..],
        &["--initial-state", "{}"],
        &["--initial-state", r#"{"engagement_threshold": 0.1}"#, "--state", "resting"],
    ] {
        add(args).exits(0);
    }
    interrupt(child).exits(4);
}

#[test]
fn failing_guard_is_false_with_a_warning() {
    let sandbox = HomeSandbox::bare();
    let chart = "
name: ratio
states: [low, high]
initial: low
fields: {part: 1, whole: 0}
transitions:
  - {trigger: look, source: low, target: high, guard: 'agent.part / agent.whole > 0.5'}
";
    sandbox.write("charts/ratio.yaml", chart);
    let scenario = "{name: ratios, chart: ratio, turns: 2, ticks_per_turn: 3, \
        population: [{name: a}, {name: b, fields: {whole: 1}}], \
        world: {rates: [{trigger: look, rate: 1}]}}";
    sandbox.write("scenarios/ratios.yaml", scenario);
    // The chart has no transition back to `low`, which is valid.
    let answer = sandbox.get(&["sim", "run", "ratios"]);
    assert_eq!(answer["states"], json!({"low": 1, "high": 1}));
    let warnings = answer["warnings"].as_array().unwrap();
    assert!(!warnings.is_empty());
    assert_eq!(warnings[0]["target_agent_name"], "a");
    assert_eq!(warnings.len(), 1, "a repeated failure gives one warning");
    let reason = warnings[0]["reason"].as_str().unwrap();
    assert!(reason.contains("division by zero"), "{reason}");
    assert!(reason.contains("transitions[0]"), "{reason}");
}

#[test]
fn status_lists_runs_and_rejects_unknown_ids() {
    let sandbox = HomeSandbox::society();
    assert_eq!(sandbox.json(&["sim", "status"]).0, json!([]));
    sandbox.polity(&["sim", "resume", "last"]).exits(1);
    sandbox.get(&["sim", "run", "society", "--turns", "1"]);
    let second = sandbox.get(&["sim", "run", "society", "--turns", "2"]);
    let runs = sandbox.get(&["sim", "status"]);
    assert_eq!(runs.as_array().unwrap().len(), 2);
    assert_eq!(runs[0]["run_id"], second["run_id"]);
    let spoilt = sandbox.file("data/simulations/spoilt/run.json");
    fs::create_dir_all(spoilt.parent().unwrap()).unwrap();
    fs::write(spoilt, "{").unwrap();
    assert_eq!(sandbox.get(&["sim", "status"]), runs, "a damaged run hides no other run");
    assert_eq!(sandbox.error(2, &["sim", "resume", "last", "--turns", "1"]).code, "usage");
    assert_eq!(sandbox.error(1, &["sim", "status", "zzzz"]).code, "not_found");
    let misspelt = sandbox.error(2, &["sim", "run", "sosiety"]);
    assert_eq!(misspelt.hint, "did you mean \"society\"?");
}

#[test]
fn fork_keeps_the_behaviours() {
    let sandbox = HomeSandbox::society();
    sandbox.get(&["sim", "run", "society", "--turns", "3"]);
    let more = "world.behaviours.slow=[]";
    let error = sandbox.error(2, &["sim", "fork", "last", "--at", "2", "--set", more]);
    let names = "the names that they had: quick, and not: quick, slow";
    assert!(error.message.contains(names), "{error:?}");
}
