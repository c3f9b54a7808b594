//! Routes on a changed workflow: a fork or retry continues only where nothing would be left out in
//! silence. The route from a finished node is decided, so it can neither disappear nor get a branch.

use polity_definition::{LinkKind, PlanLink, PlanTarget, WorkflowPlan};
use polity_model::machine::node::NodeState;
use polity_model::name::Name;

use super::{LinkState, WorkflowProgress, same_link};
use crate::state::CannotFork;

impl WorkflowProgress {
    /// Checks that the routes taken so far lead to the same nodes on another plan, and that no new
    /// route starts from a finished node.
    pub(in crate::state::workflow) fn check_routes(
        &self,
        old: &WorkflowPlan,
        new: &WorkflowPlan,
    ) -> Result<(), CannotFork> {
        for (number, link) in old.links().iter().enumerate() {
            let is_followed = self.again.contains(&number) || self.leads_on(number, link);
            if is_followed && same_link(old, number, new).is_none() {
                let (from, to) = ends(old, link);
                return Err(match new.number(&to) {
                    Some(_) => CannotFork::RouteGone { from, to },
                    None => CannotFork::NextNodeGone { from, to },
                });
            }
        }
        for (number, link) in new.links().iter().enumerate() {
            if self.would_be_left_out(old, new, number, link) {
                let (from, to) = ends(new, link);
                return Err(CannotFork::RouteAdded { from, to });
            }
        }
        for node in new.nodes() {
            let Some(parallel) = node.branch_of.map(|parallel| new.nodes()[parallel].name()) else {
                continue;
            };
            let is_over = old.number(parallel).is_some_and(|parallel| self.is_done(parallel));
            if is_over && old.number(node.name()).is_none() {
                let (from, to) = (parallel.clone(), node.name().clone());
                return Err(CannotFork::RouteAdded { from, to });
            }
        }
        let rebased = self.rebased(old, new);
        if self.has_work(old) && !rebased.has_work(new) {
            return Err(CannotFork::NothingLeft);
        }
        Ok(())
    }

    /// True if a node is in progress or may start.
    fn has_work(&self, plan: &WorkflowPlan) -> bool {
        !self.is_settled() || !self.ready(plan).is_empty()
    }

    /// True if a node has not ended, and may still run.
    fn is_due(&self, node: usize) -> bool {
        match self.nodes[node] {
            NodeState::Waiting | NodeState::Running | NodeState::Asking => true,
            NodeState::Done | NodeState::Failed | NodeState::Dropped | NodeState::Skipped => false,
        }
    }

    /// True if a link is taken, and the node at its end has not ended yet.
    fn leads_on(&self, number: usize, link: &PlanLink) -> bool {
        self.links[number] == LinkState::Taken
            && link.kind != LinkKind::Data
            && self.is_due(link.to)
    }

    /// True if a link of the new plan starts from a finished node and leads to a node that has not
    /// run and that no route leads to.
    fn would_be_left_out(
        &self,
        old: &WorkflowPlan,
        new: &WorkflowPlan,
        number: usize,
        link: &PlanLink,
    ) -> bool {
        let (from, to) = ends(new, link);
        let is_from_finished = old.number(&from).is_some_and(|from| self.is_done(from));
        if link.kind != LinkKind::Edge || link.is_back || !is_from_finished {
            return false;
        }
        if let Some(to) = old.number(&to) {
            let has_run =
                matches!(self.nodes[to], NodeState::Done | NodeState::Failed | NodeState::Dropped);
            let mut links_in = old.nodes()[to].links_in.iter();
            let is_next = links_in.any(|link| self.leads_on(*link, &old.links()[*link]));
            if has_run || is_next || self.called[to] {
                return false;
            }
        }
        let is_old = (0..old.links().len()).any(|l| same_link(old, l, new) == Some(number));
        !is_old && !self.is_decided_by_key(old, new, link)
    }

    /// True if a link belongs to a mapping of which another link was taken.
    fn is_decided_by_key(&self, old: &WorkflowPlan, new: &WorkflowPlan, link: &PlanLink) -> bool {
        let Some(edge) = link.edge else { return false };
        let PlanTarget::ByRoutingKey { links, default } = &new.edges()[edge].target else {
            return false;
        };
        let mut taken = (0..old.links().len()).filter(|l| self.links[*l] == LinkState::Taken);
        taken.any(|taken| {
            let same = same_link(old, taken, new);
            same.is_some_and(|same| *default == Some(same) || links.values().any(|l| *l == same))
        })
    }
}

/// The names of the nodes that a link connects.
fn ends(plan: &WorkflowPlan, link: &PlanLink) -> (Name, Name) {
    let name = |node: usize| plan.nodes()[node].name().clone();
    (name(link.from), name(link.to))
}
