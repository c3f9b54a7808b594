//! Stops all runs of a driver before its process exits.
//!
//! A program whose supervisor exits loses the readers of its pipes: its next write kills it, before
//! it could handle the stop signal. So Polity stays until the process trees have ended.

use polity_engine::driver::{RunEnd, RunOutcome, RunRequest};
use tokio::sync::watch;

use super::CliDriver;
use super::run::wait_until_true;

/// The runs in progress and the request to stop them.
#[derive(Debug, Default)]
pub(crate) struct ActiveRuns {
    count: watch::Sender<usize>,
    is_stopping: watch::Sender<bool>,
}

/// A run in progress, until it is dropped.
struct ActiveRun<'a>(&'a ActiveRuns);

impl ActiveRuns {
    fn enter(&self) -> ActiveRun<'_> {
        self.count.send_modify(|count| *count += 1);
        ActiveRun(self)
    }

    /// The signal that all runs are to stop.
    pub(crate) fn stop_signal(&self) -> watch::Receiver<bool> {
        self.is_stopping.subscribe()
    }

    /// Stops all runs and waits until they have ended.
    pub(crate) async fn stop(&self) {
        self.is_stopping.send_replace(true);
        // The sender is in `self`, so the channel stays open.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for ActiveRun<'_> {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

impl CliDriver {
    /// Runs an agent until it ends or is stopped. A run that ends because of the shutdown never
    /// completes, so that its task is left interrupted.
    pub(crate) async fn run_until_shutdown(&self, request: RunRequest<'_>) -> RunOutcome {
        let active = self.active_runs.enter();
        let mut requested = request.stop.clone();
        let mut shutdown = self.active_runs.stop_signal();
        let is_stopped = *requested.borrow() || *shutdown.borrow();
        let (stop_sender, stop) = watch::channel(is_stopped);
        let forward_stop = async {
            tokio::select! {
                () = wait_until_true(&mut requested) => {}
                () = wait_until_true(&mut shutdown) => {}
            }
            stop_sender.send_replace(true);
            std::future::pending().await
        };
        let outcome = tokio::select! {
            outcome = self.run_pipeline(RunRequest { stop: &stop, ..request }) => outcome,
            never = forward_stop => never,
        };
        if outcome.end == RunEnd::Stopped && !*request.stop.borrow() {
            drop(active);
            return std::future::pending().await;
        }
        outcome
    }
}
