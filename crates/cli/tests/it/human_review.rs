//! Human nodes of workflows: sequences of questions, and timeouts.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::reviews::count_lines;
use crate::sandbox::HomeSandbox;
use crate::tools::{calls, home};

fn sandbox(workflow: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    sandbox.write("workflows/flow.yaml", &format!("name: flow\n{workflow}"));
    sandbox
}

#[test]
fn reviews_open_one_after_the_other() {
    let sandbox = sandbox(
        "
entry_point: both
nodes:
  both: {type: parallel, branches: [one, two]}
  one: {type: human, question: First?}
  two: {type: human, question: Second?}
",
    );
    sandbox.polity(&["run", "flow", "x"]).exits(3);
    let output = sandbox.polity(&["--quiet", "review", "approve", "last", "--message", "yes"]);
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.err.starts_with("waiting for a person's decision"), "{output:?}");
    assert!(sandbox.polity(&["review", "show", "last"]).out.contains("Second?"));
    let output = sandbox.polity(&["--quiet", "review", "approve", "last", "--message", "no"]);
    assert_eq!((output.code, output.out.as_str()), (0, "{\"one\":\"yes\",\"two\":\"no\"}\n"));
}

#[test]
fn answer_without_a_message_passes_the_draft_on() {
    let sandbox = sandbox(
        "
entry_point: draft
nodes:
  draft: {type: agent, agent: greeter}
  ask: {type: human, question: Good?}
  say: {type: condition, expression: \"routing_key + ': ' + nodes.ask.output\"}
edges: [{from: draft, to: ask}, {from: ask, to: say}]
",
    );
    for (verb, expected) in [("approve", "approve: Hello, x."), ("modify", "modify: Hello, x.")] {
        sandbox.polity(&["run", "flow", "x"]).exits(3);
        sandbox.polity(&["review", verb, "last"]).prints(&format!("{expected}\n"));
        sandbox.polity(&["run", "flow", "x"]).exits(3);
        let answer = sandbox.polity(&["review", verb, "last", "--message", "mine"]);
        answer.prints(&format!("{verb}: mine\n"));
    }
}

#[test]
fn answer_shows_only_new_steps() {
    let sandbox = sandbox(
        "
entry_point: draft
nodes:
  draft: {type: agent, agent: greeter}
  ask: {type: human, question: Good?}
  publish: {type: agent, agent: greeter}
edges: [{from: draft, to: ask}, {from: ask, to: publish}]
",
    );
    let before = sandbox.polity(&["run", "flow", "x"]).exits(3);
    assert!(before.err.contains("assigned to flow"), "{before:?}");
    let after = sandbox.polity(&["review", "approve", "last"]).exits(0);
    for old in ["assigned to flow", "draft", "Good?"] {
        assert!(!after.err.contains(old), "{old}: {after:?}");
    }
    for new in ["review answered", "publish", "completed"] {
        assert!(after.err.contains(new), "{new}: {after:?}");
    }
}

#[test]
fn expired_review_is_reported() {
    let sandbox = sandbox(
        "
entry_point: ask
nodes: {ask: {type: human, question: Now?, deadline_seconds: 1}}
",
    );
    for _ in 0..2 {
        sandbox.polity(&["run", "flow", "x"]).exits(3);
    }
    sleep(Duration::from_millis(1100));
    sandbox.polity(&["review", "approve", "last"]).fails(1, "which has passed");
    sandbox.polity(&["task", "resume", "last"]).fails(5, "timeout: ask: no answer came before");
    sandbox.polity(&["task", "resume", "--all"]).exits(1).out_has("failed");
    assert_eq!(sandbox.polity(&["task", "resume", "--all"]).out, "nothing to resume\n");
}

#[test]
fn review_show_previews_each_answer() {
    let sandbox = sandbox(
        "
entry_point: draft
nodes:
  draft: {type: condition, expression: \"'x'\"}
  ask: {type: human, question: Good?}
  publish: {type: agent, agent: greeter}
edges:
  - {from: draft, to: ask}
  - {from: ask, to: {approve: publish, reject: draft}, max_loops: 1}
",
    );
    sandbox.polity(&["run", "flow", "x"]).exits(3);
    let shown = sandbox.polity(&["review", "show", "last"]).out;
    for expected in
        ["continues with publish", "continues with draft", "fails the task: no edge for modify"]
    {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    let (review, _) = sandbox.json(&["review", "show", "last"]);
    assert_eq!(review["answers"][0], json!({"action": "approve", "leads_to": ["publish"]}));
    assert_eq!(review["answers"][1]["fails_task"], "no edge for modify");
    sandbox.polity(&["review", "reject", "last"]).exits(3);
    let shown = sandbox.polity(&["review", "show", "last"]).out;
    let reject = shown.lines().find(|line| line.contains("reject")).unwrap();
    assert!(reject.contains("fails the task: the edges that lead back were taken"), "{shown}");
    sandbox.polity(&["review", "modify", "last", "--set", "metadata.a=1"]).fails(1, "no_edge");
}

#[test]
fn preview_omits_what_depends_on_the_answer() {
    let sandbox = sandbox(
        "
entry_point: ask
nodes:
  ask: {type: human, question: Good?}
  publish: {type: agent, agent: greeter}
edges: [{from: ask, to: publish, condition: \"nodes.ask.output == 'yes'\"}]
",
    );
    sandbox.polity(&["run", "flow", "x"]).exits(3);
    let (review, _) = sandbox.json(&["review", "show", "last"]);
    assert!(review.get("answers").is_none(), "{review}");
    sandbox.polity(&["review", "approve", "last", "--message", "yes"]).exits(0);
}

#[test]
fn expired_review_offers_no_answers() {
    for (more, then, short) in [
        ("", "the task fails", "passed: fails"),
        (", default_action: approve", "the default action is approve", "passed: approve"),
    ] {
        let sandbox = sandbox(&format!(
            "
entry_point: ask
nodes: {{ask: {{type: human, question: Now?, deadline_seconds: 1{more}}}}}
"
        ));
        sandbox.polity(&["run", "flow", "x"]).exits(3);
        assert_eq!(sandbox.json(&["review", "show", "last"]).0["expired"], false);
        sleep(Duration::from_millis(1100));
        let shown = sandbox.polity(&["review", "show", "last"]).out;
        assert!(shown.contains(&format!("which has passed: {then}")), "{shown}");
        assert!(
            shown.contains("polity task resume") && !shown.contains("polity review"),
            "{shown}"
        );
        sandbox.polity(&["review", "list"]).out_has(short);
        let (reviews, _) = sandbox.json(&["review", "list"]);
        assert_eq!(reviews[0]["expired"], true);
    }
}

#[test]
fn review_path_distinguishes_parallel_branches() {
    let kit = home("approval: [kit/count]\n", "{}", &[]);
    calls(&kit, &json!([{"tool": "kit/count", "arguments": {"file": "a"}}]));
    kit.write(
        "workflows/flow.yaml",
        "
name: flow
entry_point: both
nodes:
  both: {type: parallel, branches: [left, right]}
  left: {type: agent, agent: worker}
  right: {type: agent, agent: worker}
",
    );
    kit.write(
        "workflows/outer.yaml",
        "name: outer\nentry_point: inner\nnodes: {inner: {type: workflow, workflow: flow}}\n",
    );
    for (name, places) in [
        ("flow", ["flow/left", "flow/right"]),
        ("outer", ["outer/inner/left", "outer/inner/right"]),
    ] {
        kit.polity(&["run", name, "go"]).exits(3);
        let top = kit.json(&["task", "show", "last"]).0["id"].clone();
        let (reviews, _) = kit.json(&["review", "list"]);
        let of_top = |review: &&Value| review["top_task_id"] == top;
        let reviews: Vec<&Value> = reviews.as_array().unwrap().iter().filter(of_top).collect();
        let mut paths: Vec<&str> =
            reviews.iter().map(|review| review["place"].as_str().unwrap()).collect();
        paths.sort_unstable();
        assert_eq!(paths, places);
        let listed = kit.polity(&["review", "list"]).out;
        let shown = kit.polity(&["review", "show", reviews[0]["task_id"].as_str().unwrap()]).out;
        let several = kit.polity(&["review", "show", "last"]).err;
        for place in places {
            assert!(listed.contains(place) && several.contains(place), "{listed}{several}");
        }
        assert!(shown.contains(reviews[0]["place"].as_str().unwrap()), "{shown}");
        assert!(shown.contains(top.as_str().unwrap()), "{shown}");
    }
}

#[test]
fn resume_all_reports_every_task() {
    let sandbox = sandbox(
        "
entry_point: ask
nodes:
  ask: {type: human, question: Now?, deadline_seconds: 1, default_action: approve}
  again: {type: human, question: And now?}
edges: [{from: ask, to: again}]
",
    );
    sandbox.write(
        "workflows/short.yaml",
        "name: short\nentry_point: ask\n\
         nodes: {ask: {type: human, question: Now?, deadline_seconds: 1}}\n",
    );
    for name in ["flow", "short", "short"] {
        sandbox.polity(&["run", name, "x"]).exits(3);
    }
    sleep(Duration::from_millis(1100));
    let all = sandbox.polity(&["task", "resume", "--all"]).exits(1);
    assert!(all.out.ends_with("3 tasks: 1 waiting for a person, 2 failed\n"), "{all:?}");
    assert!(all.out.contains("awaiting_human"), "{all:?}");
}

#[test]
fn answered_part_resumes_while_its_parent_waits() {
    let kit = home("approval: [kit/count]\n", "{}", &[]);
    calls(&kit, &json!([{"tool": "kit/count", "arguments": {"file": "a"}}]));
    kit.write(
        "workflows/flow.yaml",
        "
name: flow
entry_point: both
nodes:
  both: {type: parallel, branches: [left, ask]}
  left: {type: agent, agent: worker}
  ask: {type: human, question: Well?}
",
    );
    for detaches in [false, true] {
        let before = count_lines(&kit, "a");
        kit.polity(&["run", "flow", "go"]).exits(3);
        let parent = kit.json(&["task", "show", "last"]).0["id"].as_str().unwrap().to_owned();
        let (parts, _) = kit.json(&["task", "list", "--parent", &parent]);
        let part = parts[0]["id"].as_str().unwrap();
        if detaches {
            kit.polity(&["review", "approve", part, "--detach"]).exits(0);
            assert_eq!(count_lines(&kit, "a"), before);
            kit.polity(&["task", "resume", part]).prints("it said: counted\n");
        } else {
            let output = kit.polity(&["review", "approve", part]);
            assert_eq!(output.code, 3, "the parent still waits: {output:?}");
        }
        assert_eq!(count_lines(&kit, "a"), before + 1);
        let output = kit.polity(&["--quiet", "review", "approve", &parent, "--message", "yes"]);
        let expected = "{\"ask\":\"yes\",\"left\":\"it said: counted\"}\n";
        assert_eq!((output.code, output.out.as_str()), (0, expected), "{output:?}");
        assert_eq!(count_lines(&kit, "a"), before + 1);
    }
}
