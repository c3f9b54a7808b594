//! Schedules: their state, their due times to come, and the record of each due time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::{CatchUpPolicy, OverlapPolicy, ScheduleDefinition, ScheduleTarget};
use polity_engine::runtime::ScheduleRecord;
use polity_model::event::{
    Event, RecordedEvent, ScheduleChange, SkipReason, StreamId, StreamSequence, TickOutcome,
    TickTrigger,
};
use polity_model::ids::TaskId;
use polity_model::machine::schedule::ScheduleStatus;
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_model::schedule::SchedulePause;
use serde::Serialize;
use serde_json::{Map, Value};

use super::HomeQueries;
use crate::error::HostError;

/// The number of changes that are read for each row of a history: a row may have several, and
/// other changes are between them.
const CHANGES_PER_ROW: u64 = 4;

/// A schedule with its state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduleView {
    /// The schedule's name, by which it is found.
    pub id: Name,
    /// The schedule's name.
    pub name: Name,
    /// The agent or workflow.
    pub agent_id: Name,
    /// The agent, if it starts one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Name>,
    /// The workflow, if it starts one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Name>,
    /// The times.
    pub cron_expression: String,
    /// The time zone of the times.
    pub time_zone: String,
    /// True if the file enables it.
    pub enabled: bool,
    /// True if its due times start work: it is enabled and not paused.
    pub active: bool,
    /// The state.
    pub state: ScheduleStatus,
    /// The time of the last start.
    pub last_execution: Option<Timestamp>,
    /// The task of the last start.
    pub last_task_id: Option<TaskId>,
    /// The time of the next start; null if none starts.
    pub next_execution: Option<Timestamp>,
    /// The parameters of its tasks.
    pub input_parameters: Map<String, Value>,
    /// The policy if the previous run is still active.
    pub overlap: OverlapPolicy,
    /// The policy for missed times.
    pub catch_up: CatchUpPolicy,
    /// The open pause.
    pub pause: Option<SchedulePause>,
    /// The tasks that have not ended.
    pub running: Vec<TaskId>,
    /// The number of due times that wait.
    pub queued: usize,
    /// The number of failures since the last success or resume.
    pub consecutive_failures: u32,
}

/// The record of a due time, or of several that did not start for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DueTimeRow {
    /// The due time.
    pub due: Timestamp,
    /// The last due time, if the row stands for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_due: Option<Timestamp>,
    /// The number of due times.
    pub count: u64,
    /// True if there were more than were counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_more: bool,
    /// The cause: `cron`, `manual`, `backfill` or `catch_up`.
    pub trigger: &'static str,
    /// The outcome: `started`, `queued`, `skipped`, `missed` or `failed`.
    pub outcome: &'static str,
    /// The reason, for programs.
    pub reason: Option<String>,
    /// The reason, for people.
    pub message: Option<String>,
    /// The task.
    pub task_id: Option<TaskId>,
    /// The status of the task; null if it was removed.
    pub task_status: Option<TaskStatus>,
    /// The time of the record.
    pub recorded_at: Timestamp,
}

impl ScheduleView {
    /// A schedule and its state at a time.
    pub fn new(
        definition: &ScheduleDefinition,
        ScheduleRecord { state, .. }: &ScheduleRecord,
        now: Timestamp,
    ) -> Self {
        let (agent, workflow) = match &definition.target {
            ScheduleTarget::Agent(name) => (Some(name.clone()), None),
            ScheduleTarget::Workflow(name) => (None, Some(name.clone())),
        };
        let active = definition.enabled && state.status != ScheduleStatus::Paused;
        let times = definition.due_times();
        let next = times.next_due(now.max(state.decided_until)).filter(|_| active);
        Self {
            id: definition.name.clone(),
            name: definition.name.clone(),
            agent_id: definition.target.name().clone(),
            agent,
            workflow,
            cron_expression: definition.cron_expression.as_str().to_owned(),
            time_zone: definition.time_zone.clone(),
            enabled: definition.enabled,
            active,
            state: state.status,
            last_execution: state.last_run.map(|run| run.recorded_at),
            last_task_id: state.last_run.map(|run| run.task_id),
            next_execution: next.map(|due| times.start_of(due)),
            input_parameters: definition.input_parameters.clone(),
            overlap: definition.overlap,
            catch_up: definition.catch_up,
            pause: state.pause.clone(),
            running: state.running.iter().map(|run| run.task_id).collect(),
            queued: state.queued.len(),
            consecutive_failures: state.consecutive_failures,
        }
    }
}

/// The next due times after a time, with jitter.
pub fn next_starts(
    definition: &ScheduleDefinition,
    after: Timestamp,
    count: usize,
) -> Vec<Timestamp> {
    let times = definition.due_times();
    let due = std::iter::successors(times.next_due(after), |due| times.next_due(*due));
    due.take(count).map(|due| times.start_of(due)).collect()
}

impl HomeQueries {
    /// The state of a schedule.
    pub async fn schedule_record(&self, name: &Name) -> Result<ScheduleRecord, HostError> {
        Ok(ScheduleRecord::load(&*self.store, name).await?)
    }

    /// A schedule with its state at a time.
    pub async fn schedule_view(
        &self,
        definition: &ScheduleDefinition,
        now: Timestamp,
    ) -> Result<ScheduleView, HostError> {
        let record = self.schedule_record(&definition.name).await?;
        Ok(ScheduleView::new(definition, &record, now))
    }

    /// All schedules with their states at a time, by name.
    pub async fn schedule_views<'d>(
        &self,
        definitions: impl Iterator<Item = &'d Arc<ScheduleDefinition>>,
        now: Timestamp,
    ) -> Result<Vec<ScheduleView>, HostError> {
        let mut views = Vec::new();
        for definition in definitions {
            views.push(self.schedule_view(definition, now).await?);
        }
        Ok(views)
    }

    /// The newest due times of a schedule with their outcomes, newest record first.
    pub async fn schedule_history(
        &self,
        name: &Name,
        limit: u32,
    ) -> Result<Vec<DueTimeRow>, HostError> {
        let stream = StreamId::Schedule(name.clone());
        let newest = self.store.newest_events(&stream, 1).await?.pop();
        let newest = newest.map_or(0, |recorded| recorded.sequence.0);
        let most = u64::from(limit) * CHANGES_PER_ROW;
        let after = StreamSequence(newest.saturating_sub(most));
        let mut rows = HistoryRows::default();
        for recorded in self.store.events(&stream, after).await? {
            rows.add(recorded);
        }
        let mut rows = rows.newest_first(limit as usize);
        for row in &mut rows {
            if let Some(task) = row.task_id {
                row.task_status = self.store.task_row(task).await?.map(|row| row.status);
            }
        }
        Ok(rows)
    }

    /// The due times of a schedule in a range that have a task.
    pub async fn started_due_times(
        &self,
        name: &Name,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<BTreeSet<Timestamp>, HostError> {
        let stream = StreamId::Schedule(name.clone());
        let mut started = BTreeSet::new();
        for recorded in self.store.events(&stream, StreamSequence::default()).await? {
            let Event::ScheduleChanged { change: ScheduleChange::Tick { due, trigger, outcome } } =
                recorded.event
            else {
                continue;
            };
            if trigger == TickTrigger::Manual || due < from || due > to {
                continue;
            }
            match outcome {
                TickOutcome::Started { .. } => started.insert(due),
                TickOutcome::FailedToStart { .. } => started.remove(&due),
                TickOutcome::Queued | TickOutcome::Skipped { .. } | TickOutcome::Missed { .. } => {
                    continue;
                }
            };
        }
        Ok(started)
    }
}

/// The rows of a history. A later record of a due time replaces the earlier one.
#[derive(Default)]
struct HistoryRows {
    rows: Vec<Option<DueTimeRow>>,
    by_due: BTreeMap<(Timestamp, bool), usize>,
}

impl HistoryRows {
    fn add(&mut self, recorded: RecordedEvent) {
        let Event::ScheduleChanged { change } = recorded.event else { return };
        match change {
            ScheduleChange::Tick { due, trigger, outcome } => {
                // The record with the task stays.
                if outcome == (TickOutcome::Skipped { reason: SkipReason::AlreadyStarted }) {
                    return;
                }
                let row = row(due, trigger, outcome, recorded.at);
                let key = (due, trigger == TickTrigger::Manual);
                if let Some(earlier) = self.by_due.insert(key, self.rows.len()) {
                    self.rows[earlier] = None;
                }
                self.rows.push(Some(row));
            }
            ScheduleChange::Pass { first, last, count, is_more, outcome } => {
                let row = row(first, TickTrigger::Cron, outcome, recorded.at);
                self.rows.push(Some(DueTimeRow { last_due: Some(last), count, is_more, ..row }));
            }
            ScheduleChange::Register { .. }
            | ScheduleChange::Remove
            | ScheduleChange::Pause { .. }
            | ScheduleChange::Resume { .. }
            | ScheduleChange::End { .. }
            | ScheduleChange::Snapshot { .. } => {}
        }
    }

    fn newest_first(self, limit: usize) -> Vec<DueTimeRow> {
        self.rows.into_iter().flatten().rev().take(limit).collect()
    }
}

fn row(due: Timestamp, trigger: TickTrigger, outcome: TickOutcome, at: Timestamp) -> DueTimeRow {
    let row = DueTimeRow {
        due,
        last_due: None,
        count: 1,
        is_more: false,
        trigger: trigger.label(),
        outcome: outcome.label(),
        reason: None,
        message: None,
        task_id: None,
        task_status: None,
        recorded_at: at,
    };
    match outcome {
        TickOutcome::Started { task_id, start_at: _ } => {
            DueTimeRow { task_id: Some(task_id), ..row }
        }
        TickOutcome::Queued => row,
        TickOutcome::Skipped { reason } => {
            DueTimeRow { reason: Some(reason.label().to_owned()), ..row }
        }
        TickOutcome::Missed { reason } => {
            DueTimeRow { reason: Some(reason.label().to_owned()), ..row }
        }
        TickOutcome::FailedToStart { code, message } => {
            DueTimeRow { reason: Some(code), message: Some(message), ..row }
        }
    }
}
