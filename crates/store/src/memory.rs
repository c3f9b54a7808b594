//! A store in memory: for tests, and the plainest statement of what a store must do.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use jiff::civil::Date;
use polity_model::definition::Digest;
use polity_model::event::{Position, Recorded, Sequence, StreamId};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;
use polity_model::usage::Usage;

use crate::commit::{Commit, CommitError, CommitTicket, Committed};
use crate::projection::{Changes, CheckpointRow, SpendingRow, TaskRow, day_of, into_message};
use crate::{Header, Store, StoreError, TaskFilter, Tree};

/// A journal that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// All events; the event at index `i` has position `i + 1`.
    journal: Vec<Recorded>,
    streams: BTreeMap<StreamId, Vec<Position>>,
    tasks: BTreeMap<TaskId, TaskRow>,
    messages: BTreeMap<TaskId, BTreeMap<u32, Position>>,
    checkpoints: BTreeMap<TaskId, Vec<CheckpointRow>>,
    executions: BTreeMap<ExecutionId, AgentExecution>,
    execution_order: BTreeMap<TaskId, Vec<ExecutionId>>,
    definitions: BTreeMap<Digest, String>,
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
        let Commit { stream, expected_sequence, owner_epoch, at, events, definitions } = commit;
        if events.is_empty() {
            return Err(CommitError::Illegal { reason: "a commit needs an event".into() });
        }
        let actual = Sequence(self.streams.get(&stream).map_or(0, |all| all.len() as u64));
        if actual != expected_sequence {
            return Err(CommitError::Conflict { expected: expected_sequence, actual });
        }
        let row = match &stream {
            StreamId::Task(id) => self.tasks.get(id).cloned(),
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => None,
        };
        let mut changes = Changes::of(row);
        let first_position = Position(self.journal.len() as u64 + 1);
        let mut recorded = Vec::with_capacity(events.len());
        for (index, event) in events.into_iter().enumerate() {
            let position = Position(first_position.0 + index as u64);
            let sequence = expected_sequence.plus(index + 1);
            changes
                .apply(&stream, position, at, &event, |id| Ok(self.executions.get(&id).cloned()))
                .map_err(|refused| CommitError::Illegal { reason: refused.0 })?;
            recorded.push(Recorded { position, stream: stream.clone(), sequence, at, event });
        }
        if let (Some(expected), Some(row)) = (owner_epoch, &changes.row) {
            let actual = row.epoch;
            if actual != expected {
                return Err(CommitError::Fenced { expected, actual });
            }
        }
        self.keep(changes, at);
        let last_sequence = expected_sequence.plus(recorded.len());
        self.streams.entry(stream).or_default().extend(recorded.iter().map(|e| e.position));
        self.journal.extend(recorded);
        for definition in definitions {
            self.definitions.entry(definition.digest).or_insert(definition.json);
        }
        Ok(Committed { first_position, last_sequence })
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
        for execution in changes.executions {
            if self.executions.insert(execution.id, execution.clone()).is_none() {
                self.execution_order.entry(task).or_default().push(execution.id);
            }
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

    fn at(&self, position: Position) -> Option<&Recorded> {
        self.journal.get(usize::try_from(position.0.checked_sub(1)?).ok()?)
    }
}

impl Store for MemoryStore {
    fn commit(&self, commit: Commit) -> CommitTicket {
        CommitTicket::answered(self.tables().commit(commit))
    }

    fn events(&self, stream: &StreamId, after: Sequence) -> Result<Vec<Recorded>, StoreError> {
        let tables = self.tables();
        let positions = tables.streams.get(stream).map(Vec::as_slice).unwrap_or_default();
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(positions.iter().skip(skip).filter_map(|p| tables.at(*p)).cloned().collect())
    }

    fn headers_after(&self, after: Position, limit: u32) -> Result<Vec<Header>, StoreError> {
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        let header = |e: &Recorded| Header {
            position: e.position,
            stream: e.stream.clone(),
            sequence: e.sequence,
        };
        Ok(self.tables().journal.iter().skip(skip).take(limit as usize).map(header).collect())
    }

    fn last_position(&self) -> Result<Position, StoreError> {
        Ok(Position(self.tables().journal.len() as u64))
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
        let event = |position: Option<Position>| Some(tables.at(position?)?.event.clone());
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

    fn next_pending(
        &self,
        owner: InstanceId,
        after: Position,
    ) -> Result<Option<TaskRow>, StoreError> {
        Ok(self
            .tables()
            .tasks
            .values()
            .filter(|row| row.status == TaskStatus::Pending)
            .filter(|row| row.owner == Some(owner))
            .filter(|row| row.created_position > after && row.parent_task_id.is_none())
            .min_by_key(|row| row.created_position)
            .cloned())
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

    fn definition(&self, digest: &Digest) -> Result<Option<String>, StoreError> {
        Ok(self.tables().definitions.get(digest).cloned())
    }
}
