//! The writer thread of this process, with group commit.
//!
//! Commits wait in a channel. The writer puts all waiting commits into one transaction, so they
//! share one disk sync, and answers each when it is durable. Meanwhile the next ones gather. A
//! commit is checked completely before its first write, so a refused one does not affect its batch.
//!
//! A single committer gains nothing from batching and loses two thread changes. It may therefore
//! write on its own thread while the writer is idle.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polity_model::event::{Event, JournalPosition, StreamId};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::busy_wait::{BusyWait, SQLITE_BUSY_TIMEOUT};
use super::connection::{explain, is_busy};
use super::rows::{StreamKey, micros};
use super::sealing_keys::{KeyId, SealedBatch, SealedRow, SealingKeys};
use super::tables;
use super::writer_cache::{StreamHead, WriterCache};
use crate::commit::{BlockingPermit, Commit, CommitError, CommitReceipt, CommitTicket};
use crate::commit_times::{CommitTimer, CommitTimes};
use crate::projection::{IllegalEvent, ProjectionChanges, TaskRow};
use crate::{StoreError, StoreFuture};

/// The maximum number of commits in a transaction, which bounds the wait of the first.
const BATCH_COMMITS_MAX: usize = 512;

type CommitAnswer = Result<CommitReceipt, CommitError>;

/// A commit with its events as JSON. The committing thread encodes them, which saves the writer's
/// time.
struct EncodedCommit {
    key: StreamKey,
    commit: Commit,
    /// The JSON of each event.
    bodies: Vec<String>,
}

impl EncodedCommit {
    fn new(commit: Commit) -> Result<Self, CommitError> {
        if commit.events.is_empty() {
            return Err(CommitError::Illegal { reason: "a commit needs an event".into() });
        }
        let body = |event: &Event| {
            serde_json::to_string(event).map_err(|error| CommitError::Illegal {
                reason: format!("{} cannot be written: {error}", event.label()),
            })
        };
        let bodies = commit.events.iter().map(body).collect::<Result<_, _>>()?;
        Ok(Self { key: StreamKey::of(&commit.stream), commit, bodies })
    }
}

/// Work with a transaction of its own.
type ExclusiveWork = Box<dyn FnOnce(&mut JournalWriter, &Path) + Send>;

/// A job of the writer thread.
enum WriterJob {
    /// Appends events, in a batch with other commits.
    Commit(Box<EncodedCommit>, oneshot::Sender<CommitAnswer>),
    /// Runs in a transaction of its own.
    Exclusive(ExclusiveWork),
}

/// The handle of the writer thread. Dropping it waits until all submitted jobs are done.
#[derive(Debug)]
pub(super) struct WriterThread {
    path: PathBuf,
    timer: Arc<CommitTimer>,
    journal: Arc<Mutex<JournalWriter>>,
    jobs: Option<mpsc::Sender<WriterJob>>,
    thread: Option<JoinHandle<()>>,
}

impl WriterThread {
    pub(super) fn start(connection: Connection, path: PathBuf) -> Result<Self, StoreError> {
        let (jobs, incoming) = mpsc::channel();
        let (cache, keys) = (WriterCache::default(), SealingKeys::beside(&path));
        let timer = Arc::new(CommitTimer::default());
        let writer = JournalWriter { connection, cache, keys, timer: Arc::clone(&timer) };
        let journal = Arc::new(Mutex::new(writer));
        let (theirs, at) = (Arc::clone(&journal), path.clone());
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || run(&theirs, &at, &incoming))
            .map_err(|error| StoreError::Failed {
                path: path.clone(),
                detail: format!("its writer cannot be started: {error}"),
            })?;
        Ok(Self { path, timer, journal, jobs: Some(jobs), thread: Some(thread) })
    }

    pub(super) fn commit_times(&self) -> CommitTimes {
        self.timer.times()
    }

    pub(super) fn submit(&self, commit: Commit) -> CommitTicket {
        match EncodedCommit::new(commit) {
            Ok(request) => self.send(request),
            Err(refused) => CommitTicket::answered(Err(refused)),
        }
    }

    /// Writes a commit on this thread, unless the writer or another process is writing.
    pub(super) fn write_inline(&self, commit: Commit, _permit: BlockingPermit) -> CommitTicket {
        let request = match EncodedCommit::new(commit) {
            Ok(request) => request,
            Err(refused) => return CommitTicket::answered(Err(refused)),
        };
        if request.commit.sealed_input.is_some() {
            // An attempt that fails because another process writes would waste its key.
            return self.send(request);
        }
        let mut journal = match self.journal.try_lock() {
            Ok(journal) => journal,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.send(request),
        };
        let answer = journal.try_write(&request, &self.path);
        drop(journal);
        answer.map_or_else(|| self.send(request), CommitTicket::answered)
    }

    fn send(&self, request: EncodedCommit) -> CommitTicket {
        let (answer, ticket) = oneshot::channel();
        // A writer that has ended drops the request and the sender; the ticket reports that.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(WriterJob::Commit(Box::new(request), answer));
        }
        CommitTicket::waiting(ticket)
    }

    /// Runs work in a transaction of its own, which is rolled back if the work fails.
    pub(super) fn run_exclusive<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> StoreFuture<'static, T, E> {
        let (answer, ticket) = oneshot::channel();
        let job: ExclusiveWork = Box::new(move |journal, path| {
            // The caller may have stopped waiting.
            let _ = answer.send(journal.run_exclusive(path, work));
        });
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(WriterJob::Exclusive(job));
        }
        StoreFuture::pending(async { ticket.await.unwrap_or(Err(StoreError::Closed.into())) })
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(journal: &Mutex<JournalWriter>, path: &Path, incoming: &mpsc::Receiver<WriterJob>) {
    let (mut batch, mut waiting) = (Vec::new(), Vec::new());
    while let Ok(first) = incoming.recv() {
        let (mut next, mut exclusive) = (Some(first), None);
        while let Some(job) = next.take() {
            match job {
                WriterJob::Commit(request, answer) => {
                    batch.push(*request);
                    waiting.push(answer);
                    if batch.len() < BATCH_COMMITS_MAX {
                        next = incoming.try_recv().ok();
                    }
                }
                WriterJob::Exclusive(work) => exclusive = Some(work),
            }
        }
        // A panic under the lock leaves the database at its last commit.
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        for (answer, waiting) in
            journal.write_batch(&batch, path).into_iter().zip(waiting.drain(..))
        {
            // The caller may have stopped waiting.
            let _ = waiting.send(answer);
        }
        batch.clear();
        if let Some(work) = exclusive {
            work(&mut journal, path);
        }
    }
}

/// The error of a batch of which nothing was written.
enum BatchError {
    /// The transaction could not begin, regardless of its content.
    Begin(rusqlite::Error),
    /// A write in it failed, or its commit.
    Write(rusqlite::Error),
}

#[derive(Debug)]
struct JournalWriter {
    connection: Connection,
    cache: WriterCache,
    keys: SealingKeys,
    timer: Arc<CommitTimer>,
}

impl JournalWriter {
    /// Writes commits and answers each.
    fn write_batch(&mut self, batch: &[EncodedCommit], path: &Path) -> Vec<CommitAnswer> {
        if batch.is_empty() {
            return Vec::new();
        }
        match self.write(batch, Some(path)) {
            Ok(answers) => answers,
            // One commit may have caused the failure: write each alone.
            Err(BatchError::Write(_)) if batch.len() > 1 => {
                batch.iter().map(|request| self.write_one(request, path)).collect()
            }
            Err(BatchError::Begin(error) | BatchError::Write(error)) => {
                let error = explain(path, &error);
                batch.iter().map(|_| Err(error.clone().into())).collect()
            }
        }
    }

    /// Writes a commit unless another process is writing.
    fn try_write(&mut self, request: &EncodedCommit, path: &Path) -> Option<CommitAnswer> {
        self.connection.busy_timeout(Duration::ZERO).ok()?;
        let written = self.write(std::slice::from_ref(request), None);
        let restored = self.connection.busy_timeout(SQLITE_BUSY_TIMEOUT);
        match (written, restored) {
            (Err(BatchError::Begin(error)), Ok(())) if is_busy(&error) => None,
            (written, Ok(())) => Some(single_answer(written, path)),
            (_, Err(error)) => Some(Err(explain(path, &error).into())),
        }
    }

    fn run_exclusive<T, E: From<StoreError>>(
        &mut self,
        path: &Path,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let Self { connection, cache, .. } = self;
        let transaction = begin(connection, Some(path)).map_err(|error| explain(path, &error))?;
        let answer = work(&transaction);
        // The work may have changed any stream.
        cache.clear();
        let ended = if answer.is_ok() { transaction.commit() } else { transaction.rollback() };
        ended.map_err(|error| explain(path, &error))?;
        answer
    }

    fn write_one(&mut self, request: &EncodedCommit, path: &Path) -> CommitAnswer {
        single_answer(self.write(std::slice::from_ref(request), Some(path)), path)
    }

    /// Writes a batch in one transaction, and measures it. An error means that nothing of it was
    /// written. Waits for the processes that write to this path, if one is given.
    fn write(
        &mut self,
        batch: &[EncodedCommit],
        path: Option<&Path>,
    ) -> Result<Vec<CommitAnswer>, BatchError> {
        let began = Instant::now();
        let answers = self.write_transaction(batch, path)?;
        let committed = answers.iter().filter(|answer| answer.is_ok()).count();
        self.timer.record(committed, began.elapsed());
        Ok(answers)
    }

    fn write_transaction(
        &mut self,
        batch: &[EncodedCommit],
        path: Option<&Path>,
    ) -> Result<Vec<CommitAnswer>, BatchError> {
        let inputs = batch.iter().enumerate().filter_map(|(index, request)| {
            let Commit { stream: StreamId::Task(task), sealed_input, .. } = &request.commit else {
                return None;
            };
            sealed_input.as_deref().map(|text| (index, *task, text))
        });
        let sealed = self.keys.seal_all(inputs);
        let mut ended = Vec::new();
        let answers = self.write_sealed(batch, path, &sealed, &mut ended);
        let is_written = |index: usize| {
            answers.as_ref().is_ok_and(|answers| answers.get(index).is_some_and(Result::is_ok))
        };
        // The keys of inputs that were not committed, and of tasks that have ended. If one cannot be
        // destroyed, the next writer that opens the database tries again and reports the error.
        let unused = sealed.keys().filter(|(index, _)| !is_written(*index)).map(|(_, key)| key);
        for key in ended.into_iter().chain(unused) {
            let _ = self.keys.destroy(key);
        }
        answers
    }

    fn write_sealed(
        &mut self,
        batch: &[EncodedCommit],
        path: Option<&Path>,
        sealed: &SealedBatch,
        ended: &mut Vec<KeyId>,
    ) -> Result<Vec<CommitAnswer>, BatchError> {
        use BatchError::{Begin, Write};
        let Self { connection, cache, .. } = self;
        let transaction = begin(connection, path).map_err(Begin)?;
        cache.clear_if_others_wrote(&transaction).map_err(Begin)?;
        let answers = match append_all(&transaction, cache, batch, sealed, ended) {
            Ok(answers) => answers,
            Err(error) => {
                cache.clear();
                ended.clear();
                return Err(Write(error));
            }
        };
        if answers.iter().any(Result::is_ok) {
            // A rolled back transaction invalidates the cache.
            transaction
                .commit()
                .inspect_err(|_| {
                    cache.clear();
                    ended.clear();
                })
                .map_err(Write)?;
        } else {
            transaction.rollback().map_err(Write)?;
        }
        Ok(answers)
    }
}

/// Begins a write transaction. Waits for the processes that write to this path, if one is given.
fn begin<'a>(connection: &'a Connection, path: Option<&Path>) -> rusqlite::Result<Transaction<'a>> {
    let attempt = || Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
    match path {
        Some(path) => BusyWait::retry(path, is_busy, attempt),
        None => attempt(),
    }
}

/// The answer to a batch of one commit.
fn single_answer(written: Result<Vec<CommitAnswer>, BatchError>, path: &Path) -> CommitAnswer {
    match written.map(|mut answers| answers.pop()) {
        Ok(Some(answer)) => answer,
        Ok(None) => Err(StoreError::Closed.into()),
        Err(BatchError::Begin(error) | BatchError::Write(error)) => {
            Err(explain(path, &error).into())
        }
    }
}

fn append_all(
    connection: &Connection,
    cache: &mut WriterCache,
    batch: &[EncodedCommit],
    sealed: &SealedBatch,
    ended: &mut Vec<KeyId>,
) -> rusqlite::Result<Vec<CommitAnswer>> {
    let mut next = tables::next_position(connection)?;
    let mut answers = Vec::with_capacity(batch.len());
    for (index, request) in batch.iter().enumerate() {
        let sealed = match sealed.row(index) {
            None => None,
            Some(Ok(row)) => Some(row),
            Some(Err(error)) => {
                answers.push(Err(error.clone().into()));
                continue;
            }
        };
        match append(connection, cache, request, sealed, next) {
            Ok((committed, key)) => {
                ended.extend(key);
                next = committed.first_position.plus(request.bodies.len());
                answers.push(Ok(committed));
            }
            Err(AppendError::Refused(error)) => answers.push(Err(error)),
            Err(AppendError::Failed(error)) => return Err(error),
        }
    }
    Ok(answers)
}

/// The error of one commit of a batch.
enum AppendError {
    /// The commit is refused alone. Nothing of it was written.
    Refused(CommitError),
    /// The database failed, so the whole batch fails.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for AppendError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<IllegalEvent> for AppendError {
    fn from(refused: IllegalEvent) -> Self {
        Self::Refused(CommitError::Illegal { reason: refused.0 })
    }
}

/// Checks a commit completely before its first write. Returns the key of an ended task's input too.
fn append(
    connection: &Connection,
    cache: &mut WriterCache,
    EncodedCommit { key, commit, bodies }: &EncodedCommit,
    sealed: Option<&SealedRow>,
    first_position: JournalPosition,
) -> Result<(CommitReceipt, Option<KeyId>), AppendError> {
    let head = cache.take_head(connection, &commit.stream, key)?;
    let (expected, actual) = (commit.expected_sequence, head.sequence);
    if actual != expected {
        cache.put_head(&commit.stream, head);
        return Err(AppendError::Refused(CommitError::Conflict { expected, actual }));
    }
    let mut changes = ProjectionChanges::new(head.row.clone());
    for (index, event) in commit.events.iter().enumerate() {
        let position = first_position.plus(index);
        // An unreadable row is a failure of the database, not of the commit.
        let mut failed = None;
        let load = |id| match &head.execution {
            Some(execution) if execution.id == id => Ok(Some(execution.clone())),
            Some(_) | None => tables::execution(connection, id)
                .map_err(|error| IllegalEvent(failed.insert(error).to_string())),
        };
        let applied = changes.apply(&commit.stream, position, commit.at, event, load);
        match (applied, failed) {
            (_, Some(error)) => return Err(AppendError::Failed(error)),
            (applied, None) => applied?,
        }
    }
    if let (None, Some(origin)) = (&head.row, changes.origin())
        && tables::task_row(connection, origin)?.is_none()
    {
        return Err(TaskRow::orphaned(origin).into());
    }
    if let (Some(expected), Some(row)) = (commit.owner_epoch, &changes.row) {
        let actual = row.epoch;
        if actual != expected {
            return Err(AppendError::Refused(CommitError::Fenced { expected, actual }));
        }
    }
    let last_sequence = expected.plus(bodies.len());
    let stream_start = head.first_position.unwrap_or(first_position);
    if head.first_position.is_none() {
        tables::insert_stream(connection, stream_start, key)?;
    }
    let at = micros(commit.at);
    for (index, body) in bodies.iter().enumerate() {
        let (position, sequence) = (first_position.plus(index).0, expected.plus(index + 1).0);
        tables::insert_event(connection, params![position, stream_start.0, sequence, at, body])?;
    }
    if let Some(row) = sealed {
        tables::insert_sealed_input(connection, stream_start, row)?;
    }
    let ended =
        tables::write_changes(connection, head.row.as_ref(), &changes, first_position, commit.at)?;
    for definition in &commit.definitions {
        if cache.insert_definition(&definition.digest) {
            tables::insert_definition(connection, definition)?;
        }
    }
    let execution = changes.executions.pop().or(head.execution);
    // An ended task gets no more commits.
    if !changes.row.as_ref().is_some_and(|row| row.status.is_final()) {
        let (first_position, row) = (Some(stream_start), changes.row);
        let head = StreamHead { first_position, sequence: last_sequence, row, execution };
        cache.put_head(&commit.stream, head);
    }
    Ok((CommitReceipt { first_position, last_sequence }, ended))
}
