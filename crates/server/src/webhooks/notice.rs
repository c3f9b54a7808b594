//! The content of a notification, made from an event of the journal.

use polity_definition::WebhookTopic;
use polity_host::{HomeQueries, HostError};
use polity_model::digest::Digest;
use polity_model::event::{Event, RecordedEvent, ScheduleChange, StreamId, TickOutcome};
use serde_json::json;

/// The characters of the digest in an id.
const ID_CHARACTERS: usize = 32;

/// A notification, ready to be sent.
#[derive(Debug)]
pub(super) struct WebhookNotice {
    /// The id, the same at every attempt.
    pub(super) id: String,
    /// The JSON.
    pub(super) body: Vec<u8>,
}

/// The topic of an event, if webhooks are notified of it.
pub(super) fn topic_of(event: &Event) -> Option<WebhookTopic> {
    if let Event::ScheduleChanged { change, .. } = event {
        return schedule_topic(change);
    }
    if matches!(event, Event::ReviewOpened { .. }) {
        return Some(WebhookTopic::ReviewWaits);
    }
    let has_ended = matches!(
        event,
        Event::TaskCompleted { .. } | Event::TaskFailed { .. } | Event::TaskCancelled
    );
    has_ended.then_some(WebhookTopic::TaskEnded)
}

fn schedule_topic(change: &ScheduleChange) -> Option<WebhookTopic> {
    if matches!(change, ScheduleChange::Pause { .. }) {
        return Some(WebhookTopic::SchedulePaused);
    }
    let (ScheduleChange::Tick { outcome, .. } | ScheduleChange::Pass { outcome, .. }) = change
    else {
        return None;
    };
    let is_missed =
        matches!(outcome, TickOutcome::Missed { .. } | TickOutcome::FailedToStart { .. });
    is_missed.then_some(WebhookTopic::ScheduleMissed)
}

/// The notification of an event. None if it has none, or its task was removed meanwhile.
pub(super) async fn notice_of(
    queries: &HomeQueries,
    recorded: &RecordedEvent,
) -> Result<Option<WebhookNotice>, HostError> {
    let Some(topic) = topic_of(&recorded.event) else { return Ok(None) };
    let data = match &recorded.stream {
        StreamId::Task(task) => {
            let Some(row) = queries.store().task_row(*task).await? else { return Ok(None) };
            if topic == WebhookTopic::TaskEnded && row.parent_task_id.is_some() {
                return Ok(None);
            }
            let mut data = json!({
                "task_id": row.id,
                "assigned_agent": row.assigned_agent,
                "status": row.status,
                "error_code": row.error_code,
            });
            if let Event::ReviewOpened { checkpoint_id, question, deadline, .. } = &recorded.event {
                data["status"] = json!("awaiting_human");
                data["checkpoint_id"] = json!(checkpoint_id);
                data["question"] = json!(question);
                data["deadline"] = json!(deadline);
            }
            data
        }
        StreamId::Schedule(name) => {
            let Event::ScheduleChanged { change, .. } = &recorded.event else { return Ok(None) };
            json!({"schedule": name, "change": change})
        }
        StreamId::Session(_) | StreamId::Agent(_) => return Ok(None),
    };
    let body = json!({"type": topic, "timestamp": recorded.at, "data": data});
    Ok(Some(WebhookNotice { id: id_of(recorded), body: body.to_string().into_bytes() }))
}

/// The id of an event, the same in every process and different in every home.
fn id_of(recorded: &RecordedEvent) -> String {
    let stream = match &recorded.stream {
        StreamId::Task(id) => id.to_string(),
        StreamId::Session(id) => id.to_string(),
        StreamId::Schedule(name) | StreamId::Agent(name) => name.to_string(),
    };
    let at = recorded.at.as_nanosecond();
    let text = format!("{stream} {} {} {at}", recorded.sequence.0, recorded.position.0);
    let digest: String = Digest::of(text.as_bytes()).to_string();
    let hex: String = digest.chars().filter(char::is_ascii_hexdigit).take(ID_CHARACTERS).collect();
    format!("msg_{hex}")
}
