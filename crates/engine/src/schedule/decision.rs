//! The rules of schedules.
//!
//! ```text
//! the due time            disabled  paused  missed          agent unusable  free     busy
//! came just now           skipped   skipped -               failed          started  by overlap
//! passed unwatched        skipped   skipped by catch_up     failed          started  queued *
//! was asked for (backfill)                                  failed when its turn comes, else queued
//! a run by hand           started, whatever the state; refused if the agent is unusable
//! * with overlap allow, started
//! ```

use jiff::{SignedDuration, Timestamp};
use polity_definition::{CatchUpPolicy, DueTimes, OverlapPolicy, ScheduleDefinition};
use polity_model::event::{
    MissReason, ScheduleChange, SkipReason, TickOutcome, TickTrigger, scheduled_task_id,
};
use polity_model::ids::TaskId;
use polity_model::machine::schedule::ScheduleStatus;
use polity_model::schedule::{QueuedTick, ScheduleState};

use super::{
    DueRange, LATE_SECONDS_MAX, PASS_SECONDS, QUEUED_TICKS_MAX, ScheduleCommand, ScheduleContext,
    ScheduleRejection, StartFault,
};

/// Decides on a command: the changes to commit.
pub fn decide(
    state: &ScheduleState,
    command: &ScheduleCommand,
    ctx: &ScheduleContext<'_>,
) -> Result<Vec<ScheduleChange>, ScheduleRejection> {
    let begins = match command {
        ScheduleCommand::Register
        | ScheduleCommand::Pause { .. }
        | ScheduleCommand::Resume { .. }
        | ScheduleCommand::RunNow { .. }
        | ScheduleCommand::RequestRun
        | ScheduleCommand::Backfill { .. } => true,
        // The schedule was removed meanwhile.
        ScheduleCommand::Tick | ScheduleCommand::FailStart { .. } | ScheduleCommand::End { .. } => {
            false
        }
    };
    if state.status == ScheduleStatus::Created && !begins {
        return Ok(Vec::new());
    }
    let mut plan = SchedulePlan { state: state.clone(), changes: Vec::new(), ctx: *ctx };
    plan.register()?;
    match command {
        ScheduleCommand::Register => {}
        ScheduleCommand::Tick => {
            plan.start_queued()?;
            plan.decide_due()?;
            plan.start_queued()?;
        }
        ScheduleCommand::Pause { by, note } => plan.pause_by(by, note.as_deref())?,
        ScheduleCommand::Resume { by } => {
            if plan.state.status != ScheduleStatus::Paused {
                return Err(ScheduleRejection::NotPaused(plan.name()));
            }
            plan.decide_due()?;
            plan.push(ScheduleChange::Resume { by: by.clone() })?;
        }
        ScheduleCommand::RunNow { task_id } => plan.run_now(*task_id)?,
        ScheduleCommand::RequestRun => {
            plan.expect_usable()?;
            plan.expect_room(1)?;
            plan.tick(plan.free_time(), TickTrigger::Manual, TickOutcome::Queued)?;
        }
        ScheduleCommand::Backfill { from, to, started } => {
            plan.backfill(*from, *to, |due| started.contains(&due))?;
        }
        ScheduleCommand::FailStart { task_id, fault } => plan.fail_start(*task_id, fault)?,
        ScheduleCommand::End { task_id, completed, cancelled } => {
            plan.end(*task_id, *completed, *cancelled)?;
        }
    }
    Ok(plan.changes)
}

/// Decides on the removal of a definition: what waits is withdrawn.
pub fn decide_removal(state: &ScheduleState) -> Vec<ScheduleChange> {
    if state.status == ScheduleStatus::Created {
        return Vec::new();
    }
    let withdrawn = state.queued.iter().map(|tick| ScheduleChange::Tick {
        due: tick.due,
        trigger: tick.trigger,
        outcome: skipped(SkipReason::Withdrawn),
    });
    withdrawn.chain([ScheduleChange::Remove]).collect()
}

/// The time at which the next decision is due; none if no due time follows.
pub fn next_wake(
    state: &ScheduleState,
    definition: &ScheduleDefinition,
    times: &DueTimes,
) -> Option<Timestamp> {
    let start = times.start_of(times.next_due(state.decided_until)?);
    if state.status != ScheduleStatus::Paused && definition.enabled {
        return Some(start);
    }
    // Nothing starts: the records may be written together.
    let pause = SignedDuration::from_secs(PASS_SECONDS);
    Some(state.decided_until.checked_add(pause).map_or(start, |next| next.max(start)))
}

/// The runs that the newest one replaces.
pub fn replaced_runs(state: &ScheduleState, definition: &ScheduleDefinition) -> Vec<TaskId> {
    match definition.overlap {
        OverlapPolicy::Replace => {
            let older = state.running.len().saturating_sub(1);
            state.running.iter().take(older).map(|run| run.task_id).collect()
        }
        OverlapPolicy::Skip
        | OverlapPolicy::QueueOne
        | OverlapPolicy::QueueAll
        | OverlapPolicy::Allow => Vec::new(),
    }
}

/// The changes so far, and the state after them.
struct SchedulePlan<'a> {
    state: ScheduleState,
    changes: Vec<ScheduleChange>,
    ctx: ScheduleContext<'a>,
}

impl SchedulePlan<'_> {
    fn name(&self) -> polity_model::name::Name {
        self.ctx.definition.name.clone()
    }

    fn push(&mut self, change: ScheduleChange) -> Result<(), ScheduleRejection> {
        let applied = self.state.apply(&change, self.ctx.now);
        applied.map_err(|illegal| ScheduleRejection::broken(&self.ctx.definition.name, illegal))?;
        self.changes.push(change);
        Ok(())
    }

    fn tick(
        &mut self,
        due: Timestamp,
        trigger: TickTrigger,
        outcome: TickOutcome,
    ) -> Result<(), ScheduleRejection> {
        let failed = match outcome {
            TickOutcome::FailedToStart { .. } => true,
            TickOutcome::Started { .. }
            | TickOutcome::Queued
            | TickOutcome::Skipped { .. }
            | TickOutcome::Missed { .. } => false,
        };
        self.push(ScheduleChange::Tick { due, trigger, outcome })?;
        if failed { self.pause_after_failures() } else { Ok(()) }
    }

    /// Counts due times from now on, if no process has watched the schedule, or if its times changed.
    fn register(&mut self) -> Result<(), ScheduleRejection> {
        let timing = self.ctx.definition.timing_digest();
        if self.state.status != ScheduleStatus::Created && self.state.timing == Some(timing) {
            return Ok(());
        }
        self.withdraw(|tick| tick.trigger != TickTrigger::Manual)?;
        self.push(ScheduleChange::Register { timing })
    }

    /// Records that due times no longer wait.
    fn withdraw(&mut self, which: impl Fn(&QueuedTick) -> bool) -> Result<(), ScheduleRejection> {
        let withdrawn: Vec<_> =
            self.state.queued.iter().copied().filter(|tick| which(tick)).collect();
        for QueuedTick { due, trigger } in withdrawn {
            let reason = SkipReason::Withdrawn;
            self.tick(due, trigger, TickOutcome::Skipped { reason })?;
        }
        Ok(())
    }

    fn pause_by(&mut self, by: &str, note: Option<&str>) -> Result<(), ScheduleRejection> {
        if self.state.status == ScheduleStatus::Paused {
            let note = self.state.pause.as_ref().and_then(|pause| pause.note.clone());
            return Err(ScheduleRejection::AlreadyPaused { schedule: self.name(), note });
        }
        let note = note.map(str::to_owned);
        self.push(ScheduleChange::Pause { by: Some(by.to_owned()), note })
    }

    fn pause_after_failures(&mut self) -> Result<(), ScheduleRejection> {
        let failures = self.state.consecutive_failures;
        let is_over = self.ctx.definition.pause_after_failures.is_some_and(|n| failures >= n.get());
        if !is_over || self.state.status == ScheduleStatus::Paused {
            return Ok(());
        }
        let note = Some(format!("{failures} failures in a row (pause_after_failures)"));
        self.push(ScheduleChange::Pause { by: None, note })
    }

    /// Gives every due time up to now its record.
    fn decide_due(&mut self) -> Result<(), ScheduleRejection> {
        let definition = self.ctx.definition;
        if self.state.status == ScheduleStatus::Paused {
            return self.pass_until(self.ctx.now, skipped(SkipReason::Paused));
        }
        if !definition.enabled {
            return self.pass_until(self.ctx.now, skipped(SkipReason::Disabled));
        }
        let jitter = i64::try_from(definition.jitter_seconds).unwrap_or(i64::MAX);
        let late = SignedDuration::from_secs(LATE_SECONDS_MAX.saturating_add(jitter));
        if let Ok(missed_until) = self.ctx.now.checked_sub(late) {
            self.decide_missed(missed_until)?;
        }
        while let Some(due) = self.ctx.times.next_due(self.state.decided_until)
            && due <= self.ctx.now
            && self.ctx.times.start_of(due) <= self.ctx.now
        {
            // Failures may have paused it meanwhile.
            if self.state.status == ScheduleStatus::Paused {
                return self.pass_until(self.ctx.now, skipped(SkipReason::Paused));
            }
            self.start_or_wait(due, TickTrigger::Cron)?;
        }
        Ok(())
    }

    /// Decides on the due times that passed while no process watched.
    fn decide_missed(&mut self, until: Timestamp) -> Result<(), ScheduleRejection> {
        let Some(missed) = DueRange::between(self.ctx.times, self.state.decided_until, until)
        else {
            return Ok(());
        };
        let definition = self.ctx.definition;
        if definition.catch_up == CatchUpPolicy::None {
            return self.pass_until(until, missed_for(MissReason::NoCatchUp));
        }
        let window = definition.catch_up_window_seconds.and_then(|seconds| {
            let window = SignedDuration::from_secs(i64::try_from(seconds).ok()?);
            // A due time at the start of the window is within it.
            self.ctx.now.checked_sub(window + SignedDuration::from_nanos(1)).ok()
        });
        if let Some(start) = window {
            self.pass_until(start.min(until), missed_for(MissReason::OutsideWindow))?;
        }
        if missed.last <= self.state.decided_until {
            return Ok(());
        }
        match definition.catch_up {
            CatchUpPolicy::None => {}
            CatchUpPolicy::Last => {
                let before = missed.last.checked_sub(SignedDuration::from_nanos(1));
                if let Ok(before) = before {
                    self.pass_until(before, missed_for(MissReason::Superseded))?;
                }
                self.start_or_wait(missed.last, TickTrigger::CatchUp)?;
            }
            CatchUpPolicy::All => {
                let room = QUEUED_TICKS_MAX.saturating_sub(self.state.queued.len());
                let from = self.state.decided_until;
                let times = self.ctx.times;
                for due in times.due_between(from, until).take(room) {
                    if self.state.status == ScheduleStatus::Paused {
                        return self.pass_until(until, skipped(SkipReason::Paused));
                    }
                    self.start_or_wait(due, TickTrigger::CatchUp)?;
                }
                self.pass_until(until, skipped(SkipReason::QueueFull))?;
            }
        }
        Ok(())
    }

    /// Records all due times up to a time with one outcome.
    fn pass_until(
        &mut self,
        until: Timestamp,
        outcome: TickOutcome,
    ) -> Result<(), ScheduleRejection> {
        let from = self.state.decided_until;
        match DueRange::between(self.ctx.times, from, until) {
            None => Ok(()),
            Some(DueRange { first, count: 1, .. }) => self.tick(first, TickTrigger::Cron, outcome),
            Some(DueRange { first, last, count, is_more }) => {
                self.push(ScheduleChange::Pass { first, last, count, is_more, outcome })
            }
        }
    }

    /// Starts a due time, queues it or skips it.
    fn start_or_wait(
        &mut self,
        due: Timestamp,
        trigger: TickTrigger,
    ) -> Result<(), ScheduleRejection> {
        if let Some(fault) = self.ctx.fault {
            return self.tick(due, trigger, failed(fault));
        }
        let is_free = self.state.running.is_empty() && self.state.queued.is_empty();
        if is_free || self.ctx.definition.overlap == OverlapPolicy::Allow {
            return self.start(due, trigger);
        }
        let queued = self.state.queued.len();
        let outcome = match (trigger, self.ctx.definition.overlap) {
            // Times that were asked for are made up one after the other.
            (TickTrigger::CatchUp | TickTrigger::Backfill | TickTrigger::Manual, _) => {
                TickOutcome::Queued
            }
            (TickTrigger::Cron, OverlapPolicy::Replace) => return self.start(due, trigger),
            (TickTrigger::Cron, OverlapPolicy::Skip) => skipped(SkipReason::Overlap),
            (TickTrigger::Cron, OverlapPolicy::QueueOne) if queued > 0 => {
                skipped(SkipReason::QueueFull)
            }
            (TickTrigger::Cron, _) if queued >= QUEUED_TICKS_MAX => skipped(SkipReason::QueueFull),
            (
                TickTrigger::Cron,
                OverlapPolicy::QueueOne | OverlapPolicy::QueueAll | OverlapPolicy::Allow,
            ) => TickOutcome::Queued,
        };
        self.tick(due, trigger, outcome)
    }

    fn start(&mut self, due: Timestamp, trigger: TickTrigger) -> Result<(), ScheduleRejection> {
        let ScheduleContext { definition, times, now, .. } = self.ctx;
        let task_id = scheduled_task_id(&definition.name, definition.timing_digest(), due, trigger);
        let start_at = match trigger {
            TickTrigger::Cron => times.start_of(due),
            TickTrigger::Manual | TickTrigger::Backfill | TickTrigger::CatchUp => now,
        };
        self.tick(due, trigger, TickOutcome::Started { task_id, start_at })
    }

    /// Starts what waits: runs by hand at once, others when nothing runs.
    fn start_queued(&mut self) -> Result<(), ScheduleRejection> {
        loop {
            let is_open = self.state.status != ScheduleStatus::Paused
                && (self.state.running.is_empty()
                    || self.ctx.definition.overlap == OverlapPolicy::Allow);
            let next = self.state.queued.iter().copied().find(|tick| match tick.trigger {
                TickTrigger::Manual => true,
                TickTrigger::Cron | TickTrigger::Backfill | TickTrigger::CatchUp => is_open,
            });
            let Some(QueuedTick { due, trigger }) = next else { return Ok(()) };
            match self.ctx.fault {
                Some(fault) => self.tick(due, trigger, failed(fault))?,
                None => self.start(due, trigger)?,
            }
        }
    }

    fn expect_usable(&self) -> Result<(), ScheduleRejection> {
        match self.ctx.fault {
            None => Ok(()),
            Some(StartFault { code, message }) => Err(ScheduleRejection::CannotStart {
                schedule: self.name(),
                code: code.clone(),
                message: message.clone(),
            }),
        }
    }

    fn expect_room(&self, more: usize) -> Result<(), ScheduleRejection> {
        if self.state.queued.len() + more > QUEUED_TICKS_MAX {
            return Err(ScheduleRejection::TooManyTicks(self.name()));
        }
        Ok(())
    }

    /// The time of a run by hand: now, or just after the last one of this microsecond.
    fn free_time(&self) -> Timestamp {
        let running = self.state.running.iter().map(|run| run.due);
        let queued = self.state.queued.iter().map(|tick| tick.due);
        let last = self.state.last_run.iter().map(|run| run.due);
        let newest = running.chain(queued).chain(last).filter(|due| *due >= self.ctx.now).max();
        let after = newest.and_then(|due| due.checked_add(SignedDuration::from_micros(1)).ok());
        after.unwrap_or(self.ctx.now)
    }

    fn run_now(&mut self, task_id: Option<TaskId>) -> Result<(), ScheduleRejection> {
        self.expect_usable()?;
        let due = self.free_time();
        match task_id {
            None => self.start(due, TickTrigger::Manual),
            Some(task_id) => {
                let started = TickOutcome::Started { task_id, start_at: self.ctx.now };
                self.tick(due, TickTrigger::Manual, started)
            }
        }
    }

    fn backfill(
        &mut self,
        from: Timestamp,
        to: Timestamp,
        has_task: impl Fn(Timestamp) -> bool,
    ) -> Result<(), ScheduleRejection> {
        if from > to || to > self.ctx.now {
            return Err(ScheduleRejection::InvalidRange { from, to });
        }
        // The start of the range is part of it.
        let before = from.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(from);
        let times = self.ctx.times;
        let due: Vec<_> = times.due_between(before, to).take(QUEUED_TICKS_MAX + 1).collect();
        if due.is_empty() {
            return Err(ScheduleRejection::EmptyRange { schedule: self.name(), from, to });
        }
        self.expect_room(due.len())?;
        for due in due {
            let waits = self.state.queued.iter().any(|tick| tick.due == due);
            if !waits && !has_task(due) {
                self.tick(due, TickTrigger::Backfill, TickOutcome::Queued)?;
            }
        }
        Ok(())
    }

    fn fail_start(&mut self, task_id: TaskId, fault: &StartFault) -> Result<(), ScheduleRejection> {
        let run = self.state.running.iter().find(|run| run.task_id == task_id).copied();
        let Some(run) = run else { return Ok(()) };
        self.tick(run.due, run.trigger, failed(fault))
    }

    fn end(
        &mut self,
        task_id: TaskId,
        completed: bool,
        cancelled: bool,
    ) -> Result<(), ScheduleRejection> {
        if !self.state.running.iter().any(|run| run.task_id == task_id) {
            return Ok(());
        }
        self.push(ScheduleChange::End { task_id, completed, cancelled })?;
        self.pause_after_failures()
    }
}

fn skipped(reason: SkipReason) -> TickOutcome {
    TickOutcome::Skipped { reason }
}

fn missed_for(reason: MissReason) -> TickOutcome {
    TickOutcome::Missed { reason }
}

fn failed(StartFault { code, message }: &StartFault) -> TickOutcome {
    TickOutcome::FailedToStart { code: code.clone(), message: message.clone() }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
