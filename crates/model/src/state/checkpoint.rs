//! Checkpoints: the State of a task at a point to which one can return.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{CheckpointId, TaskId};
use crate::review::HumanFeedback;
use crate::state::State;

/// A checkpoint of a task, as it is shown. Stores keep only the journal position; the State is
/// rebuilt from it on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The checkpoint's id.
    pub checkpoint_id: CheckpointId,
    /// The task it belongs to.
    pub task_id: TaskId,
    /// The whole State at that moment.
    pub state: State,
    /// The node of the workflow; of a task for one agent, the agent's name.
    pub position: String,
    /// Counts the task's checkpoints from 0.
    pub sequence: u32,
    /// The time it was taken.
    pub created_at: Timestamp,
    /// True if the task waits there for a person.
    pub awaiting_human: bool,
    /// The reviewer's answer, if the task waited there and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub human_feedback: Option<HumanFeedback>,
}
