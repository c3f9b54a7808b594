use polity_model::remote::RemoteTask;
use polity_model::review::ReviewVerdict;

use super::*;
use crate::commands::{RecordRemoteAcceptance, RecordRemoteCancel};
use crate::decide::fixtures::prelude::*;

fn sending() -> TaskState {
    let agent = json!({"kind": "remote", "name": "painter", "card_url": "https://h/card.json"});
    let agent = polity_definition::AgentDefinition::from_canonical(&agent.to_string());
    running_with(&PinnedAgent::alone(std::sync::Arc::new(agent.unwrap()), None))
}

fn task() -> RemoteTask {
    RemoteTask { task_id: "t-1".into(), context_id: Some("c-1".into()) }
}

fn following() -> TaskState {
    let decision = RecordRemoteAcceptance { task: task() }.decide(&sending()).unwrap();
    assert_eq!(decision.effects, [Effect::FollowRemote]);
    with(sending(), decision.events)
}

fn record(state: &TaskState, end: RemoteEnd) -> Decision {
    let is_running = state.execution().unwrap().state == ExecutionState::Running;
    let is_over = !matches!(end, RemoteEnd::Asks(_));
    let report = RemoteReport { task: is_running.then(task), is_over, ..RemoteReport::default() };
    let outcome = RemoteOutcome { end, report, usage: Usage::default() };
    RecordRemoteOutcome { outcome: Ok(outcome), duration_ms: 7 }
        .decide(state, &mut test_context())
        .unwrap()
}

fn failed(category: ErrorCategory) -> RemoteEnd {
    let failure = AttemptFailure { category, message: "no".into() };
    RemoteEnd::Failed { failure, retry_after: None }
}

fn asked() -> TaskState {
    let events = record(&following(), RemoteEnd::Asks("Which colour?".into())).events;
    with(following(), events)
}

fn answer(state: &TaskState, verdict: ReviewVerdict, message: Option<&str>) -> DecisionResult {
    answer_review(state, verdict, message).decide(state, &mut test_context())
}

#[test]
fn answer_completes_with_and_without_a_remote_task() {
    for state in [sending(), following()] {
        let task = with(state.clone(), record(&state, RemoteEnd::Answered("blue".into())).events);
        assert_eq!(task.snapshot().result.as_deref(), Some("blue"));
        assert!(task.execution().unwrap().has_succeeded());
        assert_eq!(task.execution().unwrap().runs[0].report.duration_ms, 7);
    }
}

#[test]
fn only_unaccepted_messages_are_resent() {
    let decision = record(&sending(), failed(ErrorCategory::Transient));
    assert!(matches!(decision.effects.as_slice(), [Effect::WaitUntil(_)]));
    let waiting = with(sending(), decision.events);
    let resumed = ResumeTask.decide(&waiting, &mut test_context()).unwrap();
    assert!(matches!(resumed.effects.as_slice(), [Effect::WaitUntil(_)]));
    let again = retried(waiting);
    assert_eq!(again.execution().unwrap().state, ExecutionState::Starting);
    for category in [ErrorCategory::Transient, ErrorCategory::AgentError] {
        let task = with(following(), record(&following(), failed(category)).events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::AgentFailed));
    }
    let task = with(sending(), record(&sending(), failed(ErrorCategory::Permanent)).events);
    assert_eq!(task.snapshot().error.as_deref(), Some("no"));
}

#[test]
fn resume_follows_known_tasks_and_doubts_messages() {
    let decision = ResumeTask.decide(&following(), &mut test_context()).unwrap();
    assert_eq!(
        (labels(&decision), decision.effects),
        (vec!["task_resumed"], vec![Effect::FollowRemote])
    );
    let decision = ResumeTask.decide(&sending(), &mut test_context()).unwrap();
    assert_eq!(decision.effects, []);
    let state = with(sending(), decision.events);
    assert!(
        state.review().unwrap().question.contains("it is unknown whether the server accepted it")
    );
    assert_eq!(
        state.execution().unwrap().failure.as_ref().unwrap().category,
        ErrorCategory::SystemError
    );
    let retry = answer(&state, ReviewVerdict::Retry, None).unwrap();
    let decision =
        ResumeTask.decide(&with(state.clone(), retry.events), &mut test_context()).unwrap();
    assert_eq!(decision.effects, [Effect::SendMessage]);
    let skip = answer(&state, ReviewVerdict::SkipWith { result: "red".into() }, None).unwrap();
    assert_eq!(with(state, skip.events).snapshot().result.as_deref(), Some("red"));
}

#[test]
fn lost_connection_opens_a_review() {
    let decision = record(&sending(), RemoteEnd::InDoubt("the call was broken off".into()));
    let state = with(sending(), decision.events);
    assert!(state.review().unwrap().question.contains("the call was broken off"));
}

#[test]
fn question_opens_a_review_and_the_answer_is_sent() {
    let state = asked();
    assert_eq!(state.review().unwrap().question, "Which colour?");
    assert!(state.execution().unwrap().is_over());
    for verdict in
        [ReviewVerdict::Approve, ReviewVerdict::Modify { arguments: serde_json::Map::new() }]
    {
        let events = answer(&state, verdict, Some("blue")).unwrap().events;
        let state = with(state.clone(), events);
        let decision = ResumeTask.decide(&state, &mut test_context()).unwrap();
        assert_eq!(decision.effects, [Effect::SendMessage]);
        let state = with(state, decision.events);
        assert_eq!(state.messages().last().unwrap().content(), "blue");
        assert_eq!(state.remote(), Some(&task()));
    }
    assert_rejected!(answer(&state, ReviewVerdict::Approve, Some(" ")), AnswerNeedsText);
    for verdict in [ReviewVerdict::Retry, ReviewVerdict::SkipWith { result: "red".into() }] {
        assert_rejected!(answer(&state, verdict, Some("blue")), WrongVerdict);
    }
}

#[test]
fn doubtful_answer_is_resent_to_the_same_task() {
    let answered = answer(&asked(), ReviewVerdict::Approve, Some("blue")).unwrap().events;
    let state = with(asked(), answered);
    let sending = ResumeTask.decide(&state, &mut test_context()).unwrap().events;
    let mut later = test_context();
    later.entropy = crate::entropy::Entropy::from_seed([6; 16]);
    let doubt = ResumeTask.decide(&with(state.clone(), sending.clone()), &mut later).unwrap();
    let state = with(with(state, sending), doubt.events);
    let retry = answer(&state, ReviewVerdict::Retry, None).unwrap().events;
    let state = with(state, retry);
    assert_eq!(ResumeTask.decide(&state, &mut later).unwrap().effects, [Effect::SendMessage]);
    assert_eq!((state.remote(), state.messages().len()), (Some(&task()), 3));
}

#[test]
fn rejected_question_leaves_a_remote_task_to_cancel() {
    let rejected = answer(&asked(), ReviewVerdict::Reject, Some("enough")).unwrap().events;
    let ended_by_owner = CancelTask { by: CancelOrigin::Owner }.decide(&asked()).unwrap().events;
    for events in [rejected, ended_by_owner] {
        let ended = with(asked(), events);
        assert_eq!(ended.open_remote(), Some(&task()));
        let refusal = Some("it is over".to_owned());
        let recorded = RecordRemoteCancel { refusal }.decide(&ended).unwrap();
        let recorded = with(ended, recorded.events);
        assert_eq!(recorded.open_remote(), None);
        assert!(RecordRemoteCancel { refusal: None }.decide(&recorded).is_err());
    }
    // A task that still runs, and a remote task that has ended, leave nothing to cancel.
    assert!(RecordRemoteCancel { refusal: None }.decide(&following()).is_err());
    let done = with(following(), record(&following(), RemoteEnd::Answered("blue".into())).events);
    assert_eq!(done.open_remote(), None);
}

#[test]
fn timeout_names_its_limit() {
    let error = |timeout| {
        let [sending, following] = [sending(), following()].map(|state| {
            let late = RecordRemoteOutcome { outcome: Err(timeout), duration_ms: 1 }
                .decide(&state, &mut test_context());
            let task = with(state, late.unwrap().events).snapshot();
            assert_eq!(task.error_code, Some(ErrorCode::Timeout));
            task.error.unwrap()
        });
        assert_eq!(sending, following);
        sending
    };
    insta::assert_snapshot!(
        error(RemoteTimeout::Total),
        @"painter was not done within 3600 seconds, which is limits.remote_seconds: raise it in polity.yaml, or ask for less at once"
    );
    insta::assert_snapshot!(
        error(RemoteTimeout::Idle),
        @"painter showed no progress for 300 seconds, which is limits.remote_idle_seconds: raise it in polity.yaml if the agent works that long in silence"
    );
}

#[test]
fn requested_cancel_is_carried_out() {
    for (state, how) in [(sending(), "failed"), (following(), "cancelled")] {
        let state = with(state, vec![Event::CancelRequested]);
        let ended = with(state.clone(), record(&state, failed(ErrorCategory::Transient)).events);
        assert_eq!(ended.status(), TaskStatus::Cancelled);
        let moves = &ended.execution().unwrap().state_transitions;
        assert!(moves.iter().any(|moved| moved.to.to_string() == how), "{moves:?}");
    }
}

#[test]
fn commands_need_a_remote_execution() {
    assert_rejected!(
        RecordRemoteAcceptance { task: task() }.decide(&following()),
        UnexpectedCommand
    );
    assert_rejected!(
        RecordRemoteOutcome { outcome: Err(RemoteTimeout::Total), duration_ms: 1 }
            .decide(&asked(), &mut test_context()),
        UnexpectedCommand
    );
}
