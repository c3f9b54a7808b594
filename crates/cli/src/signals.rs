//! Signals that request a stop.

use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// A request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// A listener for both signals.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Starts to listen. From then on the signals no longer end the process.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let io = |error| CliError::io("listen to", Path::new("signals"), &error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(io)?,
            terminate: signal(SignalKind::terminate()).map_err(io)?,
        })
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> StopRequest {
        tokio::select! {
            _ = self.interrupt.recv() => StopRequest::Interrupt,
            _ = self.terminate.recv() => StopRequest::Terminate,
        }
    }
}
