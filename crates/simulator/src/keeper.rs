//! Small checkpoints are made durable while the simulation goes on.
//!
//! To wait for the disk after every turn would be most of a small simulation's time. The disk takes
//! several files at once nearly as fast as one, so several threads wait for it, each for a file of
//! its own. Files get their names in the order of turns, so that there is never a gap; and what is
//! not needed any more is removed when the file that takes its place is durable.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::SimError;
use crate::files;

/// How many files are waited for at once.
const THREADS: usize = 8;

/// How many bytes may wait to be written, unless it is one file alone.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Writes files in the background.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

/// How a file is written under a name that no one looks at.
type WriteAside = fn(&Path, &[u8]) -> Result<(), SimError>;

#[derive(Debug)]
struct Desk {
    write_aside: WriteAside,
    state: Mutex<DeskState>,
    changed: Condvar,
}

impl Default for Desk {
    fn default() -> Self {
        Self { write_aside, state: Mutex::default(), changed: Condvar::default() }
    }
}

#[derive(Debug, Default)]
struct DeskState {
    waiting: VecDeque<Job>,
    /// Of those that wait and those that are being written.
    bytes: usize,
    /// How many files there have been.
    given: u64,
    /// How many of them have their names.
    named: u64,
    /// How many of them are done with.
    done: u64,
    failure: Option<SimError>,
    /// Whether a thread was lost, so that what waits may never be done.
    lost: bool,
    closed: bool,
}

/// A file to write.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    pub(crate) text: Vec<u8>,
    /// Files that are not needed any more when this one is durable.
    pub(crate) remove: Vec<PathBuf>,
}

impl Keeper {
    /// Takes a file to write. What went wrong with an earlier one is told here.
    pub(crate) fn keep(&mut self, job: Job) -> Result<(), SimError> {
        if self.threads.len() < THREADS {
            let desk = Arc::clone(&self.desk);
            let thread = std::thread::Builder::new().name("keeper".to_owned());
            match thread.spawn(move || desk.work()) {
                Ok(thread) => self.threads.push(thread),
                // Fewer do as well.
                Err(_) if !self.threads.is_empty() => {}
                Err(error) => return Err(SimError::io("write", &job.path)(error)),
            }
        }
        let size = job.text.len();
        let full = |state: &mut DeskState| {
            state.bytes > 0 && state.bytes + size > WAITING_BYTES_MAX && !state.lost
        };
        let mut state = self.desk.wait_while(full);
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.given += 1;
        state.bytes += size;
        state.waiting.push_back(job);
        self.desk.changed.notify_all();
        Ok(())
    }

    /// Waits until all files are written.
    pub(crate) fn settle(&mut self) -> Result<(), SimError> {
        let at_work = |state: &mut DeskState| state.done < state.given && !state.lost;
        let mut state = self.desk.wait_while(at_work);
        state.failure.take().map_or(Ok(()), Err)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.desk.lock().closed = true;
        self.desk.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has nothing more to write.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, so: impl FnMut(&mut DeskState) -> bool) -> MutexGuard<'_, DeskState> {
        let state = self.lock();
        self.changed.wait_while(state, so).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes files until there are no more to come.
    fn work(&self) {
        while let Some((number, job)) = self.next() {
            let mut ticket =
                Ticket { desk: self, number, bytes: job.text.len(), path: &job.path, kept: None };
            let aside = (self.write_aside)(&job.path, &job.text);
            let named = ticket.give_name(aside);
            let kept = named.and_then(|()| files::keep_name(&job.path));
            ticket.kept = Some(kept.and_then(|()| files::remove_all(&job.remove)));
        }
    }

    /// The next file and its number.
    fn next(&self) -> Option<(u64, Job)> {
        let mut state = self.wait_while(|state| state.waiting.is_empty() && !state.closed);
        let number = state.given - state.waiting.len() as u64;
        state.waiting.pop_front().map(|job| (number, job))
    }
}

/// The duty to say what became of a file. It is kept even by a thread that panics: whoever waits
/// for the file, or to come after it, must not wait for ever.
struct Ticket<'d> {
    desk: &'d Desk,
    number: u64,
    bytes: usize,
    path: &'d Path,
    /// What became of it, when that is known.
    kept: Option<Result<(), SimError>>,
}

impl Ticket<'_> {
    /// Waits until all files before have their names, and gives this one its own.
    fn give_name(&self, aside: Result<(), SimError>) -> Result<(), SimError> {
        let mut state = self.desk.wait_while(|state| state.named < self.number);
        let named = aside.and_then(|()| files::give_name(self.path));
        state.named = self.number + 1;
        drop(state);
        self.desk.changed.notify_all();
        named
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.wait_while(|state| state.named < self.number);
        state.named = state.named.max(self.number + 1);
        state.done += 1;
        state.bytes -= self.bytes;
        state.lost |= self.kept.is_none();
        let kept = self.kept.take().unwrap_or_else(|| {
            let lost = io::Error::other("the thread that wrote it has panicked");
            Err(SimError::io("write", self.path)(lost))
        });
        if let (Err(error), None) = (kept, &state.failure) {
            state.failure = Some(error);
        }
        drop(state);
        self.desk.changed.notify_all();
    }
}

fn write_aside(path: &Path, text: &[u8]) -> Result<(), SimError> {
    files::write_aside(path, |file| file.write_all(text).map_err(SimError::io("write", path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(path: PathBuf) -> Job {
        Job { path, text: b"text".to_vec(), remove: Vec::new() }
    }

    #[test]
    fn a_file_is_removed_when_the_one_in_its_place_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, nowhere] = ["old", "new", "nowhere"].map(|name| folder.path().join(name));
        std::fs::write(&old, "old").unwrap();
        let mut keeper = Keeper::default();
        let failing = Job { remove: vec![old.clone()], ..job(nowhere.join("file")) };
        keeper.keep(failing).unwrap();
        assert!(keeper.settle().is_err());
        assert!(old.exists(), "what should take its place is not there");
        keeper.keep(Job { remove: vec![old.clone(), nowhere], ..job(new.clone()) }).unwrap();
        keeper.settle().unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn a_thread_that_panics_holds_nothing_up() {
        let folder = tempfile::tempdir().unwrap();
        let panics: WriteAside = |path, text| match path.file_stem() {
            Some(name) if name == "3" => panic!("on purpose"),
            Some(_) | None => write_aside(path, text),
        };
        let desk = Desk { write_aside: panics, ..Desk::default() };
        let mut keeper = Keeper { desk: Arc::new(desk), threads: Vec::new() };
        let told = (0..20)
            .try_for_each(|number| keeper.keep(job(folder.path().join(format!("{number}.json")))));
        let told = told.and_then(|()| keeper.settle()).unwrap_err().to_string();
        assert!(told.contains("3.json: the thread that wrote it has panicked"), "{told}");
        drop(keeper);
        assert!(folder.path().join("2.json").exists());
        assert!(!folder.path().join("3.json").exists());
    }
}
