//! Creates a task for an agent or a workflow. A person drives it, a program on a person's behalf,
//! or an agent that delegates work. It is the only command without a state to start from. The
//! creating process owns the task from its first event, so a crash never leaves it unowned.

use jiff::Timestamp;
use polity_definition::{AgentKind, AgentMode, CliAgent, Limits};
use polity_model::budget::Budget;
use polity_model::digest::Digest;
use polity_model::event::{Event, ForkPoint, OwnerEpoch, RaisedLimits, ScheduledFor, TaskCreated};
use polity_model::ids::{ExecutionId, InstanceId, TaskId};
use polity_model::name::Name;
use polity_model::state::StateUpdates;
use polity_store::PinnedDefinition;
use serde_json::{Map, Value};

use crate::agent_toggles::AgentToggles;
use crate::decide::cli_run::{cli_agent_of, queue_execution};
use crate::decide::{CommandRejection, DecisionContext};
use crate::driver::RunOverrides;
use crate::pinned::{Assignee, PinnedAgent};

/// A new task: its input and its assignee.
#[derive(Debug, Clone)]
pub struct CreateTask {
    /// The agent or workflow, with every definition it needs.
    pub assignee: Assignee,
    /// The creator.
    pub origin: TaskOrigin,
    /// The input.
    pub description: String,
    /// Named values.
    pub parameters: Map<String, Value>,
    /// A class of the retention policy.
    pub class: Option<String>,
    /// The number of days to keep the task after its end.
    pub retention_days: Option<u32>,
    /// A budget besides the agent's own.
    pub budget: Option<Budget>,
    /// Limits in place of those of the definitions.
    pub raised: RaisedLimits,
    /// Overrides of the CLI agent's file.
    pub overrides: RunOverrides,
}

/// The creator of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskOrigin {
    /// A person, or a program on a person's behalf.
    Outside,
    /// A program that may repeat its request without starting the work twice.
    Request {
        /// The id of the new task, which follows from the caller's key.
        id: TaskId,
        /// The digest of the request, by which a repetition is told from another request.
        digest: Digest,
    },
    /// An agent that delegates work.
    SubAgentCall {
        /// The agent's task.
        parent: TaskId,
        /// The id of the new task, which follows from the call.
        id: TaskId,
        /// The earlier task of the same call, if the work starts again.
        retry_of: Option<TaskId>,
        /// The run of the earlier task that may have had its effect.
        doubted_run: Option<ExecutionId>,
        /// The step of the parent's workflow that it performs.
        step: ParentStep,
    },
    /// A person who forks another task at a checkpoint.
    Fork {
        /// The checkpoint.
        from: ForkPoint,
        /// Updates of the State.
        updates: StateUpdates,
        /// The id and digest of a request that may be repeated.
        request: Option<(TaskId, Digest)>,
    },
    /// A person who retries a failed or cancelled task, or the retry of a task that this one is a
    /// part of.
    Retry {
        /// The id of the new task: that of the only retry, or of the call that opens a part.
        id: TaskId,
        /// The task that this one is a part of.
        parent: Option<TaskId>,
        /// The point before the failure.
        from: ForkPoint,
        /// The run of the earlier task that may have had its effect.
        doubted_run: Option<ExecutionId>,
        /// The step of the parent's workflow that it performs.
        step: ParentStep,
        /// The digest of a request that may be repeated.
        request: Option<Digest>,
    },
    /// A schedule whose time came.
    Schedule {
        /// The id of the new task, which follows from the schedule and the due time.
        id: TaskId,
        /// The schedule.
        schedule: Name,
        /// The due time.
        due: Timestamp,
    },
}

impl TaskOrigin {
    /// The origin of a retry that a program asks for, which may repeat its request. Other origins stay
    /// as they are.
    pub fn requested_by(self, digest: Option<Digest>) -> Self {
        match self {
            Self::Retry { id, parent, from, doubted_run, step, request: _ } => {
                Self::Retry { id, parent, from, doubted_run, step, request: digest }
            }
            other @ (Self::Outside
            | Self::Request { .. }
            | Self::SubAgentCall { .. }
            | Self::Fork { .. }
            | Self::Schedule { .. }) => other,
        }
    }
}

/// The step of a parent's workflow that a task performs. Empty for the task of an agent's call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParentStep {
    /// The node.
    pub node: Option<Name>,
    /// The item, if the node is a map.
    pub item: Option<u32>,
}

/// The result of [`CreateTask`], ready to commit.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its id.
    pub id: TaskId,
    /// Its first events.
    pub events: Vec<Event>,
    /// The definitions that it pins.
    pub definitions: Vec<PinnedDefinition>,
}

impl CreateTask {
    /// A task from outside with defaults.
    pub fn new(assignee: impl Into<Assignee>, description: impl Into<String>) -> Self {
        Self {
            assignee: assignee.into(),
            origin: TaskOrigin::Outside,
            description: description.into(),
            parameters: Map::new(),
            class: None,
            retention_days: None,
            budget: None,
            raised: RaisedLimits::default(),
            overrides: RunOverrides::default(),
        }
    }

    /// Checks the input and returns the first events.
    pub fn decide(
        self,
        owner: InstanceId,
        limits: &Limits,
        ctx: &mut DecisionContext,
        has_private: bool,
    ) -> Result<NewTask, CommandRejection> {
        for pinned in self.assignee.everyone() {
            check_runnable(&pinned, &ctx.agent_toggles)?;
        }
        let chain = self.assignee.longest_chain();
        let limit = limits.sub_agent_depth.get();
        if chain.len() > limit as usize + 1 {
            return Err(CommandRejection::TooDeep { chain, limit });
        }
        if self.description.trim().is_empty() {
            return Err(CommandRejection::EmptyInput);
        }
        let (found, limit) = (self.description.len() as u64, limits.input_bytes.get());
        if found > limit {
            return Err(CommandRejection::InputTooLarge { found, limit });
        }
        let mut new_id = || TaskId::from_random_bytes(ctx.entropy.id_bytes());
        let (ParentStep { node: parent_node, item: map_item }, doubted_run) = match &self.origin {
            TaskOrigin::SubAgentCall { step, doubted_run, .. }
            | TaskOrigin::Retry { step, doubted_run, .. } => (step.clone(), *doubted_run),
            TaskOrigin::Outside
            | TaskOrigin::Request { .. }
            | TaskOrigin::Fork { .. }
            | TaskOrigin::Schedule { .. } => (ParentStep::default(), None),
        };
        let scheduled = match &self.origin {
            TaskOrigin::Schedule { id: _, schedule, due } => {
                Some(Box::new(ScheduledFor { schedule: schedule.clone(), due: *due }))
            }
            TaskOrigin::Outside
            | TaskOrigin::Request { .. }
            | TaskOrigin::SubAgentCall { .. }
            | TaskOrigin::Fork { .. }
            | TaskOrigin::Retry { .. } => None,
        };
        let idempotency = match &self.origin {
            TaskOrigin::Request { digest, .. }
            | TaskOrigin::Fork { request: Some((_, digest)), .. }
            | TaskOrigin::Retry { request: Some(digest), .. } => Some(*digest),
            TaskOrigin::Outside
            | TaskOrigin::SubAgentCall { .. }
            | TaskOrigin::Schedule { .. }
            | TaskOrigin::Fork { request: None, .. }
            | TaskOrigin::Retry { request: None, .. } => None,
        };
        let (id, parent_task_id, forked_from, retry_of, updates) = match self.origin {
            TaskOrigin::Outside => (new_id(), None, None, None, None),
            TaskOrigin::Request { id, digest: _ } => (id, None, None, None, None),
            TaskOrigin::Schedule { id, .. } => (id, None, None, None, None),
            TaskOrigin::SubAgentCall { parent, id, retry_of, .. } => {
                (id, Some(parent), None, retry_of, None)
            }
            TaskOrigin::Fork { from, updates, request } => {
                let id = request.map_or_else(new_id, |(id, _)| id);
                (id, None, Some(from), None, Some(updates))
            }
            TaskOrigin::Retry { id, parent, from, .. } => {
                (id, parent, Some(from), Some(from.task_id), None)
            }
        };
        // A fork or retry runs by itself.
        let is_new = forked_from.is_none() && retry_of.is_none();
        let request = ctx.slot.dedup_key.filter(|_| is_new);
        let pin_set = self.assignee.pin_set();
        let (pins, definitions) = (pin_set.pins.clone(), pin_set.definitions.clone());
        let created = Event::TaskCreated(TaskCreated {
            description: self.description,
            assigned_agent: self.assignee.name().clone(),
            pins,
            parameters: self.parameters,
            class: self.class,
            retention_days: self.retention_days,
            parent_task_id,
            map_item,
            parent_node,
            budget: self.budget,
            forked_from,
            retry_of,
            doubted_run,
            raised: self.raised,
            working_directory: self.overrides.working_directory,
            has_private,
            request,
            idempotency,
            scheduled,
        });
        let claimed = Event::TaskClaimed { instance: owner, epoch: OwnerEpoch::default().next() };
        let updates = updates.filter(|updates| !updates.is_empty());
        let set = updates.map(|updates| Event::StateSet { updates });
        // A CLI agent queues at once, so that runs start in order of creation. One that may be a
        // duplicate looks for its original first.
        let queued = cli_agent_of(&self.assignee)
            .filter(|_| is_new && request.is_none())
            .map(|(name, cli)| queue_execution(name, cli, ctx).1);
        let events = [created, claimed].into_iter().chain(set).chain(queued).collect();
        Ok(NewTask { id, events, definitions })
    }
}

/// Checks that every agent is enabled and can run.
fn check_runnable(pinned: &PinnedAgent, toggles: &AgentToggles) -> Result<(), CommandRejection> {
    let agent = pinned.agent.name.clone();
    if !toggles.is_enabled(&pinned.agent) {
        let reason = toggles.of(&agent).and_then(|toggle| toggle.reason.clone());
        return Err(CommandRejection::Disabled { agent, reason });
    }
    match &pinned.agent.kind {
        AgentKind::Llm(_) | AgentKind::Remote(_) => Ok(()),
        AgentKind::Cli(cli) => match not_built(cli) {
            None => Ok(()),
            Some(kind) => Err(CommandRejection::KindNotRunnable { agent, kind }),
        },
    }
}

/// Returns the feature in the agent's file that this version does not support, if any.
fn not_built(cli: &CliAgent) -> Option<&'static str> {
    match cli.mode {
        AgentMode::Interactive => Some("cli in mode interactive"),
        AgentMode::Task => None,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use polity_definition::HomeSettings;

    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn create(description: &str) -> Result<NewTask, CommandRejection> {
        let create = CreateTask::new(pinned(), description);
        let input_bytes = NonZeroU64::new(10).unwrap();
        let limits = Limits { input_bytes, ..HomeSettings::default().limits };
        create.decide(instance(1), &limits, &mut test_context(), false)
    }

    #[test]
    fn new_task_is_owned() {
        let new = create("Ada").unwrap();
        let labels: Vec<_> = new.events.iter().map(Event::label).collect();
        assert_eq!(labels, ["task_created", "task_claimed"]);
        assert_eq!(new.definitions.len(), 2);
    }

    #[test]
    fn empty_and_oversized_inputs_are_refused() {
        assert_eq!(create(" \n ").unwrap_err(), CommandRejection::EmptyInput);
        assert!(create("0123456789").is_ok());
        assert_eq!(
            create("0123456789a").unwrap_err(),
            CommandRejection::InputTooLarge { found: 11, limit: 10 }
        );
    }
}
