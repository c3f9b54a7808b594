//! The path from the task at the top down to the agent or node that asks for a review.

use polity_engine::runtime::load_task;
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::name::Name;
use polity_store::{Store, TaskRow};

use crate::error::HostError;

/// The origin of a review within a tree of tasks.
pub(super) struct ReviewPath {
    /// The task at the top.
    pub(super) top: TaskId,
    /// The assignee at the top and the nodes and sub-agents below it, joined by slashes.
    pub(super) path: String,
}

impl ReviewPath {
    /// The path to a task, and to one of its nodes if that asks.
    pub(super) async fn load(
        store: &dyn Store,
        mut row: TaskRow,
        node: Option<&Name>,
    ) -> Result<Self, HostError> {
        let mut names: Vec<Name> = node.into_iter().cloned().collect();
        // A task whose parent is not in the store counts as the top.
        while let Some(parent) = row.parent_task_id
            && let Some(above) = store.task_row(parent).await?
        {
            let state = load_task(store, parent).await?.state;
            let call = ToolCallId::from_bytes(*row.id.as_bytes());
            let node = state.workflow_run().and_then(|walk| walk.node_name(call)).cloned();
            names.push(node.unwrap_or(row.assigned_agent));
            row = above;
        }
        names.push(row.assigned_agent);
        let names: Vec<&str> = names.iter().rev().map(Name::as_str).collect();
        Ok(Self { top: row.id, path: names.join("/") })
    }
}
