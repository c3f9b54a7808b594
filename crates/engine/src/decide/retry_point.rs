//! The point from which a retry continues: the newest one before the failure of the task.
//!
//! The last events of a failed or cancelled task only close what was open. A retry shares the events
//! before them, so calls are open there as they were, and a failed node has not failed yet.

use std::collections::HashSet;

use polity_definition::{AgentKind, ItemErrorPolicy};
use polity_model::event::{
    Event, ExecutionChange, NodeChange, RecordedEvent, StreamSequence, ToolChange, UnsettledCall,
};
use polity_model::failure::ErrorCode;
use polity_model::ids::ToolCallId;
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::review::ReviewVerdict;

use crate::pinned::Assignee;
use crate::script_output::ScriptOutput;
use crate::state::item_error_policy;
use crate::tool_turn::output_schema::extract_json;

/// The last event that a retry of a task shares. `rest` holds the events after the first.
pub(crate) fn retry_point(assignee: &Assignee, rest: &[RecordedEvent]) -> StreamSequence {
    let first = StreamSequence::default().plus(1);
    let is_llm = assignee.agent().is_none_or(|agent| matches!(agent.kind, AgentKind::Llm(_)));
    let end = rest.iter().position(|recorded| {
        matches!(
            recorded.event,
            // The nodes that run after a cancel are no part of the work.
            Event::TaskFailed { .. } | Event::TaskCancelled | Event::CompensationStarted { .. }
        )
    });
    let Some(end) = end.filter(|_| is_llm) else {
        // A CLI agent or remote agent runs again from its input.
        return first;
    };
    let mut closing = ClosingEvents::new(assignee, &rest[..=end]);
    let kept = (0..end).rev().find(|index| !closing.covers(*index));
    kept.map_or(first, |index| rest[index].sequence)
}

/// True if finished nodes of a workflow were undone, or may have been.
pub(crate) fn is_undone(assignee: &Assignee, rest: &[RecordedEvent]) -> bool {
    let Assignee::Workflow(workflow) = assignee else { return false };
    rest.iter().any(|recorded| {
        let Event::NodeChanged { node, change: NodeChange::Start { .. } } = &recorded.event else {
            return false;
        };
        let node = workflow.plan.number(node);
        node.is_some_and(|node| workflow.plan.nodes()[node].compensates.is_some())
    })
}

/// The walk back over the events that closed a task.
struct ClosingEvents<'a> {
    assignee: &'a Assignee,
    events: &'a [RecordedEvent],
    /// The calls of sub-agents.
    sub_agents: HashSet<ToolCallId>,
    /// The calls of scripts.
    scripts: HashSet<ToolCallId>,
    /// The calls that were started and closed within the last commit.
    never_called: HashSet<ToolCallId>,
}

impl<'a> ClosingEvents<'a> {
    fn new(assignee: &'a Assignee, events: &'a [RecordedEvent]) -> Self {
        let names: HashSet<Name> = match assignee {
            Assignee::Workflow(workflow) => {
                let agents = workflow.script_agents().into_iter();
                agents.map(|pinned| pinned.agent.name.clone()).collect()
            }
            Assignee::Agent(_) => HashSet::new(),
        };
        let (mut sub_agents, mut scripts) = (HashSet::new(), HashSet::new());
        for recorded in events {
            if let Event::ToolChanged { call_id, change: ToolChange::Call { tool, .. } } =
                &recorded.event
                && let Some(agent) = tool.sub_agent()
            {
                sub_agents.insert(*call_id);
                if names.contains(&agent) {
                    scripts.insert(*call_id);
                }
            }
        }
        Self { assignee, events, sub_agents, scripts, never_called: HashSet::new() }
    }

    /// True if an event only closes what was open when the task ended.
    fn covers(&mut self, index: usize) -> bool {
        match &self.events[index].event {
            Event::ExecutionChanged { change, .. } => match change {
                ExecutionChange::Complete
                | ExecutionChange::Fail { .. }
                | ExecutionChange::TimeOut
                | ExecutionChange::Cancel
                | ExecutionChange::CleanUp
                | ExecutionChange::Finish => true,
                ExecutionChange::Queue { .. }
                | ExecutionChange::Start { .. }
                | ExecutionChange::Run { .. }
                | ExecutionChange::EndRemote { .. }
                | ExecutionChange::Report { .. }
                | ExecutionChange::Retry => false,
            },
            Event::ModelFailed { .. } => true,
            Event::ModelAnswered { message, withheld, .. } => {
                if message.tool_calls().is_empty() {
                    !self.is_final_answer(index)
                } else {
                    withheld.is_some()
                }
            }
            Event::ToolChanged { call_id, change } => self.covers_call(*call_id, change),
            Event::NodeChanged { node, change } => match change {
                NodeChange::Fail { to: None, .. } | NodeChange::Drop => true,
                NodeChange::Start { call, .. } => {
                    call.as_ref().is_some_and(|call| self.never_called.contains(&call.id))
                }
                NodeChange::StartItem { call, .. } => self.never_called.contains(&call.id),
                // The map failed with the item, unless it collects failures.
                NodeChange::FailItem { .. } => self.fails_with_items(node),
                // The workflow went on at another node.
                NodeChange::Fail { to: Some(_), .. }
                | NodeChange::Finish { .. }
                | NodeChange::FinishItems { .. } => false,
            },
            // The person is asked again.
            Event::ReviewAnswered { verdict, .. } => *verdict == ReviewVerdict::Reject,
            Event::TaskCreated(_)
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
            | Event::ModelCalled { .. }
            | Event::HistoryShortened { .. }
            | Event::ReviewOpened { .. }
            | Event::StateSet { .. }
            | Event::MessageAdded { .. }
            | Event::CheckpointTaken { .. }
            | Event::CompensationStarted { .. }
            | Event::CompensationFailed { .. }
            | Event::AgentEnabled
            | Event::AgentDisabled { .. }
            | Event::ScheduleChanged { .. } => false,
        }
    }

    fn fails_with_items(&self, map: &Name) -> bool {
        let Assignee::Workflow(workflow) = self.assignee else { return false };
        let node = workflow.plan.number(map).map(|number| &workflow.plan.nodes()[number].node);
        node.is_some_and(|node| match item_error_policy(node) {
            ItemErrorPolicy::Fail => true,
            ItemErrorPolicy::Collect => false,
        })
    }

    fn covers_call(&mut self, call_id: ToolCallId, change: &ToolChange) -> bool {
        match change {
            ToolChange::Answer { unsettled: Some(UnsettledCall::NotCalled), .. } => {
                self.never_called.insert(call_id);
                true
            }
            ToolChange::Answer { unsettled: Some(UnsettledCall::MaybeDone), .. } => true,
            // The sub-agent of a failed node continues inside its own turn. An agent has read the
            // error of its sub-agent.
            ToolChange::Answer { is_error: true, unsettled: None, .. } => {
                let is_node = matches!(self.assignee, Assignee::Workflow(_));
                is_node && self.sub_agents.contains(&call_id)
            }
            // A script that printed something else than its output runs again.
            ToolChange::Answer { is_error: false, unsettled: None, content, .. } => {
                self.scripts.contains(&call_id) && ScriptOutput::parse(content).is_err()
            }
            ToolChange::Call { .. } => self.never_called.contains(&call_id),
            ToolChange::Hold { .. }
            | ToolChange::Fail { .. }
            | ToolChange::Wait
            | ToolChange::Doubt => false,
        }
    }

    /// True if an answer without tool calls is the whole result of the task, which was cancelled or
    /// had used up its budget when it arrived. Any other answer is asked for again.
    fn is_final_answer(&self, index: usize) -> bool {
        let ended_otherwise = self.events.last().is_some_and(|end| {
            matches!(&end.event, Event::TaskFailed { code, .. } if *code != ErrorCode::Budget)
        });
        let Event::ModelAnswered { message, is_cut, withheld, .. } = &self.events[index].event
        else {
            return false;
        };
        let before = self.events[..index].iter().rev().find_map(|recorded| {
            let Event::ModelAnswered { message, is_cut, .. } = &recorded.event else {
                return None;
            };
            Some(*is_cut && message.tool_calls().is_empty())
        });
        let is_whole = !is_cut && withheld.is_none() && before != Some(true);
        !ended_otherwise && is_whole && self.fits(message)
    }

    fn fits(&self, message: &Message) -> bool {
        let schema = self.assignee.llm().and_then(|llm| llm.output_schema.as_ref());
        match schema {
            Some(schema) => extract_json(schema, message.content(), false).is_ok(),
            None => !message.content().trim().is_empty(),
        }
    }
}

#[cfg(test)]
#[path = "retry_point_tests.rs"]
mod tests;
