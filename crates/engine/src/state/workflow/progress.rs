//! How far a workflow has come: which nodes may run, and which never will.
//!
//! A node is ready when every link that leads to it is decided and one is taken. A node to which no
//! taken link can lead any more is skipped, and so are those behind it. A link that leads back takes
//! effect when nothing behind its target is under way: then the target and all behind it begin anew.
//!
//! All of it follows from the plan and from what the journal says became of each node, so nothing
//! here is stored.

use polity_definition::{JoinMode, PlanLink, WorkflowPlan};
use polity_model::machine::node::{NodeEvent, NodeState};
use polity_model::machine::{IllegalTransition, Machine};

/// Small enough to be copied, to see what would follow from a decision.
#[derive(Debug, Clone)]
pub struct WorkflowProgress {
    nodes: Vec<NodeState>,
    links: Vec<LinkState>,
    /// How often each edge has led back.
    loops: Vec<u32>,
    /// Nodes that may run whatever their links say: the first, and those that a link leads back to.
    called: Vec<bool>,
    /// Nodes that a person has allowed to run.
    allowed: Vec<bool>,
    /// Links that lead back, and that wait until nothing behind their target is under way.
    again: Vec<usize>,
    /// The link that led back to each node last.
    led_back: Vec<Option<usize>>,
    /// How often nodes have run.
    runs: u32,
    /// How often a link has led back.
    rounds: u32,
}

/// What is known of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    /// The node that it starts from has not ended.
    Open,
    /// It is taken.
    Taken,
    /// It is not.
    Dead,
}

type ProgressResult = Result<(), IllegalTransition<NodeState>>;

impl WorkflowProgress {
    /// Nothing has happened yet.
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
            runs: 0,
            rounds: 0,
        }
    }

    /// Where a node is in its life.
    pub fn node(&self, node: usize) -> NodeState {
        self.nodes[node]
    }

    /// Whether a node is done.
    pub fn is_done(&self, node: usize) -> bool {
        self.nodes[node] == NodeState::Done
    }

    /// Whether nothing is under way, and no way leads back any more.
    pub fn is_settled(&self) -> bool {
        let is_at_work =
            |state: &NodeState| matches!(state, NodeState::Running | NodeState::Asking);
        self.again.is_empty() && !self.nodes.iter().any(is_at_work)
    }

    /// How often nodes have run.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// How often a link has led back.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// How often an edge has led back.
    pub fn loops(&self, edge: usize) -> u32 {
        self.loops[edge]
    }

    /// Whether a person has allowed the node to run.
    pub fn is_allowed(&self, node: usize) -> bool {
        self.allowed[node]
    }

    /// The nodes from which the taken links came that led to a node.
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

    /// A person says that the node may run.
    pub(crate) fn allow(&mut self, node: usize) -> ProgressResult {
        self.on(node, NodeEvent::Reply)?;
        self.allowed[node] = true;
        Ok(())
    }

    /// The node is done, and these links are taken.
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
            // What lies ahead is decided when the way leads past here again.
            if let Some(edge) = plan.links()[back].edge {
                self.loops[edge] += 1;
            }
            self.again.push(back);
        } else {
            for link in &plan.nodes()[node].links_out {
                let follows_from_data = plan.links()[*link].edge.is_none();
                let is_taken = follows_from_data || taken.contains(link);
                self.links[*link] = if is_taken { LinkState::Taken } else { LinkState::Dead };
            }
        }
        self.settle(plan)
    }

    pub(crate) fn fail(&mut self, plan: &WorkflowPlan, node: usize) -> ProgressResult {
        self.ended(plan, node, NodeEvent::Fail)
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

    /// Nodes that were under way begin anew, in a task that goes on from this point by itself.
    pub(crate) fn begin_again(&mut self, plan: &WorkflowPlan) -> ProgressResult {
        for (node, state) in self.nodes.iter_mut().enumerate() {
            match state {
                // It counts again when it begins again.
                NodeState::Running => {
                    self.runs = self.runs.saturating_sub(1);
                    // Some of its branches may be done: no one is asked in the midst of it.
                    self.allowed[node] = !plan.nodes()[node].branches.is_empty();
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
        }
        // What a way back waited for is not under way here.
        self.settle(plan)
    }

    /// What follows from a node that has ended.
    fn settle(&mut self, plan: &WorkflowPlan) -> ProgressResult {
        self.skip(plan)?;
        while let Some(link) = self.next_back(plan) {
            self.again.retain(|other| *other != link);
            self.go_back(plan, link)?;
        }
        Ok(())
    }

    /// The link that leads back next: the one that leads back farthest, whichever was taken first.
    fn next_back(&self, plan: &WorkflowPlan) -> Option<usize> {
        let free = self.again.iter().copied().filter(|link| self.is_free(plan, *link));
        free.min_by_key(|link| (plan.nodes()[plan.links()[*link].to].rank, *link))
    }

    /// Whether nothing behind the target of a link that leads back is under way.
    fn is_free(&self, plan: &WorkflowPlan, link: usize) -> bool {
        let behind = plan.from_on(plan.links()[link].to);
        behind
            .iter()
            .all(|node| !matches!(self.nodes[*node], NodeState::Running | NodeState::Asking))
    }

    fn go_back(&mut self, plan: &WorkflowPlan, link: usize) -> ProgressResult {
        let PlanLink { to, .. } = plan.links()[link];
        let behind = plan.from_on(to);
        // Nodes that begin anew decide anew whether they lead back.
        self.again.retain(|other| !behind.contains(&plan.links()[*other].from));
        for node in behind {
            self.on(node, NodeEvent::Repeat)?;
            self.called[node] = false;
            self.allowed[node] = false;
            self.led_back[node] = None;
            for link in &plan.nodes()[node].links_out {
                self.links[*link] = LinkState::Open;
            }
        }
        self.called[to] = true;
        self.led_back[to] = Some(link);
        self.rounds += 1;
        Ok(())
    }

    /// Skips the nodes that no taken link can lead to any more, and what lies behind them.
    fn skip(&mut self, plan: &WorkflowPlan) -> ProgressResult {
        loop {
            let dead = (0..self.nodes.len()).find(|node| {
                self.nodes[*node] == NodeState::Waiting
                    && !self.called[*node]
                    // A branch runs whenever its parallel node does: its links are only of data.
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

    /// Whether the links lead to a node, once they are all decided. Edges say whether it runs, where
    /// there are edges; data says only when.
    fn leads(&self, plan: &WorkflowPlan, node: usize) -> Option<bool> {
        let links = &plan.nodes()[node].links_in;
        if links.is_empty() || links.iter().any(|link| self.links[*link] == LinkState::Open) {
            return None;
        }
        let has_edges = links.iter().any(|link| plan.links()[*link].edge.is_some());
        Some(links.iter().any(|link| {
            self.links[*link] == LinkState::Taken
                && (!has_edges || plan.links()[*link].edge.is_some())
        }))
    }

    /// The nodes that may run now, in the order in which they come.
    pub fn ready(&self, plan: &WorkflowPlan) -> Vec<usize> {
        let mut ready: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.is_ready(plan, *node)).collect();
        ready.sort_by_key(|node| plan.nodes()[*node].rank);
        // What will begin anew is not begun before.
        for link in &self.again {
            let behind = plan.from_on(plan.links()[*link].to);
            // A parallel node that has begun must end first, and so must its branches.
            let is_begun = |node: &usize| {
                let parallel = plan.nodes()[*node].branch_of;
                parallel.is_some_and(|parallel| self.nodes[parallel] == NodeState::Running)
            };
            ready.retain(|node| is_begun(node) || !behind.contains(node));
        }
        ready
    }

    /// Whether the branches of a parallel node may run: until it is done, and where one success is
    /// enough for it, the others go on after that.
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
            // What a branch reads is written, or never will be.
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
