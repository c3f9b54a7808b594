//! A store in memory: for tests, and the plainest statement of what a store must do.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

use crate::commit::{Commit, CommitError, CommitTicket, Committed, PinnedDefinition};
use crate::import::{Import, ImportError};
use crate::projection::{Changes, CheckpointRow, SpendingRow, TaskRow, day_of, into_message};
use crate::removal::{Removal, kept};
use crate::{ExecutionFilter, ExecutionRow, Header, Store, StoreError, TaskFilter, Tree};

/// A journal that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// The events by position.
    journal: BTreeMap<JournalPosition, RecordedEvent>,
    /// The newest position that was ever given to an event.
    last: JournalPosition,
    streams: BTreeMap<StreamId, Vec<JournalPosition>>,
    tasks: BTreeMap<TaskId, TaskRow>,
    messages: BTreeMap<TaskId, BTreeMap<u32, JournalPosition>>,
    checkpoints: BTreeMap<TaskId, Vec<CheckpointRow>>,
    executions: BTreeMap<ExecutionId, AgentExecution>,
    /// The oldest first.
    executions_by_age: Vec<ExecutionId>,
    /// Until a task ends.
    sealed_input: BTreeMap<TaskId, String>,
    execution_order: BTreeMap<TaskId, Vec<ExecutionId>>,
    definitions: BTreeMap<Digest, String>,
    pins: BTreeMap<TaskId, Vec<Digest>>,
    spending: BTreeMap<(Date, Name), (u64, Usage)>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A panic elsewhere leaves the tables whole: a commit changes them only after all checks.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn commit(&mut self, commit: Commit) -> Result<Committed, CommitError> {
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
        let actual = StreamSequence(self.streams.get(&stream).map_or(0, |all| all.len() as u64));
        if actual != expected_sequence {
            return Err(CommitError::Conflict { expected: expected_sequence, actual });
        }
        let row = match &stream {
            StreamId::Task(id) => self.tasks.get(id).cloned(),
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => None,
        };
        let mut changes = Changes::of(row);
        let first_position = self.last.plus(1);
        let mut recorded = Vec::with_capacity(events.len());
        for (index, event) in events.into_iter().enumerate() {
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
        if let (Some(expected), Some(row)) = (owner_epoch, &changes.row) {
            let actual = row.epoch;
            if actual != expected {
                return Err(CommitError::Fenced { expected, actual });
            }
        }
        if let (StreamId::Task(task), Some(text)) = (&stream, sealed_input) {
            self.sealed_input.insert(*task, text);
        }
        self.keep(changes, at);
        let last_sequence = expected_sequence.plus(recorded.len());
        self.append(recorded, definitions);
        Ok(Committed { first_position, last_sequence })
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

    fn import(&mut self, tasks: Vec<Import>) -> Result<(), ImportError> {
        let mut next = self.last.plus(1);
        let mut checked = Vec::with_capacity(tasks.len());
        for import in tasks {
            if self.tasks.contains_key(&import.task) {
                return Err(ImportError::Exists { task: import.task });
            }
            let changes = import.changes(next, |id| Ok(self.executions.contains_key(&id)))?;
            if let Some(origin) = changes.origin()
                && !self.tasks.contains_key(&origin)
                && !checked.iter().any(|(other, _, _): &(Import, _, _)| other.task == origin)
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
                self.keep(changes, at);
            }
            self.append(recorded, import.definitions);
        }
        Ok(())
    }

    fn remove(&mut self, unit: &[TaskId]) -> Removal {
        let unit: BTreeSet<TaskId> = unit.iter().copied().collect();
        for row in unit.iter().filter_map(|task| self.tasks.get(task)) {
            let parent = row.parent_task_id.filter(|parent| self.tasks.contains_key(parent));
            let all = || self.tasks.values();
            let parts = all().filter(|part| part.parent_task_id == Some(row.id)).map(|r| r.id);
            let forks = all().filter(|fork| fork.forked_from == Some(row.id)).map(|r| r.id);
            if let Some(because) = kept(&unit, row, parent, parts, forks) {
                return Removal::Refused { task: row.id, because };
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
            self.sealed_input.remove(&task);
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
        Removal::Removed { tasks, executions }
    }

    fn keep(&mut self, changes: Changes, at: Timestamp) {
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
            self.sealed_input.remove(&task);
        }
        self.tasks.insert(task, row);
    }

    fn tree(&self, task: TaskId) -> Tree {
        let Some(row) = self.tasks.get(&task) else { return Tree::default() };
        let mut sum = Tree { tasks: 1, usage: row.usage };
        for row in self.tasks.values().filter(|row| row.parent_task_id == Some(task)) {
            let below = self.tree(row.id);
            sum.tasks += below.tasks;
            sum.usage += below.usage;
        }
        sum
    }

    fn at(&self, position: JournalPosition) -> Option<&RecordedEvent> {
        self.journal.get(&position)
    }
}

impl Store for MemoryStore {
    fn commit(&self, commit: Commit) -> CommitTicket {
        CommitTicket::answered(self.tables().commit(commit))
    }

    fn import(&self, tasks: Vec<Import>) -> Result<(), ImportError> {
        self.tables().import(tasks)
    }

    fn remove(&self, units: Vec<Vec<TaskId>>) -> Result<Vec<Removal>, StoreError> {
        let mut tables = self.tables();
        Ok(units.iter().map(|unit| tables.remove(unit)).collect())
    }

    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let tables = self.tables();
        let positions = tables.streams.get(stream).map(Vec::as_slice).unwrap_or_default();
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(positions.iter().skip(skip).filter_map(|p| tables.at(*p)).cloned().collect())
    }

    fn newest_events(
        &self,
        stream: &StreamId,
        limit: u32,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let tables = self.tables();
        let positions = tables.streams.get(stream).map(Vec::as_slice).unwrap_or_default();
        let newest = positions.iter().rev().take(limit as usize);
        Ok(newest.filter_map(|p| tables.at(*p)).cloned().collect())
    }

    fn headers_after(&self, after: JournalPosition, limit: u32) -> Result<Vec<Header>, StoreError> {
        let header = |(_, e): (&JournalPosition, &RecordedEvent)| Header {
            position: e.position,
            stream: e.stream.clone(),
            sequence: e.sequence,
        };
        let newer = (Bound::Excluded(after), Bound::Unbounded);
        Ok(self.tables().journal.range(newer).take(limit as usize).map(header).collect())
    }

    fn last_position(&self) -> Result<JournalPosition, StoreError> {
        Ok(self.tables().last)
    }

    fn task_row(&self, id: TaskId) -> Result<Option<TaskRow>, StoreError> {
        Ok(self.tables().tasks.get(&id).cloned())
    }

    fn task_rows(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, StoreError> {
        let tables = self.tables();
        let mut rows: Vec<_> = tables
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
            .filter(|row| filter.request.is_none() || row.request == filter.request)
            .filter(|row| filter.created_since.is_none_or(|since| row.created_at >= since))
            .filter(|row| {
                let late = |now| row.review_deadline.is_some_and(|deadline| deadline <= now);
                filter.overdue_at.is_none_or(late)
            })
            .filter(|row| !filter.roots_only || row.parent_task_id.is_none())
            .filter(|row| !filter.parts_only || row.parent_task_id.is_some())
            .cloned()
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.created_position));
        rows.truncate(filter.limit.map_or(usize::MAX, |limit| limit as usize));
        Ok(rows)
    }

    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> Result<Vec<TaskId>, StoreError> {
        let starts = |id: &&TaskId| id.to_string().starts_with(prefix);
        Ok(self.tables().tasks.keys().filter(starts).take(limit as usize).copied().collect())
    }

    fn task(&self, row: &TaskRow) -> Result<Task, StoreError> {
        let tables = self.tables();
        let event = |position: Option<JournalPosition>| Some(tables.at(position?)?.event.clone());
        event(Some(row.created_position))
            .and_then(|created| {
                let (result, failure) = (event(row.result_position), event(row.failure_position));
                row.with_texts(created, result, failure, tables.tree(row.id).usage)
            })
            .ok_or_else(|| StoreError::Unreadable {
                place: format!("{:?}", row.created_position),
                detail: "the task's creation is not there".into(),
            })
    }

    fn tree(&self, task: TaskId) -> Result<Tree, StoreError> {
        Ok(self.tables().tree(task))
    }

    fn execution(&self, id: ExecutionId) -> Result<Option<AgentExecution>, StoreError> {
        Ok(self.tables().executions.get(&id).cloned())
    }

    fn execution_rows(&self, filter: &ExecutionFilter) -> Result<Vec<ExecutionRow>, StoreError> {
        let tables = self.tables();
        let all = tables.executions_by_age.iter().rev();
        let rows = all.filter_map(|id| {
            let execution = tables.executions.get(id)?;
            let task = tables.tasks.get(&execution.task_id)?;
            let is_open = !execution.is_over() && !task.status.is_final();
            let is_meant = (!filter.open_only || is_open)
                && filter.agent.as_ref().is_none_or(|agent| execution.agent.as_str() == agent)
                && filter.pool.as_ref().is_none_or(|pool| execution.pool.as_ref() == Some(pool));
            is_meant.then(|| ExecutionRow { owner: task.owner, execution: execution.clone() })
        });
        Ok(rows.take(filter.limit.map_or(usize::MAX, |limit| limit as usize)).collect())
    }

    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> Result<Vec<ExecutionId>, StoreError> {
        let tables = self.tables();
        let ids = tables.executions.keys().copied();
        let found = ids.filter(|id| id.to_string().starts_with(prefix));
        Ok(found.take(limit as usize).collect())
    }

    fn sealed_input(&self, task: TaskId) -> Result<Option<String>, StoreError> {
        Ok(self.tables().sealed_input.get(&task).cloned())
    }

    fn executions(&self, task: TaskId) -> Result<Vec<AgentExecution>, StoreError> {
        let tables = self.tables();
        let ids = tables.execution_order.get(&task).map(Vec::as_slice).unwrap_or_default();
        Ok(ids.iter().filter_map(|id| tables.executions.get(id)).cloned().collect())
    }

    fn messages(&self, task: TaskId) -> Result<Vec<Message>, StoreError> {
        let tables = self.tables();
        let positions = tables.messages.get(&task);
        Ok(positions
            .iter()
            .flat_map(|positions| positions.values())
            .filter_map(|position| tables.at(*position))
            .filter_map(|recorded| into_message(recorded.event.clone(), recorded.at))
            .collect())
    }

    fn checkpoints(&self, task: TaskId) -> Result<Vec<CheckpointRow>, StoreError> {
        Ok(self.tables().checkpoints.get(&task).cloned().unwrap_or_default())
    }

    fn spending(&self) -> Result<Vec<SpendingRow>, StoreError> {
        let row = |((day, agent), (calls, usage)): (&(Date, Name), &(u64, Usage))| SpendingRow {
            day: *day,
            agent: agent.clone(),
            calls: *calls,
            usage: *usage,
        };
        Ok(self.tables().spending.iter().map(row).collect())
    }

    fn switched_agents(&self) -> Result<Vec<Name>, StoreError> {
        let of_agent = |stream: &StreamId| match stream {
            StreamId::Agent(name) => Some(name.clone()),
            StreamId::Task(_) | StreamId::Session(_) | StreamId::Schedule(_) => None,
        };
        Ok(self.tables().streams.keys().filter_map(of_agent).collect())
    }

    fn definition(&self, digest: &Digest) -> Result<Option<String>, StoreError> {
        Ok(self.tables().definitions.get(digest).cloned())
    }
}
