//! Changes of a scenario for a run or a fork, and their errors.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{HomeSandbox, command_output};

#[test]
fn fork_rejects_changes_of_its_past() {
    let sandbox = HomeSandbox::society();
    let original = sandbox.get(&["sim", "run", "society"]);
    let added = |turn: u64| {
        let entry = json!([{
            "turn": turn, "operation": "add_agent", "target_agent_name": "bob", "initial_state": {}
        }]);
        format!("lifecycle={entry}")
    };
    for turn in [2, 10] {
        let error = sandbox.error(2, &["sim", "fork", "last", "--at", "10", "--set", &added(turn)]);
        let expected =
            format!("lifecycle[0].turn: turn {turn} has already run: this begins after turn 10");
        assert!(error.message.ends_with(&expected), "{error:?}");
    }
    let other = "lifecycle.0.target_agent_name=bob";
    let error = sandbox.error(2, &["sim", "fork", "last", "--at", "10", "--set", other]);
    let expected = "turn 3 has already run: this begins after turn 10";
    assert!(error.message.ends_with(expected), "{error:?}");
    let fork = sandbox.get(&["sim", "fork", "last", "--at", "10", "--set", &added(11)]);
    assert_eq!((&fork["agents"], &fork["warnings"]), (&json!(26), &json!([])));
    // Requests that were already in the scenario are not changes of the past.
    let (id, end) = (original["run_id"].as_str().unwrap(), "lifecycle.2.turn=15");
    let fork = sandbox.get(&["sim", "fork", id, "--at", "7", "--set", end]);
    assert_eq!(fork["agents"], original["agents"]);
}

#[test]
fn shorter_run_drops_later_requests_unless_set() {
    let sandbox = HomeSandbox::society();
    sandbox.get(&["sim", "run", "society", "--turns", "2", "--set", "lifecycle.0.turn=1"]);
    let error = |set: &str| {
        sandbox.error(2, &["sim", "run", "society", "--turns", "2", "--set", set]).message
    };
    let message = error("lifecycle.0.turn=3");
    assert!(message.contains("turn 3 does not exist"), "{message}");
    assert!(!message.contains("turn 5"), "{message}");
    let message = error("lifecycle.2.target_agent_name=reader_5");
    assert!(message.ends_with("turn 8 does not exist: there are 2 turns"), "{message}");
}

#[test]
fn hints_name_valid_options() {
    let sandbox = HomeSandbox::society();
    let run = sandbox.get(&["sim", "run", "society", "--turns", "4"]);
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
        let error = sandbox.error(expected, &[&["sim"], &args[..]].concat());
        assert!(error.hint.contains(hint), "{error:?}");
    }
    let set = "ticks_per_turn=100000000000";
    let message = sandbox.error(2, &["sim", "run", "society", "--set", set]).message;
    assert!(message.contains("ticks_per_turn must be at most 100000"), "{message}");

    let folder = sandbox.file("data/simulations").join(id);
    fs::write(folder.join("chart.json"), "{}").unwrap();
    let hint = sandbox.error(2, &["sim", "resume", id]).hint;
    assert!(hint.contains("the run keeps its own chart.json"), "{hint}");
    let folder = folder.to_str().unwrap();
    let error = sandbox.error(1, &["sim", "run", "society", "--out", folder]);
    assert!(error.message.ends_with("already exists") && error.hint.contains("--out"), "{error:?}");
    fs::write(sandbox.file("data/simulations").join(id).join("run.json"), "{").unwrap();
    let hint = sandbox.error(1, &["sim", "resume", folder]).hint;
    assert!(hint.contains("start a new run"), "{hint}");
    let message = sandbox.error(2, &["sim", "run", "society", "--turns", "-3"]).message;
    assert!(message.contains("invalid value '-3' for '--turns"), "{message}");
}

#[test]
fn errors_name_the_option_at_fault() {
    let sandbox = HomeSandbox::society();
    let run = sandbox.get(&["sim", "run", "society", "--turns", "4"]);
    let id = run["run_id"].as_str().unwrap();
    let set = "world.behaviours={}";
    let message = sandbox.error(2, &["sim", "fork", id, "--at", "2", "--set", set]).message;
    assert!(message.contains("with --set world.behaviours={}: "), "{message}");
    let fork = sandbox.get(&["sim", "fork", id, "--at", "2"]);
    assert_eq!(fork["turns"], 4, "the number of turns of the original run");
    let population = "population=[{\"name\": \"ada\", \"fields\": {\"nope\": 1}}]";
    let lifecycle = "lifecycle=[{\"turn\": 1, \"operation\": \"pause_agent\", \
                     \"target_agent_name\": \"ada\", \"initiating_agent\": \"ada\"}]";
    let args = ["sim", "run", "society", "--set", population, "--set", lifecycle];
    let message = sandbox.error(2, &args).message;
    assert!(message.contains("nope") && !message.contains("there is no agent"), "{message}");
}

#[test]
fn fork_outside_a_home_creates_none() {
    let sandbox = HomeSandbox::society();
    let run = sandbox.get(&["sim", "run", "society", "--turns", "4"]);
    let folder = sandbox.file("data/simulations").join(run["run_id"].as_str().unwrap());
    let (elsewhere, home) = (HomeSandbox::empty(), HomeSandbox::empty());
    let polity = |args: &[&str]| {
        let mut command = elsewhere.command(&[&["sim"], args].concat());
        command_output(&command.env("HOME", home.path()).output().unwrap())
    };
    let folder = folder.to_str().unwrap();
    polity(&["fork", folder, "--at", "2"]).fails(1, "there is no home folder");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    let out = elsewhere.file("fork");
    polity(&["fork", folder, "--at", "2", "--out", out.to_str().unwrap()]).exits(0);

    fs::create_dir_all(elsewhere.file("no/run")).unwrap();
    polity(&["status", "no/run"]).err_has("no/run is not the folder of a run");
}

#[test]
fn verbose_shows_lifecycle_requests() {
    let sandbox = HomeSandbox::society();
    let stderr = sandbox.polity(&["sim", "run", "society", "-v"]).err;
    for line in [
        "turn 3: add_agent \"ada_1\" (\"ada\" is taken), by the scenario\n",
        "turn 5: pause_agent \"ada\", by the scenario\n",
        "turn 8: remove_agent \"reader_3\", by the scenario\n",
        "turn 9: resume_agent \"ada\", its pause is over\n",
    ] {
        assert!(stderr.contains(line), "{line}{stderr}");
    }
    assert!(!sandbox.polity(&["sim", "run", "society"]).err.contains("add_agent"));
}

#[test]
fn agents_flag_scales_groups() {
    let sandbox = HomeSandbox::society();
    let run =
        sandbox.get(&["sim", "run", "society", "--agents", "1001", "--set", "max_agents=1100"]);
    assert_eq!((&run["agents"], &run["warnings"]), (&json!(1001), &json!([])));
    for (agent, is_there) in [("ada", true), ("reader_750", true), ("author_251", false)] {
        let shown = sandbox.polity(&["sim", "export", "last", "--agent", agent]);
        assert_eq!(shown.code == 0, is_there, "{agent}: {shown:?}");
    }
}

#[test]
fn set_changes_groups_and_world_values() {
    let sandbox = HomeSandbox::society();
    let args = ["sim", "run", "society", "--turns", "0", "--set", "population.ada.state=resting"];
    let run = sandbox.get(&[&args[..], &["--set", "world.values.replies=5"]].concat());
    assert_eq!(run["states"]["resting"], 1);
    assert_eq!(run["world"]["replies"], 5);
    sandbox.get(&["sim", "run", "society", "--turns", "6"]);
    let fork = ["sim", "fork", "last", "--at", "6", "--set", "world.values.replies=1000"];
    let forked = sandbox.get(&fork);
    assert_eq!(forked["world"]["replies"], 1000);
    // A fork may set a value back.
    let back = ["sim", "fork", "last", "--at", "6", "--turns", "8"];
    let again = sandbox.get(&[&back[..], &["--set", "world.values.replies=1000"]].concat());
    let other = sandbox.get(&[
        "sim",
        "fork",
        forked["run_id"].as_str().unwrap(),
        "--at",
        "6",
        "--turns",
        "8",
    ]);
    assert_eq!(again["world"], other["world"]);
    assert!(again["world"]["replies"].as_f64() > Some(1000.0), "{again}");
    let error = sandbox.error(2, &["sim", "run", "society", "--set", "world.values.replys=1"]);
    assert!(error.message.contains("no value of the world \"replys\""), "{error:?}");
    assert_eq!(error.hint, "did you mean \"replies\"?");
}

#[test]
fn groups_of_one_are_not_scaled() {
    let sandbox = HomeSandbox::society();
    let population = |groups: &str| {
        let text = format!("name: small\nchart: social\nturns: 1\npopulation: [{groups}]\n");
        fs::write(sandbox.file("scenarios/small.yaml"), text).unwrap();
    };
    let agents = |count: &str| {
        let run = sandbox.get(&["sim", "run", "small", "--agents", count]);
        let path = sandbox.file("data/simulations").join(run["run_id"].as_str().unwrap());
        let text = fs::read_to_string(path.join("checkpoints/turn_000001.json")).unwrap();
        let checkpoint: Value = serde_json::from_str(&text).unwrap();
        checkpoint["agents"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    population("{name: ada}, {name: bob}, {name: c, count: 3}");
    assert_eq!(agents("4"), "ada bob c_1 c_2");
    assert_eq!(agents("2"), "ada bob");
    assert_eq!(agents("0"), "");
    let message = "--agents 1: 2 agents of the scenario are groups of one, which are not scaled";
    assert_eq!(sandbox.error(2, &["sim", "run", "small", "--agents", "1"]).message, message);
    population("{name: ada}, {name: bob}");
    assert_eq!(agents("3"), "ada_1 ada_2 bob");
}

#[test]
fn empty_out_folder_is_accepted() {
    let sandbox = HomeSandbox::society();
    let out = sandbox.file("out");
    let run = || sandbox.polity(&["sim", "run", "society", "--out", out.to_str().unwrap()]);
    // A process killed while it creates the folder leaves these files.
    fs::create_dir_all(out.join("checkpoints")).unwrap();
    fs::write(out.join("owner.lock"), "").unwrap();
    fs::write(out.join("scenario.json"), "{").unwrap();
    fs::write(out.join("chart.unfinished"), "").unwrap();
    assert_eq!(run().code, 0);
    assert_eq!(run().code, 1, "the folder contains a run now");
    for file in ["scenario.json", "notes.txt", "checkpoints/turn_000001.json"] {
        fs::remove_dir_all(&out).unwrap();
        fs::create_dir_all(out.join("checkpoints")).unwrap();
        fs::write(out.join(file), "mine").unwrap();
        assert_eq!(run().code, 1, "{file}");
        assert_eq!(fs::read_to_string(out.join(file)).unwrap(), "mine");
    }
}
