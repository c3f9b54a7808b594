//! Statements that read and write the projections.

use std::collections::HashSet;
use std::fmt::Write;

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, OwnerEpoch, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{CheckpointId, ExecutionId, InstanceId, TaskId};
use polity_model::machine::Machine;
use polity_model::name::Name;
use polity_model::usage::{Cost, TOKENS_MAX, Usage, UsageEstimate};
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, Row, params, params_from_iter};

use super::rows::{
    StreamKey, decode_json, decode_state, execute, find, list, micros, timestamp, timestamp_maybe,
    unreadable,
};
use super::sealing_keys::{KeyId, SealedRow};
use crate::commit::PinnedDefinition;
use crate::projection::{
    CheckpointRow, ExecutionRow, ProjectionChanges, SpendingRow, TaskRow, TaskTree, day_of,
};
use crate::{EventHeader, ExecutionFilter, TaskFilter};

const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;

/// The cap of sums. Two of them can be added in a column without overflow.
const SUM_MAX: i64 = i64::MAX / 2;

/// The columns of a task, as a literal for `concat!`.
macro_rules! task_columns {
    () => {
        "created_position, task_id, status, assigned_agent, owner, epoch, created_at, started_at, \
         completed_at, error_code, class, retention_days, parent_task_id, input_tokens, \
         output_tokens, cost_pico_usd, message_count, checkpoint_count, answer_position, \
         result_position, failure_position, forked_from, review_deadline, request, shared_with, \
         usage_unknown, estimated_tokens, estimated_cost_pico_usd, map_item"
    };
}

pub(super) fn task_row(connection: &Connection, id: TaskId) -> rusqlite::Result<Option<TaskRow>> {
    let sql = concat!("SELECT ", task_columns!(), " FROM tasks WHERE task_id = ?1");
    find(connection, sql, [id.as_bytes()], decode_task)
}

pub(super) fn task_rows(
    connection: &Connection,
    filter: &TaskFilter,
) -> rusqlite::Result<Vec<TaskRow>> {
    let mut sql = concat!("SELECT ", task_columns!(), " FROM tasks WHERE true").to_owned();
    if !filter.statuses.is_empty() {
        // Labels are constants, so the statement can contain them.
        let labels: Vec<_> =
            filter.statuses.iter().map(|status| format!("'{}'", status.label())).collect();
        // Writing to a String cannot fail.
        let _ = write!(sql, " AND status IN ({})", labels.join(", "));
        if filter.statuses.iter().all(|status| !status.is_final()) {
            // SQLite uses the partial index of active tasks only if its condition is repeated.
            sql.push_str(" AND status IN ('pending', 'running', 'awaiting_human')");
        }
    }
    if filter.roots_only {
        sql.push_str(" AND parent_task_id IS NULL");
    }
    if filter.sub_tasks_only {
        sql.push_str(" AND parent_task_id IS NOT NULL");
    }
    let id = |id: TaskId| Value::from(id.as_bytes().to_vec());
    // Positions are far below the largest number of SQLite.
    let position = |at: JournalPosition| Value::from(i64::try_from(at.0).unwrap_or(i64::MAX));
    let values = push_conditions(
        &mut sql,
        [
            (" AND assigned_agent = ?", filter.assigned_agent.clone().map(Value::from)),
            (" AND parent_task_id = ?", filter.parent.map(id)),
            (" AND forked_from = ?", filter.forked_from.map(id)),
            (" AND request = ?", filter.dedup_key.map(|key| key.as_bytes().to_vec().into())),
            (" AND created_at >= ?", filter.created_since.map(|since| micros(since).into())),
            (" AND created_position < ?", filter.created_before.map(position)),
            (" AND review_deadline <= ?", filter.overdue_at.map(|now| micros(now).into())),
        ],
        (" ORDER BY created_position DESC", filter.limit),
    );
    list(connection, &sql, params_from_iter(values), decode_task)
}

/// Appends the conditions that have a value, the order and the limit. Returns the values.
fn push_conditions<const N: usize>(
    sql: &mut String,
    conditions: [(&str, Option<Value>); N],
    (order, limit): (&str, Option<u32>),
) -> Vec<Value> {
    let mut values = Vec::new();
    for (condition, value) in conditions {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(value);
        }
    }
    sql.push_str(order);
    if let Some(limit) = limit {
        sql.push_str(" LIMIT ?");
        values.push(i64::from(limit).into());
    }
    values
}

/// The totals of a task and its sub-tasks.
pub(super) fn task_tree(connection: &Connection, task: TaskId) -> rusqlite::Result<TaskTree> {
    let sql = "WITH RECURSIVE tree (task_id, is_of_item) AS ( \
           SELECT ?1, 0 UNION \
           SELECT tasks.task_id, tree.is_of_item OR tasks.map_item IS NOT NULL \
           FROM tasks JOIN tree ON tasks.parent_task_id = tree.task_id) \
         SELECT input_tokens, output_tokens, cost_pico_usd, usage_unknown, estimated_tokens, \
           estimated_cost_pico_usd, is_of_item \
         FROM tree JOIN tasks ON tasks.task_id = tree.task_id";
    let mut sum = TaskTree::default();
    let read = |row: &Row<'_>| Ok((usage(row, 0, 3)?, row.get::<_, bool>(6)?));
    for (usage, is_of_item) in list(connection, sql, [task.as_bytes()], read)? {
        sum.task_count += 1;
        sum.item_task_count += u64::from(is_of_item);
        sum.usage += usage;
    }
    Ok(sum)
}

/// Bits of the column `usage_unknown`.
const TOKENS_UNKNOWN: u8 = 1;
const COST_UNKNOWN: u8 = 2;

/// Reported tokens and money in three columns, and what is known of the rest in three others.
fn usage(row: &Row<'_>, reported: usize, rest: usize) -> rusqlite::Result<Usage> {
    let unknown: u8 = row.get(rest)?;
    Ok(Usage {
        input_tokens: row.get(reported)?,
        output_tokens: row.get(reported + 1)?,
        cost: Cost::from_pico_usd(row.get(reported + 2)?),
        tokens_unknown: unknown & TOKENS_UNKNOWN != 0,
        cost_unknown: unknown & COST_UNKNOWN != 0,
        estimate: UsageEstimate {
            tokens: row.get(rest + 1)?,
            cost: Cost::from_pico_usd(row.get(rest + 2)?),
        },
    })
}

/// A count as a column holds it. A driver may have passed on any number.
fn tokens(count: u64) -> u64 {
    count.min(TOKENS_MAX)
}

/// The value of the column `usage_unknown`.
fn usage_unknown(usage: &Usage) -> u8 {
    u8::from(usage.tokens_unknown) * TOKENS_UNKNOWN + u8::from(usage.cost_unknown) * COST_UNKNOWN
}

fn name(row: &Row<'_>, column: usize) -> rusqlite::Result<Name> {
    let name: Result<Name, _> = row.get::<_, String>(column)?.parse();
    name.map_err(|error| unreadable(column, Type::Text, error.to_string()))
}

fn decode_task(row: &Row<'_>) -> rusqlite::Result<TaskRow> {
    let position = |column: usize| -> rusqlite::Result<Option<JournalPosition>> {
        Ok(row.get::<_, Option<u64>>(column)?.map(JournalPosition))
    };
    let task = |column: usize| -> rusqlite::Result<Option<TaskId>> {
        Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(TaskId::from_bytes))
    };
    let error_code: Option<String> = row.get(9)?;
    Ok(TaskRow {
        created_position: JournalPosition(row.get(0)?),
        id: TaskId::from_bytes(row.get(1)?),
        status: decode_state(row, 2)?,
        assigned_agent: name(row, 3)?,
        owner: row.get::<_, Option<[u8; 16]>>(4)?.map(InstanceId::from_bytes),
        epoch: OwnerEpoch(row.get(5)?),
        created_at: timestamp(row, 6)?,
        started_at: timestamp_maybe(row, 7)?,
        completed_at: timestamp_maybe(row, 8)?,
        error_code: error_code
            .map(|code| serde_json::from_value(code.into()))
            .transpose()
            .map_err(|error: serde_json::Error| unreadable(9, Type::Text, error.to_string()))?,
        class: row.get(10)?,
        retention_days: row.get(11)?,
        parent_task_id: task(12)?,
        usage: usage(row, 13, 25)?,
        message_count: row.get(16)?,
        checkpoint_count: row.get(17)?,
        answer_position: position(18)?,
        result_position: position(19)?,
        failure_position: position(20)?,
        forked_from: task(21)?,
        review_deadline: timestamp_maybe(row, 22)?,
        dedup_key: row.get::<_, Option<[u8; 32]>>(23)?.map(Digest::from_bytes),
        shared_with: task(24)?,
        map_item: row.get(28)?,
    })
}

/// The first position of a stream and the sequence of its newest event.
pub(super) fn stream(
    connection: &Connection,
    key: &StreamKey,
) -> rusqlite::Result<Option<(JournalPosition, StreamSequence)>> {
    let sql = "SELECT stream, (SELECT max(sequence) FROM events \
                               WHERE events.stream = streams.stream) \
               FROM streams WHERE key = ?1";
    find(connection, sql, [key], |row| {
        Ok((JournalPosition(row.get(0)?), StreamSequence(row.get(1)?)))
    })
}

/// The newest position ever assigned.
pub(super) fn last_position(connection: &Connection) -> rusqlite::Result<JournalPosition> {
    connection
        .prepare_cached(
            "SELECT max((SELECT coalesce(max(position), 0) FROM events), position) FROM removed",
        )?
        .query_row([], |row| Ok(JournalPosition(row.get(0)?)))
}

/// The headers of events after a position.
pub(super) fn headers_after(
    connection: &Connection,
    after: JournalPosition,
    limit: u32,
) -> rusqlite::Result<Vec<EventHeader>> {
    let sql = "SELECT position, key, sequence FROM events \
               JOIN streams ON streams.stream = events.stream \
               WHERE position > ?1 ORDER BY position LIMIT ?2";
    list(connection, sql, params![after.0, limit], |row| {
        Ok(EventHeader {
            position: JournalPosition(row.get(0)?),
            stream: row.get::<_, StreamKey>(1)?.stream()?,
            sequence: StreamSequence(row.get(2)?),
        })
    })
}

/// Inserts a stream with its first position.
pub(super) fn insert_stream(
    connection: &Connection,
    begins: JournalPosition,
    key: &StreamKey,
) -> rusqlite::Result<()> {
    execute(connection, "INSERT INTO streams VALUES (?1, ?2)", params![begins.0, key])
}

/// The position of the next event. Positions are never reused, even if the newest events are
/// deleted.
pub(super) fn next_position(connection: &Connection) -> rusqlite::Result<JournalPosition> {
    last_position(connection).map(|last| last.plus(1))
}

/// Inserts an event: position, stream, sequence, time and body.
pub(super) fn insert_event(
    connection: &Connection,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO events (position, stream, sequence, at, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    execute(connection, sql, values)
}

/// Inserts a definition unless it exists.
pub(super) fn insert_definition(
    connection: &Connection,
    definition: &PinnedDefinition,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO definitions VALUES (?1, ?2)";
    execute(connection, sql, params![definition.digest.as_bytes(), &*definition.json])
}

pub(super) fn execution(
    connection: &Connection,
    id: ExecutionId,
) -> rusqlite::Result<Option<AgentExecution>> {
    let sql = "SELECT body FROM executions WHERE execution_id = ?1";
    find(connection, sql, [id.as_bytes()], |row| decode_json(row, 0))
}

pub(super) fn checkpoints(
    connection: &Connection,
    task: TaskId,
) -> rusqlite::Result<Vec<CheckpointRow>> {
    let sql = "SELECT sequence, checkpoint_id, position, node, message_count, awaiting_human, \
               created_at FROM checkpoints \
               WHERE task = (SELECT created_position FROM tasks WHERE task_id = ?1) \
               ORDER BY sequence";
    list(connection, sql, [task.as_bytes()], |row| {
        Ok(CheckpointRow {
            sequence: row.get(0)?,
            checkpoint_id: CheckpointId::from_bytes(row.get(1)?),
            position: JournalPosition(row.get(2)?),
            node: row.get(3)?,
            message_count: row.get(4)?,
            awaiting_human: row.get(5)?,
            created_at: timestamp(row, 6)?,
        })
    })
}

/// Writes the changes of a commit. `before` is the task's previous row. Returns the key of the
/// sealed input of a task that has ended.
pub(super) fn write_changes(
    connection: &Connection,
    before: Option<&TaskRow>,
    changes: &ProjectionChanges,
    first_position: JournalPosition,
    at: Timestamp,
) -> rusqlite::Result<Option<KeyId>> {
    let Some(row) = &changes.row else { return Ok(None) };
    match before {
        None => insert_task(connection, row)?,
        Some(before) if before != row => update_task(connection, before, row)?,
        Some(_) => {}
    }
    let task = row.created_position.0;
    for message in &changes.messages {
        let values = params![task, message.ordinal, message.position.0, message.role.label()];
        execute(connection, "INSERT INTO messages VALUES (?1, ?2, ?3, ?4)", values)?;
    }
    for checkpoint in &changes.checkpoints {
        let values = params![
            task,
            checkpoint.sequence,
            checkpoint.checkpoint_id.as_bytes(),
            checkpoint.position.0,
            checkpoint.node,
            checkpoint.message_count,
            checkpoint.awaiting_human,
            micros(checkpoint.created_at),
        ];
        let sql = "INSERT INTO checkpoints VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        execute(connection, sql, values)?;
    }
    for digest in &changes.pinned {
        // Two names may have identical definitions.
        let sql = "INSERT OR IGNORE INTO pins VALUES (?1, ?2)";
        execute(connection, sql, params![digest.as_bytes(), task])?;
    }
    for usage in &changes.spent {
        let sql = "INSERT INTO spending VALUES (?1, ?2, 1, ?3, ?4, ?5, ?7, ?8, ?9) \
                   ON CONFLICT DO UPDATE SET calls = calls + 1, \
                   input_tokens = min(input_tokens + excluded.input_tokens, ?6), \
                   output_tokens = min(output_tokens + excluded.output_tokens, ?6), \
                   cost_pico_usd = min(cost_pico_usd + excluded.cost_pico_usd, ?6), \
                   usage_unknown = usage_unknown | excluded.usage_unknown, \
                   estimated_tokens = min(estimated_tokens + excluded.estimated_tokens, ?6), \
                   estimated_cost_pico_usd = \
                     min(estimated_cost_pico_usd + excluded.estimated_cost_pico_usd, ?6)";
        let day = micros(at).div_euclid(MICROSECONDS_PER_DAY);
        let values = params![
            day,
            row.assigned_agent.as_str(),
            tokens(usage.input_tokens),
            tokens(usage.output_tokens),
            usage.cost.pico_usd(),
            SUM_MAX,
            usage_unknown(usage),
            tokens(usage.estimate.tokens),
            usage.estimate.cost.pico_usd(),
        ];
        execute(connection, sql, values)?;
    }
    for (index, execution) in changes.executions.iter().enumerate() {
        let sql = "INSERT INTO executions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
                   ON CONFLICT (execution_id) DO UPDATE \
                   SET state = excluded.state, is_open = excluded.is_open, body = excluded.body";
        let values = params![
            // Executions that start in one commit keep their order.
            first_position.plus(index).0,
            execution.id.as_bytes(),
            task,
            execution.agent.as_str(),
            execution.state.label(),
            execution.pool,
            !execution.is_over(),
            encode(execution)?,
        ];
        execute(connection, sql, values)?;
    }
    if row.status.is_final() && before.is_none_or(|before| !before.status.is_final()) {
        // A queued execution has not started, so no event of its own ends it.
        let sql = "UPDATE executions SET is_open = 0 WHERE task = ?1 AND is_open = 1";
        execute(connection, sql, [task])?;
        let sql = "DELETE FROM sealed_inputs WHERE task = ?1 RETURNING key";
        return find(connection, sql, [task], |row| row.get(0));
    }
    Ok(None)
}

/// Writes the encrypted input of a task.
pub(super) fn insert_sealed_input(
    connection: &Connection,
    task: JournalPosition,
    row: &SealedRow,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO sealed_inputs VALUES (?1, ?2, ?3)";
    execute(connection, sql, params![task.0, row.key, row.ciphertext])
}

/// The encrypted input of a task.
pub(super) fn sealed_input(
    connection: &Connection,
    task: TaskId,
) -> rusqlite::Result<Option<SealedRow>> {
    let sql = "SELECT key, ciphertext FROM sealed_inputs \
               WHERE task = (SELECT created_position FROM tasks WHERE task_id = ?1)";
    find(connection, sql, [task.as_bytes()], |row| {
        Ok(SealedRow { key: row.get(0)?, ciphertext: row.get(1)? })
    })
}

/// The keys of all sealed inputs.
pub(super) fn sealing_keys(connection: &Connection) -> rusqlite::Result<HashSet<KeyId>> {
    let keys = list(connection, "SELECT key FROM sealed_inputs", [], |row| row.get(0))?;
    Ok(keys.into_iter().collect())
}

/// Executions, newest first.
pub(super) fn execution_rows(
    connection: &Connection,
    filter: &ExecutionFilter,
) -> rusqlite::Result<Vec<ExecutionRow>> {
    let mut sql = "SELECT tasks.owner, executions.body \
                   FROM executions JOIN tasks ON tasks.created_position = executions.task \
                   WHERE true"
        .to_owned();
    if filter.open_only {
        sql.push_str(" AND executions.is_open = 1");
    }
    let values = push_conditions(
        &mut sql,
        [
            (" AND executions.pool = ?", filter.pool.clone().map(Value::from)),
            (" AND executions.agent = ?", filter.agent.clone().map(Value::from)),
        ],
        (" ORDER BY executions.started_position DESC", filter.limit),
    );
    list(connection, &sql, params_from_iter(values), |row| {
        let owner = row.get::<_, Option<[u8; 16]>>(0)?.map(InstanceId::from_bytes);
        Ok(ExecutionRow { owner, execution: decode_json(row, 1)? })
    })
}

/// The agents that have a stream.
pub(super) fn toggled_agents(connection: &Connection) -> rusqlite::Result<Vec<Name>> {
    let (first, end) = StreamKey::of_agents();
    let sql = "SELECT key FROM streams WHERE key >= ?1 AND key < ?2 ORDER BY key";
    let streams =
        list(connection, sql, params![first, end], |row| row.get::<_, StreamKey>(0)?.stream())?;
    let agent = |stream| match stream {
        StreamId::Agent(name) => Some(name),
        StreamId::Task(_) | StreamId::Session(_) | StreamId::Schedule(_) => None,
    };
    Ok(streams.into_iter().filter_map(agent).collect())
}

/// The usage of model calls by day and agent.
pub(super) fn spending(connection: &Connection) -> rusqlite::Result<Vec<SpendingRow>> {
    let sql = "SELECT day * 86400000000, agent, calls, input_tokens, output_tokens, \
               cost_pico_usd, usage_unknown, estimated_tokens, estimated_cost_pico_usd \
               FROM spending ORDER BY day, agent";
    list(connection, sql, [], |row| {
        Ok(SpendingRow {
            day: day_of(timestamp(row, 0)?),
            agent: name(row, 1)?,
            calls: row.get(2)?,
            usage: usage(row, 3, 6)?,
        })
    })
}

fn insert_task(connection: &Connection, row: &TaskRow) -> rusqlite::Result<()> {
    let sql = concat!(
        "INSERT INTO tasks (",
        task_columns!(),
        ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, \
         ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)"
    );
    let values = params![
        row.created_position.0,
        row.id.as_bytes(),
        row.status.label(),
        row.assigned_agent.as_str(),
        row.owner.as_ref().map(InstanceId::as_bytes),
        row.epoch.0,
        micros(row.created_at),
        row.started_at.map(micros),
        row.completed_at.map(micros),
        row.error_code.map(polity_model::failure::ErrorCode::label),
        row.class,
        row.retention_days,
        row.parent_task_id.as_ref().map(TaskId::as_bytes),
        tokens(row.usage.input_tokens),
        tokens(row.usage.output_tokens),
        row.usage.cost.pico_usd(),
        row.message_count,
        row.checkpoint_count,
        row.answer_position.map(|position| position.0),
        row.result_position.map(|position| position.0),
        row.failure_position.map(|position| position.0),
        row.forked_from.as_ref().map(TaskId::as_bytes),
        row.review_deadline.map(micros),
        row.dedup_key.as_ref().map(Digest::as_bytes),
        row.shared_with.as_ref().map(TaskId::as_bytes),
        usage_unknown(&row.usage),
        tokens(row.usage.estimate.tokens),
        row.usage.estimate.cost.pico_usd(),
        row.map_item,
    ];
    execute(connection, sql, values)
}

/// Updates indexed columns only if they changed: SQLite rewrites the index of every column that an
/// UPDATE names.
fn update_task(connection: &Connection, before: &TaskRow, row: &TaskRow) -> rusqlite::Result<()> {
    let task = row.created_position.0;
    if (before.status, before.owner, before.epoch) != (row.status, row.owner, row.epoch) {
        let sql =
            "UPDATE tasks SET status = ?2, owner = ?3, epoch = ?4 WHERE created_position = ?1";
        let owner = row.owner.as_ref().map(InstanceId::as_bytes);
        execute(connection, sql, params![task, row.status.label(), owner, row.epoch.0])?;
    }
    if before.review_deadline != row.review_deadline {
        let sql = "UPDATE tasks SET review_deadline = ?2 WHERE created_position = ?1";
        execute(connection, sql, params![task, row.review_deadline.map(micros)])?;
    }
    if before.shared_with != row.shared_with {
        let sql = "UPDATE tasks SET shared_with = ?2 WHERE created_position = ?1";
        execute(connection, sql, params![task, row.shared_with.as_ref().map(TaskId::as_bytes)])?;
    }
    let sql = "UPDATE tasks SET started_at = ?2, completed_at = ?3, error_code = ?4, \
               input_tokens = ?5, output_tokens = ?6, cost_pico_usd = ?7, message_count = ?8, \
               checkpoint_count = ?9, answer_position = ?10, result_position = ?11, \
               failure_position = ?12, usage_unknown = ?13, estimated_tokens = ?14, \
               estimated_cost_pico_usd = ?15 WHERE created_position = ?1";
    let values = params![
        task,
        row.started_at.map(micros),
        row.completed_at.map(micros),
        row.error_code.map(polity_model::failure::ErrorCode::label),
        tokens(row.usage.input_tokens),
        tokens(row.usage.output_tokens),
        row.usage.cost.pico_usd(),
        row.message_count,
        row.checkpoint_count,
        row.answer_position.map(|position| position.0),
        row.result_position.map(|position| position.0),
        row.failure_position.map(|position| position.0),
        usage_unknown(&row.usage),
        tokens(row.usage.estimate.tokens),
        row.usage.estimate.cost.pico_usd(),
    ];
    execute(connection, sql, values)
}

fn encode(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
