//! Tests of the decisions at the end of a workflow.

use polity_model::machine::task::TaskStatus;

use crate::commands::AdvanceWorkflow;
use crate::decide::fixtures::prelude::*;
use crate::state::TaskState;

const FLOW: &str = "entry_point: book
nodes:
  book: {type: tool, tool: files/write, arguments: {path: a}, compensate: {type: tool, tool: files/write, arguments: {path: 'undo {{ last }}'}}}
  pay: {type: tool, tool: files/write, arguments: {path: b}}
edges: [{from: book, to: pay}]
";

/// Replies to the only call in progress, and starts the next node.
fn replied(state: TaskState, content: &str, is_error: bool) -> (TaskState, Decision) {
    let reply = ToolReply { content: content.into(), is_error, ..ToolReply::default() };
    let reply = RecordToolReply { call_id: call_id(&state, 0), reply, duration_ms: 1 };
    let decision = reply.decide(&state, &mut test_context()).unwrap();
    (with(state, decision.events.clone()), decision)
}

fn advanced(state: TaskState) -> TaskState {
    step(state, |state, ctx| AdvanceWorkflow.decide(state, ctx))
}

/// A workflow that has booked, and is paying.
fn paying() -> TaskState {
    let (state, _) = replied(running_workflow(FLOW), "F7", false);
    advanced(state)
}

fn cancel(state: &TaskState) -> Decision {
    CancelTask { by: CancelOrigin::Owner }.decide(state).unwrap()
}

#[test]
fn failure_starts_the_compensations_and_ends_the_task_after_them() {
    let (state, decision) = replied(paying(), "no money", true);
    let labels = labels(&decision);
    assert_eq!(labels[1..], ["node_changed", "compensation_started"], "{labels:?}");
    assert_eq!(decision.effects, [Effect::AdvanceWorkflow]);
    let state = advanced(state);
    assert_eq!(state.calls().all()[0].arguments()["path"], "undo F7");
    let (state, _) = replied(state, "undone", false);
    let task = state.snapshot();
    assert_eq!(task.status, TaskStatus::Failed);
    assert_eq!(task.error.as_deref(), Some("pay: no money"));
    assert_eq!(task.result.as_deref(), Some("F7"));
}

#[test]
fn cancel_closes_calls_and_undoes_and_a_second_one_ends_it() {
    let state = paying();
    let pay = call_id(&state, 0);
    let decision = cancel(&state);
    assert_eq!(decision.events.last().unwrap().label(), "compensation_started");
    assert!(answer_to(&decision, pay).unwrap().contains("it may have had its effect"));
    assert_eq!(decision.effects, [Effect::AbandonCall { call_id: pay }, Effect::AdvanceWorkflow]);
    let state = advanced(with(state, decision.events));
    assert_eq!(state.status(), TaskStatus::Running);
    let ended = with(state.clone(), cancel(&state).events).snapshot();
    let error = "not everything was undone: a second cancel stopped: compensate_book";
    assert_eq!((ended.status, ended.error.as_deref()), (TaskStatus::Cancelled, Some(error)));
    let (undone, _) = replied(state, "undone", false);
    assert_eq!((undone.status(), undone.snapshot().error), (TaskStatus::Cancelled, None));
}

#[test]
fn cancel_during_a_reply_undoes_the_node_that_replied() {
    let state = with(running_workflow(FLOW), vec![Event::CancelRequested]);
    let (state, decision) = replied(state, "F7", false);
    assert_eq!(decision.events.last().unwrap().label(), "compensation_started");
    let state = advanced(state);
    assert_eq!(state.calls().all()[0].arguments()["path"], "undo F7");
}

#[test]
fn compensation_in_doubt_is_asked_about_after_a_crash() {
    let (state, _) = replied(paying(), "no money", true);
    let state = step(advanced(state), |state, ctx| ResumeTask.decide(state, ctx));
    assert!(state.review().unwrap().question.contains("it is unknown"));
}

#[test]
fn workflow_with_nothing_to_undo_is_cancelled_at_once() {
    let state = running_workflow(FLOW);
    assert_eq!(cancel(&state).events.last(), Some(&Event::TaskCancelled));
}
