//! The store in memory: for tests, and the simplest statement of a store's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;
use polity_model::usage::Usage;

use tokio::sync::watch;

use crate::commit::{Commit, CommitError, CommitReceipt, CommitTicket, PinnedDefinition};
use crate::import::{ImportError, TaskImport};
use crate::projection::{
    CheckpointRow, ExecutionRow, ProjectionChanges, SpendingRow, TaskRow, TaskTree, day_of,
    into_message,
};
use crate::removal::{RemovalOutcome, removal_blocker};
use crate::store::missing_creation;
use crate::{ChangeFeed, EventHeader, ExecutionFilter, Store, StoreFuture, TaskFilter};

/// The time for which commits are gathered before they are delivered together.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// A journal that ends with its process.
#[derive(Debug)]
pub struct MemoryStore {
    tables: Arc<Mutex<MemoryTables>>,
    newest: watch::Sender<JournalPosition>,
}

/// Delivers commits as they are made.
struct MemoryChangeFeed {
    tables: Arc<Mutex<MemoryTables>>,
    newest: watch::Receiver<JournalPosition>,
    after: JournalPosition,
}

#[derive(Debug, Default)]
struct MemoryTables {
    /// The events by position.
    journal: BTreeMap<JournalPosition, RecordedEvent>,
    /// The newest position ever assigned.
    last: JournalPosition,
    streams: BTreeMap<StreamId, Vec<JournalPosition>>,
    tasks: BTreeMap<TaskId, TaskRow>,
    messages: BTreeMap<TaskId, BTreeMap<u32, JournalPosition>>,
    checkpoints: BTreeMap<TaskId, Vec<CheckpointRow>>,
    executions: BTreeMap<ExecutionId, AgentExecution>,
    /// Oldest first.
    executions_by_age: Vec<ExecutionId>,
    /// Removed when a task ends.
    sealed_inputs: BTreeMap<TaskId, String>,
    execution_order: BTreeMap<TaskId, Vec<ExecutionId>>,
    definitions: BTreeMap<Digest, String>,
    pins: BTreeMap<TaskId, Vec<Digest>>,
    spending: BTreeMap<(Date, Name), (u64, Usage)>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self { tables: Arc::default(), newest: watch::Sender::new(JournalPosition::default()) }
    }

    fn tables(&self) -> MutexGuard<'_, MemoryTables> {
        lock(&self.tables)
    }

    fn read<T>(&self, read: impl FnOnce(&MemoryTables) -> T) -> StoreFuture<'_, T> {
        StoreFuture::ready(Ok(read(&self.tables())))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// A panic elsewhere leaves the tables consistent: a commit changes them only after all checks.
fn lock(tables: &Mutex<MemoryTables>) -> MutexGuard<'_, MemoryTables> {
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ChangeFeed for MemoryChangeFeed {
    fn next(&mut self) -> StoreFuture<'_, Vec<EventHeader>> {
        StoreFuture::pending(async {
            // A closed store accepts no commits.
            if self.newest.wait_for(|newest| *newest > self.after).await.is_err() {
                return std::future::pending().await;
            }
            tokio::time::sleep(GATHER_TIME).await;
            let tables = lock(&self.tables);
            let headers = tables.headers_after(self.after, u32::MAX);
            self.after = tables.last;
            Ok(headers)
        })
    }
}

impl MemoryTables {
    fn commit(&mut self, commit: Commit) -> Result<CommitReceipt, CommitError> {
        let Commit { stream, expected_sequence, at, .. } = commit;
        if commit.events.is_empty() {
            return Err(CommitError::Illegal { reason: "a commit needs an event".into() });
        }
        let actual = StreamSequence(self.streams.get(&stream).map_or(0, |all| all.len() as u64));
        if actual != expected_sequence {
            return Err(CommitError::Conflict { expected: expected_sequence, actual });
        }
        let row = match &stream {
            StreamId::Task(id) => self.tasks.get(id).cloned(),
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => None,
        };
        let mut changes = ProjectionChanges::new(row);
        let first_position = self.last.plus(1);
        let mut recorded = Vec::with_capacity(commit.events.len());
        for (index, event) in commit.events.into_iter().enumerate() {
            let position = first_position.plus(index);
            let sequence = expected_sequence.plus(index + 1);
            changes
                .apply(&stream, position, at, &event, |id| Ok(self.executions.get(&id).cloned()))
                .map_err(|refused| CommitError::Illegal { reason: refused.0 })?;
            recorded.push(RecordedEvent { position, stream: stream.clone(), sequence, at, event });
        }
        if let Some(origin) = changes.origin()
            && !self.tasks.contains_key(&origin)
        {
            return Err(CommitError::Illegal { reason: TaskRow::orphaned(origin).0 });
        }
        if let (Some(expected), Some(row)) = (commit.owner_epoch, &changes.row) {
            let actual = row.epoch;
            if actual != expected {
                return Err(CommitError::Fenced { expected, actual });
            }
        }
        if let (StreamId::Task(task), Some(text)) = (&stream, commit.sealed_input) {
            self.sealed_inputs.insert(*task, text);
        }
        self.apply_changes(changes, at);
        let last_sequence = expected_sequence.plus(recorded.len());
        self.append(recorded, commit.definitions);
        Ok(CommitReceipt { first_position, last_sequence })
    }

    fn append(&mut self, recorded: Vec<RecordedEvent>, definitions: Vec<PinnedDefinition>) {
        for recorded in recorded {
            let position = recorded.position;
            self.streams.entry(recorded.stream.clone()).or_default().push(position);
            self.journal.insert(position, recorded);
            self.last = position;
        }
        for definition in definitions {
            self.definitions
                .entry(definition.digest)
                .or_insert_with(|| definition.json.to_string());
        }
    }

    fn import(&mut self, tasks: Vec<TaskImport>) -> Result<(), ImportError> {
        let mut next = self.last.plus(1);
        let mut checked = Vec::with_capacity(tasks.len());
        for import in tasks {
            if self.tasks.contains_key(&import.task) {
                return Err(ImportError::Exists { task: import.task });
            }
            let changes = import.changes(next, |id| Ok(self.executions.contains_key(&id)))?;
            if let Some(origin) = changes.origin()
                && !self.tasks.contains_key(&origin)
                && !checked.iter().any(|(other, _, _): &(TaskImport, _, _)| other.task == origin)
            {
                return Err(import.orphaned(origin));
            }
            let first = next;
            next = next.plus(import.events.len());
            checked.push((import, first, changes));
        }
        for (import, first, changes) in checked {
            let stream = StreamId::Task(import.task);
            let recorded = import.events.into_iter().enumerate().map(|(index, (at, event))| {
                let (position, sequence) = (first.plus(index), StreamSequence(index as u64 + 1));
                RecordedEvent { position, stream: stream.clone(), sequence, at, event }
            });
            let recorded: Vec<_> = recorded.collect();
            if let Some(at) = recorded.first().map(|first| first.at) {
                self.apply_changes(changes, at);
            }
            self.append(recorded, import.definitions);
        }
        Ok(())
    }

    fn remove(&mut self, unit: &[TaskId]) -> RemovalOutcome {
        let unit: BTreeSet<TaskId> = unit.iter().copied().collect();
        for row in unit.iter().filter_map(|task| self.tasks.get(task)) {
            let parent = row.parent_task_id.filter(|parent| self.tasks.contains_key(parent));
            let all = || self.tasks.values();
            let sub_tasks = all().filter(|sub| sub.parent_task_id == Some(row.id)).map(|r| r.id);
            let forks = all().filter(|fork| fork.forked_from == Some(row.id)).map(|r| r.id);
            if let Some(blocker) = removal_blocker(&unit, row, parent, sub_tasks, forks) {
                return RemovalOutcome::Refused { task: row.id, blocker };
            }
        }
        let (mut tasks, mut executions) = (Vec::new(), Vec::new());
        for task in unit {
            if self.tasks.remove(&task).is_none() {
                continue;
            }
            for position in self.streams.remove(&StreamId::Task(task)).unwrap_or_default() {
                self.journal.remove(&position);
            }
            self.pins.remove(&task);
            self.sealed_inputs.remove(&task);
            self.messages.remove(&task);
            self.checkpoints.remove(&task);
            let of_task = self.execution_order.remove(&task).unwrap_or_default();
            for id in &of_task {
                self.executions.remove(id);
            }
            self.executions_by_age.retain(|id| !of_task.contains(id));
            executions.extend(of_task);
            tasks.push(task);
        }
        let pinned: BTreeSet<&Digest> = self.pins.values().flatten().collect();
        self.definitions.retain(|digest, _| pinned.contains(digest));
        RemovalOutcome::Removed { tasks, executions }
    }

    fn apply_changes(&mut self, changes: ProjectionChanges, at: Timestamp) {
        let Some(row) = changes.row else { return };
        let task = row.id;
        let placed = changes.messages.iter().map(|message| (message.ordinal, message.position));
        self.messages.entry(task).or_default().extend(placed);
        for usage in changes.spent {
            let (calls, sum) =
                self.spending.entry((day_of(at), row.assigned_agent.clone())).or_default();
            *calls += 1;
            *sum += usage;
        }
        self.checkpoints.entry(task).or_default().extend(changes.checkpoints);
        self.pins.entry(task).or_default().extend(changes.pinned);
        for execution in changes.executions {
            if self.executions.insert(execution.id, execution.clone()).is_none() {
                self.execution_order.entry(task).or_default().push(execution.id);
                self.executions_by_age.push(execution.id);
            }
        }
        if row.status.is_final() {
            self.sealed_inputs.remove(&task);
        }
        self.tasks.insert(task, row);
    }

    fn task_tree(&self, task: TaskId) -> TaskTree {
        let Some(row) = self.tasks.get(&task) else { return TaskTree::default() };
        let mut sum = TaskTree { task_count: 1, item_task_count: 0, usage: row.usage };
        for row in self.tasks.values().filter(|row| row.parent_task_id == Some(task)) {
            let below = self.task_tree(row.id);
            sum.task_count += below.task_count;
            let is_item = row.map_item.is_some();
            sum.item_task_count += if is_item { below.task_count } else { below.item_task_count };
            sum.usage += below.usage;
        }
        sum
    }

    fn headers_after(&self, after: JournalPosition, limit: u32) -> Vec<EventHeader> {
        let header = |(_, e): (&JournalPosition, &RecordedEvent)| EventHeader {
            position: e.position,
            stream: e.stream.clone(),
            sequence: e.sequence,
        };
        let newer = (Bound::Excluded(after), Bound::Unbounded);
        self.journal.range(newer).take(limit as usize).map(header).collect()
    }

    fn task_rows(&self, filter: &TaskFilter) -> Vec<TaskRow> {
        let mut rows: Vec<_> = self
            .tasks
            .values()
            .filter(|row| filter.statuses.is_empty() || filter.statuses.contains(&row.status))
            .filter(|row| {
                filter
                    .assigned_agent
                    .as_ref()
                    .is_none_or(|name| row.assigned_agent.as_str() == name)
            })
            .filter(|row| filter.parent.is_none() || row.parent_task_id == filter.parent)
            .filter(|row| filter.forked_from.is_none() || row.forked_from == filter.forked_from)
            .filter(|row| filter.dedup_key.is_none() || row.dedup_key == filter.dedup_key)
            .filter(|row| filter.created_since.is_none_or(|since| row.created_at >= since))
            .filter(|row| filter.created_before.is_none_or(|at| row.created_position < at))
            .filter(|row| {
                let is_late = |now| row.review_deadline.is_some_and(|deadline| deadline <= now);
                filter.overdue_at.is_none_or(is_late)
            })
            .filter(|row| !filter.roots_only || row.parent_task_id.is_none())
            .filter(|row| !filter.sub_tasks_only || row.parent_task_id.is_some())
            .cloned()
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.created_position));
        rows.truncate(filter.limit.map_or(usize::MAX, |limit| limit as usize));
        rows
    }

    fn execution_rows(&self, filter: &ExecutionFilter) -> Vec<ExecutionRow> {
        let rows = self.executions_by_age.iter().rev().filter_map(|id| {
            let execution = self.executions.get(id)?;
            let task = self.tasks.get(&execution.task_id)?;
            let is_open = !execution.is_over() && !task.status.is_final();
            let is_match = (!filter.open_only || is_open)
                && filter.agent.as_ref().is_none_or(|agent| execution.agent.as_str() == agent)
                && filter.pool.as_ref().is_none_or(|pool| execution.pool.as_ref() == Some(pool));
            is_match.then(|| ExecutionRow { owner: task.owner, execution: execution.clone() })
        });
        rows.take(filter.limit.map_or(usize::MAX, |limit| limit as usize)).collect()
    }

    fn task(&self, row: &TaskRow) -> Option<Task> {
        let event = |position: Option<JournalPosition>| Some(self.at(position?)?.event.clone());
        let created = event(Some(row.created_position))?;
        let (result, failure) = (event(row.result_position), event(row.failure_position));
        row.with_texts(created, result, failure, self.task_tree(row.id).usage)
    }

    fn at(&self, position: JournalPosition) -> Option<&RecordedEvent> {
        self.journal.get(&position)
    }
}

impl Store for MemoryStore {
    fn commit(&self, commit: Commit) -> CommitTicket {
        let mut tables = self.tables();
        let answer = tables.commit(commit);
        // Under the lock, so that positions are announced in order.
        self.newest.send_replace(tables.last);
        CommitTicket::answered(answer)
    }

    fn changes(&self, after: JournalPosition) -> Box<dyn ChangeFeed> {
        let (tables, newest) = (Arc::clone(&self.tables), self.newest.subscribe());
        Box::new(MemoryChangeFeed { tables, newest, after })
    }

    fn import(&self, tasks: Vec<TaskImport>) -> StoreFuture<'_, (), ImportError> {
        let mut tables = self.tables();
        let imported = tables.import(tasks);
        self.newest.send_replace(tables.last);
        StoreFuture::ready(imported)
    }

    fn remove(&self, units: Vec<Vec<TaskId>>) -> StoreFuture<'_, Vec<RemovalOutcome>> {
        let mut tables = self.tables();
        StoreFuture::ready(Ok(units.iter().map(|unit| tables.remove(unit)).collect()))
    }

    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> StoreFuture<'_, Vec<RecordedEvent>> {
        self.read(|tables| {
            let positions = tables.streams.get(stream).map(Vec::as_slice).unwrap_or_default();
            let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
            positions.iter().skip(skip).filter_map(|p| tables.at(*p)).cloned().collect()
        })
    }

    fn newest_events(&self, stream: &StreamId, limit: u32) -> StoreFuture<'_, Vec<RecordedEvent>> {
        self.read(|tables| {
            let positions = tables.streams.get(stream).map(Vec::as_slice).unwrap_or_default();
            let newest = positions.iter().rev().take(limit as usize);
            newest.filter_map(|p| tables.at(*p)).cloned().collect()
        })
    }

    fn headers_after(
        &self,
        after: JournalPosition,
        limit: u32,
    ) -> StoreFuture<'_, Vec<EventHeader>> {
        self.read(|tables| tables.headers_after(after, limit))
    }

    fn events_after(
        &self,
        after: JournalPosition,
        limit: u32,
    ) -> StoreFuture<'_, Vec<RecordedEvent>> {
        let newer = (Bound::Excluded(after), Bound::Unbounded);
        self.read(|tables| {
            let events = tables.journal.range(newer).take(limit as usize);
            events.map(|(_, event)| event.clone()).collect()
        })
    }

    fn last_position(&self) -> StoreFuture<'_, JournalPosition> {
        self.read(|tables| tables.last)
    }

    fn task_row(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRow>> {
        self.read(|tables| tables.tasks.get(&id).cloned())
    }

    fn task_rows(&self, filter: &TaskFilter) -> StoreFuture<'_, Vec<TaskRow>> {
        self.read(|tables| tables.task_rows(filter))
    }

    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> StoreFuture<'_, Vec<TaskId>> {
        let starts = |id: &&TaskId| id.to_string().starts_with(prefix);
        self.read(|tables| {
            tables.tasks.keys().filter(starts).take(limit as usize).copied().collect()
        })
    }

    fn task(&self, row: &TaskRow) -> StoreFuture<'_, Task> {
        let task = self.tables().task(row);
        StoreFuture::ready(task.ok_or_else(|| missing_creation(row)))
    }

    fn task_tree(&self, task: TaskId) -> StoreFuture<'_, TaskTree> {
        self.read(|tables| tables.task_tree(task))
    }

    fn execution(&self, id: ExecutionId) -> StoreFuture<'_, Option<AgentExecution>> {
        self.read(|tables| tables.executions.get(&id).cloned())
    }

    fn execution_rows(&self, filter: &ExecutionFilter) -> StoreFuture<'_, Vec<ExecutionRow>> {
        self.read(|tables| tables.execution_rows(filter))
    }

    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ExecutionId>> {
        let starts = |id: &&ExecutionId| id.to_string().starts_with(prefix);
        self.read(|tables| {
            tables.executions.keys().filter(starts).take(limit as usize).copied().collect()
        })
    }

    fn sealed_input(&self, task: TaskId) -> StoreFuture<'_, Option<String>> {
        self.read(|tables| tables.sealed_inputs.get(&task).cloned())
    }

    fn executions(&self, task: TaskId) -> StoreFuture<'_, Vec<AgentExecution>> {
        self.read(|tables| {
            let ids = tables.execution_order.get(&task).map(Vec::as_slice).unwrap_or_default();
            ids.iter().filter_map(|id| tables.executions.get(id)).cloned().collect()
        })
    }

    fn messages(&self, task: TaskId) -> StoreFuture<'_, Vec<Message>> {
        self.read(|tables| {
            let positions = tables.messages.get(&task);
            positions
                .iter()
                .flat_map(|positions| positions.values())
                .filter_map(|position| tables.at(*position))
                .filter_map(|recorded| into_message(recorded.event.clone(), recorded.at))
                .collect()
        })
    }

    fn checkpoints(&self, task: TaskId) -> StoreFuture<'_, Vec<CheckpointRow>> {
        self.read(|tables| tables.checkpoints.get(&task).cloned().unwrap_or_default())
    }

    fn spending(&self) -> StoreFuture<'_, Vec<SpendingRow>> {
        let row = |((day, agent), (calls, usage)): (&(Date, Name), &(u64, Usage))| SpendingRow {
            day: *day,
            agent: agent.clone(),
            calls: *calls,
            usage: *usage,
        };
        self.read(|tables| tables.spending.iter().map(row).collect())
    }

    fn toggled_agents(&self) -> StoreFuture<'_, Vec<Name>> {
        let agent = |stream: &StreamId| match stream {
            StreamId::Agent(name) => Some(name.clone()),
            StreamId::Task(_) | StreamId::Session(_) | StreamId::Schedule(_) => None,
        };
        self.read(|tables| tables.streams.keys().filter_map(agent).collect())
    }

    fn definition(&self, digest: &Digest) -> StoreFuture<'_, Option<String>> {
        self.read(|tables| tables.definitions.get(digest).cloned())
    }
}
