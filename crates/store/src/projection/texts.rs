//! The texts of rows, which stay in the journal.

use jiff::Timestamp;
use polity_model::event::{Event, NodeChange, NodeOutput, ResultRef, ToolChange};
use polity_model::message::Message;
use polity_model::task::{ForkedFrom, Task};
use polity_model::usage::Usage;
use polity_model::value::json_text;

use super::TaskRow;

impl TaskRow {
    /// The task: this row with the texts of the journal.
    pub(crate) fn with_texts(
        &self,
        created: Event,
        result: Option<Event>,
        failure: Option<Event>,
        total: Usage,
    ) -> Option<Task> {
        let Event::TaskCreated(created) = created else { return None };
        let result = result.and_then(|event| into_result(event, self.created_at));
        let error = match failure {
            Some(Event::TaskFailed { error, .. } | Event::CompensationFailed { error }) => {
                Some(error)
            }
            Some(_) | None => None,
        };
        Some(Task {
            id: self.id,
            description: created.description,
            status: self.status,
            assigned_agent: self.assigned_agent.clone(),
            result,
            error,
            error_code: self.error_code,
            created_at: self.created_at,
            started_at: self.started_at,
            completed_at: self.completed_at,
            retention_days: self.retention_days,
            parent_task_id: self.parent_task_id,
            forked_from: created.forked_from.map(ForkedFrom::from),
            retry_of: created.retry_of,
            scheduled: created.scheduled,
            shared_with: self.shared_with,
            class: self.class.clone(),
            parameters: created.parameters,
            usage: self.usage.report(),
            total_usage: total.report(),
            interrupted: false,
            released: false,
            undone: false,
            needs_trust: false,
        })
    }
}

/// The result that an event holds.
fn into_result(event: Event, at: Timestamp) -> Option<String> {
    match event {
        Event::TaskCompleted { result: ResultRef::Text(text) }
        | Event::TaskFailed { partial_result: Some(ResultRef::Text(text)), .. }
        | Event::NodeChanged {
            change:
                NodeChange::Finish { output: NodeOutput::Text(text), .. }
                | NodeChange::Fail { output: Some(NodeOutput::Text(text)), .. },
            ..
        } => Some(text),
        Event::NodeChanged {
            change:
                NodeChange::Finish { output: NodeOutput::Json(value), .. }
                | NodeChange::Fail { output: Some(NodeOutput::Json(value)), .. },
            ..
        } => Some(json_text(&value).into_owned()),
        other => into_message(other, at).map(Message::into_content),
    }
}

/// The message that an event adds to the conversation.
pub(crate) fn into_message(event: Event, at: Timestamp) -> Option<Message> {
    match event {
        Event::TaskCreated(created) => {
            Some(Message::User { content: created.description, timestamp: at })
        }
        Event::ModelAnswered { message, .. } | Event::MessageAdded { message } => Some(message),
        Event::ToolChanged { call_id, change: ToolChange::Answer { content, is_error, .. } } => {
            Some(Message::Tool { tool_call_id: call_id, content, is_error, timestamp: at })
        }
        Event::TaskClaimed { .. }
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
        | Event::ExecutionChanged { .. }
        | Event::ModelCalled { .. }
        | Event::ModelFailed { .. }
        | Event::HistoryShortened { .. }
        | Event::ToolChanged { .. }
        | Event::NodeChanged { .. }
        | Event::StateSet { .. }
        | Event::ReviewOpened { .. }
        | Event::ReviewAnswered { .. }
        | Event::CheckpointTaken { .. }
        | Event::AgentEnabled
        | Event::AgentDisabled { .. }
        | Event::ScheduleChanged { .. } => None,
    }
}
