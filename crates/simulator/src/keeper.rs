//! Small checkpoints are made durable while the simulation goes on.
//!
//! To wait for the disk after every turn would be most of a small simulation's time. The disk takes
//! several files at once nearly as fast as one, so several threads wait for it, each for a file of
//! its own. Files get their names in the order of turns, so that there is never a gap.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
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

#[derive(Debug, Default)]
struct Desk {
    state: Mutex<DeskState>,
    changed: Condvar,
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
    closed: bool,
}

#[derive(Debug)]
struct Job {
    number: u64,
    path: PathBuf,
    text: Vec<u8>,
}

impl Keeper {
    /// Takes a file to write. What went wrong with an earlier one is told here.
    pub(crate) fn keep(&mut self, path: PathBuf, text: Vec<u8>) -> Result<(), SimError> {
        if self.threads.len() < THREADS {
            let desk = Arc::clone(&self.desk);
            let thread = std::thread::Builder::new().name("keeper".to_owned());
            match thread.spawn(move || desk.work()) {
                Ok(thread) => self.threads.push(thread),
                // Fewer do as well.
                Err(_) if !self.threads.is_empty() => {}
                Err(error) => return Err(SimError::io("write", &path)(error)),
            }
        }
        let room =
            |state: &mut DeskState| state.bytes > 0 && state.bytes + text.len() > WAITING_BYTES_MAX;
        let state = self.desk.lock();
        let mut state =
            self.desk.changed.wait_while(state, room).unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let number = state.given;
        state.given += 1;
        state.bytes += text.len();
        state.waiting.push_back(Job { number, path, text });
        self.desk.changed.notify_all();
        Ok(())
    }

    /// Waits until all files are written.
    pub(crate) fn settle(&mut self) -> Result<(), SimError> {
        let state = self.desk.lock();
        let at_work = |state: &mut DeskState| state.done < state.given;
        let mut state =
            self.desk.changed.wait_while(state, at_work).unwrap_or_else(PoisonError::into_inner);
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

    /// Writes files until there are no more to come.
    fn work(&self) {
        while let Some(Job { number, path, text }) = self.next() {
            let aside = files::write_aside(&path, |file| {
                file.write_all(&text).map_err(SimError::io("write", &path))
            });
            let others = |state: &mut DeskState| state.named < number;
            let state = self.lock();
            let mut state =
                self.changed.wait_while(state, others).unwrap_or_else(PoisonError::into_inner);
            let named = aside.and_then(|()| files::give_name(&path));
            state.named += 1;
            drop(state);
            self.changed.notify_all();
            let kept = named.and_then(|()| files::keep_name(&path));
            let mut state = self.lock();
            state.done += 1;
            state.bytes -= text.len();
            if let (Err(error), None) = (kept, &state.failure) {
                state.failure = Some(error);
            }
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Job> {
        let state = self.lock();
        let idle = |state: &mut DeskState| state.waiting.is_empty() && !state.closed;
        let mut state =
            self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.waiting.pop_front()
    }
}
