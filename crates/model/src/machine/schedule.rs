//! The life of a schedule.
//!
//! ```text
//! created    register  active     a process began to watch it
//! active     start     executing
//! active     pause     paused
//! executing  start     executing  a second run, if the overlap policy allows it
//! executing  finish    active     the last run ended
//! executing  pause     paused     runs continue
//! paused     start     paused     a person started it
//! paused     finish    paused
//! paused     resume    active
//! paused     proceed   executing  resumed while a run continues
//! any        remove    created
//! ```

use super::machine;

machine! {
    "schedule";

    /// A state of a schedule.
    /// A state of a schedule.
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ScheduleStatus {
        /// It is defined, and no process watches it yet.
        Created = "created",
        /// It waits for its next due time.
        Active = "active",
        /// A task that it started has not ended.
        Executing = "executing",
        /// Its due times are skipped.
        Paused = "paused",
    }

    /// An event of a schedule.
    pub enum ScheduleTransition {
        /// A process begins to watch it.
        Register = "register",
        /// A task starts.
        Start = "start",
        /// Its last running task has ended.
        Finish = "finish",
        /// A person or a number of failures pauses it.
        Pause = "pause",
        /// A person resumes it, and nothing runs.
        Resume = "resume",
        /// A person resumes it while a task runs.
        Proceed = "proceed",
        /// Its definition is removed.
        Remove = "remove",
    }
}

impl ScheduleStatus {
    #[inline]
    fn next(self, event: ScheduleTransition) -> Option<Self> {
        use ScheduleTransition as On;
        match (self, event) {
            (Self::Created, On::Register)
            | (Self::Executing, On::Finish)
            | (Self::Paused, On::Resume) => Some(Self::Active),
            (Self::Active | Self::Executing, On::Start) | (Self::Paused, On::Proceed) => {
                Some(Self::Executing)
            }
            (Self::Active | Self::Executing, On::Pause)
            | (Self::Paused, On::Start | On::Finish) => Some(Self::Paused),
            (Self::Created | Self::Active | Self::Executing | Self::Paused, On::Remove) => {
                Some(Self::Created)
            }
            (Self::Created, On::Start | On::Finish | On::Pause | On::Resume | On::Proceed)
            | (Self::Active, On::Register | On::Finish | On::Resume | On::Proceed)
            | (Self::Executing, On::Register | On::Resume | On::Proceed)
            | (Self::Paused, On::Register | On::Pause) => None,
        }
    }
}
