//! Read ends of the command's stdout and stderr, which keep its pipes alive when Polity dies.
//!
//! A program that writes while it ends would be killed by SIGPIPE otherwise. The shim reads nothing
//! while Polity lives. A read end does not prolong a pipe for Polity: a pipe ends with its writers.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The bytes that are read at once.
const CHUNK_BYTES: usize = 16 << 10;

/// The most reads of a pipe before signals and deadline are checked again.
const READS_MAX: usize = 16;

/// Read ends that are not in their place yet. A child does not inherit them.
pub(super) struct PipeReadEnds {
    stdout: File,
    stderr: File,
}

impl PipeReadEnds {
    /// Opens read ends of this process's stdout and stderr. Returns `None` without `/proc`: the
    /// command then runs as well, until Polity dies.
    pub(super) fn open() -> Option<Self> {
        let open = |path| {
            File::options()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                .open(path)
        };
        let (stdout, stderr) = (open("/proc/self/fd/1").ok()?, open("/proc/self/fd/2").ok()?);
        Some(Self { stdout, stderr })
    }

    /// Puts them in place of stdin and stdout, as the stub does.
    pub(super) fn keep(self) -> io::Result<()> {
        rustix::stdio::dup2_stdin(&self.stdout)?;
        rustix::stdio::dup2_stdout(&self.stderr)?;
        Ok(())
    }
}

/// Drains the read ends in place of stdin and stdout.
pub(super) struct OutputDrain {
    open: Vec<BorrowedFd<'static>>,
}

impl Default for OutputDrain {
    fn default() -> Self {
        Self { open: vec![rustix::stdio::stdin(), rustix::stdio::stdout()] }
    }
}

impl OutputDrain {
    /// The pipes that may still have output.
    pub(super) fn open_pipes(&self) -> &[BorrowedFd<'static>] {
        &self.open
    }

    /// Reads and discards what the pipes have.
    pub(super) fn discard(&mut self) {
        self.open.retain(|pipe| discard_available(*pipe));
    }
}

/// Discards the output of a pipe. Returns false if there will be no more.
fn discard_available(pipe: BorrowedFd<'_>) -> bool {
    let mut chunk = [0; CHUNK_BYTES];
    for _ in 0..READS_MAX {
        match rustix::io::read(pipe, &mut chunk) {
            // All writers have closed it.
            Ok(0) => return false,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            // Nothing can be read, so nothing is lost.
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn pipe_is_drained_until_its_writers_close_it() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let output = vec![b'x'; CHUNK_BYTES];
        for _ in 0..3 {
            assert_eq!(rustix::io::write(&write, &output), Ok(CHUNK_BYTES));
            assert!(discard_available(read.as_fd()));
            assert_eq!(rustix::io::read(&read, &mut [0; 1]), Err(Errno::AGAIN));
        }
        drop(write);
        assert!(!discard_available(read.as_fd()));
    }
}
