//! Where in the whole a question comes from.

use std::sync::Arc;

use polity_engine::runtime::load;
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::name::Name;
use polity_store::{Store, TaskRow};

use crate::error::CliError;

/// Who asks, among all that works for one task.
pub(super) struct Place {
    /// The task at the top.
    pub(super) top: TaskId,
    /// The agent or workflow at the top, and the nodes and sub-agents on the way down.
    pub(super) way: String,
}

impl Place {
    /// Of a task, and of a node of it where one asks.
    pub(super) async fn of(
        store: &Arc<dyn Store>,
        mut row: TaskRow,
        node: Option<&Name>,
    ) -> Result<Self, CliError> {
        let mut way: Vec<Name> = node.into_iter().cloned().collect();
        // A task whose parent is not in the store stands alone.
        while let Some(parent) = row.parent_task_id
            && let Some(above) = store.task_row(parent)?
        {
            let state = load(store, parent).await?.state;
            let call = ToolCallId::from_bytes(*row.id.as_bytes());
            let node = state.walk().and_then(|walk| walk.node_name(call)).cloned();
            way.push(node.unwrap_or(row.assigned_agent));
            row = above;
        }
        way.push(row.assigned_agent);
        let way: Vec<&str> = way.iter().rev().map(Name::as_str).collect();
        Ok(Self { top: row.id, way: way.join("/") })
    }
}
