//! The simulations that the server runs: each on a blocking thread of its own, up to a limit.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use polity_host::ErrorReport;
use polity_host::simulations::preparation::perform_run;
use polity_simulator::run::SimulationRun;
use tokio::sync::{oneshot, watch};

use crate::http::Problem;

/// The most failures that are remembered.
const FAILURES_MAX: usize = 1000;

/// The simulations of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulationRuns(Arc<Mutex<RunTable>>);

#[derive(Debug, Default)]
struct RunTable {
    active: BTreeMap<String, Arc<ActiveSimulation>>,
    /// The failures of runs that ended with one, by run.
    failures: BTreeMap<String, String>,
    is_closed: bool,
}

/// A simulation that runs.
#[derive(Debug)]
struct ActiveSimulation {
    is_to_stop: AtomicBool,
    turn: AtomicU64,
    ended: watch::Sender<bool>,
}

/// The right to run one simulation, until it is dropped.
#[derive(Debug)]
pub(crate) struct SimulationSlot {
    runs: SimulationRuns,
    id: String,
    run: Arc<ActiveSimulation>,
}

impl SimulationRuns {
    /// Takes a slot for a run.
    pub(crate) fn begin(&self, id: &str, limit: NonZeroU32) -> Result<SimulationSlot, Problem> {
        let mut table = self.table();
        if table.is_closed {
            return Err(Problem::unavailable("draining", "the server is shutting down"));
        }
        if table.active.contains_key(id) {
            let detail = format!("the run {id} is active");
            return Err(Problem::new(StatusCode::CONFLICT, "conflict", detail));
        }
        if table.active.len() >= limit.get() as usize {
            let detail = format!(
                "{} simulations run, and the limit concurrent_simulations is {limit}",
                table.active.len()
            );
            let code = "limit_concurrent_simulations";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, code, detail).hint(
                "stop one, wait for its end, or raise server.concurrent_simulations in polity.yaml",
            ));
        }
        let run = Arc::new(ActiveSimulation {
            is_to_stop: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            ended: watch::Sender::new(false),
        });
        table.active.insert(id.to_owned(), Arc::clone(&run));
        table.failures.remove(id);
        Ok(SimulationSlot { runs: self.clone(), id: id.to_owned(), run })
    }

    /// Asks a run to stop at the end of its turn. Returns false if this server does not run it.
    pub(crate) fn stop(&self, id: &str) -> bool {
        let table = self.table();
        let run = table.active.get(id);
        if let Some(run) = run {
            run.is_to_stop.store(true, Ordering::Relaxed);
        }
        run.is_some()
    }

    /// Asks all runs to stop, and begins no other.
    pub(crate) fn close(&self) {
        let mut table = self.table();
        table.is_closed = true;
        for run in table.active.values() {
            run.is_to_stop.store(true, Ordering::Relaxed);
        }
    }

    /// True if no run is active.
    pub(crate) fn is_idle(&self) -> bool {
        self.table().active.is_empty()
    }

    /// The number of finished turns of an active run, since it was started here.
    pub(crate) fn turn(&self, id: &str) -> Option<u64> {
        Some(self.table().active.get(id)?.turn.load(Ordering::Relaxed))
    }

    /// The failure that ended a run.
    pub(crate) fn failure(&self, id: &str) -> Option<String> {
        self.table().failures.get(id).cloned()
    }

    /// Waits until a run is not active, or for the given time.
    pub(crate) async fn wait(&self, id: &str, time: Duration) {
        let run = self.table().active.get(id).map(|run| run.ended.subscribe());
        if let Some(mut ended) = run {
            // It goes on after that time; the answer shows its current status.
            let _ = tokio::time::timeout(time, ended.wait_for(|ended| *ended)).await;
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, RunTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimulationSlot {
    /// Starts a run on a blocking thread, and returns once its folder is ready.
    pub(crate) async fn start(
        self,
        make: impl FnOnce() -> Result<SimulationRun, ErrorReport> + Send + 'static,
    ) -> Result<(), Problem> {
        let (ready, started) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            // If the client has gone, the run goes on all the same.
            match make() {
                Ok(run) => {
                    let _ = ready.send(Ok(()));
                    self.perform(run);
                }
                Err(error) => {
                    drop(self);
                    let _ = ready.send(Err(error));
                }
            }
        });
        let Ok(started) = started.await else {
            let detail = "the thread of the simulation failed";
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail));
        };
        started.map_err(Problem::from)
    }

    fn perform(self, mut run: SimulationRun) {
        let active = &self.run;
        let done = perform_run(&mut run, |progress| {
            active.turn.store(progress.turn, Ordering::Relaxed);
            active.is_to_stop.load(Ordering::Relaxed)
        });
        // The lock of the folder is released before the run counts as ended.
        drop(run);
        match done {
            Ok(summary) => {
                tracing::info!(run = self.id, turns = summary.turns, "a simulation has stopped");
            }
            Err(error) => {
                tracing::error!(run = self.id, %error, "a simulation failed");
                let mut table = self.runs.table();
                if table.failures.len() >= FAILURES_MAX {
                    table.failures.pop_first();
                }
                table.failures.insert(self.id.clone(), error.to_string());
            }
        }
    }
}

impl Drop for SimulationSlot {
    fn drop(&mut self) {
        self.runs.table().active.remove(&self.id);
        self.run.ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_unique_and_freed() {
        let runs = SimulationRuns::default();
        let limit = NonZeroU32::MIN;
        let first = runs.begin("a", limit).unwrap();
        assert!(runs.begin("a", NonZeroU32::MAX).is_err());
        assert!(runs.begin("b", limit).is_err());
        assert!(runs.stop("a") && !runs.stop("b"));
        assert!(first.run.is_to_stop.load(Ordering::Relaxed));
        drop(first);
        assert!(runs.is_idle());
        let second = runs.begin("b", limit).unwrap();
        runs.close();
        assert!(second.run.is_to_stop.load(Ordering::Relaxed));
        drop(second);
        assert!(runs.begin("c", limit).is_err());
    }
}
