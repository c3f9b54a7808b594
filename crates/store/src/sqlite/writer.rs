//! The one writer of this process, with group commit.
//!
//! Commits wait in a channel. The writer takes all that are there into one transaction, so they
//! share one sync of the disk, and answers each when that is done. While the disk works, the next
//! ones gather. A commit is checked in full before any of it is written, so one that is refused
//! leaves its batch alone.
//!
//! Where no one else commits, there is nothing to gather, and to change threads only costs time. So a
//! caller may write a commit itself, if the writer rests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use polity_model::event::{Event, JournalPosition, OwnerEpoch, StreamId, StreamSequence};
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::known::{Head, Known};
use super::open::{BUSY_SECONDS_MAX, explain, is_busy};
use super::rows::{StreamKey, micros};
use super::tables;
use crate::StoreError;
use crate::commit::{Commit, CommitError, CommitTicket, Committed, PinnedDefinition};
use crate::projection::{Changes, Refused, TaskRow};

/// The most commits that share one transaction: it bounds how long the first of them waits.
const BATCH_COMMITS_MAX: usize = 512;

type Answer = Result<Committed, CommitError>;

/// A commit on its way to the disk. Events are turned into text by the thread that commits, so
/// that the writer's time is spent on writing.
struct Request {
    key: StreamKey,
    stream: StreamId,
    expected_sequence: StreamSequence,
    owner_epoch: Option<OwnerEpoch>,
    at: Timestamp,
    events: Vec<(Event, String)>,
    definitions: Vec<PinnedDefinition>,
    sealed_input: Option<String>,
}

impl Request {
    fn of(commit: Commit) -> Result<Self, CommitError> {
        let Commit {
            stream,
            expected_sequence,
            owner_epoch,
            at,
            events,
            definitions,
            sealed_input,
        } = commit;
        if events.is_empty() {
            return Err(CommitError::Illegal { reason: "a commit needs an event".into() });
        }
        let encoded = |event: Event| match serde_json::to_string(&event) {
            Ok(text) => Ok((event, text)),
            Err(error) => {
                let reason = format!("{} cannot be written: {error}", event.label());
                Err(CommitError::Illegal { reason })
            }
        };
        Ok(Self {
            key: StreamKey::of(&stream),
            stream,
            expected_sequence,
            owner_epoch,
            at,
            events: events.into_iter().map(encoded).collect::<Result<_, _>>()?,
            definitions,
            sealed_input,
        })
    }
}

/// Something to be done in a transaction of its own.
type Alone = Box<dyn FnOnce(&mut Journal, &Path) + Send>;

/// What the writer is asked for.
enum Job {
    /// To append events, together with others who ask for that.
    Commit(Box<Request>, oneshot::Sender<Answer>),
    /// Anything else.
    Alone(Alone),
}

/// The handle of the writer thread. Dropping it waits until everything submitted is on disk.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    journal: Arc<Mutex<Journal>>,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, path: PathBuf) -> Result<Self, StoreError> {
        let (jobs, incoming) = mpsc::channel();
        let journal = Arc::new(Mutex::new(Journal { connection, known: Known::default() }));
        let (theirs, at) = (Arc::clone(&journal), path.clone());
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || run(&theirs, &at, &incoming))
            .map_err(|error| StoreError::Failed {
                path: path.clone(),
                detail: format!("its writer cannot be started: {error}"),
            })?;
        Ok(Self { path, journal, jobs: Some(jobs), thread: Some(thread) })
    }

    pub(super) fn submit(&self, commit: Commit) -> CommitTicket {
        match Request::of(commit) {
            Ok(request) => self.send(request),
            Err(refused) => CommitTicket::answered(Err(refused)),
        }
    }

    /// Writes a commit in this thread, unless the writer is at work or another process is.
    pub(super) fn write_here(&self, commit: Commit) -> CommitTicket {
        let request = match Request::of(commit) {
            Ok(request) => request,
            Err(refused) => return CommitTicket::answered(Err(refused)),
        };
        let mut journal = match self.journal.try_lock() {
            Ok(journal) => journal,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.send(request),
        };
        let answer = journal.write_at_once(&request, &self.path);
        drop(journal);
        answer.map_or_else(|| self.send(request), CommitTicket::answered)
    }

    fn send(&self, request: Request) -> CommitTicket {
        let (answer, ticket) = oneshot::channel();
        // A writer that is gone drops the request, and with it the answer: the ticket says so.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Job::Commit(Box::new(request), answer));
        }
        CommitTicket::waiting(ticket)
    }

    /// Does something else in a transaction of its own, which is undone where that fails. Blocks
    /// until all is durable.
    pub(super) fn alone<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<Result<T, E>, StoreError> {
        let (answer, ticket) = mpsc::sync_channel(1);
        let job: Alone = Box::new(move |journal, path| {
            // A caller that no longer waits does not need its answer.
            let _ = answer.send(journal.alone(path, work));
        });
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Job::Alone(job));
        }
        ticket.recv().unwrap_or(Err(StoreError::Closed))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was reported when it happened; there is no one left to tell.
            let _ = thread.join();
        }
    }
}

fn run(journal: &Mutex<Journal>, path: &Path, incoming: &mpsc::Receiver<Job>) {
    let (mut batch, mut waiting) = (Vec::new(), Vec::new());
    while let Ok(first) = incoming.recv() {
        let (mut next, mut alone) = (Some(first), None);
        while let Some(job) = next.take() {
            match job {
                Job::Commit(request, answer) => {
                    batch.push(*request);
                    waiting.push(answer);
                    if batch.len() < BATCH_COMMITS_MAX {
                        next = incoming.try_recv().ok();
                    }
                }
                Job::Alone(work) => alone = Some(work),
            }
        }
        // Whatever went wrong under the lock, the database is as it was after the last commit.
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        for (answer, waiting) in
            journal.write_batch(&batch, path).into_iter().zip(waiting.drain(..))
        {
            // A caller that no longer waits does not need its answer.
            let _ = waiting.send(answer);
        }
        batch.clear();
        if let Some(work) = alone {
            work(&mut journal, path);
        }
    }
}

/// Why nothing of a batch was written.
enum NotWritten {
    /// The transaction could not be begun, whatever is in it.
    AtTheBegin(rusqlite::Error),
    /// Something in it could not be written, or all of it together.
    InTheMidst(rusqlite::Error),
}

#[derive(Debug)]
struct Journal {
    connection: Connection,
    known: Known,
}

impl Journal {
    /// Writes commits, and gives an answer to each.
    fn write_batch(&mut self, batch: &[Request], path: &Path) -> Vec<Answer> {
        if batch.is_empty() {
            return Vec::new();
        }
        match self.write(batch) {
            Ok(answers) => answers,
            // One commit may be to blame, and the others must not suffer for it.
            Err(NotWritten::InTheMidst(_)) if batch.len() > 1 => {
                batch.iter().map(|request| self.write_one(request, path)).collect()
            }
            Err(NotWritten::AtTheBegin(error) | NotWritten::InTheMidst(error)) => {
                let error = explain(path, &error);
                batch.iter().map(|_| Err(error.clone().into())).collect()
            }
        }
    }

    /// Writes a commit if that can be begun at once; else someone else is writing.
    fn write_at_once(&mut self, request: &Request, path: &Path) -> Option<Answer> {
        self.connection.busy_timeout(Duration::ZERO).ok()?;
        let written = self.write(std::slice::from_ref(request));
        let patience = Duration::from_secs(BUSY_SECONDS_MAX);
        let restored = self.connection.busy_timeout(patience);
        match (written, restored) {
            (Err(NotWritten::AtTheBegin(error)), Ok(())) if is_busy(&error) => None,
            (written, Ok(())) => Some(only(written, path)),
            (_, Err(error)) => Some(Err(explain(path, &error).into())),
        }
    }

    fn alone<T, E>(
        &mut self,
        path: &Path,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<Result<T, E>, StoreError> {
        let Self { connection, known } = self;
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| explain(path, &error))?;
        let answer = work(&transaction);
        // What was known of the streams may not be so any more.
        known.forget();
        let ended = if answer.is_ok() { transaction.commit() } else { transaction.rollback() };
        ended.map_err(|error| explain(path, &error))?;
        Ok(answer)
    }

    fn write_one(&mut self, request: &Request, path: &Path) -> Answer {
        only(self.write(std::slice::from_ref(request)), path)
    }

    /// Writes a batch in one transaction. An error means that nothing of it was written.
    fn write(&mut self, batch: &[Request]) -> Result<Vec<Answer>, NotWritten> {
        use NotWritten::{AtTheBegin, InTheMidst};
        let Self { connection, known } = self;
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(AtTheBegin)?;
        known.forget_if_others_wrote(&transaction).map_err(AtTheBegin)?;
        let answers = match append_all(&transaction, known, batch) {
            Ok(answers) => answers,
            Err(error) => {
                known.forget();
                return Err(InTheMidst(error));
            }
        };
        if answers.iter().any(Result::is_ok) {
            // What was known of the rolled back transaction is not so.
            transaction.commit().inspect_err(|_| known.forget()).map_err(InTheMidst)?;
        } else {
            transaction.rollback().map_err(InTheMidst)?;
        }
        Ok(answers)
    }
}

/// The answer to a batch of one.
fn only(written: Result<Vec<Answer>, NotWritten>, path: &Path) -> Answer {
    match written.map(|mut answers| answers.pop()) {
        Ok(Some(answer)) => answer,
        Ok(None) => Err(StoreError::Closed.into()),
        Err(NotWritten::AtTheBegin(error) | NotWritten::InTheMidst(error)) => {
            Err(explain(path, &error).into())
        }
    }
}

fn append_all(
    connection: &Connection,
    known: &mut Known,
    batch: &[Request],
) -> rusqlite::Result<Vec<Answer>> {
    let mut next = tables::next_position(connection)?;
    let mut answers = Vec::with_capacity(batch.len());
    for request in batch {
        match append(connection, known, request, next) {
            Ok(committed) => {
                next = committed.first_position.plus(request.events.len());
                answers.push(Ok(committed));
            }
            Err(Stop::Refused(error)) => answers.push(Err(error)),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    Ok(answers)
}

/// Why a commit ends early.
enum Stop {
    /// It alone. Nothing of it was written yet.
    Refused(CommitError),
    /// The database failed, and the whole batch with it.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(CommitError::Illegal { reason: refused.0 })
    }
}

/// Checks a commit in full, and only then writes it: one that is refused leaves no trace.
fn append(
    connection: &Connection,
    known: &mut Known,
    request: &Request,
    first_position: JournalPosition,
) -> Result<Committed, Stop> {
    let head = known.head(connection, &request.stream, &request.key)?;
    let (expected, actual) = (request.expected_sequence, head.sequence);
    if actual != expected {
        known.put(&request.stream, head);
        return Err(Stop::Refused(CommitError::Conflict { expected, actual }));
    }
    let mut changes = Changes::of(head.row.clone());
    for (index, (event, _)) in request.events.iter().enumerate() {
        let position = first_position.plus(index);
        // A row that cannot be read is the database's failure and not the commit's.
        let mut failed = None;
        let applied = changes.apply(&request.stream, position, request.at, event, |id| match &head
            .execution
        {
            Some(execution) if execution.id == id => Ok(Some(execution.clone())),
            Some(_) | None => tables::execution(connection, id)
                .map_err(|error| Refused(failed.insert(error).to_string())),
        });
        match (applied, failed) {
            (_, Some(error)) => return Err(Stop::Failed(error)),
            (applied, None) => applied?,
        }
    }
    if let (None, Some(origin)) = (&head.row, changes.origin())
        && tables::task_row(connection, origin)?.is_none()
    {
        return Err(TaskRow::orphaned(origin).into());
    }
    if let (Some(expected), Some(row)) = (request.owner_epoch, &changes.row) {
        let actual = row.epoch;
        if actual != expected {
            return Err(Stop::Refused(CommitError::Fenced { expected, actual }));
        }
    }
    let last_sequence = expected.plus(request.events.len());
    let begins = head.begins.unwrap_or(first_position);
    if head.begins.is_none() {
        tables::insert_stream(connection, begins, &request.key)?;
    }
    for (index, (_, text)) in request.events.iter().enumerate() {
        let (position, sequence) = (first_position.plus(index).0, expected.plus(index + 1).0);
        let at = micros(request.at);
        tables::insert_event(connection, params![position, begins.0, sequence, at, text])?;
    }
    tables::keep(connection, head.row.as_ref(), &changes, first_position, request.at)?;
    for definition in &request.definitions {
        if known.is_new(&definition.digest) {
            tables::keep_definition(connection, definition)?;
        }
    }
    if let Some(text) = &request.sealed_input {
        tables::keep_private(connection, begins, text)?;
    }
    let execution = changes.executions.pop().or(head.execution);
    // A task that has ended is not written to again.
    if !changes.row.as_ref().is_some_and(|row| row.status.is_final()) {
        let (begins, sequence) = (Some(begins), last_sequence);
        known.put(&request.stream, Head { begins, sequence, row: changes.row, execution });
    }
    Ok(Committed { first_position, last_sequence })
}
