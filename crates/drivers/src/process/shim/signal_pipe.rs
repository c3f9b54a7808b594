//! Receives signals through a pipe, so that the shim can wait for signals and a deadline at once.
//!
//! Signals are handled rather than blocked, because a child would inherit the blocked set. For the
//! same reason signals are handled that Polity itself may have been started without.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::{flag, low_level};

/// Signals that end the run.
const END_SIGNALS: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// Signals that are a reason to check: a child exited, or the parent may have.
const CHECK_SIGNALS: [i32; 2] = [SIGCHLD, SIGUSR1];

/// Signals that are handled only for the sake of the command. It would inherit an ignored signal;
/// exec restores the default action of a handled one. The standard library restores SIGPIPE.
const RESTORED_SIGNALS: [i32; 10] =
    [SIGALRM, SIGIO, SIGPROF, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ];

pub(super) struct SignalPipe {
    pipe: UnixStream,
    end: Arc<AtomicBool>,
}

impl SignalPipe {
    pub(super) fn listen() -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        for signal in END_SIGNALS {
            // The flag first: it must be set when the pipe wakes the reader.
            flag::register(signal, Arc::clone(&end))?;
            low_level::pipe::register(signal, write.try_clone()?)?;
        }
        for signal in CHECK_SIGNALS {
            low_level::pipe::register(signal, write.try_clone()?)?;
        }
        let unused = Arc::new(AtomicBool::new(false));
        for signal in RESTORED_SIGNALS {
            flag::register(signal, Arc::clone(&unused))?;
        }
        Ok(Self { pipe, end })
    }

    /// True if the shim was told to end the run.
    pub(super) fn should_end(&self) -> bool {
        self.end.load(Ordering::SeqCst)
    }

    /// Waits for a signal, or output in one of these pipes, until the deadline. Consumes the signal,
    /// so check everything afterwards.
    pub(super) fn wait_until(
        &self,
        deadline: Instant,
        pipes: &[BorrowedFd<'static>],
    ) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left =
            Timespec::try_from(left.min(Duration::from_hours(1))).map_err(io::Error::other)?;
        let mut events = vec![PollFd::new(&self.pipe, PollFlags::IN)];
        events.extend(pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        match rustix::event::poll(&mut events, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        loop {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(count) if count == bytes.len() => {}
                Ok(_) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
