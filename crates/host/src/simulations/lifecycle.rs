//! Changes of a population from outside of the process that runs it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_model::ids::RunId;
use polity_simulator::error::SimError;
use polity_simulator::folder::requests::AnswerWatch;
use polity_simulator::folder::{RunFolder, RunStatus};
use polity_simulator::lifecycle::{LifecycleAction, RequestVerdict};
use polity_simulator::simulation::Simulation;
use serde::Serialize;

use super::runs::pinned_scenario;
use crate::error::HostError;

/// The verdict on a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LifecycleOutcome {
    /// The request.
    pub request_id: String,
    /// The turn at whose end it was handled; none if it waits for the run to be resumed.
    pub turn: Option<u64>,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: RequestVerdict,
}

/// Requests to a run, in order, with the verdicts so far.
#[derive(Debug)]
pub struct LifecycleBatch {
    folder: RunFolder,
    requests: Vec<SubmittedRequest>,
}

#[derive(Debug)]
struct SubmittedRequest {
    id: String,
    action: LifecycleAction,
    watch: AnswerWatch,
    outcome: Option<LifecycleOutcome>,
}

impl LifecycleBatch {
    /// Submits requests to the process that runs the simulation. If none does, valid requests are
    /// queued for the one that resumes the run, and their verdicts are those of its newest
    /// checkpoint.
    pub fn submit(folder: RunFolder, actions: Vec<LifecycleAction>) -> Result<Self, HostError> {
        if folder.record()?.status == RunStatus::Ended {
            return Err(SimError::Ended(folder.path().to_owned()).into());
        }
        let mut batch = Self { folder, requests: Vec::with_capacity(actions.len()) };
        let is_at_work = batch.folder.is_locked()?;
        for action in actions {
            let request = if is_at_work {
                let id = new_id();
                let watch = batch.folder.submit_request(&id, action.clone())?;
                SubmittedRequest { id, action, watch, outcome: None }
            } else {
                batch.queue(action)?
            };
            batch.requests.push(request);
        }
        Ok(batch)
    }

    /// Looks for new verdicts. Returns true once every request has one.
    pub fn poll(&mut self) -> Result<bool, HostError> {
        // Ownership is read first: an owner answers before it exits.
        let is_at_work = self.folder.is_locked()?;
        for request in self.requests.iter_mut().filter(|request| request.outcome.is_none()) {
            if let Some(answer) = request.watch.poll()? {
                let (turn, verdict) = (Some(answer.turn), answer.verdict);
                let request_id = request.id.clone();
                request.outcome = Some(LifecycleOutcome { request_id, turn, verdict });
            }
        }
        if !is_at_work {
            self.take_back()?;
        }
        Ok(self.requests.iter().all(|request| request.outcome.is_some()))
    }

    /// Withdraws the requests that the run has not answered before it stopped, and queues them again
    /// for the process that resumes it.
    fn take_back(&mut self) -> Result<(), HostError> {
        let status = self.folder.record()?.status;
        let reason = match status {
            RunStatus::Ended => "the run had ended",
            RunStatus::Running | RunStatus::Stopped => "the run was stopped",
        };
        for index in 0..self.requests.len() {
            let SubmittedRequest { id, action, outcome, .. } = &self.requests[index];
            if outcome.is_some() {
                continue;
            }
            // Another process may have resumed the run and answered just now.
            if let Some(answer) = self.folder.withdraw(id, reason)? {
                let (turn, verdict) = (Some(answer.turn), answer.verdict);
                let request_id = id.clone();
                self.requests[index].outcome = Some(LifecycleOutcome { request_id, turn, verdict });
                continue;
            }
            match status {
                RunStatus::Ended => {
                    return Err(SimError::Ended(self.folder.path().to_owned()).into());
                }
                RunStatus::Running | RunStatus::Stopped => {
                    self.requests[index] = self.queue(action.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Queues a valid request for the process that resumes the run.
    fn queue(&self, action: LifecycleAction) -> Result<SubmittedRequest, HostError> {
        let scenario = Arc::new(pinned_scenario(&self.folder)?.scenario);
        let simulation =
            Simulation::restore(&self.folder, None, &scenario, Some(NonZeroUsize::MIN))?;
        let verdict = simulation.preview_request(&self.folder, &action)?;
        let id = new_id();
        let watch = if verdict.result.valid {
            self.folder.submit_request(&id, action.clone())?
        } else {
            self.folder.watch_request(&id)
        };
        let outcome = Some(LifecycleOutcome { request_id: id.clone(), turn: None, verdict });
        Ok(SubmittedRequest { id, action, watch, outcome })
    }

    /// The verdicts so far, in the order of the requests.
    pub fn outcomes(&self) -> impl Iterator<Item = &LifecycleOutcome> {
        self.requests.iter().filter_map(|request| request.outcome.as_ref())
    }

    /// The ids of the requests without a verdict.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        let pending = self.requests.iter().filter(|request| request.outcome.is_none());
        pending.map(|request| request.id.as_str())
    }
}

fn new_id() -> String {
    RunId::from_random_bytes(SystemEntropy.seed()).to_string()
}
