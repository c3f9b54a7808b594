//! Executions: lookup by id prefix, and views.

use polity_model::execution::AgentExecution;
use polity_model::execution::view::ExecutionView;
use polity_store::ExecutionFilter;

use super::HomeQueries;
use crate::error::{HostError, LookupError, RecordKind};

impl HomeQueries {
    /// Finds an execution by its id or the beginning of one.
    pub async fn find_execution(&self, id: &str) -> Result<AgentExecution, HostError> {
        let (kind, id) = (RecordKind::Execution, id.to_lowercase());
        let found = self.store.execution_ids_by_prefix(&id, 2).await?;
        let execution = match found.as_slice() {
            [found] if !id.is_empty() => self.store.execution(*found).await?,
            [_, _, ..] => return Err(LookupError::Ambiguous { kind, prefix: id }.into()),
            [] | [_] => None,
        };
        execution.ok_or_else(|| LookupError::NotFound { kind, id }.into())
    }

    /// The executions that match a filter, newest first.
    pub async fn execution_views(
        &self,
        filter: &ExecutionFilter,
    ) -> Result<Vec<ExecutionView>, HostError> {
        let mut views = Vec::new();
        for row in self.store.execution_rows(filter).await? {
            views.push(self.execution_view(&row.execution).await?);
        }
        Ok(views)
    }

    /// An execution with the facts that its task adds.
    pub async fn execution_view(
        &self,
        execution: &AgentExecution,
    ) -> Result<ExecutionView, HostError> {
        Ok(execution.view(&self.load_task(execution.task_id).await?))
    }
}
