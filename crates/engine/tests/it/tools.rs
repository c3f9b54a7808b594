//! Tool calls: parallelism, crashes, reviews and timeouts.

use polity_model::trace::TraceLog;
use polity_testkit::runtime::FakeModelTurn::{Answer, ContextFull, RequestTools};

use crate::prelude::*;

struct ToolFixture {
    base: RuntimeFixture,
    world: Arc<ToolEffects>,
}

impl ToolFixture {
    fn new() -> Self {
        Self { base: RuntimeFixture::new(), world: Arc::default() }
    }

    fn process(
        &self,
        number: u64,
        turns: Vec<FakeModelTurn>,
        tool_turns: Vec<FakeToolAct>,
    ) -> (Runtime, Arc<FakeTools>) {
        let pause = Duration::from_millis(10);
        let models = Arc::new(FakeModels::new(turns, pause).on(&self.world));
        let tools = Arc::new(FakeTools::new(&self.world, tool_turns, pause));
        let deps = self.base.deps(number, models);
        (start(RuntimeDeps { tools: tools.clone(), ..deps }), tools)
    }

    fn trace(&self, id: TaskId) -> TraceLog {
        TraceLog::from_events(id, &self.base.recorded(id)).unwrap()
    }

    /// Answers the open review.
    async fn answer(
        &self,
        runtime: &Runtime,
        id: TaskId,
        verdict: ReviewVerdict,
    ) -> Result<(), EngineError> {
        let state = self.base.load(id).await;
        let nothing = CheckpointId::from_random_bytes([0; 16]);
        let checkpoint_id = state.review().map_or(nothing, |review| review.checkpoint_id);
        let message = Some("as I say".to_owned());
        let answer = AnswerReview { message, ..answer_review(checkpoint_id, verdict) };
        runtime.answer(id, answer).await
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_turn_run_in_parallel_with_ordered_answers() {
    let fixture = ToolFixture::new();
    let turns = vec![RequestTools(&["files/write", "files/read", "time/now"]), Answer("done")];
    let (runtime, tools) = fixture.process(1, turns, vec![]);
    let id = complete(&runtime, create_task("a")).await;
    assert_eq!(tools.max_concurrent(), 3);
    let texts = fixture.base.message_texts(id);
    assert_eq!(texts[2..], ["files/write 0", "files/read 1", "time/now 2", "done"]);
}

#[tokio::test(start_paused = true)]
async fn tool_timeout_is_reported_to_the_model() {
    let fixture = ToolFixture::new();
    let turns = vec![RequestTools(&["files/write"]), Answer("done")];
    let (runtime, _) = fixture.process(1, turns, vec![FakeToolAct::Hang]);
    let id = complete(&runtime, create_task("a")).await;
    insta::assert_snapshot!(fixture.base.message_texts(id)[2], @"error: files/write: the tool took too long (it may have had its effect all the same)");
    assert_eq!(fixture.world.effects()[&0], 1);
}

#[tokio::test(start_paused = true)]
async fn each_failed_attempt_is_recorded() {
    let fixture = ToolFixture::new();
    let turns = vec![RequestTools(&["files/write"]), Answer("done")];
    let (runtime, _) =
        fixture.process(1, turns, vec![FakeToolAct::NotReached, FakeToolAct::NotReached]);
    let id = complete(&runtime, create_task("a")).await;
    let trace = fixture.trace(id);
    let calls: Vec<_> =
        trace.steps.iter().flat_map(|step| &step.tool_calls).map(|call| &call.error).collect();
    assert_eq!(calls.len(), 3);
    assert!(calls[0].is_some() && calls[1].is_some() && calls[2].is_none(), "{calls:?}");
    assert_eq!(fixture.world.effects()[&0], 1);
}

#[tokio::test(start_paused = true)]
async fn cancel_stops_running_tools_and_answers_every_call() {
    let fixture = ToolFixture::new();
    let (runtime, _) =
        fixture.process(1, vec![RequestTools(&["files/write"])], vec![FakeToolAct::Hang]);
    let mut handle = runtime.create(create_task("a")).await.unwrap();
    sleep(200).await;
    assert_eq!(runtime.cancel(handle.id).await.unwrap(), CancelOutcome::Requested);
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    let messages = fixture.base.store.messages(handle.id).await.unwrap();
    assert!(matches!(messages.last(), Some(Message::Tool { .. })), "{messages:?}");
    let texts = fixture.base.message_texts(handle.id).pop().unwrap();
    assert!(texts.contains("cancelled") && texts.contains("may have had its effect"), "{texts}");
}

#[tokio::test(start_paused = true)]
async fn approval_resumes_in_another_process() {
    let fixture = ToolFixture::new();
    let turns = vec![RequestTools(&["files/delete"]), Answer("unheard")];
    let (first, _) = fixture.process(1, turns, vec![]);
    let id = pause(&first, create_task("a")).await;
    let row = fixture.base.row(id);
    assert_eq!((row.status, row.owner), (TaskStatus::AwaitingHuman, None));
    fixture.base.kill(1, first);
    assert_eq!(fixture.base.orphan_ids().await, [], "a waiting task is no orphan");
    assert!(fixture.world.effects().is_empty());

    let (second, _) = fixture.process(2, vec![Answer("deleted")], vec![]);
    let early = second.adopt(id).await.unwrap_err();
    assert!(matches!(early, EngineError::Rejected(CommandRejection::AwaitingHuman { .. })));
    fixture.answer(&second, id, ReviewVerdict::Approve).await.unwrap();
    let twice = fixture.answer(&second, id, ReviewVerdict::Reject).await.unwrap_err();
    assert!(matches!(twice, EngineError::Rejected(CommandRejection::NothingToDecide { .. })));
    assert_eq!(adopt(&second, id).await, TaskStatus::Completed);
    assert_eq!(fixture.world.effects()[&0], 1);
    assert_eq!(fixture.base.message_texts(id).last().unwrap(), "deleted");
}

#[tokio::test(start_paused = true)]
async fn rejected_call_is_reported_to_the_model() {
    let fixture = ToolFixture::new();
    let turns = vec![RequestTools(&["files/delete"]), Answer("then not")];
    let (runtime, _) = fixture.process(1, turns, vec![]);
    let id = pause(&runtime, create_task("a")).await;
    fixture.answer(&runtime, id, ReviewVerdict::Reject).await.unwrap();
    assert_eq!(adopt(&runtime, id).await, TaskStatus::Completed);
    assert!(fixture.world.effects().is_empty());
    let texts = fixture.base.message_texts(id);
    assert_eq!(texts[2], "a person rejected the call of files/delete: as I say");
    assert_eq!(texts[3], "then not");
}

#[tokio::test(start_paused = true)]
async fn cancels_a_task_that_awaits_review() {
    let fixture = ToolFixture::new();
    let (runtime, _) = fixture.process(1, vec![RequestTools(&["files/delete"])], vec![]);
    let id = pause(&runtime, create_task("a")).await;
    let outcome = runtime.cancel(id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Done(TaskStatus::Cancelled));
    let execution = &fixture.base.store.executions(id).await.unwrap()[0];
    assert_eq!(execution.state.to_string(), "idle", "the execution was reset");
    let texts = fixture.base.message_texts(id).pop().unwrap();
    insta::assert_snapshot!(texts, @"the task was cancelled before the tool was called");
}

/// A process crashes during two tool calls, of which one is repeatable.
async fn crash_during_two_calls(fixture: &ToolFixture) -> TaskId {
    let turns = vec![RequestTools(&["files/write", "files/read"])];
    let (first, _) = fixture.process(1, turns, vec![FakeToolAct::Hang, FakeToolAct::Hang]);
    let handle = first.create(create_task("a")).await.unwrap();
    sleep(200).await;
    fixture.base.kill(1, first);
    handle.id
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_opens_a_review_while_others_continue() {
    let fixture = ToolFixture::new();
    let id = crash_during_two_calls(&fixture).await;
    let (second, _) = fixture.process(2, vec![Answer("done")], vec![]);
    assert_eq!(adopt(&second, id).await, TaskStatus::AwaitingHuman);
    let state = fixture.base.load(id).await;
    let question = &state.review().unwrap().question;
    assert!(question.contains("files/write with {\"n\":0}"), "{question}");
    assert_eq!(fixture.world.effects()[&0], 1, "the runtime repeats no uncertain call");
    // The repeatable call was repeated and answered.
    let is_answer = |event: &Event| {
        matches!(event, Event::ToolChanged { change: ToolChange::Answer { .. }, .. })
    };
    assert_eq!(fixture.base.events(id).into_iter().filter(is_answer).count(), 1);

    let refused = fixture.answer(&second, id, ReviewVerdict::Approve).await.unwrap_err();
    assert!(matches!(refused, EngineError::Rejected(CommandRejection::DoubtNeedsChoice { .. })));
    let verdict = ReviewVerdict::SkipWith { result: "written".into() };
    fixture.answer(&second, id, verdict).await.unwrap();
    assert_eq!(adopt(&second, id).await, TaskStatus::Completed);
    assert_eq!(fixture.world.effects()[&0], 1);
    assert_eq!(fixture.base.message_texts(id)[2..], ["written", "files/read 1", "done"]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_is_repeated_after_a_retry_verdict() {
    let fixture = ToolFixture::new();
    let id = crash_during_two_calls(&fixture).await;
    let (second, _) = fixture.process(2, vec![Answer("done")], vec![]);
    adopt(&second, id).await;
    fixture.answer(&second, id, ReviewVerdict::Retry).await.unwrap();
    assert_eq!(adopt(&second, id).await, TaskStatus::Completed);
    assert_eq!(fixture.world.effects()[&0], 2);
    let trace = fixture.trace(id);
    let steps: Vec<_> = trace.steps.iter().map(|step| step.step_name.as_str()).collect();
    let expected = "created started model_call resumed tool_call tool_call tool_call doubt_asked \
                    review_answered resumed tool_call model_call completed";
    assert_eq!(steps.join(" "), expected);
}

#[tokio::test(start_paused = true)]
async fn rejected_interrupted_call_fails_the_task() {
    let fixture = ToolFixture::new();
    let id = crash_during_two_calls(&fixture).await;
    let (second, _) = fixture.process(2, vec![], vec![]);
    adopt(&second, id).await;
    fixture.answer(&second, id, ReviewVerdict::Reject).await.unwrap();
    let row = fixture.base.row(id);
    assert_eq!((row.status, row.error_code), (TaskStatus::Failed, Some(ErrorCode::Rejected)));
}

#[tokio::test(start_paused = true)]
async fn long_conversation_is_shortened_and_traced() {
    let fixture = ToolFixture::new();
    let turns = vec![
        RequestTools(&["time/now", "files/read"]),
        RequestTools(&["time/now"]),
        RequestTools(&["files/read"]),
        ContextFull,
        Answer("short"),
    ];
    let (runtime, _) = fixture.process(1, turns, vec![]);
    let id = complete(&runtime, create_task("a")).await;
    let steps = fixture.trace(id).steps;
    let shortened = steps.iter().filter(|step| step.step_name == "shortened").count();
    assert_eq!(shortened, 1);
    // Nothing of it is lost.
    assert_eq!(fixture.base.store.messages(id).await.unwrap().len(), 9);
    let events = fixture.base.events(id);
    assert!(events.iter().any(|event| matches!(event, Event::HistoryShortened { kept_from: 6 })));
}

#[tokio::test(start_paused = true)]
async fn remote_cancel_wins_over_a_simultaneous_tool_answer() {
    for pause_ms in (0..30).map(|step| step * 10) {
        let fixture = ToolFixture::new();
        let turns = vec![RequestTools(&["files/read", "files/write"])];
        let (runtime, _) = fixture.process(1, turns, vec![FakeToolAct::Answer, FakeToolAct::Hang]);
        let mut handle = runtime.create(create_task("a")).await.unwrap();
        sleep(pause_ms).await;
        let outcome = fixture.base.cancel(handle.id).await;
        assert!(outcome.is_ok(), "{outcome:?}");
        let ended = tokio::time::timeout(Duration::from_millis(300), handle.wait()).await;
        assert_eq!(ended.unwrap().unwrap(), TaskStatus::Cancelled, "after {pause_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_between_attempts_prevents_the_next() {
    let fixture = ToolFixture::new();
    let turns = vec![RequestTools(&["files/write"])];
    let (runtime, _) = fixture.process(1, turns, vec![FakeToolAct::NotReached]);
    let mut handle = runtime.create(create_task("a")).await.unwrap();
    sleep(200).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(fixture.world.effects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn answer_at_the_moment_of_the_question_is_not_lost() {
    let fixture = ToolFixture::new();
    let turns = vec![RequestTools(&["files/delete"]), Answer("deleted")];
    let (runtime, _) = fixture.process(1, turns, vec![]);
    let mut live = runtime.subscribe();
    let mut handle = runtime.create(create_task("a")).await.unwrap();
    loop {
        if let LiveEvent::Event(event) = live.recv().await.unwrap()
            && matches!(event.event, Event::ReviewOpened { .. })
        {
            break;
        }
    }
    fixture.answer(&runtime, handle.id, ReviewVerdict::Approve).await.unwrap();
    let mut adopted = runtime.adopt(handle.id).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_mins(1), adopted.wait()).await;
    assert_eq!(ended.unwrap().unwrap(), TaskStatus::Completed);
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
}
