//! Forks and retries: tasks that continue from a point in another task's history.

use std::sync::Arc;

use polity_definition::{AgentDefinition, AgentKind};
use polity_model::event::{Event, RecordedEvent, StreamId};
use polity_model::name::Name;

use super::{CorruptJournal, TaskState, TaskWork, TurnCall};
use crate::pinned::Assignee;

/// The reason why a task cannot continue at a point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotFork {
    /// Both tasks would own the same sub-agent's call.
    #[error("a sub-agent of the task is at work there, and cannot work for two tasks")]
    SubAgentAtWork,
    /// A node that has run is missing in the workflow as it is now.
    #[error("node \"{0}\" has run there, and the workflow no longer has it")]
    NodeGone(Name),
    /// The next node is missing in the workflow as it is now.
    #[error("node \"{to}\" was next there, after \"{from}\", and the workflow no longer has it")]
    NextNodeGone {
        /// The finished node.
        from: Name,
        /// The next node.
        to: Name,
    },
    /// The edge to the next node is missing in the workflow as it is now.
    #[error("the workflow led from \"{from}\" to \"{to}\" there, and has no such edge now")]
    RouteGone {
        /// The finished node.
        from: Name,
        /// The next node.
        to: Name,
    },
    /// A finished node has a new edge, which was not considered when the node ended.
    #[error("node \"{from}\" had ended there, and its way to \"{to}\" was added later")]
    RouteAdded {
        /// The finished node.
        from: Name,
        /// The node that would be left out.
        to: Name,
    },
    /// No node could run, although some could in the pinned workflow.
    #[error("the workflow as it is now has nothing left to run there")]
    NothingLeft,
    /// A sub-agent that is at work is missing in the agent as it is now.
    #[error("agent \"{0}\" is at work there, and is no longer one of the sub_agents")]
    SubAgentGone(Name),
    /// The name belongs to another kind of agent, or to a workflow, now.
    #[error("\"{0}\" is {1} there, and is {2} now")]
    OtherKind(Name, &'static str, &'static str),
    /// Finished nodes have been undone.
    #[error("the workflow was ending there, and finished nodes were being undone")]
    Compensating,
}

impl TaskState {
    /// Checks that the task can be forked here.
    pub fn check_fork(&self) -> Result<(), CannotFork> {
        match &self.work {
            // The calls of a model's turn are in the conversation.
            TaskWork::Agent(_) if self.calls.open().any(is_sub_agent) => {
                Err(CannotFork::SubAgentAtWork)
            }
            TaskWork::Agent(_) => Ok(()),
            // A workflow restarts the nodes that had not ended.
            TaskWork::Workflow(run) if run.is_ending() => Err(CannotFork::Compensating),
            TaskWork::Workflow(_) => Ok(()),
        }
    }

    /// Checks that the task can continue here with these definitions.
    pub fn check_definitions(&self, assignee: &Assignee) -> Result<(), CannotFork> {
        let now = match assignee {
            Assignee::Agent(pinned) => kind_of(&pinned.agent),
            Assignee::Workflow(_) => WORKFLOW_KIND,
        };
        let before = self.context().map_or(WORKFLOW_KIND, |context| kind_of(&context.agent));
        if before != now {
            return Err(CannotFork::OtherKind(assignee.name().clone(), before, now));
        }
        match (&self.work, assignee) {
            (TaskWork::Workflow(run), Assignee::Workflow(flow)) => run.check_plan(&flow.plan),
            (TaskWork::Agent(_), Assignee::Agent(pinned)) => {
                let at_work = self.calls.open().filter_map(|call| call.tool.as_ref()?.sub_agent());
                match at_work.into_iter().find(|name| pinned.sub_agent(name).is_none()) {
                    Some(name) => Err(CannotFork::SubAgentGone(name)),
                    None => Ok(()),
                }
            }
            (TaskWork::Agent(_), Assignee::Workflow(_))
            | (TaskWork::Workflow(_), Assignee::Agent(_)) => Ok(()),
        }
    }

    /// The initial state of a fork or retry, with these definitions. A fork has the same State with
    /// nothing in progress; a retry also inherits the open calls, with fresh retries and turns.
    pub fn fork(self, first: RecordedEvent, assignee: &Assignee) -> Result<Self, CorruptJournal> {
        let (StreamId::Task(id), Event::TaskCreated(created)) = (&first.stream, &first.event)
        else {
            return Err(CorruptJournal::NoBeginning);
        };
        let is_retry = created.retry_of.is_some();
        let mut calls = self.calls.inherited(self.id(), is_retry);
        let shared = self.message_count();
        let work = match (self.work, assignee) {
            (TaskWork::Agent(mut context), Assignee::Agent(pinned)) => {
                context.current_task = Some(*id);
                context.agent = Arc::clone(&pinned.agent);
                TaskWork::Agent(context)
            }
            (TaskWork::Workflow(run), Assignee::Workflow(flow)) => {
                if !is_retry {
                    calls.clear();
                }
                // The same definitions give the same plan.
                let is_same = self.pins == created.pins;
                let plan = if is_same { run.shared_plan() } else { Arc::clone(&flow.plan) };
                let run = run.continued(&plan, &mut calls, is_retry)?;
                TaskWork::Workflow(Box::new(run))
            }
            (TaskWork::Agent(_), Assignee::Workflow(_))
            | (TaskWork::Workflow(_), Assignee::Agent(_)) => {
                return Err(CorruptJournal::OtherAssignee);
            }
        };
        Ok(Self {
            calls,
            kept_from: self.kept_from,
            iterations: self.iterations,
            inherited_iterations: if is_retry { self.iterations } else { 0 },
            corrections: if is_retry { 0 } else { self.corrections },
            cut_parts: self.cut_parts,
            marks: self.marks,
            shared,
            ..Self::created(first, work)?
        })
    }
}

const WORKFLOW_KIND: &str = "a workflow";

fn kind_of(agent: &AgentDefinition) -> &'static str {
    match &agent.kind {
        AgentKind::Llm(_) => "an LLM agent",
        AgentKind::Cli(_) => "a CLI agent",
        AgentKind::Remote(_) => "a remote agent",
    }
}

fn is_sub_agent(call: &TurnCall) -> bool {
    call.tool.as_ref().is_some_and(|tool| tool.sub_agent().is_some())
}
