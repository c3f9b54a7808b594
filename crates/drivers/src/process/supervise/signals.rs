//! The signals that the shim hears. They come as bytes on a pipe, so that it can wait for them and
//! for a time at once.
//!
//! No signal is blocked, because the program would inherit that; what is only heard, it does not.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level};

/// Signals that tell the shim to end the program.
const END: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// Signals that are a reason to look: a child has ended, or the parent may have.
const LOOK: [i32; 2] = [SIGCHLD, SIGUSR1];

/// Hears signals.
pub(super) struct Signals {
    pipe: UnixStream,
    end: Arc<AtomicBool>,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        for signal in END {
            // The flag first: who is woken must find it set.
            flag::register(signal, Arc::clone(&end))?;
            low_level::pipe::register(signal, write.try_clone()?)?;
        }
        for signal in LOOK {
            low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self { pipe, end })
    }

    /// Whether the shim was told to end the program.
    pub(super) fn is_told_to_end(&self) -> bool {
        self.end.load(Ordering::SeqCst)
    }

    /// Waits for a signal, but no longer than this. What came before is forgotten afterwards, so
    /// look at everything then.
    pub(super) fn wait_until(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left =
            Timespec::try_from(left.min(Duration::from_hours(1))).map_err(io::Error::other)?;
        let mut heard = [PollFd::new(&self.pipe, PollFlags::IN)];
        match rustix::event::poll(&mut heard, Some(&left)) {
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
