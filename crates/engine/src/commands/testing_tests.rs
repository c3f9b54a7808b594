//! States and inputs that the commands' tests begin with.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use polity_model::definition::{AgentDefinition, ScriptDefinition};
use polity_model::event::{Event, Position, Recorded, StreamId};
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::ids::{InstanceId, TaskId};
use polity_model::usage::Usage;
use serde_json::Map;

use super::{CancelTask, Canceller, CreateTask, RecordFailure, RetryExecution, StartTask};
use crate::closure::Closure;
use crate::decide::Given;
use crate::driver::{AskedArguments, AskedTool, ModelFailure, ModelReply};
use crate::entropy::Entropy;
use crate::state::{Phase, TaskState};

pub(super) fn instance(number: u8) -> InstanceId {
    InstanceId::from_random_bytes([number; 16])
}

pub(super) fn given() -> Given {
    Given { now: Timestamp::from_second(1000).unwrap(), entropy: Entropy::from_seed([5; 16]) }
}

pub(super) fn closure() -> Closure {
    let agent = r#"{"kind": "llm", "name": "greeter", "role": "greets", "system_prompt": "Greet.",
        "llm_config": {"provider": "scripted", "script": "greeter"}}"#;
    let script = r#"{"default": {"reply": "Hello."}}"#;
    let name = "greeter".parse().unwrap();
    Closure {
        agent: Arc::new(AgentDefinition::from_canonical(agent).unwrap()),
        script: Some(Arc::new(ScriptDefinition::from_canonical(&name, script).unwrap())),
    }
}

/// The state after more events.
pub(super) fn with(mut state: TaskState, events: Vec<Event>) -> TaskState {
    for event in events {
        let sequence = state.sequence().plus(1);
        let (stream, at) = (state.stream(), given().now);
        let position = Position(sequence.0);
        state.apply(Recorded { position, stream, sequence, at, event }).unwrap();
    }
    state
}

pub(super) fn pending() -> TaskState {
    let create = CreateTask {
        closure: closure(),
        description: "Ada".into(),
        parameters: Map::new(),
        class: None,
        retention_days: None,
    };
    let mut events = create.decide(instance(1), 1000, &mut given()).unwrap().events;
    let rest = events.split_off(1);
    let first = Recorded {
        position: Position(1),
        stream: StreamId::Task(TaskId::from_random_bytes([9; 16])),
        sequence: polity_model::event::Sequence(1),
        at: given().now,
        event: events.remove(0),
    };
    with(TaskState::begin(&closure(), first).unwrap(), rest)
}

pub(super) fn running() -> TaskState {
    let events = StartTask.decide(&pending(), &mut given()).unwrap().events;
    with(pending(), events)
}

pub(super) fn backing_off() -> TaskState {
    let failure = Failure { category: ErrorCategory::Transient, message: "overloaded".into() };
    let failure = ModelFailure::new(failure);
    let failed = RecordFailure { failure, timed_out: false, duration_ms: 1 };
    let events = failed.decide(&running(), &mut given()).unwrap().events;
    with(running(), events)
}

/// The next try, once its time has come.
pub(super) fn retried(state: TaskState) -> TaskState {
    let Phase::BackingOff { until } = state.phase() else { panic!("{:?}", state.phase()) };
    let mut later = given();
    later.now = until + SignedDuration::from_millis(1);
    let events = RetryExecution.decide(&state, &mut later).unwrap().events;
    with(state, events)
}

pub(super) fn cancelled() -> TaskState {
    let events = CancelTask { by: Canceller::Owner }.decide(&running()).unwrap().events;
    with(running(), events)
}

pub(super) fn reply(content: &str) -> ModelReply {
    ModelReply {
        content: content.to_owned(),
        tool_calls: Vec::new(),
        usage: Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() },
        mark: None,
    }
}

pub(super) fn asks_for_tool() -> ModelReply {
    let arguments = AskedArguments::Object(Map::new());
    let tool = AskedTool { server: "time".into(), tool: "now".into(), arguments, signature: None };
    ModelReply { tool_calls: vec![tool], ..reply("") }
}
