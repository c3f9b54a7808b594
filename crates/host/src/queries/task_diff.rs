//! The comparison of two tasks as a document.

use polity_engine::comparison::{ComparedRun, RunComparison};
use polity_model::ids::TaskId;
use polity_model::task::ForkedFrom;
use polity_model::trace::shorten;
use serde::Serialize;

use super::HomeQueries;
use crate::error::HostError;

/// The length of an input.
const INPUT_CHARACTERS_MAX: usize = 48;

/// One of the two tasks.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DiffSide {
    task_id: TaskId,
    assigned_agent: String,
    description: String,
    status: String,
    steps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<ForkedFrom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<TaskId>,
}

impl DiffSide {
    fn of(run: &ComparedRun) -> Self {
        let task = &run.task;
        Self {
            task_id: task.id,
            assigned_agent: task.assigned_agent.to_string(),
            description: shorten(&task.description, INPUT_CHARACTERS_MAX),
            status: task.status.to_string(),
            steps: run.steps.len(),
            forked_from: task.forked_from,
            retry_of: task.retry_of,
        }
    }
}

/// Two tasks and their differences.
#[derive(Debug, Clone, Serialize)]
pub struct TaskDiff {
    a: DiffSide,
    b: DiffSide,
    #[serde(flatten)]
    comparison: RunComparison,
}

impl TaskDiff {
    /// The document of a comparison.
    pub fn new(a: &ComparedRun, b: &ComparedRun, comparison: RunComparison) -> Self {
        Self { a: DiffSide::of(a), b: DiffSide::of(b), comparison }
    }
}

impl HomeQueries {
    /// Compares two tasks.
    pub async fn task_diff(&self, a: TaskId, b: TaskId) -> Result<TaskDiff, HostError> {
        let (a, b) = (self.comparison_run(a).await?, self.comparison_run(b).await?);
        let comparison = RunComparison::of(&a, &b);
        Ok(TaskDiff::new(&a, &b, comparison))
    }
}
