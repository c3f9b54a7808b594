//! The state of a schedule, folded from its stream.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::event::{ScheduleChange, TickOutcome, TickTrigger};
use crate::ids::TaskId;
use crate::machine::schedule::{ScheduleStatus, ScheduleTransition};
use crate::machine::{IllegalTransition, Machine};

/// The state of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleState {
    /// Its status.
    pub status: ScheduleStatus,
    /// The digest of the fields that determine its due times.
    pub timing: Option<Digest>,
    /// The newest due time with a record, or the time from which due times count.
    pub decided_until: Timestamp,
    /// The open pause.
    pub pause: Option<SchedulePause>,
    /// The runs that have not ended, oldest first.
    pub running: Vec<TickRun>,
    /// The due times that wait, oldest first.
    pub queued: Vec<QueuedTick>,
    /// The number of failures since the last success or resume.
    pub consecutive_failures: u32,
    /// The newest run.
    pub last_run: Option<TickRun>,
}

/// A pause of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulePause {
    /// The person; none if failures paused it.
    pub by: Option<String>,
    /// The reason, for people.
    pub note: Option<String>,
    /// The time of the pause.
    pub at: Timestamp,
}

/// A run that a schedule started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickRun {
    /// The due time.
    pub due: Timestamp,
    /// The task.
    pub task_id: TaskId,
    /// The cause.
    pub trigger: TickTrigger,
    /// The time of the record.
    pub recorded_at: Timestamp,
}

/// A due time that waits for an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedTick {
    /// The due time.
    pub due: Timestamp,
    /// The cause.
    pub trigger: TickTrigger,
}

impl Default for ScheduleState {
    fn default() -> Self {
        Self {
            status: ScheduleStatus::INITIAL,
            timing: None,
            decided_until: Timestamp::MIN,
            pause: None,
            running: Vec::new(),
            queued: Vec::new(),
            consecutive_failures: 0,
            last_run: None,
        }
    }
}

impl ScheduleState {
    /// Applies a change that was committed at a time.
    pub fn apply(
        &mut self,
        change: &ScheduleChange,
        at: Timestamp,
    ) -> Result<(), IllegalTransition<ScheduleStatus>> {
        use ScheduleTransition as On;
        match change {
            ScheduleChange::Register { timing } => {
                if self.status == ScheduleStatus::Created {
                    self.status = self.status.transition(On::Register)?;
                }
                self.timing = Some(*timing);
                self.decided_until = self.decided_until.max(at);
            }
            ScheduleChange::Remove => {
                // A new schedule of the same name does not repeat the due times of this one.
                let decided_until = self.decided_until.max(at);
                self.status.transition(On::Remove)?;
                *self = Self { decided_until, last_run: self.last_run, ..Self::default() };
            }
            ScheduleChange::Pause { by, note } => {
                self.status = self.status.transition(On::Pause)?;
                self.pause = Some(SchedulePause { by: by.clone(), note: note.clone(), at });
            }
            ScheduleChange::Resume { by: _ } => {
                let is_idle = self.running.is_empty();
                self.status =
                    self.status.transition(if is_idle { On::Resume } else { On::Proceed })?;
                self.pause = None;
                self.consecutive_failures = 0;
            }
            ScheduleChange::Tick { due, trigger, outcome } => {
                self.tick(*due, *trigger, outcome, at)?;
            }
            ScheduleChange::Pass { last, .. } => self.decided_until = self.decided_until.max(*last),
            ScheduleChange::End { task_id, completed, cancelled } => {
                self.end(*task_id, *completed, *cancelled)?;
            }
            ScheduleChange::Snapshot { state } => self.clone_from(state),
        }
        Ok(())
    }

    fn tick(
        &mut self,
        due: Timestamp,
        trigger: TickTrigger,
        outcome: &TickOutcome,
        at: Timestamp,
    ) -> Result<(), IllegalTransition<ScheduleStatus>> {
        self.queued.retain(|tick| tick.due != due || tick.trigger != trigger);
        match outcome {
            TickOutcome::Started { task_id, .. } => {
                self.status = self.status.transition(ScheduleTransition::Start)?;
                let run = TickRun { due, task_id: *task_id, trigger, recorded_at: at };
                self.running.push(run);
                self.last_run = Some(run);
            }
            TickOutcome::Queued => self.queued.push(QueuedTick { due, trigger }),
            TickOutcome::FailedToStart { .. } => {
                self.consecutive_failures += 1;
                // The record of a start that failed after it was announced.
                let before = self.running.len();
                self.running.retain(|run| run.due != due);
                if before > 0 && self.running.is_empty() {
                    self.status = self.status.transition(ScheduleTransition::Finish)?;
                }
            }
            TickOutcome::Skipped { .. } | TickOutcome::Missed { .. } => {}
        }
        match trigger {
            TickTrigger::Cron | TickTrigger::CatchUp => {
                self.decided_until = self.decided_until.max(due);
            }
            TickTrigger::Manual | TickTrigger::Backfill => {}
        }
        Ok(())
    }

    fn end(
        &mut self,
        task_id: TaskId,
        completed: bool,
        cancelled: bool,
    ) -> Result<(), IllegalTransition<ScheduleStatus>> {
        let before = self.running.len();
        self.running.retain(|run| run.task_id != task_id);
        if self.running.len() == before {
            return Ok(());
        }
        self.consecutive_failures = match (completed, cancelled) {
            (true, _) => 0,
            (false, true) => self.consecutive_failures,
            (false, false) => self.consecutive_failures + 1,
        };
        if self.running.is_empty() {
            self.status = self.status.transition(ScheduleTransition::Finish)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn tick(due: i64, outcome: TickOutcome) -> ScheduleChange {
        ScheduleChange::Tick { due: at(due), trigger: TickTrigger::Cron, outcome }
    }

    fn started(number: u8) -> TickOutcome {
        let task_id = TaskId::from_random_bytes([number; 16]);
        TickOutcome::Started { task_id, start_at: at(0) }
    }

    fn end(number: u8, completed: bool) -> ScheduleChange {
        ScheduleChange::End {
            task_id: TaskId::from_random_bytes([number; 16]),
            completed,
            cancelled: false,
        }
    }

    #[test]
    fn runs_queues_pauses_and_failures_are_folded() {
        use ScheduleStatus as Is;
        let mut state = ScheduleState::default();
        let mut apply = |change: ScheduleChange| {
            state.apply(&change, at(100)).unwrap();
            (state.status, state.running.len(), state.queued.len(), state.consecutive_failures)
        };
        let register = ScheduleChange::Register { timing: Digest::of(b"") };
        assert_eq!(apply(register), (Is::Active, 0, 0, 0));
        assert_eq!(apply(tick(110, started(1))), (Is::Executing, 1, 0, 0));
        assert_eq!(apply(tick(120, TickOutcome::Queued)), (Is::Executing, 1, 1, 0));
        assert_eq!(apply(end(1, false)), (Is::Active, 0, 1, 1));
        assert_eq!(apply(tick(120, started(2))), (Is::Executing, 1, 0, 1));
        let pause = ScheduleChange::Pause { by: None, note: None };
        assert_eq!(apply(pause), (Is::Paused, 1, 0, 1));
        assert_eq!(apply(ScheduleChange::Resume { by: "ada".into() }), (Is::Executing, 1, 0, 0));
        assert_eq!(apply(end(2, true)), (Is::Active, 0, 0, 0));
        assert_eq!(apply(end(2, false)), (Is::Active, 0, 0, 0));
        assert_eq!(state.decided_until, at(120));
    }

    #[test]
    fn failed_start_ends_its_run_and_a_cancelled_one_is_no_failure() {
        let mut state = ScheduleState::default();
        let mut apply = |change: ScheduleChange| {
            state.apply(&change, at(100)).unwrap();
            (state.status, state.running.len(), state.consecutive_failures)
        };
        apply(ScheduleChange::Register { timing: Digest::of(b"") });
        apply(tick(110, started(1)));
        let failed = TickOutcome::FailedToStart { code: "x".into(), message: "y".into() };
        assert_eq!(apply(tick(110, failed)), (ScheduleStatus::Active, 0, 1));
        apply(tick(120, started(2)));
        let task_id = TaskId::from_random_bytes([2; 16]);
        let cancelled = ScheduleChange::End { task_id, completed: false, cancelled: true };
        assert_eq!(apply(cancelled), (ScheduleStatus::Active, 0, 1));
        let whole = ScheduleChange::Snapshot { state: Box::new(state.clone()) };
        let mut copy = ScheduleState::default();
        copy.apply(&whole, at(130)).unwrap();
        assert_eq!(copy, state);
    }

    #[test]
    fn a_removed_schedule_keeps_what_was_decided() {
        let mut state = ScheduleState::default();
        state.apply(&ScheduleChange::Register { timing: Digest::of(b"") }, at(5)).unwrap();
        state.apply(&tick(10, started(1)), at(10)).unwrap();
        state.apply(&ScheduleChange::Remove, at(12)).unwrap();
        assert_eq!((state.status, state.decided_until), (ScheduleStatus::Created, at(12)));
        assert!(state.running.is_empty());
        let pause = ScheduleChange::Pause { by: None, note: None };
        assert!(state.apply(&pause, at(13)).is_err());
    }
}
