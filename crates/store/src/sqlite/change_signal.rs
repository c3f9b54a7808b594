//! The signal of writes to a database by any process of this machine.

use std::io;
use std::path::Path;

/// Tells when the log of a database is written.
#[derive(Debug)]
pub(super) struct ChangeSignal {
    #[cfg(target_os = "linux")]
    events: tokio::net::unix::pipe::Receiver,
}

#[cfg(target_os = "linux")]
impl ChangeSignal {
    /// Watches the folder of a database. Returns `None` if the system has no more watches.
    pub(super) fn watch(database: &Path) -> Option<Self> {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let descriptor = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        // The log is created and deleted with the first and last connection, so the folder is
        // watched. Only few other files are in it.
        let writes = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        add_watch(&descriptor, database.parent()?, writes).ok()?;
        // Events are read like the bytes of a pipe.
        let events = tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(descriptor).ok()?;
        Some(Self { events })
    }

    /// Waits for the next write.
    pub(super) async fn changed(&self) -> io::Result<()> {
        loop {
            self.events.readable().await?;
            let mut bytes = [0; 4096];
            match self.events.try_read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The content of the events does not matter: the journal is read anyway. The
                // feed polls for a while now, so events that are left are read later.
                read => return read.map(|_| ()),
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl ChangeSignal {
    /// Returns `None`: the feed polls.
    pub(super) fn watch(_database: &Path) -> Option<Self> {
        None
    }

    /// Never called, because there is no signal.
    pub(super) async fn changed(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
