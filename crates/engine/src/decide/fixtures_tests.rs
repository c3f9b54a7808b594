//! Task states and contexts for the commands' tests.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::{AgentDefinition, Home, HomeFile, HomeSettings, ScriptDefinition};
use polity_model::event::{
    Event, JournalPosition, OwnerEpoch, RecordedEvent, StreamId, StreamSequence, ToolChange,
};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::{CheckpointId, InstanceId, TaskId, ToolCallId};
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use polity_model::state::StateUpdates;
use polity_model::usage::Usage;
use polity_store::TaskRow;
use serde_json::{Value, json};

use crate::budget::BudgetStatus;
use crate::commands::{
    AnswerReview, BeginRun, CancelOrigin, CancelTask, CreateTask, FailureCause, RecordModelFailure,
    RecordModelReply, RecordProcess, RecordRecoveredRun, RetryExecution, SlotWait, StartTask,
};
use crate::decide::{Decision, DecisionContext, DecisionResult, SlotContext};
use crate::driver::{
    AnswerEnding, AskedArguments, AskedTool, ModelFailure, ModelReply, ToolSpec, Toolbox,
};
use crate::entropy::Entropy;
use crate::pinned::{Assignee, PinnedAgent, PinnedWorkflow};
use crate::state::TaskState;

/// The imports that most unit tests share.
pub(crate) mod prelude {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::time::Duration;

    pub(crate) use polity_model::event::{Event, ToolChange};
    pub(crate) use polity_model::failure::{AttemptFailure, ErrorCategory};
    pub(crate) use serde_json::json;

    pub(crate) use super::{
        answer_review, answer_to, asks_for, assert_rejected, backing_off, call_id, cancelled,
        instance, labels, pending, pinned, reply, retried, run_queued, run_running, running,
        running_with, running_workflow, step, test_context, turn_with_calls, with,
    };
    pub(crate) use crate::commands::{
        CancelOrigin, CancelTask, RecordModelReply, RecordRecoveredRun, RecordToolReply, ResumeTask,
    };
    pub(crate) use crate::decide::{CommandRejection, Decision, Effect};
    pub(crate) use crate::driver::{AnswerEnding, AskedArguments, ToolReply};
    pub(crate) use crate::pinned::PinnedAgent;
}

pub(crate) fn instance(number: u8) -> InstanceId {
    InstanceId::from_random_bytes([number; 16])
}

pub(crate) fn test_context() -> DecisionContext {
    DecisionContext {
        now: Timestamp::from_second(1000).unwrap(),
        entropy: Entropy::from_seed([5; 16]),
        toolbox: toolbox(),
        limits: HomeSettings::default().limits,
        budget: BudgetStatus::default(),
        slot: SlotContext::default(),
        agent_toggles: Arc::default(),
    }
}

/// Tools of two servers, with one fallback. `files/write` and `files/delete` are not repeatable.
pub(crate) fn toolbox() -> Arc<Toolbox> {
    let tool = |name: &str, repeatable: bool, fallback_tools: &[&str]| {
        let input_schema = json!({
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": if name == "time/now" { json!([]) } else { json!(["path"]) },
        });
        let output_schema = json!({"type": "object", "required": ["seconds"]});
        Arc::new(ToolSpec::new(
            name.parse().unwrap(),
            String::new(),
            input_schema.as_object().unwrap().clone(),
            (name == "time/now").then(|| output_schema.as_object().unwrap().clone()),
            repeatable,
            Duration::from_secs(7),
            fallback_tools.iter().map(|name| name.parse().unwrap()).collect(),
        ))
    };
    let offered = vec![
        tool("files/read", true, &["web/fetch"]),
        tool("files/write", false, &[]),
        tool("files/delete", false, &[]),
        tool("time/now", true, &[]),
    ];
    Arc::new(Toolbox::new(offered, vec![tool("web/fetch", true, &[])]))
}

pub(crate) fn pinned() -> PinnedAgent {
    let agent = r#"{"kind": "llm", "name": "greeter", "role": "greets", "system_prompt": "Greet.",
        "tools": ["files/*", "time/now"], "approval": ["files/delete"],
        "llm_config": {"provider": "scripted", "script": "greeter"}}"#;
    let script = r#"{"default": {"reply": "Hello."}}"#;
    let name = "greeter".parse().unwrap();
    PinnedAgent::alone(
        Arc::new(AgentDefinition::from_canonical(agent).unwrap()),
        Some(Arc::new(ScriptDefinition::from_canonical(&name, script).unwrap())),
    )
}

/// A queued run of a CLI agent that is not repeatable.
pub(crate) fn run_queued() -> TaskState {
    run_with(&json!({}))
}

/// A queued run of a CLI agent with these additional fields.
pub(crate) fn run_with(more: &Value) -> TaskState {
    let mut agent = json!({"kind": "cli", "name": "coder", "executable_path": "coder"});
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    running_with(&PinnedAgent::alone(Arc::new(agent), None))
}

/// The state after the run has started.
pub(crate) fn started_run(state: TaskState) -> TaskState {
    let begin = BeginRun { wait: SlotWait::Acquired };
    let events = begin.decide(&state, &test_context()).unwrap().events;
    let state = with(state, events);
    let events = RecordProcess { process_id: 7 }.decide(&state).unwrap().events;
    with(state, events)
}

pub(crate) fn run_running() -> TaskState {
    started_run(run_queued())
}

pub(crate) fn run_in_doubt() -> TaskState {
    let state = with(run_running(), vec![Event::TaskResumed]);
    let found = RecordRecoveredRun { outcome: None };
    step(state, |state, ctx| found.decide(state, ctx))
}

/// The state after a decision's events.
pub(crate) fn step(
    state: TaskState,
    decide: impl FnOnce(&TaskState, &mut DecisionContext) -> DecisionResult,
) -> TaskState {
    let events = decide(&state, &mut test_context()).unwrap().events;
    with(state, events)
}

/// Asserts that a command is rejected for this reason.
macro_rules! assert_rejected {
    ($result:expr, $reason:ident) => {{
        let result = $result;
        let expected = matches!(result, Err($crate::decide::CommandRejection::$reason { .. }));
        assert!(expected, "{result:?}");
    }};
}
pub(crate) use assert_rejected;

/// The state after more events.
pub(crate) fn with(mut state: TaskState, events: Vec<Event>) -> TaskState {
    for event in events {
        let sequence = state.sequence().plus(1);
        let (stream, at) = (state.stream(), test_context().now);
        let position = JournalPosition(sequence.0);
        state.apply(RecordedEvent { position, stream, sequence, at, event }).unwrap();
    }
    state
}

pub(crate) fn pending() -> TaskState {
    pending_with(pinned())
}

/// A running workflow of these nodes and edges, which use the tools of `files`.
pub(crate) fn running_workflow(text: &str) -> TaskState {
    let file = |path: &str, text: String| HomeFile { path: path.to_owned(), text: Ok(text) };
    let servers = "servers: [{name: files, transport: sse, config: {url: 'http://localhost/'}}]";
    let home = Home::parse(vec![
        file("config/mcp_servers.yaml", servers.to_owned()),
        file("workflows/flow.yaml", format!("name: flow\n{text}")),
    ]);
    assert!(home.problems.is_empty(), "{:?}", home.problems);
    let flow = PinnedWorkflow::of(&home, Arc::clone(&home.workflows["flow"])).unwrap().unwrap();
    step(pending_with(flow), |state, ctx| StartTask.decide(state, ctx))
}

fn pending_with(assignee: impl Into<Assignee>) -> TaskState {
    let assignee = assignee.into();
    let create = CreateTask::new(assignee.clone(), "Ada");
    let limits = HomeSettings::default().limits;
    let mut events =
        create.decide(instance(1), &limits, &mut test_context(), false).unwrap().events;
    let rest = events.split_off(1);
    let first = RecordedEvent {
        position: JournalPosition(1),
        stream: StreamId::Task(task_id(9)),
        sequence: StreamSequence(1),
        at: test_context().now,
        event: events.remove(0),
    };
    with(TaskState::begin(&assignee, first).unwrap(), rest)
}

pub(crate) fn running() -> TaskState {
    step(pending(), |state, ctx| StartTask.decide(state, ctx))
}

/// A running task of another agent.
pub(crate) fn running_with(pinned: &PinnedAgent) -> TaskState {
    let pending = pending_with(pinned.clone());
    step(pending, |state, ctx| StartTask.decide(state, ctx))
}

pub(crate) fn backing_off() -> TaskState {
    let failure =
        AttemptFailure { category: ErrorCategory::Transient, message: "overloaded".into() };
    let failure = ModelFailure::new(failure);
    let failed = RecordModelFailure { failure, cause: FailureCause::Model, duration_ms: 1 };
    step(running(), |state, ctx| failed.decide(state, ctx))
}

/// The state after the backoff.
pub(crate) fn retried(state: TaskState) -> TaskState {
    let until = state.retry_at().unwrap();
    let mut later = test_context();
    later.now = until + SignedDuration::from_millis(1);
    let events = RetryExecution.decide(&state, &mut later).unwrap().events;
    with(state, events)
}

pub(crate) fn cancelled() -> TaskState {
    let events = CancelTask { by: CancelOrigin::Owner }.decide(&running()).unwrap().events;
    with(running(), events)
}

pub(crate) fn reply(content: &str) -> ModelReply {
    ModelReply {
        content: content.to_owned(),
        tool_calls: Vec::new(),
        usage: Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() },
        ending: AnswerEnding::Complete,
        stop_reason: None,
        mark: None,
    }
}

/// A reply that requests tools, each `server/tool`, with its index as the path.
pub(crate) fn asks_for(tools: &[&str]) -> ModelReply {
    let ask = |(number, tool): (usize, &&str)| {
        let (server, tool) = tool.split_once('/').unwrap_or(("", tool));
        let arguments = json!({"path": number.to_string()}).as_object().unwrap().clone();
        AskedTool {
            server: server.to_owned(),
            tool: tool.to_owned(),
            arguments: AskedArguments::Object(arguments),
            signature: None,
        }
    };
    ModelReply { tool_calls: tools.iter().enumerate().map(ask).collect(), ..reply("") }
}

/// A task whose model has requested tools.
pub(crate) fn turn_with_calls(tools: &[&str]) -> TaskState {
    let answer = RecordModelReply { reply: asks_for(tools), duration_ms: 1 };
    step(running(), |state, ctx| answer.decide(state, ctx))
}

pub(crate) fn task_id(number: u8) -> TaskId {
    TaskId::from_random_bytes([number; 16])
}

/// A task that completed at time 0.
pub(crate) fn task_row(number: u8) -> TaskRow {
    TaskRow {
        id: task_id(number),
        status: TaskStatus::Completed,
        assigned_agent: "greeter".parse().unwrap(),
        owner: None,
        epoch: OwnerEpoch(1),
        created_at: Timestamp::UNIX_EPOCH,
        started_at: Some(Timestamp::UNIX_EPOCH),
        completed_at: Some(Timestamp::UNIX_EPOCH),
        error_code: None,
        class: None,
        retention_days: None,
        parent_task_id: None,
        map_item: None,
        usage: Usage::default(),
        message_count: 1,
        checkpoint_count: 0,
        created_position: JournalPosition(u64::from(number)),
        answer_position: None,
        result_position: None,
        failure_position: None,
        forked_from: None,
        review_deadline: None,
        dedup_key: None,
        shared_with: None,
    }
}

/// The answer to the open review.
pub(crate) fn answer_review(
    state: &TaskState,
    verdict: ReviewVerdict,
    message: Option<&str>,
) -> AnswerReview {
    let nothing = CheckpointId::from_random_bytes([0; 16]);
    AnswerReview {
        checkpoint_id: state.review().map_or(nothing, |review| review.checkpoint_id),
        verdict,
        message: message.map(str::to_owned),
        by: "ada".to_owned(),
        state_updates: StateUpdates::default(),
    }
}

/// The id of a call of the turn.
pub(crate) fn call_id(state: &TaskState, index: usize) -> ToolCallId {
    state.calls().all()[index].id()
}

/// The labels of a decision's events.
pub(crate) fn labels(decision: &Decision) -> Vec<&'static str> {
    decision.events.iter().map(label).collect()
}

/// The label of an event, or of a tool call's change.
fn label(event: &Event) -> &'static str {
    match event {
        Event::ToolChanged { change, .. } => match change {
            ToolChange::Hold { .. } => "tool_held",
            ToolChange::Call { .. } => "tool_called",
            ToolChange::Fail { .. } => "tool_failed",
            ToolChange::Wait => "tool_waits",
            ToolChange::Doubt => "tool_doubted",
            ToolChange::Answer { .. } => "tool_answered",
        },
        other => other.label(),
    }
}

/// The answer that a decision gives to a call, if any.
pub(crate) fn answer_to(decision: &Decision, id: ToolCallId) -> Option<String> {
    decision.events.iter().find_map(|event| match event {
        Event::ToolChanged { call_id, change: ToolChange::Answer { content, .. } }
            if *call_id == id =>
        {
            Some(content.clone())
        }
        _ => None,
    })
}
