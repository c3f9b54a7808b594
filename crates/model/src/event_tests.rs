use super::*;
use crate::failure::ErrorCategory;
use crate::usage::Cost;

/// One of each, so that a changed form is noticed: journals are read for ever.
fn one_of_each() -> Vec<Event> {
    let execution_id = ExecutionId::from_random_bytes([2; 16]);
    let change = |change| Event::ExecutionChanged { execution_id, change };
    let timestamp = Timestamp::from_second(1_767_225_600).unwrap();
    let failure = Failure { category: ErrorCategory::Transient, message: "overloaded".into() };
    let call_id = ToolCallId::from_random_bytes([5; 16]);
    let tool_changed = |change| Event::ToolChanged { call_id, change };
    let tool: ToolName = serde_json::from_value("files/read".into()).unwrap();
    vec![
        Event::TaskCreated(TaskCreated {
            description: "Ada".into(),
            assigned_agent: "greeter".parse().unwrap(),
            pins: vec![Pin {
                kind: PinKind::Agent,
                name: "greeter".parse().unwrap(),
                digest: Digest::of(b"{}"),
            }],
            parameters: Map::from_iter([("topic".to_owned(), Value::from("rain"))]),
            class: Some("debug".into()),
            retention_days: Some(3),
            parent_task_id: Some(TaskId::from_random_bytes([1; 16])),
            budget: serde_json::from_str(r#"{"max_cost_usd": 0.5, "max_tokens": 100}"#).unwrap(),
        }),
        Event::TaskClaimed { instance: InstanceId::from_random_bytes([3; 16]), epoch: Epoch(1) },
        Event::TaskReleased,
        Event::TaskStarted,
        Event::TaskPaused,
        Event::TaskResumed,
        Event::CancelRequested,
        Event::TaskCompleted { result: ResultRef::LastAnswer },
        Event::TaskFailed {
            code: ErrorCode::LimitIterations,
            error: "10 turns".into(),
            partial_result: Some(ResultRef::LastAnswer),
        },
        Event::TaskCancelled,
        change(ExecutionChange::Start { agent: "greeter".parse().unwrap(), max_retries: 3 }),
        change(ExecutionChange::Run),
        change(ExecutionChange::Complete),
        change(ExecutionChange::Fail { failure: failure.clone(), retry_at: Some(timestamp) }),
        change(ExecutionChange::Retry),
        change(ExecutionChange::TimeOut),
        change(ExecutionChange::Cancel),
        change(ExecutionChange::CleanUp),
        change(ExecutionChange::Finish),
        Event::ModelCalled { iteration: 1 },
        Event::ModelAnswered {
            message: Message::Assistant {
                content: "Hello, Ada.".into(),
                tool_calls: Vec::new(),
                timestamp,
            },
            usage: Usage { input_tokens: 9, output_tokens: 3, cost: Cost::of_tokens(12, 0.5) },
            duration_ms: 4,
            is_cut: true,
            mark: Some(0),
        },
        Event::ModelFailed { failure: failure.clone(), of_tools: true, duration_ms: 4, mark: None },
        Event::HistoryShortened { kept_from: 7 },
        tool_changed(ToolChange::Hold { tool: tool.clone() }),
        tool_changed(ToolChange::Call { tool: tool.clone(), arguments: None, repeatable: true }),
        tool_changed(ToolChange::Call {
            tool,
            arguments: Some(Map::from_iter([("path".to_owned(), Value::from("a"))])),
            repeatable: false,
        }),
        tool_changed(ToolChange::Fail { failure, duration_ms: 5, retry_at: timestamp }),
        tool_changed(ToolChange::Wait),
        tool_changed(ToolChange::Doubt),
        tool_changed(ToolChange::Answer {
            ordinal: 2,
            content: "sunny".into(),
            structured: Some(Value::from(21)),
            is_error: true,
            duration_ms: 6,
        }),
        Event::ReviewOpened {
            checkpoint_id: CheckpointId::from_random_bytes([4; 16]),
            subject: ReviewSubject::Approval { call_id },
            question: "May it?".into(),
        },
        Event::ReviewAnswered {
            verdict: Verdict::SkipWith { result: "done".into() },
            message: Some("I did it.".into()),
            by: "ada".into(),
        },
        Event::MessageAdded { message: Message::System { content: "Be brief.".into(), timestamp } },
        Event::CheckpointTaken {
            checkpoint_id: CheckpointId::from_random_bytes([4; 16]),
            sequence: 0,
            node: "greeter".into(),
            awaiting_human: false,
            message_count: Some(3),
        },
    ]
}

#[test]
fn events_keep_their_form() {
    let lines: Vec<String> =
        one_of_each().iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn events_survive_the_journal_and_are_labelled_as_they_are_written() {
    for event in one_of_each() {
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(json["type"], event.label());
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
    }
}
