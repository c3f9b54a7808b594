//! Runs in doubt: whether the last run of a CLI agent was cut off, so that it may have had its effect.
//!
//! A program that ended by itself has reported what became of it, also if it failed. A program that
//! was stopped, timed out, killed or lost has not.

use polity_model::event::{Event, ExecutionChange, RecordedEvent};
use polity_model::ids::ExecutionId;
use polity_model::review::ReviewVerdict;
use polity_model::run::{ProcessExit, RunReport};

use crate::pinned::Assignee;
use crate::state::TaskState;

/// The run of an ended task that may have had its effect. `rest` holds the events after the first,
/// and `first` is the state before them.
pub(crate) fn find_doubted_run(
    assignee: &Assignee,
    first: &TaskState,
    rest: &[RecordedEvent],
) -> Option<ExecutionId> {
    assignee.agent()?.program()?;
    let mut doubted = first.task().order().doubted_run;
    for recorded in rest {
        match &recorded.event {
            Event::ExecutionChanged { execution_id, change } => match change {
                ExecutionChange::Start { .. }
                | ExecutionChange::Run { .. }
                | ExecutionChange::Retry
                | ExecutionChange::TimeOut
                | ExecutionChange::Cancel => doubted = Some(*execution_id),
                ExecutionChange::Report { report, .. } if is_settled(report) => doubted = None,
                ExecutionChange::Complete => doubted = None,
                // The report before it says how the program ended; without one, it is unknown.
                ExecutionChange::Report { .. }
                | ExecutionChange::Fail { .. }
                | ExecutionChange::Queue { .. }
                | ExecutionChange::EndRemote { .. }
                | ExecutionChange::CleanUp
                | ExecutionChange::Finish => {}
            },
            // A person has decided that it may run again.
            Event::ReviewAnswered { verdict: ReviewVerdict::Retry, .. } => doubted = None,
            Event::ReviewAnswered { .. }
            | Event::TaskCreated(_)
            | Event::TaskClaimed { .. }
            | Event::TaskReleased
            | Event::TaskStarted
            | Event::TaskPaused
            | Event::TaskResumed
            | Event::RunShared { .. }
            | Event::CancelRequested
            | Event::TaskImported
            | Event::TaskTrusted { .. }
            | Event::TaskCompleted { .. }
            | Event::TaskFailed { .. }
            | Event::TaskCancelled
            | Event::CompensationStarted { .. }
            | Event::CompensationFailed { .. }
            | Event::ModelCalled { .. }
            | Event::ModelAnswered { .. }
            | Event::ModelFailed { .. }
            | Event::HistoryShortened { .. }
            | Event::ToolChanged { .. }
            | Event::NodeChanged { .. }
            | Event::ReviewOpened { .. }
            | Event::StateSet { .. }
            | Event::MessageAdded { .. }
            | Event::CheckpointTaken { .. }
            | Event::AgentEnabled
            | Event::AgentDisabled { .. }
            | Event::ScheduleChanged { .. } => {}
        }
    }
    doubted
}

/// True if a program was never started, or ended by itself.
fn is_settled(report: &RunReport) -> bool {
    match report.exit {
        Some(ProcessExit::Code(_)) => true,
        Some(ProcessExit::Signal(_)) => false,
        None => report.process_id.is_none(),
    }
}
