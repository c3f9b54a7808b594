//! Commits decisions on schedules. Any process may decide: the stream's sequence lets one win.

use jiff::Timestamp;
use polity_definition::{DueTimes, ScheduleDefinition};
use polity_model::event::{Event, RecordedEvent, ScheduleChange, StreamId, StreamSequence};
use polity_model::name::Name;
use polity_model::schedule::ScheduleState;
use polity_store::{Commit, CommitError, Store};

use super::EngineError;
use super::decision_loop::{DecisionTarget, ProposedEvents, decide_and_commit};
use crate::clock::Clock;
use crate::schedule::{
    ScheduleCommand, ScheduleContext, ScheduleRejection, StartFault, decide, decide_removal,
};

/// The number of changes after which the whole state is written again.
const SNAPSHOT_INTERVAL: u64 = 100;

/// The number of changes that are read to find the newest snapshot.
const TAIL_CHANGES: u32 = 128;

/// The state of a schedule, as far as its stream was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScheduleRecord {
    /// The state.
    pub state: ScheduleState,
    /// The newest change that it contains.
    pub sequence: StreamSequence,
}

/// A schedule that a decision is about.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleSubject<'a> {
    /// The definition.
    pub definition: &'a ScheduleDefinition,
    /// The due times of the definition.
    pub times: &'a DueTimes,
    /// The reason why no task can start, if there is one.
    pub fault: Option<&'a StartFault>,
}

impl ScheduleRecord {
    /// Loads the state of a schedule; a schedule without a stream was never watched. The cost does
    /// not depend on the length of the stream.
    pub async fn load(store: &dyn Store, name: &Name) -> Result<Self, EngineError> {
        let stream = StreamId::Schedule(name.clone());
        let mut events = store.newest_events(&stream, TAIL_CHANGES).await?;
        events.reverse();
        let snapshot = events.iter().rposition(|recorded| {
            matches!(
                recorded.event,
                Event::ScheduleChanged { change: ScheduleChange::Snapshot { .. } }
            )
        });
        let is_whole = events.first().is_none_or(|first| first.sequence == StreamSequence(1));
        let mut record = Self::default();
        match snapshot {
            Some(index) => record.apply(name, events.into_iter().skip(index))?,
            None if is_whole => record.apply(name, events)?,
            None => record.catch_up(store, name).await?,
        }
        Ok(record)
    }

    /// Applies the changes that others have committed.
    pub async fn catch_up(&mut self, store: &dyn Store, name: &Name) -> Result<(), EngineError> {
        let stream = StreamId::Schedule(name.clone());
        let events = store.events(&stream, self.sequence).await?;
        self.apply(name, events)
    }

    fn apply(
        &mut self,
        name: &Name,
        events: impl IntoIterator<Item = RecordedEvent>,
    ) -> Result<(), EngineError> {
        for recorded in events {
            if let Event::ScheduleChanged { change } = &recorded.event {
                let applied = self.state.apply(change, recorded.at);
                applied.map_err(|illegal| ScheduleRejection::broken(name, illegal))?;
            }
            self.sequence = recorded.sequence;
        }
        Ok(())
    }
}

/// Decides on a command and commits the changes, which are returned. A task that was started has
/// its record now; the caller creates it.
pub async fn decide_schedule(
    store: &dyn Store,
    clock: &dyn Clock,
    record: &mut ScheduleRecord,
    subject: ScheduleSubject<'_>,
    command: &ScheduleCommand,
) -> Result<Vec<ScheduleChange>, EngineError> {
    let ScheduleSubject { definition, times, fault } = subject;
    let choose = |state: &ScheduleState, now| {
        decide(state, command, &ScheduleContext { now, definition, times, fault })
    };
    let name = &definition.name;
    decide_and_commit(&mut StreamDecision { store, clock, record, name, choose }).await
}

/// Records that the definition of a schedule was removed. Changes nothing if no process has watched
/// it.
pub async fn remove_schedule(
    store: &dyn Store,
    clock: &dyn Clock,
    name: &Name,
) -> Result<(), EngineError> {
    let mut record = ScheduleRecord::load(store, name).await?;
    let record = &mut record;
    let choose = |state: &ScheduleState, _| Ok(decide_removal(state));
    decide_and_commit(&mut StreamDecision { store, clock, record, name, choose }).await.map(|_| ())
}

struct StreamDecision<'a, F> {
    store: &'a dyn Store,
    clock: &'a dyn Clock,
    record: &'a mut ScheduleRecord,
    name: &'a Name,
    choose: F,
}

impl<F> DecisionTarget for StreamDecision<'_, F>
where
    F: FnMut(&ScheduleState, Timestamp) -> Result<Vec<ScheduleChange>, ScheduleRejection> + Send,
{
    type Output = Vec<ScheduleChange>;

    async fn propose(&mut self) -> Result<ProposedEvents<Self::Output>, EngineError> {
        let at = self.clock.now();
        let changes = (self.choose)(&self.record.state, at)?;
        let events = changes.iter().map(|change| Event::ScheduleChanged { change: change.clone() });
        Ok(ProposedEvents { at, events: events.collect(), output: changes })
    }

    async fn commit(&mut self, at: Timestamp, mut events: Vec<Event>) -> Result<(), EngineError> {
        let mut state = self.record.state.clone();
        for event in &events {
            if let Event::ScheduleChanged { change } = event {
                let applied = state.apply(change, at);
                applied.map_err(|illegal| ScheduleRejection::broken(self.name, illegal))?;
            }
        }
        let expected = self.record.sequence;
        let newest = expected.0 + events.len() as u64;
        if newest / SNAPSHOT_INTERVAL > expected.0 / SNAPSHOT_INTERVAL {
            let state = Box::new(state.clone());
            let change = ScheduleChange::Snapshot { state };
            events.push(Event::ScheduleChanged { change });
        }
        let stream = StreamId::Schedule(self.name.clone());
        let commit = Commit::new(stream, expected, None, at, events);
        let receipt = self.store.commit(commit).await?;
        *self.record = ScheduleRecord { state, sequence: receipt.last_sequence };
        Ok(())
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        self.record.catch_up(self.store, self.name).await
    }

    fn contended(&self, conflict: CommitError) -> EngineError {
        conflict.into()
    }
}
