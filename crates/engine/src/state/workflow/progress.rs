//! The progress of a workflow: the nodes that may run, and those that never will.
//!
//! A node is ready when every link to it is decided and one is taken. A node that no taken link can
//! reach is skipped, and so are the nodes after it. A back link takes effect when nothing after its
//! target is in progress: then the target and all nodes after it restart.
//!
//! Everything here follows from the plan and the journal, so nothing is stored.

mod route_check;

use polity_definition::{JoinMode, LinkKind, PlanLink, WorkflowPlan};
use polity_model::machine::node::{NodeEvent, NodeState};
use polity_model::machine::{IllegalTransition, Machine};

/// The progress of a workflow. It is cheap to clone, to preview a decision.
#[derive(Debug, Clone)]
pub struct WorkflowProgress {
    nodes: Vec<NodeState>,
    links: Vec<LinkState>,
    /// The number of times that each edge led back.
    loops: Vec<u32>,
    /// Nodes that may run regardless of their links: the first node, and targets of a loop.
    called: Vec<bool>,
    /// Nodes that a person has approved.
    allowed: Vec<bool>,
    /// Taken back links that wait until nothing after their target is in progress.
    again: Vec<usize>,
    /// The last link that led back to each node.
    led_back: Vec<Option<usize>>,
    /// The round of each node that a fork or retry restarts: the one in which the node was in progress.
    restarts_in: Vec<Option<u32>>,
    /// The number of node runs.
    runs: u32,
    /// The number of loops so far.
    rounds: u32,
}

/// The decision about a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    /// The node at its start has not ended.
    Open,
    /// The link is taken.
    Taken,
    /// The link is not taken.
    Dead,
}

type ProgressResult = Result<(), IllegalTransition<NodeState>>;

impl WorkflowProgress {
    /// The progress of a workflow that has not started.
    pub(super) fn new(plan: &WorkflowPlan) -> Self {
        let count = plan.nodes().len();
        let mut called = vec![false; count];
        called[plan.entry()] = true;
        Self {
            nodes: vec![NodeState::INITIAL; count],
            links: vec![LinkState::Open; plan.links().len()],
            loops: vec![0; plan.edges().len()],
            called,
            allowed: vec![false; count],
            again: Vec::new(),
            led_back: vec![None; count],
            restarts_in: vec![None; count],
            runs: 0,
            rounds: 0,
        }
    }

    /// The state of a node.
    pub fn node(&self, node: usize) -> NodeState {
        self.nodes[node]
    }

    /// True if a node is done.
    pub fn is_done(&self, node: usize) -> bool {
        self.nodes[node] == NodeState::Done
    }

    /// True if nothing is in progress and no loop is pending.
    pub fn is_settled(&self) -> bool {
        let is_at_work =
            |state: &NodeState| matches!(state, NodeState::Running | NodeState::Asking);
        self.again.is_empty() && !self.nodes.iter().any(is_at_work)
    }

    /// The number of node runs.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// The number of loops so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The round in which a node starts: the current one, or that from before a fork. A loop may run
    /// beside the node, and messages are ordered by rounds.
    pub(super) fn round_of(&self, node: usize) -> u32 {
        self.restarts_in[node].unwrap_or(self.rounds)
    }

    /// The number of times that an edge led back.
    pub fn loops(&self, edge: usize) -> u32 {
        self.loops[edge]
    }

    /// True if a person has approved the node.
    pub fn is_allowed(&self, node: usize) -> bool {
        self.allowed[node]
    }

    /// The nodes at the start of the taken links to a node.
    pub fn led_from(&self, plan: &WorkflowPlan, node: usize) -> Vec<usize> {
        if let Some(link) = self.led_back[node] {
            return vec![plan.links()[link].from];
        }
        let links = plan.nodes()[node].links_in.iter();
        links
            .filter(|link| self.links[**link] == LinkState::Taken)
            .map(|link| plan.links()[*link].from)
            .collect()
    }

    fn on(&mut self, node: usize, event: NodeEvent) -> ProgressResult {
        self.nodes[node] = self.nodes[node].transition(event)?;
        Ok(())
    }

    pub(crate) fn start(&mut self, node: usize) -> ProgressResult {
        self.on(node, NodeEvent::Start)?;
        self.began(node);
        Ok(())
    }

    fn began(&mut self, node: usize) {
        self.called[node] = false;
        self.allowed[node] = false;
        self.runs += 1;
    }

    pub(crate) fn ask(&mut self, node: usize) -> ProgressResult {
        self.on(node, NodeEvent::Ask)
    }

    /// Allows a node to run after a person's approval.
    pub(crate) fn allow(&mut self, node: usize) -> ProgressResult {
        self.on(node, NodeEvent::Reply)?;
        self.allowed[node] = true;
        Ok(())
    }

    /// Finishes a node and takes these links.
    pub(crate) fn finish(
        &mut self,
        plan: &WorkflowPlan,
        node: usize,
        taken: &[usize],
    ) -> ProgressResult {
        let is_new = self.nodes[node] != NodeState::Running;
        self.on(node, NodeEvent::Finish)?;
        if is_new {
            self.began(node);
        }
        let back = taken.iter().copied().find(|link| plan.links()[*link].is_back);
        if let Some(back) = back {
            // Links ahead are decided when the loop comes back here.
            if let Some(edge) = plan.links()[back].edge {
                self.loops[edge] += 1;
            }
            self.again.push(back);
        } else {
            for link in &plan.nodes()[node].links_out {
                let follows_from_data = plan.links()[*link].kind == LinkKind::Data;
                let is_taken = follows_from_data || taken.contains(link);
                self.links[*link] = if is_taken { LinkState::Taken } else { LinkState::Dead };
            }
        }
        self.settle(plan)
    }

    /// Fails a node. `caught_by` is the error link to take, if the failure is caught.
    pub(crate) fn fail(
        &mut self,
        plan: &WorkflowPlan,
        node: usize,
        caught_by: Option<usize>,
    ) -> ProgressResult {
        let Some(link) = caught_by else { return self.ended(plan, node, NodeEvent::Fail) };
        self.on(node, NodeEvent::Fail)?;
        if plan.links()[link].is_back {
            // Links ahead are decided when the loop comes back here.
            if let Some(edge) = plan.links()[link].edge {
                self.loops[edge] += 1;
            }
            self.again.push(link);
        } else {
            for other in &plan.nodes()[node].links_out {
                self.links[*other] =
                    if *other == link { LinkState::Taken } else { LinkState::Dead };
            }
        }
        self.settle(plan)
    }

    /// Makes a compensation ready to run again, for an earlier run of its node.
    pub(crate) fn restart(&mut self, node: usize) -> ProgressResult {
        match self.nodes[node] {
            NodeState::Done | NodeState::Failed => self.on(node, NodeEvent::Repeat),
            NodeState::Waiting
            | NodeState::Running
            | NodeState::Asking
            | NodeState::Dropped
            | NodeState::Skipped => Ok(()),
        }
    }

    /// Stops the graph. After a cancel, the nodes of `on_cancel` run.
    pub(crate) fn begin_ending(&mut self, plan: &WorkflowPlan, is_cancel: bool) -> ProgressResult {
        let kept = plan.on_cancel().map(|first| plan.from_on(first)).unwrap_or_default();
        self.again.clear();
        for node in 0..self.nodes.len() {
            if kept.contains(&node) || plan.nodes()[node].compensates.is_some() {
                continue;
            }
            self.called[node] = false;
            match self.nodes[node] {
                NodeState::Running | NodeState::Asking => self.on(node, NodeEvent::Drop)?,
                NodeState::Waiting => self.on(node, NodeEvent::Skip)?,
                NodeState::Done | NodeState::Failed | NodeState::Dropped | NodeState::Skipped => {}
            }
        }
        if let Some(first) = plan.on_cancel().filter(|_| is_cancel) {
            self.called[first] = true;
        }
        Ok(())
    }

    pub(crate) fn give_up(&mut self, plan: &WorkflowPlan, node: usize) -> ProgressResult {
        self.ended(plan, node, NodeEvent::Drop)
    }

    fn ended(&mut self, plan: &WorkflowPlan, node: usize, event: NodeEvent) -> ProgressResult {
        self.on(node, event)?;
        for link in &plan.nodes()[node].links_out {
            self.links[*link] = LinkState::Dead;
        }
        self.settle(plan)
    }

    /// Restarts the nodes in progress that are not kept, for a fork or retry. `rounds` has the round of
    /// each node that has begun. A retry counts node runs afresh.
    pub(crate) fn begin_again(
        &mut self,
        plan: &WorkflowPlan,
        is_kept: impl Fn(usize) -> bool,
        rounds: &[Option<u32>],
        is_retry: bool,
    ) -> ProgressResult {
        for (node, state) in self.nodes.iter_mut().enumerate() {
            if is_kept(node) {
                continue;
            }
            match state {
                // It counts again when it restarts.
                NodeState::Running => {
                    self.runs = self.runs.saturating_sub(1);
                    // Some of its branches or items may be done, so its approval is not asked again.
                    let planned = &plan.nodes()[node];
                    self.allowed[node] = !planned.branches.is_empty() || planned.is_map();
                }
                NodeState::Asking => {}
                NodeState::Waiting
                | NodeState::Done
                | NodeState::Failed
                | NodeState::Dropped
                | NodeState::Skipped => continue,
            }
            *state = NodeState::Waiting;
            self.called[node] = true;
            self.restarts_in[node] = rounds[node];
        }
        if is_retry {
            self.runs = 0;
        }
        // Nothing that a back link of a fork waited for is in progress now.
        self.settle(plan)
    }

    /// The progress on a changed plan. Nodes, links and edges keep theirs by the names of their nodes.
    pub(super) fn rebased(&self, old: &WorkflowPlan, new: &WorkflowPlan) -> Self {
        let earlier = |node: usize| old.number(new.nodes()[node].name());
        let mut rebased = Self::new(new);
        rebased.called[new.entry()] = self.runs == 0;
        for node in 0..new.nodes().len() {
            let Some(before) = earlier(node) else { continue };
            rebased.nodes[node] = self.nodes[before];
            rebased.called[node] = self.called[before];
            rebased.allowed[node] = self.allowed[before];
            rebased.restarts_in[node] = self.restarts_in[before];
            rebased.led_back[node] =
                self.led_back[before].and_then(|link| same_link(old, link, new));
        }
        for (number, link) in new.links().iter().enumerate() {
            let Some(from) = earlier(link.from) else { continue };
            let same = (0..old.links().len()).find(|l| same_link(old, *l, new) == Some(number));
            rebased.links[number] = match (self.nodes[from], same) {
                (NodeState::Waiting | NodeState::Running | NodeState::Asking, _) => LinkState::Open,
                (NodeState::Failed | NodeState::Dropped | NodeState::Skipped, _) => LinkState::Dead,
                (NodeState::Done, Some(same)) => self.links[same],
                // The route from a finished node is decided; only its data reaches new nodes.
                (NodeState::Done, None) if link.edge.is_none() => LinkState::Taken,
                (NodeState::Done, None) => LinkState::Dead,
            };
            if let (Some(edge), Some(before)) =
                (link.edge, same.and_then(|same| old.links()[same].edge))
            {
                rebased.loops[edge] = self.loops[before];
            }
        }
        rebased.again = self.again.iter().filter_map(|link| same_link(old, *link, new)).collect();
        (rebased.runs, rebased.rounds) = (self.runs, self.rounds);
        rebased
    }

    /// Applies the consequences of a node's end.
    fn settle(&mut self, plan: &WorkflowPlan) -> ProgressResult {
        self.skip(plan)?;
        while let Some(link) = self.next_back(plan) {
            self.again.retain(|other| *other != link);
            self.go_back(plan, link)?;
        }
        Ok(())
    }

    /// The next back link to follow: the one that leads back farthest, whichever was taken first.
    fn next_back(&self, plan: &WorkflowPlan) -> Option<usize> {
        let free = self.again.iter().copied().filter(|link| self.is_free(plan, *link));
        free.min_by_key(|link| (plan.nodes()[plan.links()[*link].to].rank, *link))
    }

    /// True if nothing after the target of a back link is in progress.
    fn is_free(&self, plan: &WorkflowPlan, link: usize) -> bool {
        let behind = plan.from_on(plan.links()[link].to);
        behind
            .iter()
            .all(|node| !matches!(self.nodes[*node], NodeState::Running | NodeState::Asking))
    }

    fn go_back(&mut self, plan: &WorkflowPlan, link: usize) -> ProgressResult {
        let PlanLink { to, .. } = plan.links()[link];
        let behind = plan.from_on(to);
        // Restarted nodes decide again about their back links.
        self.again.retain(|other| !behind.contains(&plan.links()[*other].from));
        for node in behind {
            self.on(node, NodeEvent::Repeat)?;
            self.called[node] = false;
            self.allowed[node] = false;
            self.led_back[node] = None;
            self.restarts_in[node] = None;
            for link in &plan.nodes()[node].links_out {
                self.links[*link] = LinkState::Open;
            }
        }
        self.called[to] = true;
        self.led_back[to] = Some(link);
        self.rounds += 1;
        Ok(())
    }

    /// Skips the nodes that no taken link can reach, and the nodes after them.
    fn skip(&mut self, plan: &WorkflowPlan) -> ProgressResult {
        loop {
            let dead = (0..self.nodes.len()).find(|node| {
                self.nodes[*node] == NodeState::Waiting
                    && !self.called[*node]
                    // A branch runs with its parallel node; its links carry only data.
                    && plan.nodes()[*node].branch_of.is_none()
                    && self.leads(plan, *node) == Some(false)
            });
            let Some(node) = dead else { return Ok(()) };
            self.on(node, NodeEvent::Skip)?;
            for link in &plan.nodes()[node].links_out {
                self.links[*link] = LinkState::Dead;
            }
        }
    }

    /// True if the links lead to a node, once all are decided. Edges decide if it runs; data links
    /// only decide when.
    fn leads(&self, plan: &WorkflowPlan, node: usize) -> Option<bool> {
        let links = &plan.nodes()[node].links_in;
        if links.is_empty() || links.iter().any(|link| self.links[*link] == LinkState::Open) {
            return None;
        }
        let is_edge = |link: &usize| plan.links()[*link].kind != LinkKind::Data;
        let has_edges = links.iter().any(is_edge);
        Some(
            links
                .iter()
                .any(|link| self.links[*link] == LinkState::Taken && (!has_edges || is_edge(link))),
        )
    }

    /// The nodes that may run now, in order.
    pub fn ready(&self, plan: &WorkflowPlan) -> Vec<usize> {
        let mut ready: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.is_ready(plan, *node)).collect();
        ready.sort_by_key(|node| plan.nodes()[*node].rank);
        // A node that a loop will restart does not start before.
        for link in &self.again {
            let behind = plan.from_on(plan.links()[*link].to);
            // A started parallel node must end first, and so must its branches.
            let is_begun = |node: &usize| {
                let parallel = plan.nodes()[*node].branch_of;
                parallel.is_some_and(|parallel| self.nodes[parallel] == NodeState::Running)
            };
            ready.retain(|node| is_begun(node) || !behind.contains(node));
        }
        ready
    }

    /// True if the branches of a parallel node may run: until it is done, and afterwards if one
    /// success is enough for its join.
    fn runs_branches(&self, plan: &WorkflowPlan, parallel: usize) -> bool {
        match self.nodes[parallel] {
            NodeState::Running => true,
            NodeState::Done => plan.nodes()[parallel].join() == Some(JoinMode::Any),
            NodeState::Waiting
            | NodeState::Asking
            | NodeState::Failed
            | NodeState::Dropped
            | NodeState::Skipped => false,
        }
    }

    fn is_ready(&self, plan: &WorkflowPlan, node: usize) -> bool {
        if self.nodes[node] != NodeState::Waiting {
            return false;
        }
        match plan.nodes()[node].branch_of {
            // The inputs of a branch are written, or never will be.
            Some(parallel) => {
                self.runs_branches(plan, parallel)
                    && plan.nodes()[node]
                        .links_in
                        .iter()
                        .all(|link| self.links[*link] != LinkState::Open)
            }
            None => self.called[node] || self.leads(plan, node) == Some(true),
        }
    }
}

/// The link of the new plan between the same nodes, of the same kind. Of several, the one with the
/// same index among them.
fn same_link(old: &WorkflowPlan, link: usize, new: &WorkflowPlan) -> Option<usize> {
    let wanted = old.links()[link];
    let (from, to) = (old.nodes()[wanted.from].name(), old.nodes()[wanted.to].name());
    let (from, to) = (new.number(from)?, new.number(to)?);
    let alike = |links: &[PlanLink], from: usize, to: usize| -> Vec<usize> {
        let is_alike = |link: &PlanLink| {
            link.from == from && link.to == to && link.edge.is_some() == wanted.edge.is_some()
        };
        (0..links.len()).filter(|number| is_alike(&links[*number])).collect()
    };
    let before = alike(old.links(), wanted.from, wanted.to);
    let index = before.iter().position(|number| *number == link)?;
    alike(new.links(), from, to).get(index).copied()
}
