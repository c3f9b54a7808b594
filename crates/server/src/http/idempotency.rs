//! The header `Idempotency-Key`: a repeated request does not start its work twice.
//!
//! The id of the new task follows from the caller and the key, so the journal itself refuses a second
//! task. The task keeps the digest of its request, by which another request with the same key is
//! refused. Both hold across restarts, and for as long as the task is kept.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use polity_model::digest::Digest;
use polity_model::ids::TaskId;

use super::problem::Problem;
use crate::auth::ApiCaller;

/// The longest key.
const KEY_CHARACTERS_MAX: usize = 255;

/// Distinguishes the ids of these tasks from other derived ids.
const LABEL: &[u8] = b"polity request";

/// The key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The id of the task that a caller starts with this key.
    pub(crate) fn task_id(&self, caller: &ApiCaller, route: &str) -> TaskId {
        let parts = [LABEL, caller.grant.id.as_bytes(), route.as_bytes(), self.0.as_bytes()];
        let digests = parts.map(|part| *Digest::of(part).as_bytes());
        TaskId::derived_from(&digests.concat())
    }
}

impl<S: Send + Sync> axum::extract::OptionalFromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(None) };
        let text =
            value.to_str().ok().filter(|text| (1..=KEY_CHARACTERS_MAX).contains(&text.len()));
        match text {
            Some(text) => Ok(Some(Self(text.to_owned()))),
            None => Err(Problem::unprocessable(format!(
                "Idempotency-Key must have 1 to {KEY_CHARACTERS_MAX} visible characters"
            ))
            .field("Idempotency-Key")),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ApiCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Problem::unauthorized("the request has no token"))
    }
}

/// The keys of requests that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct RunningKeys(Mutex<BTreeSet<TaskId>>);

impl RunningKeys {
    /// Marks a key as in use until the guard is dropped; none if it is in use already.
    pub(crate) fn begin(&self, task: TaskId) -> Option<RunningKey<'_>> {
        let is_new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(task);
        is_new.then_some(RunningKey { keys: self, task })
    }
}

/// A key in use.
pub(crate) struct RunningKey<'k> {
    keys: &'k RunningKeys,
    task: TaskId,
}

impl Drop for RunningKey<'_> {
    fn drop(&mut self) {
        self.keys.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.task);
    }
}
