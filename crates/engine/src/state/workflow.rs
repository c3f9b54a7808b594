//! A workflow as it is walked: how far it has come, and the State that its nodes share.
//!
//! Messages stand in the order of the nodes that said them, whichever of those that ran at once
//! ended first. So a run that goes the same way has the same State in the end.

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

/// Where a workflow stands.
#[derive(Debug, Clone)]
pub struct WorkflowRun {
    plan: Arc<WorkflowPlan>,
    workflow: Name,
    progress: WorkflowProgress,
    runs: Vec<NodeRun>,
    /// The node that ended well last.
    newest: Option<usize>,
    messages: Vec<Message>,
    /// Where each message belongs: the round in which its node began, and the node's rank.
    keys: Vec<(u32, u32)>,
    metadata: Map<String, Value>,
    next_action: Option<String>,
    current_agent: Name,
    /// Where the node stands that the agent works for.
    led_by: (u32, u32),
    routing_key: Option<String>,
    /// Where the node stands that gave the routing key.
    routed_by: (u32, u32),
}

/// The newest run of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeRun {
    /// The call that does its work.
    pub(crate) call: Option<ToolCallId>,
    /// How often the node has run.
    pub(crate) count: u32,
    /// When it began.
    pub(crate) began: Option<Timestamp>,
    /// The round in which it began.
    round: u32,
    /// The answer to its call, until its end is known.
    answer: Option<String>,
    /// What came out of it last.
    pub(crate) output: Option<String>,
    /// The node whose output is the newest message behind this one; none if it is the input.
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

    /// The workflow, ready to be walked.
    pub fn plan(&self) -> &WorkflowPlan {
        &self.plan
    }

    /// How far it has come.
    pub fn progress(&self) -> &WorkflowProgress {
        &self.progress
    }

    /// The workflow's name.
    pub fn workflow(&self) -> &Name {
        &self.workflow
    }

    /// The node that a call works for.
    pub fn node_of(&self, call: ToolCallId) -> Option<usize> {
        self.runs.iter().position(|run| run.call == Some(call))
    }

    /// The name of the node that a call works for.
    pub fn node_name(&self, call: ToolCallId) -> Option<&Name> {
        self.node_of(call).map(|node| self.plan.nodes()[node].name())
    }

    /// The call that does a node's work, while it is at work.
    pub fn call(&self, node: usize) -> Option<ToolCallId> {
        self.runs[node].call
    }

    /// What came out of a node last.
    pub fn output(&self, node: usize) -> Option<&str> {
        self.runs[node].output.as_deref()
    }

    /// What came out of the node that ended last.
    pub fn newest_output(&self) -> Option<&str> {
        self.newest.and_then(|node| self.output(node))
    }

    pub(crate) fn node_run(&self, node: usize) -> &NodeRun {
        &self.runs[node]
    }

    /// The call that is answered now. Its node's end follows as an event of its own.
    pub(super) fn answered(&mut self, call: ToolCallId, content: String) {
        if let Some(node) = self.node_of(call) {
            self.runs[node].answer = Some(content);
        }
    }

    /// The node of this name.
    pub(super) fn number(&self, node: &Name) -> Result<usize, CorruptJournal> {
        self.plan.number(node).ok_or_else(|| CorruptJournal::NoNode(node.clone()))
    }

    /// Follows what happened to a node. The call that does its work comes out.
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

    /// Where the newest run of a node stands among all.
    fn key(&self, node: usize) -> (u32, u32) {
        (self.runs[node].round, self.plan.nodes()[node].rank)
    }

    /// The links that lead from a node to these, by an edge where that matters.
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

    /// Adds a message that no node said, behind all that were said.
    pub(super) fn add(&mut self, message: Message) {
        let key = self.keys.last().copied().unwrap_or_default();
        self.keys.push(key);
        self.messages.push(message);
    }

    /// A person is asked, by a node or before it runs.
    pub(super) fn ask(&mut self, node: &Name, at: Timestamp) -> Result<(), CorruptJournal> {
        let node = self.number(node)?;
        self.progress.ask(node)?;
        if matches!(self.plan.nodes()[node].node.kind, WorkflowNodeKind::Human { .. }) {
            self.begin(node, at);
        }
        Ok(())
    }

    /// A person allows a node to run.
    pub(super) fn allow(&mut self, node: &Name) -> Result<(), CorruptJournal> {
        let node = self.number(node)?;
        self.progress.allow(node)?;
        Ok(())
    }

    /// Someone changed the State.
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

    /// A person has answered: the action becomes the routing key, unless the person sets another.
    pub(crate) fn tell(
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

    /// The same run for a task that goes on from here by itself: what was under way begins anew.
    pub(super) fn forked(&self) -> Result<Self, CorruptJournal> {
        let mut run = self.clone();
        run.progress.begin_again(&self.plan)?;
        // What the other task's nodes gave is no answer of this one.
        run.newest = None;
        for run in &mut run.runs {
            // What begins anew is the same run, and is found by the same number.
            if run.began.take().is_some() {
                run.count = run.count.saturating_sub(1);
            }
            run.call = None;
            run.answer = None;
        }
        Ok(run)
    }
}
