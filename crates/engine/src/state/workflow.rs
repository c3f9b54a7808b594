//! The run of a workflow: its progress and the State that its nodes share.
//!
//! Messages are ordered by node, not by time, so concurrent nodes that end in another order leave
//! the same State.

mod ending;
mod map_run;
mod progress;
mod rebase;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::{ItemErrorPolicy, LinkKind, WorkflowNode, WorkflowNodeKind, WorkflowPlan};
use polity_model::event::{MapStart, NodeChange, NodeOutput};
use polity_model::ids::ToolCallId;
use polity_model::machine::node::NodeState;
use polity_model::message::{Message, ToolCall};
use polity_model::name::Name;
use polity_model::state::{CaughtError, InvalidUpdate, State, StateUpdates};
use polity_model::value::json_text;
use serde_json::{Map, Value};

use self::ending::{NodeFailureEvent, UndoableRun, WorkflowEnding};
use super::{CorruptJournal, TurnCalls};

pub(crate) use map_run::{ItemOutput, item_error_policy, item_node, render_outputs};
pub use map_run::{MapProgress, MapRun};
pub use progress::WorkflowProgress;
pub(crate) use view::{NodeOutcome, check_outputs};

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
    /// The failure that an error edge caught last.
    error: Option<CaughtError>,
    /// The finished runs that can be undone, oldest first.
    undoable: Vec<UndoableRun>,
    /// The end of the workflow, while its compensations run.
    ending: Option<WorkflowEnding>,
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
    /// The items of a map, until the node ends.
    map: Option<MapRun>,
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
            error: None,
            undoable: Vec::new(),
            ending: None,
            plan,
            workflow,
        }
    }

    /// The compiled workflow.
    pub fn plan(&self) -> &WorkflowPlan {
        &self.plan
    }

    /// The compiled workflow, shared.
    pub(super) fn shared_plan(&self) -> Arc<WorkflowPlan> {
        Arc::clone(&self.plan)
    }

    /// The progress.
    pub fn progress(&self) -> &WorkflowProgress {
        &self.progress
    }

    /// The workflow's name.
    pub fn workflow(&self) -> &Name {
        &self.workflow
    }

    /// The node that a call performs, whole or for an item.
    pub fn node_of(&self, call: ToolCallId) -> Option<usize> {
        self.runs.iter().position(|run| {
            run.call == Some(call)
                || run.map.as_ref().is_some_and(|map| map.progress().item_of(call).is_some())
        })
    }

    /// The items of a map, until it ends.
    pub fn map(&self, node: usize) -> Option<&MapRun> {
        self.runs[node].map.as_ref()
    }

    /// The item of a map that a call performs.
    pub fn item_of(&self, call: ToolCallId) -> Option<u32> {
        self.runs.iter().find_map(|run| run.map.as_ref()?.progress().item_of(call))
    }

    /// The step that a call performs: a node, or the step of a map.
    pub fn step_of(&self, call: ToolCallId) -> Option<&WorkflowNode> {
        let node = self.node_of(call)?;
        let planned = &self.plan.nodes()[node].node;
        Some(item_node(planned).unwrap_or(planned))
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

    /// Keeps the answer to a call. The end of its node follows as its own event, and so does the
    /// failure of an item.
    pub(super) fn answered(
        &mut self,
        call: ToolCallId,
        content: String,
        is_error: bool,
    ) -> Result<(), CorruptJournal> {
        let Some(node) = self.node_of(call) else { return Ok(()) };
        let planned = &self.plan.nodes()[node].node;
        let NodeRun { map, answer, .. } = &mut self.runs[node];
        let Some((map, step)) = map.as_mut().zip(item_node(planned)) else {
            // A retry takes an answer for the node's output, which an error is not.
            *answer = (!is_error).then_some(content);
            return Ok(());
        };
        if let (false, Some(item)) = (is_error, map.progress().item_of(call))
            && let Ok(output) = ItemOutput::of_answer(step, content)
        {
            map.end_item(item, output)?;
        }
        Ok(())
    }

    /// Applies a change to the items of a map.
    fn map_mut(&mut self, node: usize) -> Result<&mut MapRun, CorruptJournal> {
        let name = self.plan.nodes()[node].name();
        self.runs[node].map.as_mut().ok_or_else(|| CorruptJournal::NoNode(name.clone()))
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
            NodeChange::Start { call, map } => {
                if self.continues_map(node, map.as_ref()) {
                    return Ok(None);
                }
                if self.plan.nodes()[node].compensates.is_some() {
                    self.progress.restart(node)?;
                    self.begin_compensation();
                }
                self.progress.start(node)?;
                self.begin(node, at);
                if let Some(start) = map {
                    let earlier = self.runs[node].map.take();
                    self.runs[node].map = Some(MapRun::start(earlier, start)?);
                }
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
            NodeChange::StartItem { item, call } => {
                self.map_mut(node)?.start_item(item, call.id)?;
                return Ok(Some(call));
            }
            NodeChange::FinishItems { first, outputs } => {
                let map = self.map_mut(node)?;
                for (item, output) in (first..).zip(outputs) {
                    map.end_item(item, ItemOutput::Json(output))?;
                }
            }
            NodeChange::FailItem { item, code, error } => {
                // The map fails with the item, unless failures are collected.
                match item_error_policy(&self.plan.nodes()[node].node) {
                    ItemErrorPolicy::Collect => {
                        self.map_mut(node)?.end_item(item, ItemOutput::Error { code, error })?;
                    }
                    ItemErrorPolicy::Fail => {}
                }
            }
            NodeChange::Finish { output, routing_key, to, edge, state_updates } => {
                if self.runs[node].began.is_none() {
                    self.begin(node, at);
                }
                let taken = self.links_to(node, &to, edge)?;
                self.update_by(node, &state_updates, at)?;
                self.finish(node, output, routing_key, at);
                let plan = Arc::clone(&self.plan);
                self.progress.finish(&plan, node, &taken)?;
            }
            NodeChange::Fail { code, error, to, edge, output } => {
                self.fail(node, NodeFailureEvent { code, error, to, edge, output })?;
            }
            NodeChange::Drop => {
                self.runs[node].began = None;
                self.runs[node].map = None;
                let plan = Arc::clone(&self.plan);
                self.progress.give_up(&plan, node)?;
            }
        }
        Ok(None)
    }

    fn begin(&mut self, node: usize, at: Timestamp) {
        let round = self.progress.round_of(node);
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
                link.kind != LinkKind::Error
                    && link.to == to
                    && (edge.is_none() || link.edge == edge)
            }));
            if taken.len() == before {
                return Err(CorruptJournal::NoNode(name.clone()));
            }
        }
        Ok(taken)
    }

    /// The output of a node as text, and as a value if a script printed it.
    fn output_of(&mut self, node: usize, output: NodeOutput) -> (String, Option<Value>) {
        let planned = &self.plan.nodes()[node].node;
        let run = &mut self.runs[node];
        let map = run.map.take();
        match output {
            NodeOutput::Items => {
                let outputs = map.as_ref().map(MapRun::outputs).unwrap_or_default();
                (render_outputs(planned, outputs, &BTreeMap::new()), None)
            }
            NodeOutput::Answer => (run.answer.take().unwrap_or_default(), None),
            NodeOutput::Text(text) => (text, None),
            NodeOutput::Json(json) => (json_text(&json).into_owned(), Some(json)),
        }
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
        let call = self.runs[node].call.take();
        let is_answer = self.runs[node].map.is_none();
        let (text, value) = self.output_of(node, output);
        let run = &mut self.runs[node];
        run.began = None;
        // A retry takes an answer that is still here for that of a node in progress.
        run.answer = None;
        run.last = if view::says_something(&self.plan.nodes()[node].node.kind) {
            Some(node)
        } else {
            last
        };
        for (name, value) in view::written(&self.plan.nodes()[node].node, &text, value.as_ref()) {
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
        self.keep_for_compensation(node, &text);
        self.runs[node].output = Some(text);
        // The output of a map is not stored in one place, so nothing can refer to it.
        if is_answer && self.ending.is_none() {
            self.newest = Some(node);
        }
        if self.plan.nodes()[node].compensates.is_some() {
            self.end_compensation();
        }
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
        for (path, node, output) in updates.node_outputs() {
            self.set_output(&node, output).map_err(|problem| {
                let path = path.to_owned();
                InvalidUpdate::NodeOutput { path, problem }
            })?;
        }
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

    /// Replaces the output of a finished node, in the State too.
    fn set_output(&mut self, node: &Name, output: String) -> Result<(), String> {
        let Some(number) = self.plan.number(node) else {
            return Err(format!("the workflow has no node \"{node}\""));
        };
        let planned = &self.plan.nodes()[number].node;
        if !self.progress.is_done(number) {
            return Err(format!("node \"{node}\" has not finished, so it has no output yet"));
        }
        view::check_outputs(planned, &output)?;
        let (run, before) = (&self.runs[number], self.runs[number].output.as_deref());
        let said = self.messages.iter().zip(&self.keys).rposition(|(message, (round, _))| {
            *round == run.round && Some(message.content()) == before
        });
        for (name, value) in view::written(planned, &output, None) {
            self.metadata.insert(name, value);
        }
        if let Some(message) = said.and_then(|said| self.messages.get_mut(said)) {
            message.set_content(output.clone());
        }
        self.runs[number].output = Some(output);
        Ok(())
    }

    /// Applies the updates of the State that a node's script asked for. Their messages are in the
    /// place of the node.
    fn update_by(
        &mut self,
        node: usize,
        updates: &StateUpdates,
        at: Timestamp,
    ) -> Result<(), InvalidUpdate> {
        let key = self.key(node);
        updates.set_metadata(&mut self.metadata)?;
        for message in updates.messages(at) {
            self.say(key, message);
        }
        if let Some(action) = updates.next_action() {
            self.next_action = action;
        }
        if let Some(routing_key) = updates.routing_key()
            && key >= self.routed_by
        {
            self.routing_key = routing_key;
            self.routed_by = key;
        }
        Ok(())
    }

    /// The State after the updates of a node's script.
    pub(crate) fn state_after(
        &self,
        node: usize,
        updates: &StateUpdates,
        at: Timestamp,
    ) -> Result<State, InvalidUpdate> {
        let mut run = self.clone();
        run.update_by(node, updates, at)?;
        Ok(run.state())
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

    /// The run of a fork or retry, on a plan that may have changed. Nodes in progress restart, except
    /// those that a retry continues: nodes with an open call, maps, and nodes whose answer is there.
    pub(super) fn continued(
        &self,
        plan: &Arc<WorkflowPlan>,
        calls: &mut TurnCalls,
        is_retry: bool,
    ) -> Result<Self, CorruptJournal> {
        let mut run = self.rebased(plan).map_err(CorruptJournal::NoNode)?;
        let is_kept: Vec<bool> = (0..plan.nodes().len())
            .map(|node| {
                let earlier = self.plan.number(plan.nodes()[node].name());
                is_retry
                    && earlier.is_some_and(|earlier| self.has_same_callee(earlier, plan, node))
                    && (run.runs[node].answer.is_some()
                        || run.is_map_running(node)
                        || run.runs[node].call.is_some_and(|call| calls.get(call).is_some()))
            })
            .collect();
        let rounds: Vec<_> = run.runs.iter().map(|run| run.began.map(|_| run.round)).collect();
        run.progress.begin_again(plan, |node| is_kept[node], &rounds, is_retry)?;
        // Outputs of the original are no answers of the fork.
        run.newest = None;
        if !is_retry {
            // The original undoes what it did.
            run.undoable.clear();
        }
        for (run, is_kept) in run.runs.iter_mut().zip(&is_kept) {
            if *is_kept {
                let is_open = |call| calls.get(call).is_some();
                run.map = run.map.as_ref().map(|map| map.continued(is_open));
                continue;
            }
            // A restarted node keeps its run number.
            if run.began.take().is_some() {
                run.count = run.count.saturating_sub(1);
            }
            run.call = None;
            run.answer = None;
            run.map = run.map.as_ref().map(MapRun::forked);
        }
        calls.retain(|call| run.node_of(call).is_some());
        Ok(run)
    }

    /// True if a node is a map in progress.
    fn is_map_running(&self, node: usize) -> bool {
        self.progress.node(node) == NodeState::Running && self.runs[node].map.is_some()
    }

    /// True if a map starts that a retry has inherited in progress.
    fn continues_map(&self, node: usize, start: Option<&MapStart>) -> bool {
        start.is_some_and(|start| start.items.is_none()) && self.is_map_running(node)
    }

    /// The maps in progress, each with the point from which a retry continues it.
    pub(crate) fn inherited_maps(&self) -> Vec<(usize, MapStart)> {
        let running = (0..self.runs.len()).filter(|node| self.is_map_running(*node));
        running.filter_map(|node| Some((node, self.runs[node].map.as_ref()?.restart()))).collect()
    }

    /// The nodes in progress whose answers a retry has inherited, with these answers.
    pub(crate) fn answered_nodes(&self) -> Vec<(usize, &str)> {
        let runs = self.runs.iter().enumerate();
        runs.filter_map(|(node, run)| Some((node, run.answer.as_deref()?))).collect()
    }
}
