//! Builds spans from the events of all tasks. It keeps the state of tasks with open spans, and reads
//! that of other tasks from the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;
use polity_engine::driver::TracedStep;
use polity_model::event::{
    Event, JournalPosition, RecordedEvent, StreamId, StreamSequence, TaskCreated, ToolChange,
};
use polity_model::ids::{InstanceId, TaskId, ToolCallId};
use polity_store::{Store, StoreError};

use super::model_attributes::AssigneeAttributes;
use super::span::{SpanOperation, span_id, trace_id, traceparent};
use super::task_spans::{SpanOrigin, TaskSpans};

/// The most levels of parent tasks; more count as a broken journal.
const PARENTS_MAX: u32 = 64;

/// The most tasks whose spans are kept to locate steps in them.
const LOCATED_TASKS_MAX: usize = 1000;

/// The most event headers read at once.
const HEADERS_MAX: u32 = 1000;

/// Builds spans from events.
pub(super) struct SpanBuilder {
    store: Arc<dyn Store>,
    /// This process, whose work is exported.
    instance: InstanceId,
    open: BTreeMap<TaskId, TaskSpans>,
    /// The newest event that was applied.
    last: JournalPosition,
}

impl SpanBuilder {
    /// A builder that exports the events after a position.
    pub(super) fn new(store: Arc<dyn Store>, instance: InstanceId, last: JournalPosition) -> Self {
        Self { store, instance, open: BTreeMap::new(), last }
    }

    /// Applies an event and returns the spans that end with it. None if the journal cannot be read: the
    /// task itself reports that.
    pub(super) async fn apply(&mut self, recorded: &RecordedEvent) -> Vec<SpanData> {
        let mut ended = Vec::new();
        self.last = self.last.max(recorded.position);
        if let StreamId::Task(id) = recorded.stream
            && let Err(error) = self.apply_to_task(id, recorded, &mut ended).await
        {
            tracing::debug!(%id, %error, "cannot build the spans of a task");
        }
        ended
    }

    /// The `traceparent` of a step under way. The spans of tasks come from the journal alone, so this
    /// builder needs no other events.
    pub(super) async fn traceparent(
        &mut self,
        step: TracedStep,
    ) -> Result<Option<String>, StoreError> {
        let known = self.open.remove(&step.task);
        let seen = known.as_ref().map_or(StreamSequence::default(), TaskSpans::seen);
        let events = self.store.events(&StreamId::Task(step.task), seen).await?;
        let mut task = match (known, events.first().map(|first| &first.event)) {
            (Some(task), _) => task,
            (None, Some(Event::TaskCreated(created))) => self.begin(step.task, created).await?,
            (None, Some(_) | None) => return Ok(None),
        };
        let mut sent_elsewhere = Vec::new();
        for recorded in &events {
            task.apply(recorded, &mut sent_elsewhere);
            sent_elsewhere.clear();
        }
        let context = task.context_of(step.kind);
        // Tasks whose end nobody asked for would stay forever.
        if self.open.len() >= LOCATED_TASKS_MAX {
            self.open.clear();
        }
        self.open.insert(step.task, task);
        Ok(context.map(|(trace, span)| traceparent(trace, span)))
    }

    /// Applies missed events and returns the spans that ended.
    pub(super) async fn catch_up(&mut self) -> Vec<SpanData> {
        let missed = self.missed().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot build the spans of missed events");
            Vec::new()
        });
        let mut ended = Vec::new();
        for recorded in &missed {
            ended.extend(self.apply(recorded).await);
        }
        ended
    }

    /// The events of this process's tasks since the newest that was applied, task by task.
    async fn missed(&self) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut streams = BTreeSet::new();
        let mut after = self.last;
        loop {
            let headers = self.store.headers_after(after, HEADERS_MAX).await?;
            let Some(newest) = headers.last() else { break };
            after = newest.position;
            streams.extend(headers.into_iter().map(|header| header.stream));
        }
        // A task with open spans may have missed events before the newest of all, too.
        streams.extend(self.open.keys().copied().map(StreamId::Task));
        let mut missed = Vec::new();
        for stream in streams {
            let StreamId::Task(id) = stream else { continue };
            if let Some(task) = self.open.get(&id) {
                missed.extend(self.store.events(&stream, task.seen()).await?);
                continue;
            }
            let mut events = self.store.events(&stream, StreamSequence::default()).await?;
            events.retain(|recorded| recorded.position > self.last);
            if events.iter().any(|recorded| self.claims(&recorded.event)) {
                missed.extend(events);
            }
        }
        Ok(missed)
    }

    /// True if this process claims a task with this event. Other processes export their own work.
    fn claims(&self, event: &Event) -> bool {
        matches!(event, Event::TaskClaimed { instance, .. } if *instance == self.instance)
    }

    async fn apply_to_task(
        &mut self,
        id: TaskId,
        recorded: &RecordedEvent,
        ended: &mut Vec<SpanData>,
    ) -> Result<(), StoreError> {
        let known = match self.open.remove(&id) {
            Some(task) => Some(task),
            None => self.recall(id, recorded).await?,
        };
        let Some(mut task) = known else { return Ok(()) };
        if recorded.sequence > task.seen() {
            if recorded.sequence > task.seen().plus(1) {
                let missed = self.store.events(&recorded.stream, task.seen()).await?;
                let before = missed.iter().filter(|event| event.sequence < recorded.sequence);
                before.for_each(|recorded| task.apply(recorded, ended));
            }
            task.apply(recorded, ended);
        }
        if task.is_open() {
            self.open.insert(id, task);
        }
        Ok(())
    }

    /// A task before this event. The process that performed it then has exported the earlier spans.
    async fn recall(
        &self,
        id: TaskId,
        next: &RecordedEvent,
    ) -> Result<Option<TaskSpans>, StoreError> {
        if let Event::TaskCreated(created) = &next.event {
            return self.begin(id, created).await.map(Some);
        }
        let events = self.store.events(&next.stream, StreamSequence::default()).await?;
        let Some(Event::TaskCreated(created)) = events.first().map(|first| &first.event) else {
            return Ok(None);
        };
        let mut task = self.begin(id, created).await?;
        let mut sent_before = Vec::new();
        for recorded in events.iter().take_while(|recorded| recorded.sequence < next.sequence) {
            task.apply(recorded, &mut sent_before);
            sent_before.clear();
        }
        Ok(Some(task))
    }

    async fn begin(&self, id: TaskId, created: &TaskCreated) -> Result<TaskSpans, StoreError> {
        let origin = self.origin(id, created, PARENTS_MAX).await?;
        let assignee = AssigneeAttributes::of(created, &*self.store).await;
        Ok(TaskSpans::new(id, origin, created.assigned_agent.clone(), assignee))
    }

    /// The origin of a task. A part has the id of the tool call that opened it, and its spans are below
    /// the newest attempt of that call.
    async fn origin(
        &self,
        id: TaskId,
        created: &TaskCreated,
        parents_max: u32,
    ) -> Result<SpanOrigin, StoreError> {
        let call = ToolCallId::from_bytes(*id.as_bytes());
        let alone = SpanOrigin { trace: trace_id(id), parent: SpanId::INVALID };
        let (Some(parent), Some(parents_max)) =
            (created.parent_task_id, parents_max.checked_sub(1))
        else {
            return Ok(alone);
        };
        if let Some(origin) = self.open.get(&parent).and_then(|task| task.origin_below(call)) {
            return Ok(origin);
        }
        let events = self.store.events(&StreamId::Task(parent), StreamSequence::default()).await?;
        let Some(Event::TaskCreated(created)) = events.first().map(|first| &first.event) else {
            return Ok(alone);
        };
        let trace = Box::pin(self.origin(parent, created, parents_max)).await?.trace;
        let attempt = events.iter().rev().find(|recorded| is_attempt(&recorded.event, call));
        let span =
            attempt.map(|called| span_id(SpanOperation::ExecuteTool, parent, called.sequence));
        Ok(SpanOrigin { trace, parent: span.unwrap_or(SpanId::INVALID) })
    }
}

fn is_attempt(event: &Event, call: ToolCallId) -> bool {
    matches!(event, Event::ToolChanged { call_id, change: ToolChange::Call { .. } } if *call_id == call)
}

#[cfg(test)]
#[path = "span_builder_tests.rs"]
mod tests;
