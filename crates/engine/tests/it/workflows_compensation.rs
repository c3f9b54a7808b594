//! Compensations of finished nodes, and `on_cancel`.

use crate::prelude::*;
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, end, workflow};

/// Two bookings that can be undone, and a payment that decides.
const TRIP: &str = "
  flight:
    type: tool
    tool: kit/note
    arguments: {text: flight}
    compensate: {type: tool, tool: kit/note, arguments: {text: 'undo {{ last }}: {{ error.code if error is defined else \"cancelled\" }}'}}
  hotel:
    type: agent
    agent: ann
    compensate: {type: agent, agent: bob, input: 'undo {{ nodes.hotel.output }}'}
  pay: {type: agent, agent: cid}
edges: [{from: flight, to: hotel}, {from: hotel, to: pay}]
";

#[tokio::test(start_paused = true)]
async fn finished_nodes_are_undone_in_reverse_order_when_the_workflow_fails() {
    let harness = workflow(TRIP);
    assert_eq!(end(&harness.run("x").await), "cid(ann(flight))");
    assert_eq!(harness.tools.notes(), ["flight"]);
    let harness = workflow(TRIP);
    harness.play("cid", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    assert_eq!(task.error_code.unwrap().to_string(), "model_rejected");
    assert_eq!(task.result.as_deref(), Some("ann(flight)"), "the last answer before the failure");
    let nodes = harness.nodes(task.id);
    let expected = [
        "pay: model_rejected",
        "compensate_hotel: start",
        "compensate_hotel: finish",
        "compensate_flight: start",
        "compensate_flight: finish",
    ];
    assert_eq!(nodes[nodes.len() - 5..], expected);
    assert_eq!(harness.tools.notes(), ["flight", "undo flight: model_rejected"]);
    // No checkpoint lies within the compensations.
    assert_eq!(harness.checkpoints(task.id).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_undone_when_the_failure_is_caught_or_no_node_has_finished() {
    let harness = workflow(
        "
  flight: {type: tool, tool: kit/error, arguments: {text: full}, on_error: train, compensate: {type: tool, tool: kit/note, arguments: {text: undone}}}
  train: {type: agent, agent: ann}
",
    );
    assert_eq!(end(&harness.run("x").await), "ann(x)");
    let harness = workflow(
        "
  flight: {type: tool, tool: kit/error, arguments: {text: full}, compensate: {type: tool, tool: kit/note, arguments: {text: undone}}}
",
    );
    assert_eq!(end(&harness.run("x").await), "tool_failed: flight: no: full");
    assert!(harness.tools.notes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_compensation_is_named_and_the_others_still_run() {
    let harness = workflow(TRIP);
    harness.play("cid", AgentBehaviour::Fail);
    harness.play("bob", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    let error = task.error.unwrap();
    assert!(error.starts_with("pay: cid failed"), "{error}");
    assert!(error.contains("; not everything was undone: compensate_hotel: bob failed"), "{error}");
    assert_eq!(harness.tools.notes(), ["flight", "undo flight: model_rejected"]);
}

#[tokio::test(start_paused = true)]
async fn every_run_of_a_loop_is_undone() {
    let harness = workflow(
        "
  step: {type: agent, agent: ann, compensate: {type: tool, tool: kit/note, arguments: {text: 'undo {{ nodes.step.output }}'}}}
  check: {type: tool, tool: kit/error, arguments: {text: no}}
  done: {type: agent, agent: bob}
edges: [{from: step, to: check}, {from: check, to: done, max_loops: 1, on_error: step}]
",
    );
    let task = harness.run("x").await;
    assert_eq!(task.status, TaskStatus::Failed);
    assert_eq!(harness.tools.notes(), ["undo ann(ann(x))", "undo ann(x)"]);
}

#[tokio::test(start_paused = true)]
async fn node_whose_edges_fail_is_undone_too() {
    let harness = workflow(
        "
  flight: {type: tool, tool: kit/note, arguments: {text: flight}, compensate: {type: tool, tool: kit/note, arguments: {text: undo}}}
  next: {type: agent, agent: ann}
edges: [{from: flight, to: next, condition: 'metadata.none'}]
",
    );
    let task = harness.run("x").await;
    assert_eq!(task.error_code.unwrap().to_string(), "condition_failed");
    assert_eq!(harness.tools.notes(), ["flight", "undo"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_runs_on_cancel_and_then_the_compensations() {
    let harness = workflow(&format!(
        "{}on_cancel: tell\n",
        TRIP.replace(
            "  pay:",
            "  tell: {type: tool, tool: kit/note, arguments: {text: told}}\n  pay:"
        )
    ));
    harness.play("cid", AgentBehaviour::Hang);
    let runtime = harness.runtime(1);
    let mut handle = runtime.create(harness.order("x")).await.unwrap();
    until(&harness, handle.id, "pay: start").await;
    runtime.cancel(handle.id).await.unwrap();
    let task = harness.wait(&mut handle).await;
    assert_eq!((task.status, &task.error), (TaskStatus::Cancelled, &None));
    assert_eq!(harness.tools.notes(), ["flight", "told", "undo flight: cancelled"]);
    let sub_tasks = harness.base.sub_tasks(task.id);
    assert!(sub_tasks.iter().all(|row| row.status.is_final()), "{sub_tasks:?}");
}

#[tokio::test(start_paused = true)]
async fn second_cancel_ends_the_compensations_at_once() {
    let harness = workflow(TRIP);
    harness.play("cid", AgentBehaviour::Hang);
    harness.play("bob", AgentBehaviour::Hang);
    let runtime = harness.runtime(1);
    let mut handle = runtime.create(harness.order("x")).await.unwrap();
    until(&harness, handle.id, "pay: start").await;
    runtime.cancel(handle.id).await.unwrap();
    until(&harness, handle.id, "compensate_hotel: start").await;
    runtime.cancel(handle.id).await.unwrap();
    let task = harness.wait(&mut handle).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    let expected = "not everything was undone: a second cancel stopped: compensate_hotel, \
                    compensate_flight";
    assert_eq!(task.error.as_deref(), Some(expected));
    assert_eq!(harness.tools.notes(), ["flight"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_of_a_workflow_that_waits_for_a_person_undoes_it() {
    let asks = "
  flight: {type: tool, tool: kit/note, arguments: {text: flight}, compensate: {type: tool, tool: kit/note, arguments: {text: undo}}}
  ask: {type: human, question: Good?}
edges: [{from: flight, to: ask}]
";
    let harness = workflow(asks);
    let (runtime, task) = harness.start("x").await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    assert_eq!(runtime.cancel(task.id).await.unwrap(), CancelOutcome::Requested);
    let task = ended(&harness, task.id).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    assert_eq!(harness.tools.notes(), ["flight", "undo"]);
    // From a process without a runtime, the task is left to the process that adopts it.
    let harness = workflow(asks);
    let (_, task) = harness.start("x").await;
    let outcome = harness.base.cancel(task.id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Compensating);
    let task = harness.go_on(&harness.runtime(3), task.id).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    assert_eq!(harness.tools.notes(), ["flight", "undo"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_of_a_parent_undoes_the_workflows_inside() {
    let inner = "name: inner
entry_point: flight
nodes:
  flight: {type: tool, tool: kit/note, arguments: {text: flight}, compensate: {type: tool, tool: kit/note, arguments: {text: undo}}}
  ask: {type: human, question: Good?}
edges: [{from: flight, to: ask}]
";
    let outer =
        "name: outer\nentry_point: trip\nnodes:\n  trip: {type: workflow, workflow: inner}\n";
    let harness = WorkflowHarness::new(&[outer, inner]);
    let (runtime, task) = harness.start("x").await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    drop(runtime);
    let outcome = harness.base.cancel(task.id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Done(TaskStatus::Cancelled));
    let inside = harness.base.sub_tasks(task.id).remove(0);
    assert_eq!(inside.status, TaskStatus::Running);
    let inside = harness.go_on(&harness.runtime(2), inside.id).await;
    assert_eq!(inside.status, TaskStatus::Cancelled);
    assert_eq!(harness.tools.notes(), ["flight", "undo"]);
}

/// Waits until a node has changed this way.
async fn until(harness: &WorkflowHarness, id: TaskId, change: &str) {
    while !harness.nodes(id).iter().any(|known| known == change) {
        sleep(1).await;
    }
}

async fn ended(harness: &WorkflowHarness, id: TaskId) -> Task {
    loop {
        let task = harness.base.task(id);
        if task.status.is_final() {
            return task;
        }
        sleep(1).await;
    }
}
