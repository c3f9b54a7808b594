//! The events of a task as a server streams them. A broken connection is made again, without loss or
//! repetition.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use polity_drivers::sse::{SseEvent, SseParser};
use polity_host::ReportKind;
use polity_model::event::{Event, JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::ids::TaskId;
use reqwest::Response;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::ApiClient;
use super::api_client::{AWAY_SECONDS_MAX, RECONNECT_DELAY, SendError};
use crate::error::CliError;

/// The longest silence of a stream. A server sends a comment more often than that.
const SILENCE_SECONDS_MAX: u64 = 60;

/// The largest event, in bytes.
const EVENT_BYTES_MAX: usize = 1 << 28;

/// The most events that are read before they are shown.
const BACKLOG_EVENTS_MAX: usize = 256;

/// An event in a stream.
#[derive(Deserialize)]
struct StreamedEvent {
    position: JournalPosition,
    stream: StreamedOwner,
    sequence: StreamSequence,
    at: Timestamp,
    event: Event,
}

/// The owner of an event in a stream.
#[derive(Deserialize)]
struct StreamedOwner {
    kind: String,
    id: String,
}

impl StreamedEvent {
    /// The event of a task; none for other events.
    fn of_task(self) -> Option<RecordedEvent> {
        let task: TaskId = (self.stream.kind == "task").then(|| self.stream.id.parse().ok())??;
        Some(RecordedEvent {
            position: self.position,
            stream: StreamId::Task(task),
            sequence: self.sequence,
            at: self.at,
            event: self.event,
        })
    }
}

/// The events of a task from its start, as they happen.
pub(crate) struct TaskEvents {
    receiver: mpsc::Receiver<Result<RecordedEvent, CliError>>,
    reader: JoinHandle<()>,
}

impl TaskEvents {
    /// Starts to read the events of a task, and of its parts if they are asked for.
    pub(crate) fn open(client: &ApiClient, task: TaskId, with_parts: bool) -> Self {
        let (sender, receiver) = mpsc::channel(BACKLOG_EVENTS_MAX);
        let reader = EventReader { client: client.clone(), task, with_parts, sender, after: None };
        Self { receiver, reader: tokio::spawn(reader.run()) }
    }

    /// Waits for the next event. Can be cancelled without loss.
    pub(crate) async fn next(&mut self) -> Result<RecordedEvent, CliError> {
        let ended = || {
            Err(CliError::new("server_error", ReportKind::Failed, "the stream of events has ended"))
        };
        self.receiver.recv().await.unwrap_or_else(ended)
    }
}

impl Drop for TaskEvents {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Reads a stream in the background.
struct EventReader {
    client: ApiClient,
    task: TaskId,
    with_parts: bool,
    sender: mpsc::Sender<Result<RecordedEvent, CliError>>,
    /// The position of the last event.
    after: Option<u64>,
}

impl EventReader {
    async fn run(mut self) {
        let id = self.task.to_string();
        let mut last_contact = Instant::now();
        loop {
            match self.client.open_events(&id, self.with_parts, self.after).await {
                Ok(response) => {
                    if let Err(error) = self.read(response).await {
                        // Nobody waits for events any more if this fails.
                        let _ = self.sender.send(Err(error)).await;
                        return;
                    }
                    last_contact = Instant::now();
                }
                Err(SendError::Refused(error)) => {
                    let _ = self.sender.send(Err(*error)).await;
                    return;
                }
                Err(SendError::Unreachable(error) | SendError::Lost(error)) => {
                    if last_contact.elapsed() > Duration::from_secs(AWAY_SECONDS_MAX) {
                        let message = format!(
                            "{}; it has been away for {AWAY_SECONDS_MAX} s",
                            error.message()
                        );
                        let error =
                            CliError::new("server_unreachable", ReportKind::Failed, message).hint(
                                format!(
                                    "a server continues its tasks when it is back: `polity task \
                                     watch {id}`"
                                ),
                            );
                        let _ = self.sender.send(Err(error)).await;
                        return;
                    }
                }
            }
            if self.sender.is_closed() {
                return;
            }
            tokio::time::sleep(RECONNECT_DELAY).await;
            self.client.locate_again();
        }
    }

    /// Reads one connection to its end. An error ends the stream for good.
    async fn read(&mut self, mut response: Response) -> Result<(), CliError> {
        let mut parser = SseParser::default();
        loop {
            let silence = Duration::from_secs(SILENCE_SECONDS_MAX);
            let read = tokio::time::timeout(silence, response.chunk()).await;
            // The connection is made again.
            let Ok(Ok(Some(chunk))) = read else { return Ok(()) };
            let mut events = Vec::new();
            parser.push(&chunk, |event| self.decode(event).map(|event| events.extend(event)))?;
            if parser.pending_bytes() > EVENT_BYTES_MAX {
                let message = format!("an event is larger than {EVENT_BYTES_MAX} bytes");
                return Err(CliError::over_limit("limit_event_bytes", message)
                    .hint("look at the task with `polity task show`"));
            }
            for event in events {
                self.after = Some(event.position.0);
                if self.sender.send(Ok(event)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn decode(&self, event: SseEvent<'_>) -> Result<Option<RecordedEvent>, CliError> {
        // The server closes the stream, and the next connection continues it.
        if event.name == b"resume" {
            return Ok(None);
        }
        let read: Result<StreamedEvent, _> = serde_json::from_slice(event.data);
        let streamed = read.map_err(|error| {
            let url = self.client.shown_url();
            CliError::unsupported(format!("an event of {url} cannot be read: {error}"))
                .hint("use the same version of Polity here and there: `polity --version`")
        })?;
        // A repeated event is not shown again.
        let is_new = self.after.is_none_or(|after| streamed.position.0 > after);
        Ok(streamed.of_task().filter(|_| is_new))
    }
}
