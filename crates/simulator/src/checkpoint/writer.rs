//! Writes small checkpoints in the background.
//!
//! Waiting for the disk after every turn would dominate a small simulation. A disk syncs several
//! files nearly as fast as one, so several threads wait for it, one file each. Files are published
//! in the order of turns, so that there is never a gap. Obsolete files are removed once their
//! successor is durable.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::SimError;
use crate::folder::durable_files as files;

/// The number of files written at once.
const THREADS: usize = 8;

/// The maximum number of queued bytes, unless a single file is larger.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The background writer of checkpoints.
#[derive(Debug, Default)]
pub(crate) struct CheckpointWriter {
    queue: Arc<WriteQueue>,
    threads: Vec<JoinHandle<()>>,
}

/// Writes a file under a temporary name.
type WriteTemporary = fn(&Path, &[u8]) -> Result<(), SimError>;

#[derive(Debug)]
struct WriteQueue {
    write_temporary: WriteTemporary,
    state: Mutex<WriteQueueState>,
    changed: Condvar,
}

impl Default for WriteQueue {
    fn default() -> Self {
        Self { write_temporary, state: Mutex::default(), changed: Condvar::default() }
    }
}

#[derive(Debug, Default)]
struct WriteQueueState {
    waiting: VecDeque<WriteJob>,
    /// The bytes of queued and unfinished files.
    bytes: usize,
    /// The number of files queued so far.
    queued: u64,
    /// The number of files published so far.
    published: u64,
    /// The number of finished files.
    done: u64,
    failure: Option<SimError>,
    /// True if a thread panicked, so that queued files may never be written.
    lost: bool,
    closed: bool,
}

/// A file to write.
#[derive(Debug)]
pub(crate) struct WriteJob {
    pub(crate) path: PathBuf,
    pub(crate) text: Vec<u8>,
    /// Files to remove once this one is durable.
    pub(crate) remove: Vec<PathBuf>,
}

impl CheckpointWriter {
    /// Queues a file. Returns the error of an earlier file, if there is one.
    pub(crate) fn enqueue(&mut self, job: WriteJob) -> Result<(), SimError> {
        if self.threads.len() < THREADS {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new().name("writer".to_owned());
            match thread.spawn(move || queue.work()) {
                Ok(thread) => self.threads.push(thread),
                // Fewer threads are enough.
                Err(_) if !self.threads.is_empty() => {}
                Err(error) => return Err(SimError::io("write", &job.path)(error)),
            }
        }
        let size = job.text.len();
        let full = |state: &mut WriteQueueState| {
            state.bytes > 0 && state.bytes + size > WAITING_BYTES_MAX && !state.lost
        };
        let mut state = self.queue.wait_while(full);
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.queued += 1;
        state.bytes += size;
        state.waiting.push_back(job);
        self.queue.changed.notify_all();
        Ok(())
    }

    /// Waits until all files are written.
    pub(crate) fn flush(&mut self) -> Result<(), SimError> {
        let at_work = |state: &mut WriteQueueState| state.done < state.queued && !state.lost;
        let mut state = self.queue.wait_while(at_work);
        state.failure.take().map_or(Ok(()), Err)
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panicked thread has nothing left to write.
            let _ = thread.join();
        }
    }
}

impl WriteQueue {
    fn lock(&self) -> MutexGuard<'_, WriteQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(
        &self,
        condition: impl FnMut(&mut WriteQueueState) -> bool,
    ) -> MutexGuard<'_, WriteQueueState> {
        let state = self.lock();
        self.changed.wait_while(state, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes files until the queue is closed.
    fn work(&self) {
        while let Some((number, job)) = self.next() {
            let mut ticket = WriteTicket {
                queue: self,
                number,
                bytes: job.text.len(),
                path: &job.path,
                outcome: None,
            };
            let written = (self.write_temporary)(&job.path, &job.text);
            let published = ticket.publish(written);
            let outcome = published.and_then(|()| files::sync_name(&job.path));
            ticket.outcome = Some(outcome.and_then(|()| files::remove_all(&job.remove)));
        }
    }

    /// Returns the next file and its number.
    fn next(&self) -> Option<(u64, WriteJob)> {
        let mut state = self.wait_while(|state| state.waiting.is_empty() && !state.closed);
        let number = state.queued - state.waiting.len() as u64;
        state.waiting.pop_front().map(|job| (number, job))
    }
}

/// Reports the outcome of a file when dropped, even if its thread panics, so that nobody waits
/// forever.
struct WriteTicket<'d> {
    queue: &'d WriteQueue,
    number: u64,
    bytes: usize,
    path: &'d Path,
    /// The outcome, once known.
    outcome: Option<Result<(), SimError>>,
}

impl WriteTicket<'_> {
    /// Waits until all earlier files are published, then publishes this one.
    fn publish(&self, written: Result<(), SimError>) -> Result<(), SimError> {
        let mut state = self.queue.wait_while(|state| state.published < self.number);
        let published = written.and_then(|()| files::publish(self.path));
        state.published = self.number + 1;
        drop(state);
        self.queue.changed.notify_all();
        published
    }
}

impl Drop for WriteTicket<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.wait_while(|state| state.published < self.number);
        state.published = state.published.max(self.number + 1);
        state.done += 1;
        state.bytes -= self.bytes;
        state.lost |= self.outcome.is_none();
        let outcome = self.outcome.take().unwrap_or_else(|| {
            let lost = io::Error::other("the thread that wrote it has panicked");
            Err(SimError::io("write", self.path)(lost))
        });
        if let (Err(error), None) = (outcome, &state.failure) {
            state.failure = Some(error);
        }
        drop(state);
        self.queue.changed.notify_all();
    }
}

fn write_temporary(path: &Path, text: &[u8]) -> Result<(), SimError> {
    files::write_temporary(path, |file| file.write_all(text).map_err(SimError::io("write", path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(path: PathBuf) -> WriteJob {
        WriteJob { path, text: b"text".to_vec(), remove: Vec::new() }
    }

    #[test]
    fn removes_a_file_once_its_successor_is_durable() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, nowhere] = ["old", "new", "nowhere"].map(|name| folder.path().join(name));
        std::fs::write(&old, "old").unwrap();
        let mut writer = CheckpointWriter::default();
        let failing = WriteJob { remove: vec![old.clone()], ..job(nowhere.join("file")) };
        writer.enqueue(failing).unwrap();
        assert!(writer.flush().is_err());
        assert!(old.exists(), "what should take its place is not there");
        writer
            .enqueue(WriteJob { remove: vec![old.clone(), nowhere], ..job(new.clone()) })
            .unwrap();
        writer.flush().unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn panicked_thread_does_not_block_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let panics: WriteTemporary = |path, text| match path.file_stem() {
            Some(name) if name == "3" => panic!("on purpose"),
            Some(_) | None => write_temporary(path, text),
        };
        let queue = WriteQueue { write_temporary: panics, ..WriteQueue::default() };
        let mut writer = CheckpointWriter { queue: Arc::new(queue), threads: Vec::new() };
        let message = (0..20).try_for_each(|number| {
            writer.enqueue(job(folder.path().join(format!("{number}.json"))))
        });
        let message = message.and_then(|()| writer.flush()).unwrap_err().to_string();
        assert!(message.contains("3.json: the thread that wrote it has panicked"), "{message}");
        drop(writer);
        assert!(folder.path().join("2.json").exists());
        assert!(!folder.path().join("3.json").exists());
    }
}
