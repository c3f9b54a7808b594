//! Commands to a schedule, and the inputs of a decision besides its state.

use std::collections::BTreeSet;

use jiff::Timestamp;
use polity_definition::{DueTimes, ScheduleDefinition};
use polity_model::ids::TaskId;

/// A command to a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleCommand {
    /// Counts due times from now on, if no process has watched the schedule or its times changed.
    /// The commands of people do so first.
    Register,
    /// Decides on every due time up to now, and starts those that wait if they can start. Only a
    /// process that then creates the tasks may send it.
    Tick,
    /// Pauses the schedule.
    Pause {
        /// The person.
        by: String,
        /// The reason, for people.
        note: Option<String>,
    },
    /// Resumes the schedule.
    Resume {
        /// The person.
        by: String,
    },
    /// Starts a run now, whatever runs already.
    RunNow {
        /// The id of the task, if the request determines it.
        task_id: Option<TaskId>,
    },
    /// Asks the process that watches the schedule to start a run.
    RequestRun,
    /// Queues the due times of a past range that have no task.
    Backfill {
        /// The start of the range, included.
        from: Timestamp,
        /// The end of the range, included.
        to: Timestamp,
        /// The due times that have a task.
        started: BTreeSet<Timestamp>,
    },
    /// Records that a task could not be created.
    FailStart {
        /// The task.
        task_id: TaskId,
        /// The reason.
        fault: StartFault,
    },
    /// Records the end of a task.
    End {
        /// The task.
        task_id: TaskId,
        /// True if it was completed.
        completed: bool,
        /// True if it was cancelled.
        cancelled: bool,
    },
}

/// The reason why a schedule cannot start its agent or workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFault {
    /// The reason, for programs.
    pub code: String,
    /// The reason, for people.
    pub message: String,
}

/// The inputs of a decision besides state and command.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleContext<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The definition.
    pub definition: &'a ScheduleDefinition,
    /// The due times of the definition.
    pub times: &'a DueTimes,
    /// The reason why no task can start, if there is one.
    pub fault: Option<&'a StartFault>,
}
