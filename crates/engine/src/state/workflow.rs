//! The run of a workflow: its progress and the State that its nodes share.
//!
//! Messages are ordered by node, not by time, so concurrent nodes that end in another order leave
//! the same State.

mod progress;
mod view;

use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::{WorkflowNodeKind, WorkflowPlan};
use polity_model::event::{NodeChange, NodeOutput};
use polity_model::ids::ToolCallId;
use polity_model::message::{Message, ToolCall};
use polity_model::name::Name;
use polity_model::state::{InvalidUpdate, StateUpdates};
use serde_json::{Map, Value};

use super::CorruptJournal;

pub use progress::WorkflowProgress;
pub(crate) use view::NodeOutcome;

/// The run of a workflow.
#[derive(Debug, Clone)]
pub struct WorkflowRun {
    plan: Arc<WorkflowPlan>,
    workflow: Name,
    progress: WorkflowProgress,
    runs: Vec<NodeRun>,
    /// The node that finished last.
    newest: Option<usize>,
    messages: Vec<Message>,
    /// The sort key of each message: the round in which its node started, and the node's rank.
    keys: Vec<(u32, u32)>,
    metadata: Map<String, Value>,
    next_action: Option<String>,
    current_agent: Name,
    /// The sort key of the node that set `current_agent`.
    led_by: (u32, u32),
    routing_key: Option<String>,
    /// The sort key of the node that set the routing key.
    routed_by: (u32, u32),
}

/// The newest run of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeRun {
    /// The call that performs it.
    pub(crate) call: Option<ToolCallId>,
    /// The number of runs.
    pub(crate) count: u32,
    /// The time at which it started.
    pub(crate) began: Option<Timestamp>,
    /// The round in which it started.
    round: u32,
    /// The answer to its call, until the node ends.
    answer: Option<String>,
    /// Its newest output.
    pub(crate) output: Option<String>,
    /// The node with the newest message up to this one; none for the input.
    last: Option<usize>,
}

impl WorkflowRun {
    pub(super) fn new(
        plan: Arc<WorkflowPlan>,
        workflow: Name,
        input: Message,
        metadata: Map<String, Value>,
    ) -> Self {
        Self {
            progress: WorkflowProgress::new(&plan),
            runs: vec![NodeRun::default(); plan.nodes().len()],
            newest: None,
            messages: vec![input],
            keys: vec![(0, 0)],
            metadata,
            next_action: None,
            current_agent: workflow.clone(),
            led_by: (0, 0),
            routing_key: None,
            routed_by: (0, 0),
            plan,
            workflow,
        }
    }

    /// The compiled workflow.
    pub fn plan(&self) -> &WorkflowPlan {
        &self.plan
    }

    /// The progress.
    pub fn progress(&self) -> &WorkflowProgress {
        &self.progress
    }

    /// The workflow's name.
    pub fn workflow(&self) -> &Name {
        &self.workflow
    }

    /// The node that a call performs.
    pub fn node_of(&self, call: ToolCallId) -> Option<usize> {
        self.runs.iter().position(|run| run.call == Some(call))
    }

    /// The name of the node that a call performs.
    pub fn node_name(&self, call: ToolCallId) -> Option<&Name> {
        self.node_of(call).map(|node| self.plan.nodes()[node].name())
    }

    /// The call that performs a node, while it runs.
    pub fn call(&self, node: usize) -> Option<ToolCallId> {
        self.runs[node].call
    }

    /// The newest output of a node.
    pub fn output(&self, node: usize) -> Option<&str> {
        self.runs[node].output.as_deref()
    }

    /// The output of the node that ended last.
    pub fn newest_output(&self) -> Option<&str> {
        self.newest.and_then(|node| self.output(node))
    }

    pub(crate) fn node_run(&self, node: usize) -> &NodeRun {
        &self.runs[node]
    }

    /// Keeps the answer to a call. The end of its node follows as its own event.
    pub(super) fn answered(&mut self, call: ToolCallId, content: String) {
        if let Some(node) = self.node_of(call) {
            self.runs[node].answer = Some(content);
        }
    }

    /// The index of the node with this name.
    pub(super) fn number(&self, node: &Name) -> Result<usize, CorruptJournal> {
        self.plan.number(node).ok_or_else(|| CorruptJournal::NoNode(node.clone()))
    }

    /// Applies a change to a node. Returns the call that performs it, if it starts one.
    pub(super) fn apply(
        &mut self,
        node: &Name,
        change: NodeChange,
        at: Timestamp,
    ) -> Result<Option<ToolCall>, CorruptJournal> {
        let node = self.number(node)?;
        match change {
            NodeChange::Start { call } => {
                self.progress.start(node)?;
                self.begin(node, at);
                self.runs[node].call = call.as_ref().map(|call| call.id);
                let key = self.key(node);
                if let WorkflowNodeKind::Agent { agent, .. } = &self.plan.nodes()[node].node.kind
                    && key >= self.led_by
                {
                    self.current_agent = agent.clone();
                    self.led_by = key;
                }
                return Ok(call);
            }
            NodeChange::Finish { output, routing_key, to, edge } => {
                if self.runs[node].began.is_none() {
                    self.begin(node, at);
                }
                let taken = self.links_to(node, &to, edge)?;
                self.finish(node, output, routing_key, at);
                let plan = Arc::clone(&self.plan);
                self.progress.finish(&plan, node, &taken)?;
            }
            NodeChange::Fail { .. } => {
                self.runs[node].began = None;
                let plan = Arc::clone(&self.plan);
                self.progress.fail(&plan, node)?;
            }
            NodeChange::Drop => {
                self.runs[node].began = None;
                let plan = Arc::clone(&self.plan);
                self.progress.give_up(&plan, node)?;
            }
        }
        Ok(None)
    }

    fn begin(&mut self, node: usize, at: Timestamp) {
        let round = self.progress.rounds();
        let run = &mut self.runs[node];
        run.began = Some(at);
        run.round = round;
        run.count += 1;
        run.answer = None;
    }

    /// The sort key of a node's newest run.
    fn key(&self, node: usize) -> (u32, u32) {
        (self.runs[node].round, self.plan.nodes()[node].rank)
    }

    /// The links from a node to these nodes, restricted to an edge if one is given.
    fn links_to(
        &self,
        node: usize,
        to: &[Name],
        edge: Option<u32>,
    ) -> Result<Vec<usize>, CorruptJournal> {
        let edge = edge.and_then(|edge| usize::try_from(edge).ok());
        let mut taken = Vec::new();
        for name in to {
            let to = self.number(name)?;
            let links = self.plan.nodes()[node].links_out.iter().copied();
            let before = taken.len();
            taken.extend(links.filter(|link| {
                let link = self.plan.links()[*link];
                link.to == to && (edge.is_none() || link.edge == edge)
            }));
            if taken.len() == before {
                return Err(CorruptJournal::NoNode(name.clone()));
            }
        }
        Ok(taken)
    }

    fn finish(
        &mut self,
        node: usize,
        output: NodeOutput,
        routing_key: Option<String>,
        at: Timestamp,
    ) {
        let last = self.last_before(node);
        let key = self.key(node);
        let run = &mut self.runs[node];
        let call = run.call.take();
        let text = match output {
            NodeOutput::Answer => run.answer.take().unwrap_or_default(),
            NodeOutput::Text(text) => text,
        };
        run.began = None;
        run.last = if view::says_something(&self.plan.nodes()[node].node.kind) {
            Some(node)
        } else {
            last
        };
        for (name, value) in view::written(&self.plan.nodes()[node].node, &text) {
            self.metadata.insert(name, value);
        }
        if let Some(message) = view::message_of(&self.plan.nodes()[node].node.kind, call, &text, at)
        {
            self.say(key, message);
        }
        if routing_key.is_some() && key >= self.routed_by {
            self.routing_key = routing_key;
            self.routed_by = key;
        }
        self.runs[node].output = Some(text);
        self.newest = Some(node);
    }

    fn say(&mut self, key: (u32, u32), message: Message) {
        let place = self.keys.partition_point(|known| *known <= key);
        self.keys.insert(place, key);
        self.messages.insert(place, message);
    }

    /// Adds a message of no node, after all others.
    pub(super) fn add(&mut self, message: Message) {
        let key = self.keys.last().copied().unwrap_or_default();
        self.keys.push(key);
        self.messages.push(message);
    }

    /// Opens a review, by a node or before it.
    pub(super) fn ask(&mut self, node: &Name, at: Timestamp) -> Result<(), CorruptJournal> {
        let node = self.number(node)?;
        self.progress.ask(node)?;
        if matches!(self.plan.nodes()[node].node.kind, WorkflowNodeKind::Human { .. }) {
            self.begin(node, at);
        }
        Ok(())
    }

    /// Allows a node to run after a person's approval.
    pub(super) fn allow(&mut self, node: &Name) -> Result<(), CorruptJournal> {
        let node = self.number(node)?;
        self.progress.allow(node)?;
        Ok(())
    }

    /// Applies updates of the State.
    pub(super) fn update(
        &mut self,
        updates: &StateUpdates,
        at: Timestamp,
    ) -> Result<(), InvalidUpdate> {
        updates.set_metadata(&mut self.metadata)?;
        for message in updates.messages(at) {
            self.add(message);
        }
        if let Some(action) = updates.next_action() {
            self.next_action = action;
        }
        if let Some(key) = updates.routing_key() {
            self.routing_key = key;
        }
        Ok(())
    }

    /// Applies a person's answer: the action becomes the routing key, unless the person sets
    /// another.
    pub(crate) fn apply_answer(
        &mut self,
        action: &str,
        message: Option<String>,
        updates: &StateUpdates,
        at: Timestamp,
    ) -> Result<(), InvalidUpdate> {
        self.routing_key = Some(action.to_owned());
        if let Some(content) = message {
            self.add(Message::User { content, timestamp: at });
        }
        self.update(updates, at)
    }

    /// The run of a fork: nodes in progress restart.
    pub(super) fn forked(&self) -> Result<Self, CorruptJournal> {
        let mut run = self.clone();
        run.progress.begin_again(&self.plan)?;
        // Outputs of the original are no answers of the fork.
        run.newest = None;
        for run in &mut run.runs {
            // A restarted node keeps its run number.
            if run.began.take().is_some() {
                run.count = run.count.saturating_sub(1);
            }
            run.call = None;
            run.answer = None;
        }
        Ok(run)
    }
}
