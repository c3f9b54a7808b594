//! Task fixtures: events that a store accepts.

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::event::{
    DefinitionPin, Event, ExecutionChange, ForkPoint, OwnerEpoch, PinKind, RaisedLimits, ResultRef,
    StreamId, StreamSequence, TaskCreated,
};
use polity_model::ids::{CheckpointId, ExecutionId, InstanceId, TaskId};
use polity_model::message::Message;
use polity_model::usage::{Cost, Usage};
use polity_store::{Commit, PinnedDefinition};
use serde_json::Map;

/// A task id made of one repeated byte and a number.
pub fn task_id(number: u64) -> TaskId {
    TaskId::from_random_bytes(spread(number, 0xa0))
}

/// A process id.
pub fn instance_id(number: u64) -> InstanceId {
    InstanceId::from_random_bytes(spread(number, 0xb0))
}

/// An execution id.
pub fn execution_id(number: u64) -> ExecutionId {
    ExecutionId::from_random_bytes(spread(number, 0xc0))
}

fn spread(number: u64, kind: u8) -> [u8; 16] {
    let mut bytes = [kind; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Seconds after the epoch.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// A commit to a task's stream.
pub fn commit(task: TaskId, expected: u64, epoch: Option<u64>, events: Vec<Event>) -> Commit {
    Commit {
        stream: StreamId::Task(task),
        expected_sequence: StreamSequence(expected),
        owner_epoch: epoch.map(OwnerEpoch),
        at: at(1_767_225_600),
        events,
        definitions: Vec::new(),
        sealed_input: None,
    }
}

/// The definition that [`created`] pins.
pub fn definition() -> PinnedDefinition {
    let json = r#"{"kind":"llm","name":"greeter"}"#.to_owned();
    PinnedDefinition { digest: Digest::of(json.as_bytes()), json: json.into() }
}

/// A task's first event.
pub fn created(description: &str) -> Event {
    created_under(None, description)
}

/// The first event of a task that may be a part of another.
pub fn created_under(parent_task_id: Option<TaskId>, description: &str) -> Event {
    Event::TaskCreated(TaskCreated { parent_task_id, ..creation(description) })
}

/// The first event of a task that shares the first `sequence` events of another.
pub fn forked(task_id: TaskId, sequence: u64) -> Event {
    let point = ForkPoint { task_id, sequence: StreamSequence(sequence), checkpoint: Some(0) };
    Event::TaskCreated(TaskCreated { forked_from: Some(point), ..creation("a fork") })
}

/// The contents of a task's first event, to be modified by tests.
pub fn creation(description: &str) -> TaskCreated {
    TaskCreated {
        description: description.to_owned(),
        assigned_agent: "greeter".parse().expect("a name"),
        pins: vec![DefinitionPin {
            kind: PinKind::Agent,
            name: "greeter".parse().expect("a name"),
            digest: definition().digest,
        }],
        parameters: Map::new(),
        class: None,
        retention_days: None,
        parent_task_id: None,
        map_item: None,
        parent_node: None,
        budget: None,
        forked_from: None,
        retry_of: None,
        doubted_run: None,
        scheduled: None,
        raised: RaisedLimits::default(),
        working_directory: None,
        has_private: false,
        request: None,
        idempotency: None,
    }
}

/// A process takes the task.
pub fn claimed(instance: InstanceId, epoch: u64) -> Event {
    Event::TaskClaimed { instance, epoch: OwnerEpoch(epoch) }
}

/// An execution moves on.
pub fn changed(execution: ExecutionId, change: ExecutionChange) -> Event {
    Event::ExecutionChanged { execution_id: execution, change }
}

/// An execution starts.
pub fn execution_started(execution: ExecutionId) -> Event {
    let agent = "greeter".parse().expect("a name");
    changed(execution, ExecutionChange::Start { agent, max_retries: 3 })
}

/// The model answers.
pub fn answered(content: &str) -> Event {
    Event::ModelAnswered {
        message: Message::Assistant {
            content: content.to_owned(),
            tool_calls: Vec::new(),
            timestamp: at(1_767_225_600),
        },
        usage: Usage::reported(Some(7), Some(3), Some(Cost::of_tokens(10, 0.5))),
        duration_ms: 2,
        is_cut: false,
        withheld: None,
        mark: None,
    }
}

/// The events of a successful task from its answer to its end.
pub fn ended_well(execution: ExecutionId, answer: &str) -> Vec<Event> {
    vec![
        answered(answer),
        changed(execution, ExecutionChange::Complete),
        changed(execution, ExecutionChange::CleanUp),
        changed(execution, ExecutionChange::Finish),
        Event::CheckpointTaken {
            checkpoint_id: CheckpointId::from_random_bytes([9; 16]),
            sequence: 0,
            node: "greeter".into(),
            awaiting_human: false,
            message_count: None,
        },
        Event::TaskCompleted { result: ResultRef::LastAnswer },
    ]
}
