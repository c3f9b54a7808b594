//! Requests with an `Idempotency-Key`: the work of a repeated one is not started twice.

use axum::http::HeaderValue;
use axum::response::Response;
use polity_model::digest::Digest;
use polity_model::event::{Event, JournalPosition};
use polity_model::ids::TaskId;
use serde_json::Value;

use super::answer_task;
use crate::api::task_waiting::wait_for_end;
use crate::auth::ApiCaller;
use crate::http::{IdempotencyKey, Problem, RunningKey, WaitTime};
use crate::state::ServerState;

/// A request that may have a key, while it is handled.
pub(in crate::api) struct KeyedRequest<'s> {
    work: Option<(TaskId, Digest)>,
    _running: Option<RunningKey<'s>>,
}

impl<'s> KeyedRequest<'s> {
    /// Marks the key as in use. Refuses a request whose first attempt has no answer yet, unless it
    /// waits for the same work.
    pub(in crate::api) fn begin(
        state: &'s ServerState,
        caller: &ApiCaller,
        key: Option<&IdempotencyKey>,
        route: &str,
        body: &[u8],
        wait: Option<WaitTime>,
    ) -> Result<Self, Problem> {
        let Some(key) = key else { return Ok(Self { work: None, _running: None }) };
        let id = key.task_id(caller, route);
        let running = state.running_keys.begin(id);
        if running.is_none() && wait.is_none() {
            return Err(Problem::in_progress());
        }
        Ok(Self { work: Some((id, request_digest(body))), _running: running })
    }

    /// The id of the task that the key stands for, and the digest of the request.
    pub(in crate::api) fn work(&self) -> Option<(TaskId, Digest)> {
        self.work
    }

    /// The id by which a retry is told from that of another key, in one digest with the request.
    pub(in crate::api) fn combined(&self) -> Option<Digest> {
        let (id, digest) = self.work?;
        let mut bytes = *digest.as_bytes();
        bytes[..16].copy_from_slice(id.as_bytes());
        Some(Digest::from_bytes(bytes))
    }

    /// The task that an earlier request with the same key and body has started.
    pub(in crate::api) async fn earlier(
        &self,
        state: &ServerState,
    ) -> Result<Option<TaskId>, Problem> {
        let Some((id, digest)) = self.work else { return Ok(None) };
        match RequestRecord::load(state, id).await? {
            None => Ok(None),
            Some(RequestRecord(recorded)) if recorded == Some(digest) => Ok(Some(id)),
            Some(_) => Err(Problem::key_reused()),
        }
    }

    /// True if an earlier request with the same key and body has started this retry.
    pub(in crate::api) async fn has_retried(
        &self,
        state: &ServerState,
        retry: TaskId,
    ) -> Result<bool, Problem> {
        let Some(wanted) = self.combined() else { return Ok(false) };
        let recorded = RequestRecord::load(state, retry).await?;
        match recorded.and_then(|RequestRecord(digest)| digest) {
            Some(recorded) if recorded == wanted => Ok(true),
            Some(recorded) if recorded.as_bytes()[..16] == wanted.as_bytes()[..16] => {
                Err(Problem::key_reused())
            }
            Some(_) | None => Ok(false),
        }
    }
}

/// The digest of the request that started a task; none if it had no key.
struct RequestRecord(Option<Digest>);

impl RequestRecord {
    /// Reads the record of a task, if there is such a task.
    async fn load(state: &ServerState, id: TaskId) -> Result<Option<Self>, Problem> {
        let store = state.host.queries().store();
        let Some(row) = store.task_row(id).await? else { return Ok(None) };
        let before = JournalPosition(row.created_position.0.saturating_sub(1));
        let first = store.events_after(before, 1).await?.pop();
        Ok(Some(Self(match first.map(|first| first.event) {
            Some(Event::TaskCreated(created)) => created.idempotency,
            Some(_) | None => None,
        })))
    }
}

/// The digest of a JSON body, whatever its spaces and the order of its fields are.
pub(in crate::api) fn request_digest(body: &[u8]) -> Digest {
    let canonical = serde_json::from_slice::<Value>(body).unwrap_or_default().to_string();
    Digest::of(canonical.as_bytes())
}

/// Answers with the task of an earlier request.
pub(in crate::api) async fn replay(
    state: &ServerState,
    id: TaskId,
    wait: Option<WaitTime>,
) -> Result<Response, Problem> {
    if let Some(WaitTime(time)) = wait {
        wait_for_end(state, id, time).await?;
    }
    Ok(mark_replayed(answer_task(state, id).await?))
}

/// Marks an answer as that of an earlier request.
pub(in crate::api) fn mark_replayed(mut response: Response) -> Response {
    response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    response
}
