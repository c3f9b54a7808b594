//! Joins of parallel nodes, and the fate of their other branches.

use polity_definition::JoinMode;
use polity_model::event::{NodeChange, NodeOutput};
use polity_model::failure::ErrorCode;
use polity_model::machine::node::NodeState;
use serde_json::{Map, Value};

use super::{FinishedNode, WorkflowDecision};

impl WorkflowDecision<'_> {
    /// Joins a branch that has ended into its parallel node.
    pub(super) fn join(&mut self, node: usize, ended: Result<&str, (ErrorCode, &str)>) {
        let plan = self.run.plan();
        let Some(parallel) = plan.nodes()[node].branch_of else { return };
        let Some(join) = plan.nodes()[parallel].join() else { return };
        // Another branch may have ended it already.
        if self.progress.node(parallel) != NodeState::Running {
            return;
        }
        let branches = &plan.nodes()[parallel].branches;
        let name = self.name(node);
        match (join, ended) {
            (JoinMode::All, Ok(_)) => {
                if branches.iter().all(|branch| self.progress.is_done(*branch)) {
                    let all = self.outputs_of(branches);
                    self.joined(parallel, &all);
                }
            }
            (JoinMode::Any, Ok(output)) => self.joined(parallel, output),
            (JoinMode::First, Ok(output)) => {
                self.give_up_branches(parallel, node, "another branch was first");
                self.joined(parallel, output);
            }
            (JoinMode::Any, Err((code, error))) => {
                let is_lost = |branch: &usize| self.progress.node(*branch) == NodeState::Failed;
                if branches.iter().all(is_lost) {
                    let error = format!("every branch failed, {name} last: {error}");
                    self.fail_node(parallel, code, &error);
                }
            }
            (JoinMode::All | JoinMode::First, Err((code, error))) => {
                self.give_up_branches(parallel, node, "another branch failed");
                self.fail_node(parallel, code, &format!("{name}: {error}"));
            }
        }
    }

    /// Joins branches that ended before their parallel node started, as in a fork between the two.
    pub(super) fn join_ended(&mut self, parallel: usize) {
        let branches = &self.run.plan().nodes()[parallel].branches;
        let done = branches.iter().copied().find(|branch| self.progress.is_done(*branch));
        if let Some((branch, output)) = done.and_then(|done| Some((done, self.run.output(done)?))) {
            self.join(branch, Ok(output));
        }
    }

    fn joined(&mut self, parallel: usize, output: &str) {
        self.finish(FinishedNode {
            node: parallel,
            output,
            stored: NodeOutput::Text(output.to_owned()),
            routing_key: None,
            answer: None,
            script: None,
        });
    }

    /// The outputs of all branches, by name.
    fn outputs_of(&self, branches: &[usize]) -> String {
        let of = |branch: usize| Value::from(self.output(branch).unwrap_or_default());
        let all: Map<String, Value> =
            branches.iter().map(|branch| (self.name(*branch).to_string(), of(*branch))).collect();
        Value::Object(all).to_string()
    }

    /// Abandons the branches that have not ended.
    fn give_up_branches(&mut self, parallel: usize, but: usize, why: &str) {
        for branch in self.run.plan().nodes()[parallel].branches.clone() {
            if branch != but {
                self.give_up(branch, why);
            }
        }
    }

    fn give_up(&mut self, node: usize, why: &str) {
        match self.progress.node(node) {
            NodeState::Waiting | NodeState::Running => {}
            NodeState::Asking
            | NodeState::Done
            | NodeState::Failed
            | NodeState::Dropped
            | NodeState::Skipped => return,
        }
        if self.progress.node(node) == NodeState::Running
            && let Some(call_id) = self.call_of(node)
        {
            self.batch.abandon(call_id, &format!("given up: {why}"));
        }
        self.abandon_items(node, why);
        let moved = self.progress.give_up(self.run.plan(), node);
        if self.moved(moved) {
            self.changed(node, NodeChange::Drop);
        }
        for branch in self.run.plan().nodes()[node].branches.clone() {
            self.give_up(branch, why);
        }
    }
}
