//! Sessions: the conversations of sub-agents. Each is a task of its own, seen as its parent sees it.

use polity_model::ids::{SessionId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::session::{SessionStatus, SubAgentSession, session_of_task};
use polity_model::task::Task;
use polity_store::{TaskFilter, TaskRow};
use serde_json::{Value, json};

use super::HomeQueries;
use crate::error::{HostError, LookupError, RecordKind};

/// A session of a list.
#[derive(Debug, Clone)]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// The task of the sub-agent.
    pub task: Task,
    /// The row of that task.
    pub row: TaskRow,
}

impl SessionSummary {
    /// The status.
    pub fn status(&self) -> SessionStatus {
        SessionStatus::from(self.row.status)
    }

    /// The JSON form.
    pub fn to_json(&self) -> Value {
        json!({
            "session_id": self.id,
            "parent_task_id": self.row.parent_task_id,
            "agent_name": self.row.assigned_agent,
            "task_description": self.task.description,
            "message_count": self.row.message_count,
            "status": self.status(),
            "created_at": self.row.created_at,
        })
    }
}

impl HomeQueries {
    /// The sessions of a task, or of all tasks, newest first.
    pub async fn sessions(
        &self,
        parent: Option<TaskId>,
        limit: u32,
    ) -> Result<Vec<SessionSummary>, HostError> {
        let filter = TaskFilter {
            parent,
            sub_tasks_only: true,
            limit: Some(limit),
            ..TaskFilter::default()
        };
        let mut sessions = Vec::new();
        for row in self.task_rows(&filter).await? {
            let (id, task) = (session_of_task(row.id), self.task_of(&row).await?);
            sessions.push(SessionSummary { id, task, row });
        }
        Ok(sessions)
    }

    /// A session with its messages, and the task behind it.
    pub async fn session(&self, row: &TaskRow) -> Result<(SubAgentSession, Task), HostError> {
        let missing = || {
            let (kind, id) = (RecordKind::Session, row.id.to_string());
            HostError::from(LookupError::NotFound { kind, id })
        };
        let parent_task_id = row.parent_task_id.ok_or_else(missing)?;
        let task = self.task_of(row).await?;
        let session = SubAgentSession {
            session_id: session_of_task(row.id),
            parent_task_id,
            agent_name: task.assigned_agent.clone(),
            task_description: task.description.clone(),
            // A workflow has the messages of its State, which its nodes produced.
            message_history: self.task_state(row.id).await?.state().messages.messages().to_vec(),
            // A failed session has no summary; its parent gets the error.
            summary: task.result.clone().filter(|_| task.status == TaskStatus::Completed),
            status: task.status.into(),
            created_at: task.created_at,
        };
        Ok((session, task))
    }
}
