use opentelemetry::trace::{SpanKind, Status, TraceId};
use polity_definition::AgentDefinition;
use polity_engine::driver::TracedStepKind;
use polity_model::event::{
    DefinitionPin, NodeChange, PinKind, RaisedLimits, ResultRef, ToolChange,
};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::CheckpointId;
use polity_model::message::{Message, ToolCall};
use polity_model::review::{ReviewSubject, ReviewVerdict};
use polity_model::state::StateUpdates;
use polity_model::usage::Usage;
use polity_store::{Commit, MemoryStore, PinnedDefinition, block_on};
use polity_testkit::task_fixtures::{at, claimed, instance_id, task_id};
use serde_json::Map;

use super::*;

const AGENT: &str = r#"{"kind": "llm", "name": "writer", "role": "r", "system_prompt": "s",
    "temperature": 0.2, "llm_config": {"provider": "openai_compatible", "model": "m-1",
    "endpoint": "http://models.example:8080/v1"}}"#;

/// A journal with one second between events.
struct JournalFixture {
    store: Arc<dyn Store>,
    events: i64,
}

impl JournalFixture {
    fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), events: 0 }
    }

    fn span_builder(&self) -> SpanBuilder {
        SpanBuilder::new(Arc::clone(&self.store), instance_id(1), JournalPosition::default())
    }

    fn write(
        &mut self,
        task: TaskId,
        events: impl IntoIterator<Item = Event>,
    ) -> Vec<RecordedEvent> {
        let stream = StreamId::Task(task);
        let before = self.store.events(&stream, StreamSequence::default()).wait().unwrap().len();
        let before = StreamSequence(u64::try_from(before).unwrap());
        for (index, event) in events.into_iter().enumerate() {
            self.events += 1;
            let agent = AgentDefinition::from_canonical(AGENT).unwrap();
            let pinned =
                PinnedDefinition { digest: agent.digest(), json: agent.canonical_json().into() };
            let commit = Commit {
                stream: stream.clone(),
                expected_sequence: before.plus(index),
                owner_epoch: event.opens_epoch(),
                at: at(self.events),
                definitions: matches!(event, Event::TaskCreated(_))
                    .then_some(pinned)
                    .into_iter()
                    .collect(),
                events: vec![event],
                sealed_input: None,
            };
            self.store.commit(commit).wait().unwrap();
        }
        self.store.events(&stream, before).wait().unwrap()
    }
}

fn created(parent: Option<TaskId>) -> Event {
    let agent = AgentDefinition::from_canonical(AGENT).unwrap();
    Event::TaskCreated(TaskCreated {
        description: "a secret question".to_owned(),
        assigned_agent: agent.name.clone(),
        pins: vec![DefinitionPin {
            kind: PinKind::Agent,
            name: agent.name.clone(),
            digest: agent.digest(),
        }],
        parameters: Map::new(),
        class: None,
        retention_days: None,
        parent_task_id: parent,
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
    })
}

fn called() -> Event {
    Event::ModelCalled { iteration: 1, checkpoint: None }
}

fn answered() -> Event {
    Event::ModelAnswered {
        message: Message::Assistant {
            content: "a secret answer".to_owned(),
            tool_calls: Vec::new(),
            timestamp: at(1),
        },
        usage: Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() },
        duration_ms: 2,
        is_cut: false,
        withheld: None,
        mark: None,
    }
}

fn call_id(byte: u8) -> ToolCallId {
    ToolCallId::from_random_bytes([byte; 16])
}

fn tool(byte: u8, change: ToolChange) -> Event {
    Event::ToolChanged { call_id: call_id(byte), change }
}

fn call(byte: u8) -> Event {
    let tool_name = "kit/echo".parse().unwrap();
    tool(byte, ToolChange::Call { tool: tool_name, arguments: None, repeatable: true })
}

fn replied(byte: u8, is_error: bool) -> Event {
    let content = "a secret reply".to_owned();
    let answer = ToolChange::Answer {
        ordinal: Some(0),
        content,
        structured: None,
        is_error,
        duration_ms: 1,
        unsettled: None,
        item: None,
    };
    tool(byte, answer)
}

fn failure(category: ErrorCategory) -> AttemptFailure {
    AttemptFailure { category, message: "a secret reason".to_owned() }
}

fn completed() -> Event {
    Event::TaskCompleted { result: ResultRef::LastAnswer }
}

fn review() -> Event {
    Event::ReviewOpened {
        checkpoint_id: CheckpointId::from_random_bytes([1; 16]),
        subject: ReviewSubject::Approval { call_id: call_id(1) },
        question: "a secret question".to_owned(),
        deadline: None,
        default_action: None,
    }
}

fn begun() -> Vec<Event> {
    vec![created(None), claimed(instance_id(1), 1), Event::TaskStarted]
}

fn all(span_builder: &mut SpanBuilder, events: &[RecordedEvent]) -> Vec<SpanData> {
    events.iter().flat_map(|recorded| block_on(span_builder.apply(recorded))).collect()
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name)?;
    Some(found.value.to_string())
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let mut found = spans.iter().filter(|span| span.name == name);
    let (span, None) = (found.next(), found.next()) else { panic!("several {name}: {spans:?}") };
    span.unwrap_or_else(|| panic!("no {name} among {spans:?}"))
}

/// Returns the names of spans with their error types.
fn errors(spans: &[SpanData]) -> Vec<(String, Option<String>)> {
    spans
        .iter()
        .map(|span| {
            let error = attribute(span, "error.type");
            assert_eq!(error.is_some(), span.status != Status::Unset, "{span:?}");
            (span.name.to_string(), error)
        })
        .collect()
}

#[test]
fn task_is_a_trace_of_its_model_and_tool_calls() {
    let mut journal = JournalFixture::new();
    let id = task_id(1);
    let work = [called(), answered(), call(1), replied(1, false), called(), answered()];
    let events = journal.write(id, [begun(), work.to_vec(), vec![completed()]].concat());
    let mut span_builder = journal.span_builder();
    let spans = all(&mut span_builder, &events);
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["chat m-1", "execute_tool kit/echo", "chat m-1", "invoke_agent writer"]);
    let root = &spans[3];
    for span in &spans {
        assert_eq!(span.span_context.trace_id(), TraceId::from_bytes(*id.as_bytes()));
        assert_eq!(span.status, Status::Unset);
        assert_eq!(attribute(span, "gen_ai.conversation.id"), Some(id.to_string()));
        assert_eq!(attribute(span, "gen_ai.agent.name").as_deref(), Some("writer"));
        assert!(!format!("{span:?}").contains("secret"), "{span:?}");
    }
    for child in &spans[..3] {
        assert_eq!(child.parent_span_id, root.span_context.span_id());
    }
    assert_ne!(spans[0].span_context.span_id(), spans[2].span_context.span_id());
    assert_eq!(
        spans.iter().map(|span| &span.span_kind).collect::<Vec<_>>(),
        [&SpanKind::Client, &SpanKind::Internal, &SpanKind::Client, &SpanKind::Internal]
    );
    assert_eq!((root.start_time, root.end_time), (at(1).into(), at(10).into()));
    assert_eq!((spans[0].start_time, spans[0].end_time), (at(4).into(), at(5).into()));
    for (span, name, value) in [
        (root, "gen_ai.operation.name", "invoke_agent"),
        (root, "gen_ai.usage.input_tokens", "14"),
        (root, "gen_ai.usage.output_tokens", "6"),
        (root, "polity.task.status", "completed"),
        (&spans[0], "gen_ai.operation.name", "chat"),
        (&spans[0], "gen_ai.provider.name", "openai"),
        (&spans[0], "gen_ai.request.model", "m-1"),
        (&spans[0], "gen_ai.request.temperature", "0.2"),
        (&spans[0], "gen_ai.usage.input_tokens", "7"),
        (&spans[0], "gen_ai.response.finish_reasons", "[\"stop\"]"),
        (&spans[0], "server.address", "models.example"),
        (&spans[0], "server.port", "8080"),
        (&spans[1], "gen_ai.operation.name", "execute_tool"),
        (&spans[1], "gen_ai.tool.name", "kit/echo"),
        (&spans[1], "gen_ai.tool.type", "function"),
    ] {
        assert_eq!(attribute(span, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(attribute(&spans[1], "gen_ai.tool.call.id"), Some(call_id(1).to_string()));
    assert!(span_builder.open.is_empty(), "an ended task leaves no open span");
}

#[test]
fn unreported_tokens_are_no_attribute() {
    let unreported = match answered() {
        Event::ModelAnswered { message, duration_ms, is_cut, withheld, mark, .. } => {
            let usage = Usage::UNKNOWN;
            Event::ModelAnswered { message, usage, duration_ms, is_cut, withheld, mark }
        }
        other => other,
    };
    let (mut journal, id) = (JournalFixture::new(), task_id(1));
    let work = vec![called(), unreported, called(), answered(), completed()];
    let events = journal.write(id, [begun(), work].concat());
    let spans = all(&mut journal.span_builder(), &events);
    let tokens: Vec<_> =
        spans.iter().map(|span| attribute(span, "gen_ai.usage.input_tokens")).collect();
    assert_eq!(tokens, [None, Some("7".to_owned()), None]);
}

#[test]
fn tokens_of_a_failed_call_are_counted_or_unknown_and_never_zero() {
    let model_failed = |usage| Event::ModelFailed {
        failure: failure(ErrorCategory::Transient),
        of_tools: false,
        duration_ms: 1,
        mark: None,
        retry_until: None,
        usage,
    };
    let reported = Usage { input_tokens: 11, output_tokens: 6, ..Usage::default() };
    for (usage, expected) in [(reported, [Some("11"), Some("18")]), (Usage::UNKNOWN, [None, None])]
    {
        let (mut journal, id) = (JournalFixture::new(), task_id(1));
        let work = vec![called(), model_failed(usage), called(), answered(), completed()];
        let events = journal.write(id, [begun(), work].concat());
        let spans = all(&mut journal.span_builder(), &events);
        let input = |span| attribute(span, "gen_ai.usage.input_tokens");
        let found = [input(&spans[0]), input(&spans[2])];
        assert_eq!(found, expected.map(|count| count.map(str::to_owned)));
    }
}

#[test]
fn failed_spans_have_an_error_type() {
    let mut journal = JournalFixture::new();
    let model_failed = |of_tools| {
        let failure = failure(ErrorCategory::Transient);
        let (usage, mark, retry_until) = (Usage::default(), None, None);
        Event::ModelFailed { failure, of_tools, duration_ms: 1, mark, retry_until, usage }
    };
    let tool_failed = ToolChange::Fail {
        failure: failure(ErrorCategory::SystemError),
        duration_ms: 1,
        retry_at: at(9),
    };
    let work = vec![
        called(),
        model_failed(false),
        called(),
        model_failed(true),
        called(),
        answered(),
        call(1),
        tool(1, tool_failed),
        call(1),
        replied(1, true),
        call(2),
        tool(2, ToolChange::Doubt),
        // The call was rejected before it reached the tool.
        replied(3, true),
    ];
    let code = ErrorCode::ModelRejected;
    let failed =
        Event::TaskFailed { code, error: "a secret reason".to_owned(), partial_result: None };
    let events = journal.write(task_id(1), [begun(), work, vec![failed]].concat());
    let spans = all(&mut journal.span_builder(), &events);
    let expected = [
        ("chat m-1", Some("transient")),
        ("chat m-1", Some("tools_unavailable")),
        ("chat m-1", None),
        ("execute_tool kit/echo", Some("system_error")),
        ("execute_tool kit/echo", Some("tool_error")),
        ("execute_tool kit/echo", Some("in_doubt")),
        ("invoke_agent writer", Some("model_rejected")),
    ];
    let expected = expected.map(|(name, error)| (name.to_owned(), error.map(str::to_owned)));
    assert_eq!(errors(&spans), expected);
    assert!(!format!("{spans:?}").contains("secret"));
}

#[test]
fn resumed_task_keeps_its_trace_and_span() {
    let mut journal = JournalFixture::new();
    let id = task_id(1);
    let first = [called(), answered(), call(1), replied(1, false), call(2)];
    let first = journal.write(id, [begun(), first.to_vec()].concat());
    let before = all(&mut journal.span_builder(), &first);
    assert_eq!(errors(&before).len(), 2, "the task and its last call are still open");
    let second = [
        claimed(instance_id(2), 2),
        Event::TaskResumed,
        call(2),
        replied(2, false),
        called(),
        answered(),
        completed(),
    ];
    let second = journal.write(id, second);
    let after = all(&mut journal.span_builder(), &second);
    let expected = [
        ("execute_tool kit/echo", Some("interrupted")),
        ("execute_tool kit/echo", None),
        ("chat m-1", None),
        ("invoke_agent writer", None),
    ];
    let expected = expected.map(|(name, error)| (name.to_owned(), error.map(str::to_owned)));
    assert_eq!(errors(&after), expected);
    let root = named(&after, "invoke_agent writer");
    for span in before.iter().chain(&after[..3]) {
        assert_eq!(span.parent_span_id, root.span_context.span_id());
        assert_eq!(span.span_context.trace_id(), root.span_context.trace_id());
    }
    assert_eq!(root.start_time, at(1).into(), "the span starts in the crashed process");
    assert_eq!(attribute(root, "gen_ai.usage.input_tokens").as_deref(), Some("14"));
}

#[test]
fn reviewed_task_has_a_span_per_work_period() {
    let mut journal = JournalFixture::new();
    let id = task_id(1);
    let mut span_builder = journal.span_builder();
    let asked = journal.write(id, [begun(), vec![called(), answered(), review()]].concat());
    let before = all(&mut span_builder, &asked);
    assert_eq!(attribute(&before[1], "polity.task.status").as_deref(), Some("awaiting_human"));
    assert!(span_builder.open.is_empty(), "a waiting task leaves no open span");
    let verdict = Event::ReviewAnswered {
        verdict: ReviewVerdict::Approve,
        message: None,
        by: "someone".to_owned(),
        state_updates: StateUpdates::default(),
    };
    let decided = [verdict, claimed(instance_id(2), 2), Event::TaskResumed, call(1)];
    let end = [replied(1, false), completed()];
    let decided = journal.write(id, [decided.to_vec(), end.to_vec()].concat());
    for mut span_builder in [span_builder, journal.span_builder()] {
        let after = all(&mut span_builder, &decided);
        let root = named(&after, "invoke_agent writer");
        assert_ne!(root.span_context.span_id(), before[1].span_context.span_id());
        assert_eq!(root.span_context.trace_id(), before[1].span_context.trace_id());
        assert_eq!(root.start_time, at(8).into(), "the span excludes the wait");
        assert_eq!(after[0].parent_span_id, root.span_context.span_id());
    }
}

#[test]
fn sub_agent_task_is_a_child_of_its_call() {
    let mut journal = JournalFixture::new();
    let (root, child) = (task_id(1), TaskId::from_bytes(*call_id(1).as_bytes()));
    let grandchild = TaskId::from_bytes(*call_id(2).as_bytes());
    let opened = journal.write(root, [begun(), vec![called(), answered(), call(1)]].concat());
    let below =
        |parent| vec![created(Some(parent)), claimed(instance_id(1), 1), Event::TaskStarted];
    let child_opened = journal.write(child, [below(root), vec![call(2)]].concat());
    let deepest = journal.write(grandchild, [below(child), vec![completed()]].concat());
    let child_ended = journal.write(child, [replied(2, false), completed()]);
    let ended = journal.write(root, [replied(1, false), completed()]);
    let mut span_builder = journal.span_builder();
    let spans = [opened, child_opened, deepest.clone(), child_ended, ended].concat();
    let spans = all(&mut span_builder, &spans);
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    let (agent, tool) = ("invoke_agent writer", "execute_tool kit/echo");
    assert_eq!(names, ["chat m-1", agent, tool, agent, tool, agent]);
    for (span, parent) in [(1, 2), (2, 3), (3, 4), (4, 5)] {
        assert_eq!(spans[span].parent_span_id, spans[parent].span_context.span_id(), "{span}");
        let trace = TraceId::from_bytes(*root.as_bytes());
        assert_eq!(spans[span].span_context.trace_id(), trace);
    }
    let alone = all(&mut journal.span_builder(), &deepest);
    let (alone, known) = (&alone[0].span_context, &spans[1].span_context);
    assert_eq!((alone.trace_id(), alone.span_id()), (known.trace_id(), known.span_id()));
}

#[test]
fn missed_events_are_recovered_once() {
    let mut journal = JournalFixture::new();
    let work = [called(), answered(), called(), answered(), completed()];
    let events = journal.write(task_id(1), [begun(), work.to_vec()].concat());
    let expected = all(&mut journal.span_builder(), &events);
    let mut span_builder = journal.span_builder();
    let mut spans = all(&mut span_builder, &events[..4]);
    spans.extend(all(&mut span_builder, &events[6..7]));
    spans.extend(all(&mut span_builder, &events[5..7]));
    spans.extend(block_on(span_builder.catch_up()));
    assert_eq!(spans, expected);
}

#[test]
fn missed_task_is_exported_unless_another_process_owns_it() {
    let mut journal = JournalFixture::new();
    let work = [called(), answered(), completed()];
    let seen = journal.write(task_id(1), [begun(), work.to_vec()].concat());
    let mut span_builder = journal.span_builder();
    all(&mut span_builder, &seen);
    let unseen = journal.write(task_id(2), [begun(), work.to_vec()].concat());
    let mut of_another = [begun(), work.to_vec()].concat();
    of_another[1] = claimed(instance_id(9), 1);
    journal.write(task_id(3), of_another);
    let expected = all(&mut journal.span_builder(), &unseen);
    assert!(!expected.is_empty());
    assert_eq!(block_on(span_builder.catch_up()), expected);
    assert_eq!(block_on(span_builder.catch_up()), []);
}

#[test]
fn open_spans_end_with_their_task() {
    let mut journal = JournalFixture::new();
    let work = vec![called(), answered(), call(1), Event::CancelRequested, Event::TaskCancelled];
    let events = journal.write(task_id(1), [begun(), work].concat());
    let spans = all(&mut journal.span_builder(), &events);
    let tool = named(&spans, "execute_tool kit/echo");
    assert_eq!(attribute(tool, "error.type").as_deref(), Some("cancelled"));
    let root = named(&spans, "invoke_agent writer");
    assert_eq!(attribute(root, "polity.task.status").as_deref(), Some("cancelled"));
    assert_eq!(root.status, Status::Unset, "a requested cancel is no error");
}

#[test]
fn task_that_waited_and_was_rejected_or_cancelled_ends_its_trace() {
    let failed = Event::TaskFailed {
        code: ErrorCode::Rejected,
        error: "a secret reason".to_owned(),
        partial_result: None,
    };
    let rejected = Event::ReviewAnswered {
        verdict: ReviewVerdict::Reject,
        message: None,
        by: "ada".to_owned(),
        state_updates: StateUpdates::default(),
    };
    for (end, status) in
        [(vec![rejected, failed], "failed"), (vec![Event::TaskCancelled], "cancelled")]
    {
        let mut journal = JournalFixture::new();
        let waits = [begun(), vec![called(), answered(), review()]].concat();
        let waits = journal.write(task_id(1), waits);
        all(&mut journal.span_builder(), &waits);
        // Another process ends it, without an owner.
        let end = journal.write(task_id(1), end);
        let spans = all(&mut journal.span_builder(), &end);
        let last = named(&spans, "invoke_agent writer");
        assert_eq!(attribute(last, "polity.task.status").as_deref(), Some(status));
        let trace = TraceId::from_bytes(*task_id(1).as_bytes());
        assert_eq!(last.span_context.trace_id(), trace);
    }
}

fn spans_of(assignee: AssigneeAttributes, events: Vec<Event>) -> Vec<SpanData> {
    let origin = SpanOrigin { trace: trace_id(task_id(1)), parent: SpanId::INVALID };
    let mut task = TaskSpans::new(task_id(1), origin, "writer".parse().unwrap(), assignee);
    let mut ended = Vec::new();
    for (sequence, event) in (1..).zip(events) {
        let (position, stream) = (JournalPosition(sequence), StreamId::Task(task_id(1)));
        let (sequence, at) = (StreamSequence(sequence), at(1));
        task.apply(&RecordedEvent { position, stream, sequence, at, event }, &mut ended);
    }
    ended
}

#[test]
fn work_of_a_remote_agent_is_a_client_span_with_its_server() {
    let server = polity_drivers::http::Url::parse("https://agents.example/card.json").ok();
    let events = [begun(), vec![completed()]].concat();
    let spans = spans_of(AssigneeAttributes::Remote(server), events.clone());
    let span = named(&spans, "invoke_agent writer");
    assert_eq!(span.span_kind, SpanKind::Client);
    assert_eq!(attribute(span, "server.address").as_deref(), Some("agents.example"));
    assert_eq!(attribute(span, "server.port").as_deref(), Some("443"));
    let spans = spans_of(AssigneeAttributes::Other, events);
    assert_eq!(named(&spans, "invoke_agent writer").span_kind, SpanKind::Internal);
}

#[test]
fn calls_of_a_workflow_have_the_names_of_their_nodes() {
    let (server, tool) = ("kit".to_owned(), "echo".to_owned());
    let arguments = Map::new();
    let asked = ToolCall { id: call_id(1), server, tool, arguments, signature: None };
    let start = NodeChange::Start { call: Some(asked), map: None };
    let node = Event::NodeChanged { node: "draft".parse().unwrap(), change: start };
    let events = [begun(), vec![node, call(1), replied(1, false), completed()]].concat();
    let spans = spans_of(AssigneeAttributes::Workflow, events);
    let call = named(&spans, "execute_tool kit/echo");
    assert_eq!(attribute(call, "polity.workflow.node").as_deref(), Some("draft"));
    let root = named(&spans, "invoke_workflow writer");
    assert_eq!(attribute(root, "gen_ai.workflow.name").as_deref(), Some("writer"));
    let tokens = attribute(root, "gen_ai.usage.input_tokens");
    assert_eq!(tokens, None, "the spans of its parts have the tokens");
    assert_eq!(attribute(root, "gen_ai.agent.name"), None);
}

#[test]
fn traceparent_names_the_span_that_is_exported_later() {
    let mut journal = JournalFixture::new();
    let id = task_id(1);
    let mut events = journal.write(id, [begun(), vec![called()]].concat());
    let mut contexts = journal.span_builder();
    let mut traceparent = |kind| {
        let step = TracedStep { task: id, kind };
        block_on(contexts.traceparent(step)).unwrap()
    };
    let chat = traceparent(TracedStepKind::ModelCall).unwrap();
    let work = traceparent(TracedStepKind::Work).unwrap();
    assert_eq!(traceparent(TracedStepKind::ToolCall(call_id(1))), None);
    events.extend(journal.write(id, [answered(), call(1)]));
    let tool = traceparent(TracedStepKind::ToolCall(call_id(1))).unwrap();
    events.extend(journal.write(id, [replied(1, false), completed()]));
    let spans = all(&mut journal.span_builder(), &events);
    for (named_before, name) in
        [(chat, "chat m-1"), (work, "invoke_agent writer"), (tool, "execute_tool kit/echo")]
    {
        let context = &named(&spans, name).span_context;
        let expected = format!("00-{}-{}-01", context.trace_id(), context.span_id());
        assert_eq!(named_before, expected, "{name}");
    }
}
