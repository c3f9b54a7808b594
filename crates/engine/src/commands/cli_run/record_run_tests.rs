//! Tests for the end of a run.

use polity_model::run::{ProcessExit, RunReport};
use polity_model::usage::Usage;

use super::*;
use crate::budget::{BudgetAccount, BudgetStatus};
use crate::commands::{BeginRun, RecordProcess, SlotWait};
use crate::decide::fixtures::prelude::*;
use crate::decide::fixtures::{run_with, started_run};

fn over(end: RunEnd) -> RecordRun {
    let (process_id, exit) = (Some(7), Some(ProcessExit::Code(0)));
    let report = RunReport { process_id, exit, duration_ms: 3, ..RunReport::default() };
    RecordRun { outcome: RunOutcome { end, report, usage: Usage::default() } }
}

fn failed(category: ErrorCategory) -> RunEnd {
    RunEnd::Failed(AttemptFailure { category, message: "no".into() })
}

fn path(state: &TaskState) -> Vec<String> {
    let execution = state.execution().unwrap();
    execution.state_transitions.iter().map(|moved| moved.to.to_string()).collect()
}

#[test]
fn answer_is_the_result() {
    let decision =
        over(RunEnd::Answered("42".into())).decide(&run_running(), &mut test_context()).unwrap();
    let state = with(run_running(), decision.events);
    assert_eq!(state.snapshot().result.as_deref(), Some("42"));
    assert_eq!(path(&state), ["starting", "running", "completed", "cleanup", "idle"]);
    assert_eq!(state.execution().unwrap().runs[0].report.process_id, Some(7));
}

#[test]
fn immediate_end_still_records_the_process() {
    let state = run_queued();
    let events =
        BeginRun { wait: SlotWait::Acquired }.decide(&state, &test_context()).unwrap().events;
    let starting = with(state, events);
    let decision =
        over(RunEnd::Answered("42".into())).decide(&starting, &mut test_context()).unwrap();
    let state = with(starting, decision.events);
    assert_eq!(path(&state), ["starting", "running", "completed", "cleanup", "idle"]);
    assert_eq!(state.execution().unwrap().process_id, Some(7));
}

#[test]
fn transient_failure_is_retried_if_repeatable() {
    let harmful = over(failed(ErrorCategory::Transient));
    let decision = harmful.decide(&run_running(), &mut test_context()).unwrap();
    let state = with(run_running(), decision.events);
    assert_eq!(state.snapshot().error_code, Some(ErrorCode::AgentFailed));

    for harmless in [json!({"idempotent": true}), json!({"access_type": "read-only"})] {
        let mut state = started_run(run_with(&harmless));
        for tried in 0..=3 {
            let decision =
                over(failed(ErrorCategory::Transient)).decide(&state, &mut test_context()).unwrap();
            let waits = matches!(decision.effects.as_slice(), [Effect::WaitUntil(_)]);
            assert_eq!(waits, tried < 3, "{tried}");
            state = with(state, decision.events);
            if waits {
                state = retried(state);
                let started = RecordProcess { process_id: 8 }.decide(&state).unwrap();
                state = with(state, started.events);
            }
        }
        assert_eq!(state.snapshot().error_code, Some(ErrorCode::AgentFailed));
        let execution = state.execution().unwrap();
        assert_eq!((execution.retry_count, execution.runs.len()), (3, 4));
        assert!(execution.runs.iter().all(|run| run.failure.is_some()));
    }
}

#[test]
fn failed_start_is_always_retried() {
    let state = run_queued();
    let events =
        BeginRun { wait: SlotWait::Acquired }.decide(&state, &test_context()).unwrap().events;
    let starting = with(state, events);
    let mut over = over(failed(ErrorCategory::Transient));
    over.outcome.report = RunReport::default();
    let decision = over.decide(&starting, &mut test_context()).unwrap();
    assert!(matches!(decision.effects.as_slice(), [Effect::WaitUntil(_)]));
}

#[test]
fn timeout_and_cancel_have_their_own_states() {
    for (end, last, status) in [
        (RunEnd::TimedOut("too long".into()), "timeout", "failed"),
        (RunEnd::Stopped, "cancelled", "cancelled"),
        (failed(ErrorCategory::AgentError), "failed", "failed"),
    ] {
        let decision = over(end).decide(&run_running(), &mut test_context()).unwrap();
        assert_eq!(decision.effects, []);
        let state = with(run_running(), decision.events);
        assert_eq!(path(&state), ["starting", "running", last, "cleanup", "idle"]);
        assert_eq!(state.status().to_string(), status);
    }
}

#[test]
fn orphaned_run_is_recovered_first() {
    let decision = ResumeTask.decide(&run_running(), &mut test_context()).unwrap();
    assert_eq!(labels(&decision), ["task_resumed"]);
    assert_eq!(decision.effects, [Effect::RecoverRun]);
    let state = with(run_running(), decision.events);

    let outcome = Some(over(RunEnd::Answered("42".into())).outcome);
    let found = RecordRecoveredRun { outcome }.decide(&state, &mut test_context()).unwrap();
    assert_eq!(with(state.clone(), found.events).snapshot().result.as_deref(), Some("42"));

    let lost = RecordRecoveredRun { outcome: None };
    let asked = with(state.clone(), lost.decide(&state, &mut test_context()).unwrap().events);
    assert_eq!(asked.status(), TaskStatus::AwaitingHuman);
    assert!(asked.execution().unwrap().is_over());

    let harmless = started_run(run_with(&json!({"idempotent": true})));
    let decision = lost.decide(&harmless, &mut test_context()).unwrap();
    assert!(matches!(decision.effects.as_slice(), [Effect::WaitUntil(_)]));
}

#[test]
fn queued_run_keeps_waiting() {
    let decision = ResumeTask.decide(&run_queued(), &mut test_context()).unwrap();
    assert_eq!(decision.effects, [Effect::WaitForSlot]);
}

#[test]
fn cut_answer_fails_the_run_and_is_kept() {
    let end = RunEnd::Truncated { answer: "half".into(), message: "at most 16 MiB".into() };
    let decision = over(end).decide(&run_running(), &mut test_context()).unwrap();
    let task = with(run_running(), decision.events).snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::Truncated));
    assert_eq!(task.result.as_deref(), Some("half"));
    assert_eq!(task.error.as_deref(), Some("at most 16 MiB"));
}

/// The usage of a run is known only at its end.
#[test]
fn answer_of_a_program_over_budget_is_only_a_partial_result() {
    let mut ctx = test_context();
    let spent = Usage { input_tokens: 11, ..Usage::default() };
    let budget = serde_json::from_value(json!({"max_tokens": 10})).unwrap();
    let account = BudgetAccount { agent: "coder".parse().unwrap(), budget, spent };
    ctx.budget = BudgetStatus::of(&[account]);
    let end = RunEnd::Answered("42".into());
    let decision = over(end).decide(&run_running(), &mut ctx).unwrap();
    let task = with(run_running(), decision.events).snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::Budget));
    assert_eq!(task.result.as_deref(), Some("42"));
}
