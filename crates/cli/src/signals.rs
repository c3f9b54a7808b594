//! Requests to stop, as the system passes them on.

use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// What a person or a machine can ask of a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Ctrl-C.
    Interrupt,
    /// The end of the machine, or of whoever started the process.
    Terminate,
}

/// Both kinds of requests, listened to from the beginning, so that none is missed.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to listen. From then on the requests no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let io = |error| CliError::io("listen to", Path::new("signals"), &error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(io)?,
            terminate: signal(SignalKind::terminate()).map_err(io)?,
        })
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
        }
    }
}
