//! Error edges, compensations, `on_cancel`, routing keys and JSON outputs of workflows.

use std::fs;

use serde_json::json;

use crate::sandbox::{HomeSandbox, kill};

/// A trip whose bookings are undone if a later step fails. Each step writes to the file `log`.
const TRIP: &str = "
name: trip
entry_point: flight
on_cancel: tell
nodes:
  flight:
    type: script
    command: [sh, -c, 'echo flight >> log; echo \\\"F7\\\"']
    compensate: {type: script, command: [sh, steps/undo.sh], idempotent: true, arguments: {booking: '{{ last }}'}}
  hotel:
    type: script
    command: [sh, -c, 'echo hotel >> log; echo \\\"H9\\\"']
    compensate: {type: script, command: [sh, -c, 'echo undo hotel >> log; echo 1']}
  approve: {type: human, question: Book it?}
  pay: {type: script, command: [sh, -c, 'echo pay >> log; echo no money >&2; exit 3']}
  tell: {type: script, command: [sh, -c, 'echo tell >> log; echo 1']}
edges:
  - {from: flight, to: hotel}
  - {from: hotel, to: approve}
  - {from: approve, to: {approve: pay}}
";

/// Undoes a booking, once there is a file `go`.
const UNDO: &str = "
echo undo flight >> log
until [ -e go ]; do sleep 0.02; done
grep -o '\"booking\": *\"[^\"]*\"' | tr -d ' ' >> log
echo 1
";

fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    sandbox.write("workflows/trip.yaml", TRIP);
    sandbox.write("steps/undo.sh", UNDO);
    sandbox.write("go", "");
    sandbox
}

fn log(sandbox: &HomeSandbox) -> Vec<String> {
    let log = fs::read_to_string(sandbox.file("log")).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

fn of_workflow(text: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    sandbox.write("workflows/flow.yaml", &format!("name: flow\n{text}"));
    sandbox
}

#[test]
fn error_edge_goes_on_with_the_error_in_the_state() {
    let sandbox = of_workflow(
        "entry_point: work
nodes:
  work: {type: script, command: [sh, -c, 'exit 3'], on_error: repair}
  repair: {type: condition, expression: 'error.node + \" \" + error.code'}
",
    );
    sandbox.polity(&["run", "flow", "x"]).exits(0).out_has("work agent_failed");
    let state = sandbox.get(&["task", "show", "last", "--at", "0"]);
    assert!(state.to_string().contains("\"code\":\"agent_failed\""), "{state}");
    sandbox.polity(&["task", "trace", "last"]).out_has("goes on with repair");
    sandbox.polity(&["workflow", "graph", "flow"]).out_has("n_work -.->|\"on error\"| n_repair");
}

#[test]
fn failed_workflow_undoes_its_finished_nodes() {
    let sandbox = home();
    sandbox.polity(&["run", "trip", "x"]).exits(3);
    let run = sandbox.polity(&["review", "approve", "last"]).exits(1);
    assert!(run.err.contains("pay"), "{run:?}");
    let expected = ["flight", "hotel", "pay", "undo hotel", "undo flight", "\"booking\":\"F7\""];
    assert_eq!(log(&sandbox), expected);
    let trace = sandbox.polity(&["task", "trace", "last"]);
    trace.out_has("compensation").out_has("compensate_flight").out_has("compensate_hotel");
    let task = sandbox.get(&["task", "show", "last"]);
    assert_eq!(task["status"], "failed");
    assert!(!task["error"].as_str().unwrap().contains("undone"), "{task}");
}

#[test]
fn hint_after_compensations_offers_what_is_not_refused() {
    let sandbox = home();
    sandbox.polity(&["run", "trip", "x"]).exits(3);
    let failed = sandbox.polity(&["review", "approve", "last"]).exits(1);
    let shown = sandbox.polity(&["task", "show", "last"]).exits(0);
    for text in [&failed.err, &shown.out] {
        assert!(text.contains("polity run trip INPUT") && !text.contains("task retry"), "{text}");
    }
    sandbox.polity(&["task", "retry", "last"]).fails(1, "undone");
    sandbox.polity(&["run", "trip", "x"]).exits(3);
}

#[test]
fn cancelled_workflow_tells_and_undoes() {
    let sandbox = home();
    sandbox.polity(&["run", "trip", "x"]).exits(3);
    sandbox.polity(&["task", "cancel", "last"]).exits(0).out_has("cancelled");
    let expected = ["flight", "hotel", "tell", "undo hotel", "undo flight", "\"booking\":\"F7\""];
    assert_eq!(log(&sandbox), expected);
    let task = sandbox.get(&["task", "show", "last"]);
    assert_eq!((&task["status"], &task["error"]), (&json!("cancelled"), &json!(null)));
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
}

#[test]
fn failed_compensation_is_named_in_the_error() {
    let sandbox = home();
    let broken = TRIP.replace("echo undo hotel >> log; echo 1", "exit 1");
    sandbox.write("workflows/trip.yaml", &broken);
    sandbox.polity(&["run", "trip", "x"]).exits(3);
    let run = sandbox.polity(&["review", "approve", "last"]).exits(1);
    assert!(run.err.contains("not everything was undone: compensate_hotel"), "{run:?}");
    assert!(log(&sandbox).contains(&"undo flight".to_owned()), "{:?}", log(&sandbox));
}

#[test]
fn compensation_goes_on_after_a_kill() {
    let sandbox = home();
    fs::remove_file(sandbox.file("go")).unwrap();
    sandbox.polity(&["run", "trip", "x"]).exits(3);
    let mut child = sandbox.start(&["review", "approve", "last"]);
    sandbox.wait_until("the flight is being undone", || {
        log(&sandbox).contains(&"undo flight".to_owned()).then_some(())
    });
    kill(&mut child);
    sandbox.write("go", "");
    sandbox.polity(&["task", "resume", "last"]).exits(1);
    let undone = log(&sandbox);
    assert_eq!(undone.last().unwrap(), "\"booking\":\"F7\"");
    assert_eq!(undone.iter().filter(|line| *line == "undo hotel").count(), 1);
    assert_eq!(sandbox.get(&["task", "show", "last"])["status"], "failed");
}

#[test]
fn second_cancel_ends_the_compensation_at_once() {
    let sandbox = home();
    fs::remove_file(sandbox.file("go")).unwrap();
    sandbox.polity(&["run", "trip", "x"]).exits(3);
    let mut child = sandbox.start(&["task", "cancel", "last"]);
    sandbox.wait_until("the flight is being undone", || {
        log(&sandbox).contains(&"undo flight".to_owned()).then_some(())
    });
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
    child.wait().unwrap();
    let task = sandbox.get(&["task", "show", "last"]);
    assert_eq!(task["status"], "cancelled");
    assert!(task["error"].as_str().unwrap().contains("compensate_flight"), "{task}");
}

#[test]
fn check_refuses_edges_that_no_routing_key_reaches() {
    for (ask, edge, expected) in [
        (
            "{type: human, question: Good?}",
            "{publish: end}",
            "never gives the routing key \"publish\"",
        ),
        ("{type: condition, expression: size(last) > 3}", "{yes: end}", "allowed: false, true"),
        ("{type: human, question: Good?}", "{aprove: end}", "did you mean \"approve\"?"),
    ] {
        let sandbox = of_workflow(&format!(
            "entry_point: ask\nnodes:\n  ask: {ask}\n  end: {{type: condition, expression: last}}\n\
             edges: [{{from: ask, to: {edge}}}]\n"
        ));
        let check = sandbox.polity(&["check"]).exits(2);
        let all = format!("{}{}", check.out, check.err);
        assert!(all.contains("workflows/flow.yaml:") && all.contains(expected), "{all}");
    }
}

#[test]
fn json_output_that_is_no_json_fails_the_node() {
    let flow = |outputs: &str| {
        of_workflow(&format!(
            "entry_point: plan\nnodes:\n  plan: {{type: agent, agent: greeter, outputs: {outputs}}}\n  \
             read: {{type: condition, expression: 'type(metadata.plan) == string ? \"text\" : \"json\"'}}\n\
             edges: [{{from: plan, to: read}}]\n"
        ))
    };
    for (reply, outputs, exit, expected) in [
        ("'[1, 2]'", "[plan]", 0, "text"),
        ("'[1, 2]'", "{plan: json}", 0, "json"),
        ("Hello.", "{plan: json}", 1, "its output must be JSON"),
    ] {
        let sandbox = flow(outputs);
        sandbox.write_scripted_agent("greeter", "");
        sandbox.write("scripts/greeter.yaml", &format!("default: {{reply: {reply}}}\n"));
        let run = sandbox.polity(&["run", "flow", "x"]).exits(exit);
        assert!(format!("{}{}", run.out, run.err).contains(expected), "{run:?}");
    }
}
