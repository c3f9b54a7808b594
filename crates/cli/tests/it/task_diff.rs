//! `polity task diff`: the first difference of two runs.

use serde_json::json;

use crate::forks::{fork_with_grand_tone, run, sandbox};
use crate::sandbox::HomeSandbox;

#[test]
fn identical_runs_have_no_differences() {
    let sandbox = sandbox();
    let (a, b) = (run(&sandbox, "rain"), run(&sandbox, "rain"));
    let diff = sandbox.get(&["task", "diff", &a, &b]);
    assert_eq!((&diff["same"], &diff["common_steps"]), (&json!(true), &json!(3)));
    assert_eq!((&diff["first_difference"], &diff["differences"]), (&json!(null), &json!([])));
    assert_eq!((&diff["a"]["task_id"], &diff["b"]["task_id"]), (&json!(a), &json!(b)));
    assert_eq!(diff["shared"], json!(null));
    sandbox.polity(&["task", "diff", &a, &b]).out_has("the runs are the same: 3 definitions");
}

#[test]
fn diff_shows_the_first_differing_step() {
    let sandbox = sandbox();
    let a = run(&sandbox, "rain");
    let fork = fork_with_grand_tone(&sandbox, &a);
    let b = fork["id"].as_str().unwrap();
    let (diff, code) = sandbox.json(&["task", "diff", &a, b]);
    assert_eq!((code, &diff["same"], &diff["common_steps"]), (0, &json!(false), &json!(1)));
    assert_eq!(diff["shared"], json!({"task_id": a, "checkpoint": 0}));
    let first = &diff["first_difference"];
    assert_eq!((&first["step"], &first["a"]["node"]), (&json!(2), &json!("tone")));
    assert_eq!(first["a"]["routing_key"], "plain");
    assert_eq!(first["b"]["routing_key"], "grand");
    assert_eq!(first["b"]["interventions"][0]["set"], json!({"metadata.tone": "grand"}));
    let steps: Vec<_> = diff["differences"].as_array().unwrap().iter().collect();
    assert_eq!(steps[1]["a"]["node"], "plain");
    assert_eq!(steps[1]["b"]["node"], "grand");
    assert_eq!(steps[2]["field"], "result");
    let output = sandbox.polity(&["task", "diff", &a, b]);
    for expected in [
        format!("forked from {} at checkpoint 0", &a[..8]),
        format!("both share the history of {} up to checkpoint 0", &a[..8]),
        "the same: 3 definitions, input, 1 step, status".to_owned(),
        "they diverge at step 2:\n  a tone -> plain".to_owned(),
        "b tone [set metadata.tone=\"grand\"] -> grand".to_owned(),
        "result differs:\n  a Plainly, Draft of rain\n  b Grandly, Draft of rain".to_owned(),
    ] {
        assert!(output.out.contains(&expected), "{expected}: {}", output.out);
    }
}

#[test]
fn forks_of_one_checkpoint_share_its_history() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let (one, two) = (fork_with_grand_tone(&sandbox, &id), fork_with_grand_tone(&sandbox, &id));
    let [one, two] = [one, two].map(|fork| fork["id"].as_str().unwrap().to_owned());
    let (diff, _) = sandbox.json(&["task", "diff", &one, &two]);
    assert_eq!(diff["same"], true, "{diff}");
    assert_eq!(diff["shared"], json!({"task_id": id, "checkpoint": 0}));
}

#[test]
fn diff_shows_definitions_inputs_and_results() {
    let sandbox = sandbox();
    let a = run(&sandbox, "rain");
    sandbox.write("scripts/echo.yaml", "rules: []\ndefault: {error: {status: 403}}\n");
    let (task, _) = sandbox.json(&["run", "story", "snow", "--param", "tone=grand"]);
    let b = task["id"].as_str().unwrap();
    let (diff, _) = sandbox.json(&["task", "diff", &a, b]);
    let differences = diff["differences"].as_array().unwrap();
    let definitions: Vec<_> =
        differences.iter().filter(|difference| difference["what"] == "definition").collect();
    assert_eq!(definitions.len(), 1, "{diff}");
    assert_eq!(
        (&definitions[0]["kind"], &definitions[0]["name"]),
        (&json!("script"), &json!("echo"))
    );
    let fields: Vec<_> =
        differences.iter().filter_map(|difference| difference["field"].as_str()).collect();
    assert_eq!(fields, ["input", "parameters", "status", "result", "error"]);
    assert_eq!(diff["first_difference"]["step"], 1);
    assert_eq!(diff["first_difference"]["b"]["failure"]["code"], "model_rejected");
    let output = sandbox.polity(&["task", "diff", &a, b]);
    output.out_has("the script echo differs:").out_has("(nothing)");
}

#[test]
fn diff_compares_messages_of_agents() {
    let sandbox = HomeSandbox::new();
    let [a, b] = ["Ada", "Grace"].map(|name| {
        let (task, _) = sandbox.json(&["run", "greeter", name]);
        task["id"].as_str().unwrap().to_owned()
    });
    let diff = sandbox.get(&["task", "diff", &a, &b]);
    assert_eq!(diff["first_difference"]["step"], 1);
    assert_eq!(diff["first_difference"]["a"]["role"], "assistant");
    assert_eq!(diff["first_difference"]["b"]["content"], "Hello, Grace.");
    sandbox.polity(&["task", "diff", &a, "0000"]).fails(1, "there is no task 0000");
}

#[test]
fn diff_compares_parallel_nodes_in_file_order() {
    let sandbox = HomeSandbox::new();
    sandbox.write(
        "workflows/both.yaml",
        "
name: both
entry_point: split
nodes:
  split: {type: parallel, branches: [left, right], join: all}
  left: {type: agent, agent: greeter, input: '{{ metadata.left }}'}
  right: {type: agent, agent: greeter, input: '{{ metadata.right }}'}
",
    );
    // The slower branch is once the left and once the right one.
    let run = |left: &str, right: &str| {
        let params = [format!("left={left}"), format!("right={right}")];
        let args = ["run", "both", "go", "--param", &params[0], "--param", &params[1]];
        sandbox.json(&args).0["id"].as_str().unwrap().to_owned()
    };
    let (a, b) = (run("think", "Ada"), run("Ada", "think"));
    let (diff, _) = sandbox.json(&["task", "diff", &a, &b]);
    let nodes = |side: &str| {
        let steps = diff["differences"].as_array().unwrap().iter();
        let nodes = steps.filter_map(|step| step[side]["node"].as_str());
        nodes.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(nodes("a"), nodes("b"), "{diff}");
}
