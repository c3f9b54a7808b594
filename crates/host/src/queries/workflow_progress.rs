//! The progress of a task on its workflow.

use std::sync::Arc;

use polity_definition::WorkflowDefinition;
use polity_diagram::{NodeMark, NodeMarks};
use polity_engine::pinned::Assignee;
use polity_engine::runtime::TaskHistory;
use polity_engine::state::TaskState;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;

use super::HomeQueries;
use crate::error::HostError;

impl HomeQueries {
    /// The workflow that a task pinned, and the progress of each node. None for a task of an agent.
    pub async fn workflow_progress(
        &self,
        id: TaskId,
    ) -> Result<Option<(Arc<WorkflowDefinition>, NodeMarks)>, HostError> {
        let TaskHistory { assignee, state, rest } = TaskHistory::load(&*self.store, id).await?;
        let Assignee::Workflow(flow) = assignee else { return Ok(None) };
        let state = state
            .following(rest)
            .map_err(|broken| HostError::BrokenTask { task: id, reason: broken.to_string() })?;
        Ok(Some((flow.workflow, self.node_marks(&state).await?)))
    }

    async fn node_marks(&self, state: &TaskState) -> Result<NodeMarks, HostError> {
        let mut marks = NodeMarks::new();
        let Some(walk) = state.workflow_run() else { return Ok(marks) };
        let under_review = state.review().and_then(|review| review.subject.call_id());
        for (number, node) in walk.plan().nodes().iter().enumerate() {
            let Some(mark) = NodeMark::of(walk.progress().node(number)) else { continue };
            let call = walk.call(number);
            let mark = match mark {
                // The end of the task abandoned the node.
                NodeMark::Running | NodeMark::Waiting if state.status().is_final() => {
                    NodeMark::Skipped
                }
                NodeMark::Running if call.is_some() && call == under_review => NodeMark::Waiting,
                // The node runs as a task of its own, which may await a review.
                NodeMark::Running => {
                    let call = call.and_then(|call| state.calls().get(call));
                    let part = match call {
                        Some(call) => self.store.task_row(call.sub_task(state.id())).await?,
                        None => None,
                    };
                    match part.map(|row| row.status) {
                        Some(TaskStatus::AwaitingHuman) => NodeMark::Waiting,
                        Some(
                            TaskStatus::Pending
                            | TaskStatus::Running
                            | TaskStatus::Completed
                            | TaskStatus::Failed
                            | TaskStatus::Cancelled,
                        )
                        | None => NodeMark::Running,
                    }
                }
                NodeMark::Done | NodeMark::Waiting | NodeMark::Failed | NodeMark::Skipped => mark,
            };
            marks.insert(node.name().clone(), mark);
        }
        Ok(marks)
    }
}
