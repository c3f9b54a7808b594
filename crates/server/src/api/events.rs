//! Live events as server-sent events. The id of an event is its position in the journal.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use polity_engine::clock::{Clock, SystemClock};
use polity_host::HomeQueries;
use polity_model::event::{Event, JournalPosition, RecordedEvent, StreamSequence};
use polity_model::ids::TaskId;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::route::Route;
use super::tasks::find_row;
use crate::auth::{ApiCaller, TokenGrant};
use crate::http::{ApiPath, ApiQuery, Problem};
use crate::operation::event_hub::{BATCH_EVENTS, JournalFrame};
use crate::state::ServerState;

/// The time between two comments that keep a connection open.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// The time between two checks of the token of an open stream.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/tasks/{task_id}/events",
            "followTask",
            "Streams the events of a task. `Last-Event-ID` resumes after an event.",
            follow_task,
        )
        .query::<TaskEventQuery>()
        .answers_text(200, "text/event-stream"),
        Route::get(
            "/api/v1/events",
            "followEvents",
            "Streams all events. `Last-Event-ID` resumes after an event.",
            follow_all,
        )
        .query::<EventQuery>()
        .answers_text(200, "text/event-stream"),
    ]
}

/// The start of a stream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    /// The position after which events are sent; 0 for all. `Last-Event-ID` takes precedence.
    after: Option<u64>,
}

/// The start and the scope of a task's stream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskEventQuery {
    /// The position after which events are sent; 0 for all. `Last-Event-ID` takes precedence.
    after: Option<u64>,
    /// True to send the events of its parts too: of sub-agents and of the nodes of workflows.
    #[serde(default)]
    parts: bool,
}

async fn follow_task(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    headers: HeaderMap,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<TaskEventQuery>,
) -> Result<Response, Problem> {
    let row = find_row(&state, &caller, id).await?;
    // A task is followed from its start.
    let start = JournalPosition(row.created_position.0.saturating_sub(1));
    let newest = state.host.queries().store().last_position().await?;
    let after = position(&headers, query.after, newest)?.unwrap_or(start).max(start);
    let scope =
        if query.parts { EventScope::Tree(BTreeSet::from([id])) } else { EventScope::Task(id) };
    Ok(stream(state, caller, scope, after))
}

async fn follow_all(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    headers: HeaderMap,
    ApiQuery(query): ApiQuery<EventQuery>,
) -> Result<Response, Problem> {
    if caller.grant.agents().is_some() {
        return Err(Problem::forbidden("this token is limited to some agents")
            .hint("follow single tasks: /api/v1/tasks/{task_id}/events"));
    }
    let newest = state.host.queries().store().last_position().await?;
    let after = position(&headers, query.after, newest)?.unwrap_or(newest);
    Ok(stream(state, caller, EventScope::All, after))
}

/// The position of the request. One beyond the journal belongs to another journal: its client would
/// miss all events until the journal is that long.
fn position(
    headers: &HeaderMap,
    after: Option<u64>,
    newest: JournalPosition,
) -> Result<Option<JournalPosition>, Problem> {
    let (field, number) = match (headers.get("last-event-id"), after) {
        (Some(last), _) => {
            ("Last-Event-ID", last.to_str().ok().and_then(|text| text.trim().parse().ok()))
        }
        (None, Some(after)) => ("after", Some(after)),
        (None, None) => return Ok(None),
    };
    let known = number.map(JournalPosition).filter(|position| *position <= newest);
    let wrong = || {
        Problem::unprocessable(format!("{field} is not the id of an event of this server"))
            .field(field)
            .hint("leave it out to start anew")
    };
    known.map(Some).ok_or_else(wrong)
}

/// The events that a listener wants.
enum EventScope {
    /// Those of all streams.
    All,
    /// Those of one task.
    Task(TaskId),
    /// Those of a task and its parts, as far as they are known.
    Tree(BTreeSet<TaskId>),
}

impl EventScope {
    /// True if an event belongs to the scope. A new part of a tree joins it.
    fn takes(&mut self, frame: &JournalFrame) -> bool {
        match (self, frame.task()) {
            (Self::All, _) => true,
            (Self::Task(_) | Self::Tree(_), None) => false,
            (Self::Task(wanted), Some(task)) => *wanted == task,
            (Self::Tree(tasks), Some(task)) => {
                if let Event::TaskCreated(created) = &frame.recorded.event
                    && created.parent_task_id.is_some_and(|parent| tasks.contains(&parent))
                {
                    tasks.insert(task);
                }
                tasks.contains(&task)
            }
        }
    }
}

/// A listener: first it reads the journal, then it follows the hub.
struct EventListener {
    state: Arc<ServerState>,
    grant: Arc<TokenGrant>,
    scope: EventScope,
    after: JournalPosition,
    live: Receiver<Arc<JournalFrame>>,
    /// Events that were read from the journal and not sent yet.
    backlog: VecDeque<Arc<JournalFrame>>,
    reads_journal: bool,
}

fn stream(
    state: Arc<ServerState>,
    caller: ApiCaller,
    scope: EventScope,
    after: JournalPosition,
) -> Response {
    // It listens before it reads, so that nothing is missed in between.
    let live = state.hub.subscribe();
    let listener = EventListener {
        state,
        grant: caller.grant,
        scope,
        after,
        live,
        backlog: VecDeque::new(),
        reads_journal: true,
    };
    let keep_alive = KeepAlive::new().interval(COMMENT_INTERVAL);
    Sse::new(events(listener)).keep_alive(keep_alive).into_response()
}

fn events(listener: EventListener) -> impl Stream<Item = Result<SseEvent, Infallible>> {
    unfold(Some(listener), async |listener| {
        let mut listener = listener?;
        let event = listener.next().await?;
        let is_last = matches!(event, NextEvent::Resume(_));
        let sse = match event {
            NextEvent::Frame(frame) => SseEvent::default()
                .id(frame.recorded.position.0.to_string())
                .event(frame.recorded.event.label())
                .data(&frame.text),
            NextEvent::Resume(reason) => SseEvent::default().event("resume").data(reason),
        };
        Some((Ok(sse), (!is_last).then_some(listener)))
    })
}

/// The next message to a client.
enum NextEvent {
    Frame(Arc<JournalFrame>),
    /// The client should connect again with the last id that it has seen.
    Resume(&'static str),
}

impl EventListener {
    async fn next(&mut self) -> Option<NextEvent> {
        loop {
            if let Some(frame) = self.backlog.pop_front() {
                self.after = frame.recorded.position;
                return Some(NextEvent::Frame(frame));
            }
            if self.reads_journal {
                if !self.state.tokens.still_holds(&self.grant, SystemClock.now()) {
                    return None;
                }
                match self.read_journal().await {
                    Ok(()) => continue,
                    Err(problem) => {
                        tracing::error!(?problem, "cannot read events");
                        return Some(NextEvent::Resume("the journal cannot be read"));
                    }
                }
            }
            let received = tokio::select! {
                biased;
                received = tokio::time::timeout(CHECK_INTERVAL, self.live.recv()) => received,
                () = self.state.streams_closed() => {
                    return Some(NextEvent::Resume("the server is shutting down"));
                }
            };
            if !self.state.tokens.still_holds(&self.grant, SystemClock.now()) {
                return None;
            }
            match received {
                Ok(Ok(frame)) if self.wants(&frame) => {
                    self.after = frame.recorded.position;
                    return Some(NextEvent::Frame(frame));
                }
                Ok(Ok(_)) | Err(_) => {}
                Ok(Err(RecvError::Lagged(_))) => {
                    return Some(NextEvent::Resume("the client is too slow"));
                }
                Ok(Err(RecvError::Closed)) => {
                    return Some(NextEvent::Resume("the server is shutting down"));
                }
            }
        }
    }

    fn wants(&mut self, frame: &JournalFrame) -> bool {
        frame.recorded.position > self.after && self.scope.takes(frame)
    }

    /// Reads the next events from the journal.
    async fn read_journal(&mut self) -> Result<(), Problem> {
        let queries = self.state.host.queries();
        let events = match &mut self.scope {
            EventScope::Task(task) => {
                self.reads_journal = false;
                queries.events(*task, StreamSequence::default()).await?
            }
            EventScope::Tree(tasks) => {
                self.reads_journal = false;
                tree_events(queries, tasks).await?
            }
            EventScope::All => {
                let events = queries.store().events_after(self.after, BATCH_EVENTS).await?;
                self.reads_journal = events.len() == BATCH_EVENTS as usize;
                events
            }
        };
        let newer = events.into_iter().filter(|recorded| recorded.position > self.after);
        self.backlog.extend(newer.map(|recorded| Arc::new(JournalFrame::new(recorded))));
        Ok(())
    }
}

/// The events of a task and its parts, in the order of the journal. Adds the parts to the tasks.
async fn tree_events(
    queries: &HomeQueries,
    tasks: &mut BTreeSet<TaskId>,
) -> Result<Vec<RecordedEvent>, Problem> {
    // Later events arrive live. A part that is created now would be missing between earlier ones.
    let newest = queries.store().last_position().await?;
    let (mut events, mut waiting) = (Vec::new(), tasks.iter().copied().collect::<Vec<_>>());
    while let Some(task) = waiting.pop() {
        tasks.insert(task);
        events.extend(queries.events(task, StreamSequence::default()).await?);
        waiting.extend(queries.parts(task).await?.iter().map(|part| part.id));
    }
    events.retain(|recorded| recorded.position <= newest);
    events.sort_by_key(|recorded| recorded.position);
    Ok(events)
}
