//! The outbox of a webhook: the file with its progress.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_files::{FileAccess, create_private_folders, read_regular_file, write_bytes};
use polity_model::event::JournalPosition;
use serde::{Deserialize, Serialize};

/// The largest file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The most notifications that wait. Older ones make room.
pub(super) const PENDING_MAX: usize = 10_000;

/// The events after which the cursor is written, if none of them has a notification.
const EVENTS_PER_SAVE: u64 = 10_000;

/// The time for which a notification is repeated.
const REPEAT_HOURS: i64 = 24;

/// The delays before the first repetitions, in seconds. The last one is also that of all others.
const DELAYS: [u64; 9] = [1, 5, 30, 120, 600, 1800, 3600, 7200, 14_400];

/// A notification that is not delivered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingNotice {
    /// The position of its event.
    pub(super) position: JournalPosition,
    /// The failed attempts.
    pub(super) attempts: usize,
    /// The time at which it was found.
    since: Timestamp,
    /// The time of the next attempt.
    next: Timestamp,
}

/// The progress of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OutboxFile {
    /// The position up to which events have been looked at.
    cursor: JournalPosition,
    pending: Vec<PendingNotice>,
}

/// The outbox of a webhook.
#[derive(Debug)]
pub(super) struct Outbox {
    path: PathBuf,
    file: OutboxFile,
    /// The position up to which the file has looked at events.
    saved_cursor: JournalPosition,
    /// True if the notifications differ from those of the file.
    is_changed: bool,
}

impl Outbox {
    /// Reads an outbox. A new one begins at `newest`, the end of the journal.
    pub(super) fn open(path: PathBuf, newest: JournalPosition) -> io::Result<Self> {
        let new = OutboxFile { cursor: newest, pending: Vec::new() };
        let mut file = if path.try_exists()? {
            let bytes = read_regular_file(&path, FILE_BYTES_MAX).map_err(io::Error::from)?;
            serde_json::from_slice(&bytes)?
        } else {
            create_private_folders(path.parent().unwrap_or(Path::new(".")))?;
            write(&path, &new)?;
            new
        };
        // Another journal has taken the place of the one that the outbox knows.
        if file.cursor > newest {
            file = OutboxFile { cursor: newest, pending: Vec::new() };
            write(&path, &file)?;
        }
        Ok(Self { path, saved_cursor: file.cursor, file, is_changed: false })
    }

    /// The position up to which events have been looked at.
    pub(super) fn cursor(&self) -> JournalPosition {
        self.file.cursor
    }

    /// Moves the cursor, and adds a notification if the event has one. Returns the notification that
    /// makes room.
    pub(super) fn advance(
        &mut self,
        position: JournalPosition,
        is_wanted: bool,
        now: Timestamp,
    ) -> Option<PendingNotice> {
        self.file.cursor = position;
        if !is_wanted {
            return None;
        }
        self.is_changed = true;
        let is_full = self.file.pending.len() >= PENDING_MAX;
        let dropped = is_full.then(|| self.file.pending.remove(0));
        self.file.pending.push(PendingNotice { position, attempts: 0, since: now, next: now });
        dropped
    }

    /// The notification to send now. Those that failed less often come first.
    pub(super) fn due(&self, now: Timestamp) -> Option<PendingNotice> {
        let due = self.file.pending.iter().filter(|notice| notice.next <= now);
        due.min_by_key(|notice| (notice.attempts, notice.position)).copied()
    }

    /// The time of the next attempt.
    pub(super) fn next_attempt(&self) -> Option<Timestamp> {
        self.file.pending.iter().map(|notice| notice.next).min()
    }

    /// Removes a notification.
    pub(super) fn remove(&mut self, position: JournalPosition) {
        self.is_changed = true;
        self.file.pending.retain(|notice| notice.position != position);
    }

    /// Plans the next attempt after a failure; all others wait too if it is an outage. Returns false
    /// if the notification is given up.
    pub(super) fn postpone(
        &mut self,
        position: JournalPosition,
        is_outage: bool,
        now: Timestamp,
    ) -> bool {
        let Some(failed) = self.file.pending.iter_mut().find(|one| one.position == position) else {
            return false;
        };
        if now.duration_since(failed.since) >= SignedDuration::from_hours(REPEAT_HOURS) {
            self.remove(position);
            return false;
        }
        let delay = DELAYS.get(failed.attempts).or(DELAYS.last()).copied().unwrap_or(1);
        let next = now.saturating_add(Duration::from_secs(delay)).unwrap_or(Timestamp::MAX);
        self.is_changed = true;
        failed.attempts += 1;
        failed.next = next;
        if is_outage {
            for notice in &mut self.file.pending {
                notice.next = notice.next.max(next);
            }
        }
        true
    }

    /// Writes the outbox if its notifications have changed. Events without a notification are looked
    /// at again after a crash, so their positions are written only now and then.
    pub(super) fn save(&mut self) -> io::Result<()> {
        let skipped = self.file.cursor.0.saturating_sub(self.saved_cursor.0);
        if !self.is_changed && skipped < EVENTS_PER_SAVE {
            return Ok(());
        }
        write(&self.path, &self.file)?;
        self.saved_cursor = self.file.cursor;
        self.is_changed = false;
        Ok(())
    }
}

fn write(path: &Path, file: &OutboxFile) -> io::Result<()> {
    write_bytes(path, FileAccess::Private, &serde_json::to_vec(file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// An outbox in a folder of its own, with notifications at the positions 1 to `count`.
    fn outbox(count: u64) -> (tempfile::TempDir, Outbox) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhooks/one.json");
        let mut outbox = Outbox::open(path, JournalPosition(0)).unwrap();
        for position in 1..=count {
            assert_eq!(outbox.advance(JournalPosition(position), true, at(0)), None);
        }
        (folder, outbox)
    }

    #[test]
    fn progress_survives_a_restart() {
        let (folder, mut outbox) = outbox(2);
        outbox.remove(JournalPosition(1));
        assert!(outbox.postpone(JournalPosition(2), false, at(0)));
        outbox.save().unwrap();
        let again = Outbox::open(folder.path().join("webhooks/one.json"), JournalPosition(9));
        let again = again.unwrap();
        assert_eq!(again.file, outbox.file);
        assert_eq!((again.cursor(), again.next_attempt()), (JournalPosition(2), Some(at(1))));
    }

    #[test]
    fn delivered_notification_moves_the_saved_cursor() {
        let (folder, mut outbox) = outbox(1);
        outbox.remove(JournalPosition(1));
        outbox.save().unwrap();
        let again = Outbox::open(folder.path().join("webhooks/one.json"), JournalPosition(9));
        assert_eq!(again.unwrap().cursor(), JournalPosition(1));
    }

    #[test]
    fn outbox_of_another_journal_begins_at_its_end() {
        let (folder, mut outbox) = outbox(5);
        outbox.save().unwrap();
        let again = Outbox::open(folder.path().join("webhooks/one.json"), JournalPosition(2));
        assert_eq!(again.unwrap().file, OutboxFile { cursor: JournalPosition(2), pending: vec![] });
    }

    #[test]
    fn failed_notification_is_repeated_for_a_day() {
        let (_folder, mut outbox) = outbox(1);
        let mut now = at(0);
        let mut attempts = 0;
        while let Some(next) = outbox.next_attempt() {
            now = next;
            attempts += 1;
            outbox.postpone(JournalPosition(1), true, now);
        }
        assert_eq!(attempts, 15);
        assert!(now.duration_since(at(0)) >= SignedDuration::from_hours(REPEAT_HOURS));
    }

    #[test]
    fn refused_notification_does_not_hold_up_others_and_an_outage_does() {
        let (_folder, mut outbox) = outbox(2);
        outbox.postpone(JournalPosition(1), false, at(0));
        assert_eq!(outbox.due(at(0)).unwrap().position, JournalPosition(2));
        outbox.postpone(JournalPosition(2), true, at(0));
        assert_eq!(outbox.due(at(0)), None);
        assert_eq!(outbox.due(at(1)).unwrap().position, JournalPosition(1));
    }

    #[test]
    fn full_outbox_drops_the_oldest() {
        let (_folder, mut outbox) = outbox(PENDING_MAX as u64);
        let late = JournalPosition(PENDING_MAX as u64 + 1);
        assert_eq!(outbox.advance(late, true, at(0)).unwrap().position, JournalPosition(1));
        assert_eq!(outbox.file.pending.len(), PENDING_MAX);
    }
}
