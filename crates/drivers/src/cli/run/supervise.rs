//! Waits for the end of a run: exit, stop request, missed deadline or JSON-RPC response.

use std::time::Duration;

use polity_engine::driver::{RunOutcome, RunProgress, RunRequest};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{SupervisedRun, end_whom_a_killed_shim_leaves};
use crate::cli::outcome::{self, EndCause, FinishedRun, OutputStreams};
use crate::cli::output::output_reader::StreamSummary;
use crate::process::ProcessLauncher;
use crate::process::run_record::RunRecord;
use crate::process::shim_options::signal_of;

/// The usage reporting interval.
const USAGE_PAUSE: Duration = Duration::from_millis(500);

/// The maximum time that pipes stay open after the process tree has ended. Only an outside process
/// that was passed a pipe can hold it then.
const PIPES_WAIT: Duration = Duration::from_secs(2);

impl SupervisedRun<'_> {
    pub(super) async fn supervise(mut self, request: &RunRequest<'_>) -> RunOutcome {
        let progress = request.progress;
        let cause = self.wait_for_cause(request.stop.clone(), progress).await;
        match cause {
            EndCause::Ended => {}
            EndCause::Stopped | EndCause::TimedOut(_) => self.end(progress).await,
            EndCause::Responded => {
                self.close_stdin.send_replace(true);
                let grace = Duration::from_secs(self.prepared.about.agent.grace_seconds);
                if !self.is_over_within(Some(grace), progress).await {
                    self.end(progress).await;
                }
            }
        }
        let Self { prepared, begun, handle, live, stdout, stderr, over, .. } = self;
        let status = handle.wait().await;
        end_whom_a_killed_shim_leaves(request);
        let deadline = Instant::now() + PIPES_WAIT;
        let (stdout, stderr) =
            tokio::join!(drained(stdout, deadline, &over), drained(stderr, deadline, &over));
        let rest = live.take();
        if !rest.is_empty() {
            progress.output(&rest);
        }
        let output = stdout.zip(stderr).map(|(stdout, stderr)| OutputStreams { stdout, stderr });
        let finished = FinishedRun {
            cause,
            process_id: handle.pid,
            status,
            duration: begun.elapsed(),
            output,
        };
        let outcome = outcome::of(&prepared, finished);
        if let Err(error) = prepared.paths.remove_private() {
            tracing::warn!(path = %prepared.paths.private.display(), %error, "files are left");
        }
        outcome
    }

    /// Waits for a reason to end the run, and reports progress.
    async fn wait_for_cause(
        &mut self,
        mut stop: watch::Receiver<bool>,
        progress: &dyn RunProgress,
    ) -> EndCause {
        let mut record = None;
        let mut looks = tokio::time::interval_at(Instant::now() + USAGE_PAUSE, USAGE_PAUSE);
        loop {
            let (deadline, late) = self.patience.next(&self.heard);
            tokio::select! {
                _ = self.handle.wait() => return EndCause::Ended,
                () = becomes_true(&mut stop) => return EndCause::Stopped,
                () = becomes_true(&mut self.responded) => return EndCause::Responded,
                () = tokio::time::sleep_until(deadline) => {
                    // Output may have arrived in the meantime.
                    if self.patience.next(&self.heard).0 <= Instant::now() {
                        return EndCause::TimedOut(late);
                    }
                }
                () = self.live.news() => progress.output(&self.live.take()),
                _ = looks.tick() => {
                    if record.is_none() {
                        record = RunRecord::open(&self.prepared.paths.record).ok().flatten();
                    }
                    if let Some(usage) = record.as_ref().and_then(RunRecord::usage) {
                        progress.usage(usage);
                    }
                }
            }
        }
    }

    /// Ends the whole process tree.
    async fn end(&self, progress: &dyn RunProgress) {
        let agent = self.prepared.about.agent;
        match self.launcher {
            // The shim applies the grace period and exits when the tree has ended.
            ProcessLauncher::Shim(_) => self.handle.order(Signal::TERM),
            ProcessLauncher::Direct => {
                self.handle.order(signal_of(agent.stop_signal));
                let grace = Duration::from_secs(agent.grace_seconds);
                if self.is_over_within(Some(grace), progress).await {
                    return;
                }
                self.handle.order(Signal::KILL);
            }
        }
        self.is_over_within(None, progress).await;
    }

    /// Waits for the exit, and reports progress. Returns false on timeout.
    async fn is_over_within(&self, limit: Option<Duration>, progress: &dyn RunProgress) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let too_late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(too_late);
        loop {
            tokio::select! {
                _ = self.handle.wait() => return true,
                () = self.live.news() => progress.output(&self.live.take()),
                () = &mut too_late => return false,
            }
        }
    }
}

/// The summary of a stream. If an outside process holds the pipe open, reading stops at the
/// deadline.
async fn drained(
    mut task: JoinHandle<StreamSummary>,
    deadline: Instant,
    over: &watch::Sender<bool>,
) -> Option<StreamSummary> {
    if let Ok(drained) = tokio::time::timeout_at(deadline, &mut task).await {
        return drained.ok();
    }
    over.send_replace(true);
    task.await.ok()
}

/// Waits until the value becomes true; forever if the sender is dropped.
async fn becomes_true(told: &mut watch::Receiver<bool>) {
    if told.wait_for(|told| *told).await.is_err() {
        std::future::pending::<()>().await;
    }
}
