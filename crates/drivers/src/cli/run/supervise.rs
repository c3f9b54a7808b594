//! Waits for the end of a run: exit, stop request, missed deadline or JSON-RPC response.

use std::time::Duration;

use polity_engine::driver::{RunOutcome, RunProgress, RunRequest};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{SupervisedRun, kill_orphans_of_killed_shim};
use crate::cli::outcome::{self, EndCause, FinishedRun, OutputStreams};
use crate::cli::output::output_reader::StreamSummary;
use crate::process::ProcessLauncher;
use crate::process::run_record::ShimRecord;
use crate::process::shim_options::signal_of;

const USAGE_PERIOD: Duration = Duration::from_millis(500);

/// The maximum time that pipes stay open after the process tree has ended. Only an outside process
/// that was passed a pipe can hold it then.
const PIPE_CLOSE_WAIT: Duration = Duration::from_secs(2);

impl SupervisedRun<'_> {
    pub(super) async fn supervise(mut self, request: &RunRequest<'_>) -> RunOutcome {
        let progress = request.progress;
        let cause = self.wait_for_end(request.stop.clone(), progress).await;
        match cause {
            EndCause::Ended => {}
            EndCause::Stopped | EndCause::TimedOut(_) => self.stop_tree(progress).await,
            EndCause::Responded => {
                self.close_stdin.send_replace(true);
                let grace = Duration::from_secs(self.prepared.info.agent.grace_seconds);
                if !self.exits_within(Some(grace), progress).await {
                    self.stop_tree(progress).await;
                }
            }
        }
        let Self { prepared, started_at, handle, live, stdout, stderr, stop_readers, .. } = self;
        let status = handle.wait().await;
        kill_orphans_of_killed_shim(&prepared, request).await;
        let deadline = Instant::now() + PIPE_CLOSE_WAIT;
        let (stdout, stderr) = tokio::join!(
            finish_stream(stdout, deadline, &stop_readers),
            finish_stream(stderr, deadline, &stop_readers)
        );
        let rest = live.take();
        if !rest.is_empty() {
            progress.output(&rest);
        }
        let output = stdout.zip(stderr).map(|(stdout, stderr)| OutputStreams { stdout, stderr });
        let output_file = match prepared.invocation.output_file.clone() {
            Some(file) => Some(outcome::read_answer_file(file).await),
            None => None,
        };
        let finished = FinishedRun {
            cause,
            process_id: handle.pid,
            status,
            duration: started_at.elapsed(),
            output,
            output_file,
        };
        let outcome = outcome::assemble(&prepared, finished);
        if let Err(error) = prepared.files.remove_private() {
            tracing::warn!(path = %prepared.files.private.display(), %error, "cannot remove private files");
        }
        outcome
    }

    /// Waits for a reason to end the run, and reports progress.
    async fn wait_for_end(
        &mut self,
        mut stop: watch::Receiver<bool>,
        progress: &dyn RunProgress,
    ) -> EndCause {
        let mut record = None;
        let mut usage_ticks = tokio::time::interval_at(Instant::now() + USAGE_PERIOD, USAGE_PERIOD);
        loop {
            let (deadline, missed) = self.deadlines.next_deadline(&self.last_output);
            tokio::select! {
                _ = self.handle.wait() => return EndCause::Ended,
                () = wait_until_true(&mut stop) => return EndCause::Stopped,
                () = wait_until_true(&mut self.responded) => return EndCause::Responded,
                () = tokio::time::sleep_until(deadline) => {
                    // Output may have arrived in the meantime.
                    if self.deadlines.next_deadline(&self.last_output).0 <= Instant::now() {
                        return EndCause::TimedOut(missed);
                    }
                }
                () = self.live.changed() => progress.output(&self.live.take()),
                _ = usage_ticks.tick() => {
                    if record.is_none() {
                        record = ShimRecord::open(&self.prepared.files.record).ok().flatten();
                    }
                    if let Some(usage) = record.as_ref().and_then(ShimRecord::usage) {
                        progress.usage(usage);
                    }
                }
            }
        }
    }

    /// Ends the whole process tree.
    async fn stop_tree(&self, progress: &dyn RunProgress) {
        let agent = self.prepared.info.agent;
        match self.launcher {
            // The shim applies the grace period and exits when the tree has ended.
            ProcessLauncher::Shim(_) => self.handle.send_signal(Signal::TERM),
            ProcessLauncher::Direct => {
                self.handle.send_signal(signal_of(agent.stop_signal));
                let grace = Duration::from_secs(agent.grace_seconds);
                if self.exits_within(Some(grace), progress).await {
                    return;
                }
                self.handle.send_signal(Signal::KILL);
            }
        }
        self.exits_within(None, progress).await;
    }

    /// Waits for the exit, and reports progress. Returns false on timeout.
    async fn exits_within(&self, limit: Option<Duration>, progress: &dyn RunProgress) -> bool {
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
                () = self.live.changed() => progress.output(&self.live.take()),
                () = &mut too_late => return false,
            }
        }
    }
}

/// The summary of a stream. Reading stops at the deadline if an outsider holds the pipe open.
async fn finish_stream(
    mut task: JoinHandle<StreamSummary>,
    deadline: Instant,
    stop_readers: &watch::Sender<bool>,
) -> Option<StreamSummary> {
    if let Ok(summary) = tokio::time::timeout_at(deadline, &mut task).await {
        return summary.ok();
    }
    stop_readers.send_replace(true);
    task.await.ok()
}

/// Waits until the value becomes true; forever if the sender is dropped.
pub(crate) async fn wait_until_true(value: &mut watch::Receiver<bool>) {
    if value.wait_for(|value| *value).await.is_err() {
        std::future::pending::<()>().await;
    }
}
