//! Changes of a scenario for a run or fork, and their errors.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{CommandOutput, HomeSandbox};

fn society() -> HomeSandbox {
    let sandbox = HomeSandbox::empty();
    assert_eq!(sandbox.polity(&["init", ".", "--example", "society"]).code, 0);
    sandbox
}

fn sim(sandbox: &HomeSandbox, args: &[&str]) -> Value {
    let (answer, code) = sandbox.json(&[&["sim"], args].concat());
    assert_eq!(code, 0, "{answer}");
    answer
}

/// The code, message and hint of an error.
fn command_error(sandbox: &HomeSandbox, args: &[&str]) -> (i32, String, String) {
    let output: CommandOutput = sandbox.polity(&[&["sim"], args, &["--json"]].concat());
    let error = output.error();
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    (output.code, text("message"), text("hint"))
}

#[test]
fn fork_rejects_changes_of_its_past() {
    let sandbox = society();
    let straight = sim(&sandbox, &["run", "society"]);
    let added = |turn: u64| {
        let entry = json!([{
            "turn": turn, "operation": "add_agent", "target_agent_name": "bob", "initial_state": {}
        }]);
        format!("lifecycle={entry}")
    };
    for turn in [2, 10] {
        let (code, message, _) =
            command_error(&sandbox, &["fork", "last", "--at", "10", "--set", &added(turn)]);
        assert_eq!(code, 2, "{message}");
        let told =
            format!("lifecycle[0].turn: turn {turn} has already run: this begins after turn 10");
        assert!(message.ends_with(&told), "{message}");
    }
    let (code, message, _) = command_error(
        &sandbox,
        &["fork", "last", "--at", "10", "--set", "lifecycle.0.target_agent_name=bob"],
    );
    assert!(
        code == 2 && message.ends_with("turn 3 has already run: this begins after turn 10"),
        "{message}"
    );
    let fork = sim(&sandbox, &["fork", "last", "--at", "10", "--set", &added(11)]);
    assert_eq!((&fork["agents"], &fork["warnings"]), (&json!(26), &json!([])));
    // What was there before is no one's change.
    let (id, end) = (straight["run_id"].as_str().unwrap(), "lifecycle.2.turn=15");
    let fork = sim(&sandbox, &["fork", id, "--at", "7", "--set", end]);
    assert_eq!(fork["agents"], straight["agents"]);
}

#[test]
fn shorter_run_drops_later_requests_unless_set() {
    let sandbox = society();
    sim(&sandbox, &["run", "society", "--turns", "2", "--set", "lifecycle.0.turn=1"]);
    let args = ["run", "society", "--turns", "2", "--set", "lifecycle.0.turn=3"];
    let (code, message, _) = command_error(&sandbox, &args);
    assert!(code == 2 && message.contains("turn 3 does not exist"), "{message}");
    assert!(!message.contains("turn 5"), "{message}");
    let other = "lifecycle.2.target_agent_name=reader_5";
    let (code, message, _) =
        command_error(&sandbox, &["run", "society", "--turns", "2", "--set", other]);
    assert!(
        code == 2 && message.ends_with("turn 8 does not exist: there are 2 turns"),
        "{message}"
    );
}

#[test]
fn hints_name_valid_options() {
    let sandbox = society();
    let run = sim(&sandbox, &["run", "society", "--turns", "4"]);
    let id = run["run_id"].as_str().unwrap();
    for (args, expected, hint) in [
        (vec!["run", "society", "--set", "max_agents=100000001"], 6, "use fewer agents"),
        (vec!["run", "society", "--set", "ticks_per_turn=100000000000"], 2, "`polity schema"),
        (vec!["fork", id, "--at", "2", "--set", "ticks_per_turn=5"], 2, "start a new run"),
        (vec!["fork", id, "--at", "2", "--set", "population.0.count=5"], 2, "lifecycle"),
        (vec!["run", "society", "--set", "world.rates.decide.rate=1"], 2, "\"decides\""),
        (
            vec!["run", "society", "--set", "world.rates.zzz.rate=1"],
            2,
            "there are feed_ready, sees_post, ignores, decides, compose_done, action_done",
        ),
    ] {
        let (code, message, told) = command_error(&sandbox, &args);
        assert!(code == expected && told.contains(hint), "{message}\n{told}");
    }
    let (_, message, _) =
        command_error(&sandbox, &["run", "society", "--set", "ticks_per_turn=100000000000"]);
    assert!(message.contains("ticks_per_turn must be at most 100000"), "{message}");

    let folder = sandbox.file("data/simulations").join(id);
    fs::write(folder.join("chart.json"), "{}").unwrap();
    let (code, _, hint) = command_error(&sandbox, &["resume", id]);
    assert!(code == 2 && hint.contains("the run keeps its own chart.json"), "{hint}");
    let folder = folder.to_str().unwrap();
    let (code, message, hint) = command_error(&sandbox, &["run", "society", "--out", folder]);
    assert!(code == 1 && message.ends_with("already exists"), "{message}");
    assert!(hint.contains("--out"), "{hint}");
    fs::write(sandbox.file("data/simulations").join(id).join("run.json"), "{").unwrap();
    let (code, _, hint) = command_error(&sandbox, &["resume", folder]);
    assert!(code == 1 && hint.contains("start a new run"), "{hint}");
    let (code, message, _) = command_error(&sandbox, &["run", "society", "--turns", "-3"]);
    assert!(code == 2 && message.contains("invalid value '-3' for '--turns"), "{message}");
}

#[test]
fn errors_name_the_option_at_fault() {
    let sandbox = society();
    let run = sim(&sandbox, &["run", "society", "--turns", "4"]);
    let id = run["run_id"].as_str().unwrap();
    let (code, message, _) =
        command_error(&sandbox, &["fork", id, "--at", "2", "--set", "world.behaviours={}"]);
    assert!(code == 2 && message.contains("with --set world.behaviours={}: "), "{message}");
    let fork = sim(&sandbox, &["fork", id, "--at", "2"]);
    assert_eq!(fork["turns"], 4, "as many as the other run");
    let population = "population=[{\"name\": \"ada\", \"fields\": {\"nope\": 1}}]";
    let lifecycle = "lifecycle=[{\"turn\": 1, \"operation\": \"pause_agent\", \
                     \"target_agent_name\": \"ada\", \"initiating_agent\": \"ada\"}]";
    let args = ["run", "society", "--set", population, "--set", lifecycle];
    let (code, message, _) = command_error(&sandbox, &args);
    assert!(code == 2 && message.contains("nope"), "{message}");
    assert!(!message.contains("never an agent"), "{message}");
}

#[test]
fn fork_outside_a_home_creates_none() {
    let sandbox = society();
    let run = sim(&sandbox, &["run", "society", "--turns", "4"]);
    let folder = sandbox.file("data/simulations").join(run["run_id"].as_str().unwrap());
    let (elsewhere, home) = (HomeSandbox::empty(), HomeSandbox::empty());
    let polity = |args: &[&str]| {
        let mut command = elsewhere.command(&[&["sim"], args].concat());
        crate::sandbox::command_output(&command.env("HOME", home.path()).output().unwrap())
    };
    let folder = folder.to_str().unwrap();
    let forked = polity(&["fork", folder, "--at", "2"]);
    assert_eq!(forked.code, 1, "{forked:?}");
    assert!(forked.err.contains("there is no home folder"), "{forked:?}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    let out = elsewhere.file("fork");
    let forked = polity(&["fork", folder, "--at", "2", "--out", out.to_str().unwrap()]);
    assert_eq!(forked.code, 0, "{forked:?}");

    fs::create_dir_all(elsewhere.file("no/run")).unwrap();
    let status = polity(&["status", "no/run"]);
    assert!(status.err.contains("no/run is not the folder of a run"), "{status:?}");
}

#[test]
fn verbose_shows_lifecycle_requests() {
    let sandbox = society();
    let told = sandbox.polity(&["sim", "run", "society", "-v"]).err;
    for line in [
        "turn 3: add_agent \"ada_1\" (\"ada\" is taken), by the scenario\n",
        "turn 5: pause_agent \"ada\", by the scenario\n",
        "turn 8: remove_agent \"reader_3\", by the scenario\n",
        "turn 9: resume_agent \"ada\", its pause is over\n",
    ] {
        assert!(told.contains(line), "{line}{told}");
    }
    assert!(!sandbox.polity(&["sim", "run", "society"]).err.contains("add_agent"));
}

#[test]
fn agents_flag_scales_groups() {
    let sandbox = society();
    let args = ["run", "society", "--agents", "1001", "--set", "max_agents=1100"];
    let run = sim(&sandbox, &args);
    assert_eq!((&run["agents"], &run["warnings"]), (&json!(1001), &json!([])));
    for (agent, is_there) in [("ada", true), ("reader_750", true), ("author_251", false)] {
        let shown = sandbox.polity(&["sim", "export", "last", "--agent", agent]);
        assert_eq!(shown.code == 0, is_there, "{agent}: {shown:?}");
    }
}

#[test]
fn set_changes_groups_and_world_values() {
    let sandbox = society();
    let args = ["run", "society", "--turns", "0", "--set", "population.ada.state=resting"];
    let begun = sim(&sandbox, &[&args[..], &["--set", "world.values.replies=5"]].concat());
    assert_eq!(begun["states"]["resting"], 1);
    assert_eq!(begun["world"]["replies"], 5);
    sim(&sandbox, &["run", "society", "--turns", "6"]);
    let fork = ["fork", "last", "--at", "6", "--set", "world.values.replies=1000"];
    let forked = sim(&sandbox, &fork);
    assert_eq!(forked["world"]["replies"], 1000);
    // What it once was it may be again.
    let back = ["fork", "last", "--at", "6", "--turns", "8"];
    let again = sim(&sandbox, &[&back[..], &["--set", "world.values.replies=1000"]].concat());
    let other =
        sim(&sandbox, &["fork", forked["run_id"].as_str().unwrap(), "--at", "6", "--turns", "8"]);
    assert_eq!(again["world"], other["world"]);
    assert!(again["world"]["replies"].as_f64() > Some(1000.0), "{again}");
    let (code, message, hint) =
        command_error(&sandbox, &["run", "society", "--set", "world.values.replys=1"]);
    assert!(code == 2 && message.contains("no value of the world \"replys\""), "{message}");
    assert_eq!(hint, "did you mean \"replies\"?");
}

#[test]
fn groups_of_one_are_not_scaled() {
    let sandbox = society();
    let population = |groups: &str| {
        let text = format!("name: small\nchart: social\nturns: 1\npopulation: [{groups}]\n");
        fs::write(sandbox.file("scenarios/small.yaml"), text).unwrap();
    };
    let agents = |count: &str| {
        let run = sim(&sandbox, &["run", "small", "--agents", count]);
        let path = sandbox.file("data/simulations").join(run["run_id"].as_str().unwrap());
        let text = fs::read_to_string(path.join("checkpoints/turn_000001.json")).unwrap();
        let checkpoint: Value = serde_json::from_str(&text).unwrap();
        checkpoint["agents"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    population("{name: ada}, {name: bob}, {name: c, count: 3}");
    assert_eq!(agents("4"), "ada bob c_1 c_2");
    assert_eq!(agents("2"), "ada bob");
    assert_eq!(agents("0"), "");
    let refused = sandbox.polity(&["sim", "run", "small", "--agents", "1", "--json"]);
    let message = "--agents 1: 2 agents of the scenario are groups of one, which are not scaled";
    assert_eq!((refused.code, &refused.error()["message"]), (2, &json!(message)));
    population("{name: ada}, {name: bob}");
    assert_eq!(agents("3"), "ada_1 ada_2 bob");
}

#[test]
fn empty_out_folder_is_accepted() {
    let sandbox = society();
    let out = sandbox.file("out");
    let run = || sandbox.polity(&["sim", "run", "society", "--out", out.to_str().unwrap()]);
    // What a process leaves that is killed while it makes the folder.
    fs::create_dir_all(out.join("checkpoints")).unwrap();
    fs::write(out.join("owner.lock"), "").unwrap();
    fs::write(out.join("scenario.json"), "{").unwrap();
    fs::write(out.join("chart.unfinished"), "").unwrap();
    assert_eq!(run().code, 0);
    assert_eq!(run().code, 1, "it is a run now");
    for file in ["scenario.json", "notes.txt", "checkpoints/turn_000001.json"] {
        fs::remove_dir_all(&out).unwrap();
        fs::create_dir_all(out.join("checkpoints")).unwrap();
        fs::write(out.join(file), "mine").unwrap();
        assert_eq!(run().code, 1, "{file}");
        assert_eq!(fs::read_to_string(out.join(file)).unwrap(), "mine");
    }
}
