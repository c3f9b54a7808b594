//! Signals that request a stop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use polity_host::Host;
use signal_hook::consts::SIGCHLD;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::AppContext;
use crate::args::GlobalOptions;
use crate::error::{CliError, exit_status, print_error};
use crate::terminal::note;

/// Undoes settings of a careless parent process: blocked signals, which could not stop this process,
/// and an ignored SIGCHLD, which hides the exit of children.
pub(crate) fn restore() {
    polity_drivers::process::unblock_signals();
    // A handled signal is not ignored. Without the handler, children are still supervised.
    let _ = signal_hook::flag::register(SIGCHLD, Arc::new(AtomicBool::new(false)));
}

/// A request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, or SIGHUP when the terminal is closed.
    Terminate,
}

/// A listener for these signals.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Missing under `nohup`.
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Starts to listen. From then on the signals no longer end the process.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let io = |error| CliError::io("listen to", Path::new("signals"), &error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(io)?,
            terminate: signal(SignalKind::terminate()).map_err(io)?,
            hangup: if is_hangup_ignored() {
                None
            } else {
                Some(signal(SignalKind::hangup()).map_err(io)?)
            },
        })
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> StopRequest {
        tokio::select! {
            _ = self.interrupt.recv() => StopRequest::Interrupt,
            _ = self.terminate.recv() => StopRequest::Terminate,
            () = received(self.hangup.as_mut()) => StopRequest::Terminate,
        }
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// True if this process was started to survive the end of its terminal, as `nohup` does, or if that
/// is unknown. Listening would undo it.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let hangup = 1 << (SignalKind::hangup().as_raw_value() - 1);
    ignored.is_none_or(|mask| mask & hangup != 0)
}

/// Completes the work, or quits on the first stop signal.
pub(crate) async fn unless_stopped<T>(
    app: &AppContext,
    host: &Host,
    left: impl FnOnce() -> CliError,
    work: impl Future<Output = T>,
) -> Result<T, CliError> {
    let mut signals = StopSignals::listen()?;
    tokio::select! {
        done = work => Ok(done),
        _ = signals.next() => stop_programs_and_quit(app, host, &mut signals, &left()).await,
    }
}

/// Stops programs as their definitions say and ends this process. Another signal ends it at once.
pub(crate) async fn stop_programs_and_quit(
    app: &AppContext,
    host: &Host,
    signals: &mut StopSignals,
    left: &CliError,
) -> ! {
    let mut stopped = std::pin::pin!(host.runtime().stop_programs());
    if tokio::time::timeout(Duration::ZERO, &mut stopped).await.is_err() {
        if app.shows_progress() {
            note!("stopping programs; another signal quits at once");
        }
        tokio::select! {
            () = stopped => {}
            _ = signals.next() => {}
        }
    }
    quit(&app.options, left)
}

/// Ends the process at once, without waiting for a disk, a model or a program. The journal is always
/// consistent, the system releases the locks, and the shims end the programs.
pub(crate) fn quit(options: &GlobalOptions, left: &CliError) -> ! {
    print_error(left, options.json);
    crate::logging::flush();
    std::process::exit(exit_status(left).code().into())
}
