//! The load: threads that submit tasks, answer reviews and listen to events, and survive restarts of
//! the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::choices::Choices;
use crate::served::{Answer, Connection, SoakEventReader, SoakServerAddress};

const SUBMITTERS: u64 = 4;
const LISTENERS: usize = 2;

/// The pause after an attempt without a server.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two submissions of a thread.
const SUBMIT_PAUSE_MS: u64 = 150;

/// The pause between two looks at the open reviews.
const REVIEW_PAUSE: Duration = Duration::from_millis(200);

/// The longest wait of a listener for bytes, so that it notices the end.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The work that is submitted: the field of the request, and the name.
const WORK: [(&str, &str); 4] =
    [("agent", "greeter"), ("agent", "thinker"), ("agent", "program"), ("workflow", "reviewed")];

/// What the threads of the load share.
#[derive(Default)]
pub(super) struct SoakLoad {
    /// True once no more is submitted.
    pub(super) is_over: AtomicBool,
    server: Mutex<Option<SoakServerAddress>>,
    /// The accepted tasks, by idempotency key.
    accepted: Mutex<BTreeMap<String, String>>,
    faults: Mutex<Vec<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SoakLoad {
    /// Starts the threads. They end once the load is over.
    pub(super) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, seed: u64) {
        for number in 0..SUBMITTERS {
            scope.spawn(move || self.watched(|| self.submit_all(number, seed)));
        }
        for _ in 0..LISTENERS {
            scope.spawn(move || self.watched(|| self.listen()));
        }
        scope.spawn(move || self.watched(|| self.review()));
    }

    /// Tells the threads where the server is.
    pub(super) fn move_to(&self, address: Option<&SoakServerAddress>) {
        *locked(&self.server) = address.cloned();
    }

    /// The ids of the accepted tasks, or the first fault of a thread.
    pub(super) fn outcome(&self) -> Result<Vec<String>> {
        if let Some(fault) = locked(&self.faults).first() {
            bail!("{fault}");
        }
        Ok(locked(&self.accepted).values().cloned().collect())
    }

    fn watched(&self, work: impl FnOnce() -> Result<()>) {
        if let Err(fault) = work() {
            locked(&self.faults).push(format!("{fault:#}"));
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn connect(&self) -> Option<Connection> {
        let address = locked(&self.server).clone()?;
        Connection::open(&address).ok()
    }

    fn submit_all(&self, number: u64, seed: u64) -> Result<()> {
        let mut choices = Choices::new(seed ^ (number + 1));
        let mut connection = None;
        for count in 0_u64.. {
            if self.is_over() {
                break;
            }
            let choice = usize::try_from(choices.between(0, WORK.len() as u64 - 1))?;
            let (field, name) = WORK.get(choice).context("a choice is in the table")?;
            let key = format!("soak-{number}-{count}");
            let body = json!({ (*field): name, "input": key });
            if let Some(id) = self.submit(&mut connection, &key, &body)? {
                // Some requests are sent again, as after a lost answer.
                if choices.between(0, 9) == 0
                    && let Some(again) = self.submit(&mut connection, &key, &body)?
                {
                    ensure!(again == id, "the key {key} has started {id} and {again}");
                }
                locked(&self.accepted).insert(key, id);
            }
            thread::sleep(Duration::from_millis(choices.between(0, SUBMIT_PAUSE_MS)));
        }
        Ok(())
    }

    /// Submits until the server has accepted. Returns `None` if the load is over before.
    fn submit(
        &self,
        connection: &mut Option<Connection>,
        key: &str,
        body: &serde_json::Value,
    ) -> Result<Option<String>> {
        let headers = format!("Idempotency-Key: {key}\r\n");
        loop {
            if connection.is_none() {
                *connection = self.connect();
            }
            let sent = connection.as_mut().map(|open| open.post("/api/v1/tasks", &headers, body));
            match sent {
                Some(Ok(Answer { status: 200 | 202, body })) => {
                    let task: serde_json::Value = serde_json::from_str(&body)?;
                    let id = task["id"].as_str().context("a task has an id")?;
                    return Ok(Some(id.to_owned()));
                }
                // The server stops, or has the first request with this key in its hands.
                Some(Ok(Answer { status: 503 | 409, .. })) => {}
                Some(Ok(Answer { status, body })) => bail!("{key} was refused: {status} {body}"),
                Some(Err(_)) | None => *connection = None,
            }
            // A request whose answer was lost may have been accepted, so it is always repeated
            // while there is a server.
            if self.is_over() && locked(&self.server).is_none() {
                return Ok(None);
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Approves all reviews. It goes on until no server is left to ask.
    fn review(&self) -> Result<()> {
        while !self.is_over() {
            if let Some(mut connection) = self.connect() {
                // A server that is killed meanwhile is asked again.
                let _ = answer_reviews(&mut connection)?;
            }
            thread::sleep(REVIEW_PAUSE);
        }
        Ok(())
    }

    /// Follows all events over restarts. Fails if a position is repeated or goes back.
    fn listen(&self) -> Result<()> {
        let mut after = 0;
        while !self.is_over() {
            let address = locked(&self.server).clone();
            let reader = address.and_then(|address| SoakEventReader::open(&address, after).ok());
            let Some(mut reader) = reader else {
                thread::sleep(RETRY_PAUSE);
                continue;
            };
            reader.set_timeout(LISTEN_TIMEOUT)?;
            while let Ok(event) = reader.next_event() {
                let Some(id) = event.id else { break };
                ensure!(id > after, "the event {id} came after {after}");
                after = id;
                if self.is_over() {
                    break;
                }
            }
        }
        ensure!(after > 0, "a listener has seen no event");
        Ok(())
    }
}

/// Approves the open reviews. Returns their number, or nothing if the connection is lost.
pub(super) fn answer_reviews(connection: &mut Connection) -> Result<Option<usize>> {
    let Ok(listed) = connection.get("/api/v1/reviews?limit=1000") else { return Ok(None) };
    if listed.status != 200 {
        return Ok(None);
    }
    let listed = listed.json()?;
    let items = listed["items"].as_array().context("a list has items")?;
    for item in items {
        let id = item["task_id"].as_str().context("a review has a task")?;
        let path = format!("/api/v1/reviews/{id}/answer");
        let Ok(answer) = connection.post(&path, "", &json!({"action": "approve"})) else {
            return Ok(None);
        };
        ensure!(
            // Answered before a kill, or ended meanwhile.
            matches!(answer.status, 200 | 202 | 404 | 409 | 503),
            "the review of {id} was refused: {} {}",
            answer.status,
            answer.body
        );
    }
    Ok(Some(items.len()))
}
