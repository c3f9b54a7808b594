//! Conversions between values and columns.

use jiff::Timestamp;
use polity_model::event::StreamId;
use polity_model::ids::{SessionId, TaskId};
use polity_model::machine::Machine;
use polity_model::name::Name;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row, ToSql};
use serde_json::from_str;

/// A stream as one value: a byte for its kind, then the id's bytes or the name.
#[derive(Debug)]
pub(super) struct StreamKey(Vec<u8>);

const TASK: u8 = b't';
const SESSION: u8 = b's';
const SCHEDULE: u8 = b'c';
const AGENT: u8 = b'a';

impl StreamKey {
    pub(super) fn of(stream: &StreamId) -> Self {
        let (kind, id) = match stream {
            StreamId::Task(id) => (TASK, id.as_bytes().as_slice()),
            StreamId::Session(id) => (SESSION, id.as_bytes().as_slice()),
            StreamId::Schedule(name) => (SCHEDULE, name.as_str().as_bytes()),
            StreamId::Agent(name) => (AGENT, name.as_str().as_bytes()),
        };
        let mut key = Vec::with_capacity(1 + id.len());
        key.push(kind);
        key.extend_from_slice(id);
        Self(key)
    }

    pub(super) fn stream(&self) -> rusqlite::Result<StreamId> {
        let unreadable = || unreadable(1, Type::Blob, format!("{:?} is no stream", self.0));
        let (kind, id) = self.0.split_first().ok_or_else(unreadable)?;
        let bytes = || <[u8; 16]>::try_from(id).map_err(|_| unreadable());
        let name = || {
            std::str::from_utf8(id).ok().and_then(|t| t.parse::<Name>().ok()).ok_or_else(unreadable)
        };
        match *kind {
            TASK => Ok(StreamId::Task(TaskId::from_bytes(bytes()?))),
            SESSION => Ok(StreamId::Session(SessionId::from_bytes(bytes()?))),
            SCHEDULE => Ok(StreamId::Schedule(name()?)),
            AGENT => Ok(StreamId::Agent(name()?)),
            _ => Err(unreadable()),
        }
    }

    /// The range of the keys of all agents: from the first, up to but without the second.
    pub(super) fn of_agents() -> (Self, Self) {
        (Self(vec![AGENT]), Self(vec![AGENT + 1]))
    }
}

impl ToSql for StreamKey {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for StreamKey {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_blob().map(|bytes| Self(bytes.to_vec()))
    }
}

/// The first and last id whose text begins with `prefix`. None if no id can.
pub(super) fn id_range(prefix: &str) -> Option<([u8; 16], [u8; 16])> {
    let (mut low, mut high) = ([0u8; 16], [0xffu8; 16]);
    for (place, character) in prefix.chars().filter(|character| *character != '-').enumerate() {
        let digit = u8::try_from(character.to_digit(16)?).ok()?;
        let byte = place / 2;
        let (shift, keep) = if place % 2 == 0 { (4, 0x0f) } else { (0, 0xf0) };
        *low.get_mut(byte)? |= digit << shift;
        let high = high.get_mut(byte)?;
        *high = (*high & keep) | (digit << shift);
    }
    Some((low, high))
}

/// Runs a cached statement that returns no rows.
pub(super) fn execute(
    connection: &Connection,
    sql: &str,
    values: impl Params,
) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// Decodes the only row of a cached query, if there is one.
pub(super) fn find<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    decode: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(values, decode).optional()
}

/// Decodes all rows of a cached query.
pub(super) fn list<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    decode: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(values, decode)?.collect()
}

pub(super) fn unreadable(column: usize, kind: Type, detail: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, detail.into())
}

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub(super) fn timestamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Timestamp::from_microsecond(row.get(column)?)
        .map_err(|error| unreadable(column, Type::Integer, error.to_string()))
}

pub(super) fn timestamp_maybe(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(column)?.map(|_| timestamp(row, column)).transpose()
}

pub(super) fn decode_json<T: serde::de::DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str().map_err(|error| from_sql(column, &error))?;
    from_str(text).map_err(|error| unreadable(column, Type::Text, error.to_string()))
}

/// Decodes a machine's state from its label.
pub(super) fn decode_state<M: Machine>(row: &Row<'_>, column: usize) -> rusqlite::Result<M> {
    let label = row.get_ref(column)?.as_str().map_err(|error| from_sql(column, &error))?;
    let state = M::STATES.iter().copied().find(|state| state.label() == label);
    state.ok_or_else(|| {
        unreadable(column, Type::Text, format!("\"{label}\" is no state of a {}", M::SUBJECT))
    })
}

fn from_sql(column: usize, error: &FromSqlError) -> rusqlite::Error {
    unreadable(column, Type::Null, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_keys_round_trip() {
        for stream in [
            StreamId::Task(TaskId::from_random_bytes([1; 16])),
            StreamId::Session(SessionId::from_random_bytes([2; 16])),
            StreamId::Schedule("nightly".parse().unwrap()),
            StreamId::Agent("greeter".parse().unwrap()),
        ] {
            assert_eq!(StreamKey::of(&stream).stream().unwrap(), stream);
        }
    }

    #[test]
    fn id_range_contains_every_id_with_the_prefix() {
        let id = TaskId::from_random_bytes([0x5a; 16]);
        let text = id.to_string();
        for length in 0..=text.len() {
            let (low, high) = id_range(&text[..length]).unwrap();
            assert!(low <= *id.as_bytes() && *id.as_bytes() <= high, "{length}");
        }
        assert_eq!(id_range("xyz"), None);
        assert_eq!(id_range(&"0".repeat(33)), None);
    }
}
