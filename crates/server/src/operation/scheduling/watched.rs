//! One schedule that the server watches: its record, its decisions, and the tasks that it starts.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::{DueTimes, Home, ScheduleDefinition};
use polity_engine::agent_toggles::AgentToggles;
use polity_engine::clock::{Clock as _, SystemClock};
use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{EngineError, ScheduleRecord, ScheduleSubject, decide_schedule};
use polity_engine::schedule::{ScheduleCommand, StartFault, next_wake, replaced_runs};
use polity_host::{HostError, ScheduledStart, schedule_assignee, start_scheduled};
use polity_model::event::ScheduleChange;
use polity_model::ids::TaskId;
use polity_model::machine::schedule::ScheduleStatus;
use polity_model::machine::task::TaskStatus;
use polity_model::schedule::TickRun;

use crate::state::ServerState;

/// The time after which a failed decision is tried again.
pub(super) const RETRY_TIME: Duration = Duration::from_secs(1);

/// The time that another process has to create the task of its record.
pub(super) const OPEN_START_TIME: Duration = Duration::from_secs(2);

/// The age of a record, in hours, from which its missing task counts as removed.
const LOST_TASK_HOURS: i64 = 24;

/// A schedule with everything that its decisions need.
pub(super) struct WatchedSchedule {
    pub(super) definition: Arc<ScheduleDefinition>,
    times: DueTimes,
    /// None until its stream was read.
    pub(super) record: Option<ScheduleRecord>,
    /// The time of the next decision.
    pub(super) wake: Option<Timestamp>,
    /// True if the task of a record does not exist yet.
    pub(super) has_open_start: bool,
    /// True until its due times count.
    is_new: bool,
}

/// The reasons for a decision besides the time.
#[derive(Default)]
pub(super) struct ScheduleWork {
    /// True if another process has changed the stream.
    pub(super) reload: bool,
    /// True if the tasks of all runs are looked at.
    pub(super) check_tasks: bool,
    /// The tasks that have ended.
    pub(super) ended: Vec<EndedRun>,
}

/// A task that has ended.
pub(super) struct EndedRun {
    pub(super) task_id: TaskId,
    pub(super) completed: bool,
    pub(super) cancelled: bool,
}

/// What decisions need besides the schedule.
struct StartContext<'a> {
    state: &'a ServerState,
    home: &'a Home,
    toggles: &'a AgentToggles,
}

impl WatchedSchedule {
    pub(super) fn new(definition: Arc<ScheduleDefinition>, record: Option<ScheduleRecord>) -> Self {
        let times = definition.due_times();
        Self { definition, times, record, wake: None, has_open_start: false, is_new: true }
    }

    /// True if another process has removed it. The files say whether it exists again.
    pub(super) fn is_removed(&self) -> bool {
        let created = |record: &ScheduleRecord| record.state.status == ScheduleStatus::Created;
        !self.is_new && self.record.as_ref().is_some_and(created)
    }

    /// Tries again soon, after a failure.
    pub(super) fn retry_soon(&mut self) {
        let delay = SignedDuration::try_from(RETRY_TIME).unwrap_or_default();
        self.wake = SystemClock.now().checked_add(delay).ok();
    }

    /// Performs the work, decides on the due times, and returns the schedule with its next time.
    pub(super) async fn perform(
        mut self,
        state: &ServerState,
        home: &Home,
        toggles: &AgentToggles,
        work: ScheduleWork,
    ) -> Self {
        let context = StartContext { state, home, toggles };
        match self.advance(&context, work).await {
            Ok(()) => {
                let record = self.record.as_ref().filter(|_| !self.is_removed());
                self.wake = record
                    .and_then(|record| next_wake(&record.state, &self.definition, &self.times));
            }
            Err(error) => {
                let schedule = &self.definition.name;
                tracing::error!(%schedule, %error, "cannot decide on a schedule");
                // Whatever was committed is read again.
                self.record = None;
                self.retry_soon();
            }
        }
        self
    }

    async fn advance(
        &mut self,
        context: &StartContext<'_>,
        work: ScheduleWork,
    ) -> Result<(), HostError> {
        let store = context.state.host.queries().store();
        let mut check_tasks = work.check_tasks;
        match &mut self.record {
            Some(record) if work.reload => {
                let before: Vec<_> = record.state.running.iter().map(|run| run.task_id).collect();
                record.catch_up(&**store, &self.definition.name).await?;
                // Another process has started a run: it may have ended already, or the process may
                // have died before its task.
                check_tasks |=
                    record.state.running.iter().any(|run| !before.contains(&run.task_id));
            }
            Some(_) => {}
            None => {
                let record = ScheduleRecord::load(&**store, &self.definition.name).await?;
                check_tasks |= !record.state.running.is_empty();
                self.record = Some(record);
            }
        }
        if self.is_new {
            self.decide(context, ScheduleCommand::Register).await?;
            self.is_new = false;
        }
        for EndedRun { task_id, completed, cancelled } in work.ended {
            let end = ScheduleCommand::End { task_id, completed, cancelled };
            self.decide(context, end).await?;
        }
        if check_tasks {
            self.check_runs(context).await?;
        }
        self.decide(context, ScheduleCommand::Tick).await
    }

    /// Compares the open runs with their tasks.
    async fn check_runs(&mut self, context: &StartContext<'_>) -> Result<(), HostError> {
        self.has_open_start = false;
        let runs = self.record.as_ref().map(|record| record.state.running.clone());
        for run in runs.into_iter().flatten() {
            let row = context.state.host.queries().store().task_row(run.task_id).await?;
            let task_id = run.task_id;
            let end = match row.map(|row| row.status) {
                Some(TaskStatus::Completed) => (true, false),
                Some(TaskStatus::Failed) => (false, false),
                Some(TaskStatus::Cancelled) => (false, true),
                Some(TaskStatus::Pending | TaskStatus::Running | TaskStatus::AwaitingHuman) => {
                    continue;
                }
                None => {
                    self.repair_start(context, run).await?;
                    continue;
                }
            };
            let (completed, cancelled) = end;
            let end = ScheduleCommand::End { task_id, completed, cancelled };
            self.decide(context, end).await?;
        }
        Ok(())
    }

    /// Creates the task of a record that has none, because a process ended between the two.
    async fn repair_start(
        &mut self,
        context: &StartContext<'_>,
        run: TickRun,
    ) -> Result<(), HostError> {
        let age = SystemClock.now().duration_since(run.recorded_at);
        if age < SignedDuration::try_from(OPEN_START_TIME).unwrap_or_default() {
            self.has_open_start = true;
            return Ok(());
        }
        if age > SignedDuration::from_hours(LOST_TASK_HOURS) {
            // It ran long ago, and was removed with its end unseen.
            let (task_id, completed, cancelled) = (run.task_id, false, true);
            let end = ScheduleCommand::End { task_id, completed, cancelled };
            return self.decide(context, end).await;
        }
        let fault = self.start(context, run.due, run.task_id).await;
        match fault {
            Some(fault) => {
                let fail = ScheduleCommand::FailStart { task_id: run.task_id, fault };
                self.decide(context, fail).await
            }
            None => Ok(()),
        }
    }

    /// Commits a decision and starts its tasks.
    async fn decide(
        &mut self,
        context: &StartContext<'_>,
        command: ScheduleCommand,
    ) -> Result<(), HostError> {
        let mut next = vec![command];
        while let Some(command) = next.pop() {
            let changes = self.commit(context, &command).await?;
            for change in changes {
                let (label, count, started) = match change {
                    ScheduleChange::Tick { due, outcome, .. } => {
                        let started = outcome.task_id().map(|task_id| (due, task_id));
                        (outcome.label(), 1, started)
                    }
                    ScheduleChange::Pass { count, outcome, .. } => (outcome.label(), count, None),
                    ScheduleChange::Register { .. }
                    | ScheduleChange::Remove
                    | ScheduleChange::Pause { .. }
                    | ScheduleChange::Resume { .. }
                    | ScheduleChange::End { .. }
                    | ScheduleChange::Snapshot { .. } => continue,
                };
                context.state.metrics.count_ticks(&self.definition.name, label, count);
                if let Some((due, task_id)) = started
                    && let Some(fault) = self.start(context, due, task_id).await
                {
                    next.push(ScheduleCommand::Tick);
                    next.push(ScheduleCommand::FailStart { task_id, fault });
                }
            }
        }
        self.cancel_replaced(context).await;
        Ok(())
    }

    async fn commit(
        &mut self,
        context: &StartContext<'_>,
        command: &ScheduleCommand,
    ) -> Result<Vec<ScheduleChange>, HostError> {
        let Some(record) = &mut self.record else { return Ok(Vec::new()) };
        let StartContext { state, home, toggles } = context;
        let is_due = match record.state.status {
            ScheduleStatus::Created => false,
            ScheduleStatus::Active | ScheduleStatus::Executing | ScheduleStatus::Paused => {
                let next = self.times.next_due(record.state.decided_until);
                !record.state.queued.is_empty() || next.is_some_and(|due| due <= SystemClock.now())
            }
        };
        // Looked up only where a task may start: there may be very many schedules.
        let fault = if is_due {
            schedule_assignee(&state.context, home, toggles, &self.definition).err()
        } else {
            None
        };
        let (definition, times) = (&*self.definition, &self.times);
        let subject = ScheduleSubject { definition, times, fault: fault.as_ref() };
        let store = state.host.queries().store();
        Ok(decide_schedule(&**store, &SystemClock, record, subject, command).await?)
    }

    /// Creates the task of a durable record. Returns the reason if it can never be created.
    async fn start(
        &mut self,
        context: &StartContext<'_>,
        due: Timestamp,
        task_id: TaskId,
    ) -> Option<StartFault> {
        let StartContext { state, home, toggles } = context;
        let definition = &self.definition;
        let assignee = match schedule_assignee(&state.context, home, toggles, definition) {
            Ok(assignee) => assignee,
            Err(fault) => return Some(fault),
        };
        let schedule = &definition.name;
        match start_scheduled(&state.host, assignee, definition, due, task_id).await {
            ScheduledStart::Started(_) => {
                tracing::info!(%schedule, %due, task = %task_id, "started");
            }
            ScheduledStart::Exists => {}
            ScheduledStart::Later(error) => {
                tracing::error!(%schedule, %due, %error, "cannot create a task, trying again");
                self.has_open_start = true;
            }
            ScheduledStart::Failed(fault) => return Some(fault),
        }
        None
    }

    /// Cancels the runs that a newer one replaces.
    async fn cancel_replaced(&self, context: &StartContext<'_>) {
        let Some(record) = &self.record else { return };
        for id in replaced_runs(&record.state, &self.definition) {
            match context.state.host.runtime().cancel(id).await {
                // It has ended by itself, or the record of its task is repaired later.
                Ok(_)
                | Err(
                    EngineError::Rejected(CommandRejection::Finished { .. })
                    | EngineError::NotFound(_),
                ) => {}
                Err(error) => {
                    let schedule = &self.definition.name;
                    tracing::warn!(%schedule, task = %id, %error, "cannot cancel a replaced run");
                }
            }
        }
    }
}
