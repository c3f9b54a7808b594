use super::*;
use crate::run::{
    OmittedFile, OutputFiles, ProcessExit, ResourceUsage, RunArtifact, RunArtifacts, RunReport,
    SavedWorkspace,
};

use serde_json::json;

use crate::failure::ErrorCategory;
use crate::message::ToolCall;
use crate::remote::RemoteReport;
use crate::usage::Cost;

fn remote_task() -> RemoteTask {
    RemoteTask { task_id: "t-1".into(), context_id: Some("c-1".into()) }
}

fn created() -> Event {
    Event::TaskCreated(TaskCreated {
        description: "Ada".into(),
        assigned_agent: "greeter".parse().unwrap(),
        pins: vec![DefinitionPin {
            kind: PinKind::Agent,
            name: "greeter".parse().unwrap(),
            digest: Digest::of(b"{}"),
        }],
        parameters: Map::from_iter([("topic".to_owned(), Value::from("rain"))]),
        class: Some("debug".into()),
        retention_days: Some(3),
        parent_task_id: Some(TaskId::from_random_bytes([1; 16])),
        map_item: Some(2),
        parent_node: Some("each".parse().unwrap()),
        budget: serde_json::from_str(r#"{"max_cost_usd": 0.5, "max_tokens": 100}"#).unwrap(),
        forked_from: Some(ForkPoint {
            task_id: TaskId::from_random_bytes([6; 16]),
            sequence: StreamSequence(8),
            checkpoint: Some(2),
        }),
        retry_of: Some(TaskId::from_random_bytes([6; 16])),
        doubted_run: Some(ExecutionId::from_random_bytes([7; 16])),
        raised: serde_json::from_str(r#"{"max_cost_usd": 0.5, "timeout_seconds": 60}"#).unwrap(),
        working_directory: Some("/work".into()),
        has_private: true,
        request: Some(Digest::of(b"Ada")),
        idempotency: None,
        scheduled: Some(Box::new(ScheduledFor {
            schedule: "daily".parse().unwrap(),
            due: Timestamp::UNIX_EPOCH,
        })),
    })
}

fn model_failed(failure: AttemptFailure, retry_until: Timestamp) -> Event {
    let (usage, retry_until) = (Usage::default(), Some(retry_until));
    Event::ModelFailed { failure, of_tools: true, duration_ms: 4, mark: None, retry_until, usage }
}

/// One of each event, so that the snapshot shows changes of the format.
#[expect(clippy::too_many_lines, reason = "a list with one entry per event")]
fn one_of_each() -> Vec<Event> {
    let execution_id = ExecutionId::from_random_bytes([2; 16]);
    let change = |change| Event::ExecutionChanged { execution_id, change };
    let timestamp = Timestamp::from_second(1_767_225_600).unwrap();
    let failure =
        AttemptFailure { category: ErrorCategory::Transient, message: "overloaded".into() };
    let call_id = ToolCallId::from_random_bytes([5; 16]);
    let tool_changed = |change| Event::ToolChanged { call_id, change };
    let tool: ToolName = serde_json::from_value("files/read".into()).unwrap();
    vec![
        created(),
        Event::TaskClaimed {
            instance: InstanceId::from_random_bytes([3; 16]),
            epoch: OwnerEpoch(1),
        },
        Event::TaskReleased,
        Event::TaskStarted,
        Event::TaskPaused,
        Event::TaskResumed,
        Event::CancelRequested,
        Event::TaskImported,
        Event::TaskTrusted { by: "ada".into() },
        Event::TaskCompleted { result: ResultRef::LastAnswer },
        Event::TaskFailed {
            code: ErrorCode::LimitIterations,
            error: "10 turns".into(),
            partial_result: Some(ResultRef::LastAnswer),
        },
        Event::TaskCancelled,
        Event::CompensationStarted { failure: None },
        Event::CompensationStarted {
            failure: Some(CompensationCause {
                code: ErrorCode::ToolFailed,
                error: "pay: no money".into(),
                node: Some("pay".parse().unwrap()),
            }),
        },
        Event::CompensationFailed { error: "compensate_book: no such booking".into() },
        change(ExecutionChange::Start { agent: "greeter".parse().unwrap(), max_retries: 3 }),
        change(ExecutionChange::Queue {
            agent: "coder".parse().unwrap(),
            max_retries: 3,
            pool: "folder /work".into(),
            timeout_seconds: 300,
        }),
        change(ExecutionChange::RUN),
        change(ExecutionChange::Run { process_id: Some(7), remote: None }),
        change(ExecutionChange::Run { process_id: None, remote: Some(remote_task()) }),
        change(ExecutionChange::EndRemote { task: remote_task(), refusal: None }),
        change(ExecutionChange::EndRemote {
            task: remote_task(),
            refusal: Some("it is over".into()),
        }),
        change(ExecutionChange::Complete),
        change(ExecutionChange::Fail { failure: failure.clone(), retry_at: Some(timestamp) }),
        change(ExecutionChange::Retry),
        change(ExecutionChange::TimeOut),
        change(ExecutionChange::Cancel),
        change(ExecutionChange::CleanUp),
        change(ExecutionChange::Finish),
        Event::ModelCalled { iteration: 1, checkpoint: None },
        Event::ModelCalled {
            iteration: 2,
            checkpoint: Some(TurnCheckpoint {
                checkpoint_id: CheckpointId::from_random_bytes([4; 16]),
                sequence: 0,
            }),
        },
        Event::ModelAnswered {
            message: Message::Assistant {
                content: "Hello, Ada.".into(),
                tool_calls: Vec::new(),
                timestamp,
            },
            usage: Usage::reported(Some(9), Some(3), Some(Cost::of_tokens(12, 0.5))),
            duration_ms: 4,
            is_cut: true,
            withheld: None,
            mark: Some(0),
        },
        model_failed(failure.clone(), timestamp),
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
            ordinal: Some(2),
            content: "sunny".into(),
            structured: Some(Value::from(21)),
            is_error: true,
            duration_ms: 6,
            unsettled: Some(UnsettledCall::MaybeDone),
            item: None,
        }),
        Event::ReviewOpened {
            checkpoint_id: CheckpointId::from_random_bytes([4; 16]),
            subject: ReviewSubject::Approval { call_id },
            question: "May it?".into(),
            deadline: Some(timestamp),
            default_action: Some(ReviewAction::Reject),
        },
        Event::ReviewAnswered {
            verdict: ReviewVerdict::SkipWith { result: "done".into() },
            message: Some("I did it.".into()),
            by: "ada".into(),
            state_updates: StateUpdates::default(),
        },
    ]
}

fn artifacts() -> RunArtifacts {
    let (path, sha256) = ("a.md".to_owned(), Digest::of(b"a"));
    RunArtifacts {
        folder: "output/1/artifacts".into(),
        files: vec![RunArtifact { path, bytes: 1, sha256, masked: true }],
        left_out: vec![OmittedFile { path: "b".into(), reason: "too long".into() }],
        left_out_count: 1,
    }
}

/// Rare events, and events of other streams.
fn rare_ones() -> Vec<Event> {
    let execution_id = ExecutionId::from_random_bytes([2; 16]);
    let change = ExecutionChange::Report {
        report: Box::new(RunReport {
            process_id: Some(7),
            exit: Some(ProcessExit::Signal(9)),
            duration_ms: 5,
            resource_usage: ResourceUsage { cpu_time_ms: 3, ..ResourceUsage::default() },
            output: OutputFiles {
                folder: "output/1/0".into(),
                stdout_bytes: 4,
                stderr_bytes: 2,
                is_cut: true,
            },
            session_id: Some("s1".into()),
            last_words: "no".into(),
            artifacts: artifacts(),
            workspace: Some(SavedWorkspace {
                folder: "workspaces/1".into(),
                branch: Some("polity/1".into()),
                changed_files: 2,
                problem: Some("no disk".into()),
            }),
            remote: Some(RemoteReport {
                url: "https://h/a2a".into(),
                protocol: "JSON-RPC 1.0".into(),
                task: Some(remote_task()),
                state: Some("completed".into()),
                is_over: true,
            }),
        }),
        usage: Usage::default(),
    };
    vec![
        Event::ExecutionChanged { execution_id, change },
        Event::RunShared { with: TaskId::from_random_bytes([7; 16]) },
        Event::AgentEnabled,
        Event::AgentDisabled { reason: Some("no key".into()) },
    ]
}

/// Events of schedules.
fn of_schedules() -> Vec<Event> {
    let due = Timestamp::UNIX_EPOCH;
    let task_id = TaskId::from_random_bytes([8; 16]);
    let tick = |trigger, outcome| ScheduleChange::Tick { due, trigger, outcome };
    let reason = MissReason::NoCatchUp;
    let failed =
        TickOutcome::FailedToStart { code: "unknown_agent".into(), message: "no agent".into() };
    [
        ScheduleChange::Register { timing: Digest::of(b"{}") },
        ScheduleChange::Remove,
        ScheduleChange::Pause { by: Some("ada".into()), note: Some("holiday".into()) },
        ScheduleChange::Resume { by: "ada".into() },
        tick(TickTrigger::Cron, TickOutcome::Started { task_id, start_at: due }),
        tick(TickTrigger::Manual, TickOutcome::Queued),
        tick(TickTrigger::Backfill, TickOutcome::Skipped { reason: SkipReason::Overlap }),
        tick(TickTrigger::CatchUp, failed),
        ScheduleChange::Pass {
            first: due,
            last: due,
            count: 1,
            is_more: true,
            outcome: TickOutcome::Missed { reason },
        },
        ScheduleChange::End { task_id, completed: true, cancelled: false },
        ScheduleChange::End { task_id, completed: false, cancelled: true },
        ScheduleChange::Snapshot { state: Box::default() },
    ]
    .map(|change| Event::ScheduleChanged { change })
    .to_vec()
}

/// Events of workflows and forks.
#[expect(clippy::too_many_lines, reason = "a list with one entry per event")]
fn of_workflows() -> Vec<Event> {
    let node: Name = "draft".parse().unwrap();
    let changed = |change| Event::NodeChanged { node: node.clone(), change };
    let timestamp = Timestamp::UNIX_EPOCH;
    let updates = Map::from_iter([("metadata.topic".to_owned(), Value::from("rain"))]);
    let call = ToolCall {
        id: ToolCallId::from_random_bytes([5; 16]),
        server: "agent".into(),
        tool: "writer".into(),
        arguments: Map::from_iter([("task_description".to_owned(), Value::from("Write."))]),
        signature: None,
    };
    let code = ErrorCode::ToolFailed;
    vec![
        changed(NodeChange::Start { call: Some(call.clone()), map: None }),
        changed(NodeChange::Start { call: None, map: None }),
        changed(NodeChange::Finish {
            output: NodeOutput::Answer,
            routing_key: None,
            to: vec!["review".parse().unwrap()],
            edge: None,
            state_updates: StateUpdates::default(),
        }),
        changed(NodeChange::Finish {
            output: NodeOutput::Text("publish".into()),
            routing_key: Some("publish".into()),
            to: Vec::new(),
            edge: Some(1),
            state_updates: StateUpdates::default(),
        }),
        changed(NodeChange::Finish {
            output: NodeOutput::Json(json!({"score": 3})),
            routing_key: Some("high".into()),
            to: Vec::new(),
            edge: None,
            state_updates: serde_json::from_value(json!({"metadata.score": 3})).unwrap(),
        }),
        changed(NodeChange::Fail {
            code,
            error: "no such file".into(),
            to: None,
            edge: None,
            output: None,
        }),
        changed(NodeChange::Drop),
        changed(NodeChange::Start {
            call: None,
            map: Some(MapStart {
                count: 2,
                items: Some(vec!["a".into(), 2.into()]),
                ended: 0,
                open: Vec::new(),
            }),
        }),
        changed(NodeChange::Start {
            call: None,
            map: Some(MapStart {
                count: 2,
                items: None,
                ended: 1,
                open: vec![OpenItem { item: 1, call_id: ToolCallId::from_random_bytes([5; 16]) }],
            }),
        }),
        changed(NodeChange::StartItem { item: 0, call: call.clone() }),
        changed(NodeChange::FinishItems { first: 0, outputs: vec![true.into(), Value::Null] }),
        changed(NodeChange::FailItem { item: 1, code, error: "no such file".into() }),
        changed(NodeChange::Finish {
            output: NodeOutput::Items,
            routing_key: None,
            to: Vec::new(),
            edge: None,
            state_updates: StateUpdates::default(),
        }),
        Event::ToolChanged {
            call_id: call.id,
            change: ToolChange::Answer {
                ordinal: None,
                content: "sunny".into(),
                structured: None,
                is_error: false,
                duration_ms: 6,
                unsettled: None,
                item: Some(0),
            },
        },
        Event::ReviewAnswered {
            verdict: ReviewVerdict::Modify { arguments: Map::new() },
            message: None,
            by: "ada".into(),
            state_updates: StateUpdates::new(updates.clone()).unwrap(),
        },
        Event::StateSet { updates: StateUpdates::new(updates).unwrap() },
        Event::MessageAdded { message: Message::System { content: "Be brief.".into(), timestamp } },
        Event::TaskCompleted { result: ResultRef::Text("Both.".into()) },
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
    let all = [one_of_each(), of_workflows(), rare_ones(), of_schedules()].concat();
    let lines: Vec<String> =
        all.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn events_round_trip_and_match_their_labels() {
    for event in [one_of_each(), of_workflows(), rare_ones(), of_schedules()].concat() {
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(json["type"], event.label());
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
    }
}
