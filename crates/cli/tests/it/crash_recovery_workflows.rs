//! `kill -9` at random times in a workflow of ten steps: no step is lost, results do not change,
//! and non-idempotent steps run at most once.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::crash_recovery::{KillTimes, rounds};
use crate::sandbox::{HomeSandbox, kill};
use crate::tools::home;

/// Idempotent and non-idempotent steps, agents and conditions.
const STEPS: &str = "
name: steps
entry_point: s1
nodes:
  s1: {type: tool, tool: kit/count, arguments: {file: '{{ input }}-s1'}}
  s2: {type: agent, agent: thinker, input: '{{ input }} two'}
  s3: {type: condition, expression: 'nodes.s2.output.contains(\"thought\") ? \"on\" : \"off\"'}
  s4: {type: tool, tool: kit/count, arguments: {file: '{{ input }}-s4'}, idempotent: true}
  s5: {type: tool, tool: kit/count_slowly, arguments: {file: '{{ input }}-s5', seconds: 0.04}}
  s6: {type: agent, agent: thinker, input: '{{ nodes.s5.output }} six'}
  s7: {type: tool, tool: kit/count, arguments: {file: '{{ input }}-s7'}}
  s8: {type: condition, expression: 'nodes.s4.output'}
  s9: {type: tool, tool: kit/count_slowly, arguments: {file: '{{ input }}-s9', seconds: 0.03}, idempotent: true}
  s10: {type: agent, agent: thinker, input: '{{ nodes.s1.output }}, {{ nodes.s6.output }}, {{ nodes.s7.output }}, {{ nodes.s8.output }}, {{ nodes.s9.output }}'}
edges:
  - {from: s1, to: s2}
  - {from: s2, to: s3}
  - {from: s3, to: {on: s4}}
  - {from: s4, to: s5}
  - {from: s5, to: s6}
  - {from: s6, to: s7}
  - {from: s7, to: s8}
  - {from: s8, to: {counted: s9}}
  - {from: s9, to: s10}
";

const RESULT: &str =
    "thought of counted, thought of counted slowly six, counted, counted, counted slowly";

/// The non-idempotent steps with the output of their tools.
const ONCE: [(&str, &str); 3] = [("s1", "counted"), ("s5", "counted slowly"), ("s7", "counted")];

fn steps() -> HomeSandbox {
    let sandbox = home("", "{}", &[]);
    sandbox.write("workflows/steps.yaml", STEPS);
    sandbox.write("scripts/worker.yaml", "default: {reply: nothing}");
    sandbox.write_scripted_agent("thinker", "");
    sandbox.write("scripts/thinker.yaml", "default: {reply: 'thought of $input', delay_ms: 20}");
    sandbox
}

fn lines(sandbox: &HomeSandbox, task: &str, step: &str) -> usize {
    let path = sandbox.file(&format!("{task}-{step}"));
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Starts a command and kills it after a random time. Returns true if it was still running.
fn kill_within(sandbox: &HomeSandbox, args: &[&str], kill_times: &mut KillTimes) -> bool {
    let mut child = sandbox.start(args);
    std::thread::sleep(Duration::from_millis(20 + kill_times.next_ms(500)));
    let was_running = child.try_wait().unwrap().is_none();
    kill(&mut child);
    was_running
}

/// Returns the newest task with this input.
fn task(sandbox: &HomeSandbox, input: &str) -> Option<Value> {
    let tasks = sandbox.tasks().into_iter();
    tasks.filter(|task| task["assigned_agent"] == "steps").find(|task| task["description"] == input)
}

/// Answers each review of an uncertain call according to the tool's log file.
fn answer_reviews(sandbox: &HomeSandbox, input: &str) {
    for review in sandbox.json(&["review", "list"]).0.as_array().unwrap() {
        let (id, step) =
            (review["task_id"].as_str().unwrap(), review["position"].as_str().unwrap());
        let (_, output) = ONCE.iter().find(|(name, _)| *name == step).unwrap();
        let choice = match lines(sandbox, input, step) {
            0 => vec!["--retry"],
            1 => vec!["--skip-with", output],
            more => panic!("{step} of {input} happened {more} times"),
        };
        let args = [vec!["review", "approve", id, "--detach"], choice].concat();
        sandbox.polity(&args).exits(0);
    }
}

#[test]
fn kill_keeps_every_workflow_step_exactly_once() {
    let kills = rounds(10, 200);
    let sandbox = steps();
    let mut kill_times = KillTimes(17);
    let (mut killed, mut number, mut reviews) = (0, 0, 0);
    while killed < kills {
        let input = format!("t{number}");
        number += 1;
        killed += u32::from(kill_within(&sandbox, &["run", "steps", &input], &mut kill_times));
        // The process may die before it creates the task.
        let Some(first) = task(&sandbox, &input) else { continue };
        let id = first["id"].as_str().unwrap();
        loop {
            let (task_document, _) = sandbox.json(&["task", "show", id]);
            match task_document["status"].as_str().unwrap() {
                "awaiting_human" => {
                    reviews += 1;
                    answer_reviews(&sandbox, &input);
                }
                "pending" | "running" if killed < kills => {
                    killed +=
                        u32::from(kill_within(&sandbox, &["task", "resume", id], &mut kill_times));
                }
                "pending" | "running" => {
                    let resumed = sandbox.polity(&["task", "resume", id]);
                    assert!([0, 3].contains(&resumed.code), "{resumed:?}");
                }
                _ => break,
            }
        }
        check(&sandbox, &input, id);
    }
    println!("{killed} kills of {number} tasks, {reviews} reviews");
}

fn check(sandbox: &HomeSandbox, input: &str, id: &str) {
    let (shown, _) = sandbox.json(&["task", "show", id]);
    assert_eq!(
        (&shown["status"], &shown["result"]),
        (&json!("completed"), &json!(RESULT)),
        "{shown}"
    );
    for (step, _) in ONCE {
        assert_eq!(lines(sandbox, input, step), 1, "{step} of {input}");
    }
    for step in ["s4", "s9"] {
        assert!(lines(sandbox, input, step) >= 1, "{step} of {input}");
    }
    let (checkpoints, _) = sandbox.json(&["task", "checkpoints", id]);
    let checkpoints = checkpoints.as_array().unwrap();
    let numbers = checkpoints.iter().map(|checkpoint| checkpoint["sequence"].as_u64().unwrap());
    assert!(numbers.zip(0..).all(|(number, expected)| number == expected), "{checkpoints:?}");
    let done = checkpoints.iter().filter(|checkpoint| checkpoint["awaiting_human"] == false);
    let done: Vec<_> = done.map(|checkpoint| checkpoint["position"].as_str().unwrap()).collect();
    let all: Vec<_> = (1..=10).map(|step| format!("s{step}")).collect();
    assert_eq!(done, all, "every step ends once: {checkpoints:?}");
}
