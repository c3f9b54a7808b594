use polity_model::event::{JournalPosition, RecordedEvent, StreamSequence};
use polity_model::failure::WithheldReason;

use super::*;
use crate::commands::{FailureCause, RecordModelFailure, RecordToolFailure};
use crate::decide::DecisionContext;
use crate::decide::fixtures::prelude::*;
use crate::driver::{ModelFailure, ToolFailure};
use crate::state::TaskState;

/// The labels of the events that a retry shares of a turn's decisions, and of those it leaves out.
fn split(decisions: Vec<Vec<Event>>) -> (Vec<&'static str>, Vec<&'static str>) {
    let events: Vec<Event> = decisions.into_iter().flatten().collect();
    let recorded: Vec<RecordedEvent> = (2..)
        .zip(&events)
        .map(|(sequence, event)| RecordedEvent {
            position: JournalPosition(sequence),
            stream: running().stream(),
            sequence: StreamSequence(sequence),
            at: test_context().now,
            event: event.clone(),
        })
        .collect();
    let point = retry_point(&pinned().into(), &recorded);
    let labels = |keep: bool| {
        let kept = recorded.iter().filter(|event| (event.sequence <= point) == keep);
        kept.map(|event| event.event.label()).collect()
    };
    (labels(true), labels(false))
}

fn failed(category: ErrorCategory) -> RecordModelFailure {
    let failure = AttemptFailure { category, message: "no".into() };
    let failure = ModelFailure::new(failure);
    RecordModelFailure { failure, cause: FailureCause::Model, duration_ms: 1 }
}

fn over_budget() -> DecisionContext {
    let budget = serde_json::from_value(json!({"max_tokens": 1})).unwrap();
    let spent = polity_model::usage::Usage { input_tokens: 2, ..Default::default() };
    let agent = "greeter".parse().unwrap();
    let account = crate::budget::BudgetAccount { agent, budget, spent };
    DecisionContext { budget: crate::budget::BudgetStatus::of(&[account]), ..test_context() }
}

fn answered(
    state: &TaskState,
    reply: crate::driver::ModelReply,
    mut ctx: DecisionContext,
) -> Vec<Event> {
    let reply = RecordModelReply { reply, duration_ms: 1 };
    reply.decide(state, &mut ctx).unwrap().events
}

const CLOSED: [&str; 4] =
    ["execution_changed", "execution_changed", "execution_changed", "task_failed"];

#[test]
fn failed_model_call_is_made_again() {
    let called = Event::ModelCalled { iteration: 1, checkpoint: None };
    let failure = failed(ErrorCategory::Permanent).decide(&running(), &mut test_context());
    let (kept, left) = split(vec![vec![called], failure.unwrap().events]);
    assert_eq!(kept, ["model_called"]);
    assert_eq!(left, [&["model_failed"], &CLOSED[..]].concat());
}

#[test]
fn requested_calls_are_ruled_on_again() {
    let events = answered(&running(), asks_for(&["files/read", "files/write"]), over_budget());
    let (kept, left) = split(vec![events]);
    assert_eq!(kept, ["model_answered"]);
    assert_eq!(left, [&["tool_changed", "tool_changed"], &CLOSED[..]].concat());
}

#[test]
fn unreadable_arguments_keep_their_answer() {
    let mut reply = asks_for(&["files/read", "files/write"]);
    let (text, reason) = ("{".to_owned(), "cut".to_owned());
    reply.tool_calls[1].arguments = AskedArguments::Unreadable { text, reason };
    let (kept, left) = split(vec![answered(&running(), reply, over_budget())]);
    assert_eq!(kept, ["model_answered", "tool_changed"]);
    assert_eq!(left[0], "tool_changed");
}

#[test]
fn final_answer_over_budget_is_kept_and_others_are_asked_for_again() {
    let called = || vec![Event::ModelCalled { iteration: 1, checkpoint: None }];
    let (kept, _) = split(vec![called(), answered(&running(), reply("done"), over_budget())]);
    assert_eq!(kept, ["model_called", "model_answered"]);
    for ending in [AnswerEnding::Truncated, AnswerEnding::Withheld(WithheldReason::Refused)] {
        let reply = crate::driver::ModelReply { ending, ..reply("I") };
        let (kept, _) = split(vec![called(), answered(&running(), reply, over_budget())]);
        assert_eq!(kept, ["model_called"], "{ending:?}");
    }
    let (kept, _) = split(vec![called(), answered(&running(), reply(""), test_context())]);
    assert_eq!(kept, ["model_called"], "an empty answer");
}

#[test]
fn withheld_calls_are_asked_for_again() {
    let ending = AnswerEnding::Withheld(WithheldReason::Filtered);
    let reply = crate::driver::ModelReply { ending, ..asks_for(&["files/read"]) };
    let called = vec![Event::ModelCalled { iteration: 1, checkpoint: None }];
    assert_eq!(
        split(vec![called, answered(&running(), reply, test_context())]).0,
        ["model_called"]
    );
}

#[test]
fn answers_of_tools_are_kept() {
    let state = turn_with_calls(&["files/write"]);
    let failure = AttemptFailure { category: ErrorCategory::Permanent, message: "no".into() };
    let failure = ToolFailure { failure, maybe_done: true, timed_out: false };
    let failure = RecordToolFailure { call_id: call_id(&state, 0), failure, duration_ms: 1 };
    let (kept, left) = split(vec![failure.decide(&state, &mut over_budget()).unwrap().events]);
    assert_eq!((kept, left), (vec!["tool_changed"], CLOSED.to_vec()));
}

#[test]
fn cancelled_calls_are_open_again() {
    let state = turn_with_calls(&["files/write", "files/delete"]);
    let called = answered(&running(), asks_for(&["files/write", "files/delete"]), test_context());
    let cancel = CancelTask { by: CancelOrigin::Owner }.decide(&state).unwrap().events;
    let (kept, left) = split(vec![called, cancel]);
    assert_eq!(kept, ["model_answered", "tool_changed", "tool_changed"]);
    assert_eq!(left.last(), Some(&"task_cancelled"));
}

#[test]
fn cli_agent_starts_again() {
    let agent = json!({"kind": "cli", "name": "coder", "executable_path": "coder"});
    let agent = polity_definition::AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    let assignee = PinnedAgent::alone(Arc::new(agent), None).into();
    assert_eq!(retry_point(&assignee, &[]), StreamSequence(1));
}
