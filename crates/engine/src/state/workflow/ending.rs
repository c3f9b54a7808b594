//! The end of a workflow that failed or was cancelled: failures that an error edge catches, and the
//! compensations that undo finished nodes.

use std::sync::Arc;

use polity_definition::{EvaluationScope, LinkKind};
use polity_model::event::{CompensationCause, Event, NodeOutput, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::name::Name;
use polity_model::state::CaughtError;

use super::WorkflowRun;
use super::view::says_something;
use crate::state::CorruptJournal;

/// A finished run of a node that has a compensation.
#[derive(Debug, Clone)]
pub(super) struct UndoableRun {
    /// The node.
    node: usize,
    /// The output of this run.
    output: String,
}

impl UndoableRun {
    /// The run on another plan, in which `later` gives the number of its node.
    pub(super) fn rebased(&self, later: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        Some(Self { node: later(self.node)?, output: self.output.clone() })
    }
}

/// The end of a workflow, while its compensations run.
#[derive(Debug, Clone)]
pub(super) struct WorkflowEnding {
    /// The failure that the task ends with; none if it was cancelled.
    failure: Option<CompensationCause>,
    /// The run that the current compensation undoes.
    current: Option<UndoableRun>,
    /// The compensations that failed, with their reasons.
    failed: Vec<String>,
}

/// The failure of a node, as its event has it.
pub(super) struct NodeFailureEvent {
    pub(super) code: ErrorCode,
    pub(super) error: String,
    pub(super) to: Option<Name>,
    pub(super) edge: Option<u32>,
    pub(super) output: Option<NodeOutput>,
}

impl WorkflowRun {
    /// Applies the failure of a node.
    pub(super) fn fail(
        &mut self,
        node: usize,
        failure: NodeFailureEvent,
    ) -> Result<(), CorruptJournal> {
        let NodeFailureEvent { code, error, to, edge, output } = failure;
        if to.is_some() {
            // The newest message on the path through this node is the one before it.
            self.runs[node].last = self.last_before(node);
        }
        if let Some(output) = output {
            let is_answer = self.runs[node].map.is_none() && self.ending.is_none();
            let (text, _) = self.output_of(node, output);
            self.keep_for_compensation(node, &text);
            // The node that catches the failure may read the output.
            if to.is_some() {
                self.runs[node].output = Some(text);
                if says_something(&self.plan.nodes()[node].node.kind) {
                    self.runs[node].last = Some(node);
                }
                self.newest = is_answer.then_some(node).or(self.newest);
            }
        }
        let run = &mut self.runs[node];
        (run.began, run.map, run.call) = (None, None, None);
        run.answer = None;
        let link = to.as_ref().map(|to| self.error_link(node, to, edge)).transpose()?;
        let plan = Arc::clone(&self.plan);
        self.progress.fail(&plan, node, link)?;
        let planned = &plan.nodes()[node];
        match (&mut self.ending, to) {
            (_, Some(_)) => {
                let category = code.category();
                let node = Some(planned.name().clone());
                self.error = Some(CaughtError { code, category, message: error, node });
            }
            (Some(ending), None) if planned.branch_of.is_none() => {
                ending.failed.push(format!("{}: {error}", planned.name()));
            }
            (_, None) => {}
        }
        if planned.compensates.is_some() {
            self.end_compensation();
        }
        Ok(())
    }

    /// The error link of a node to a target.
    fn error_link(
        &self,
        node: usize,
        to: &Name,
        edge: Option<u32>,
    ) -> Result<usize, CorruptJournal> {
        let (target, edge) = (self.number(to)?, edge.and_then(|edge| usize::try_from(edge).ok()));
        let mut links = self.plan.nodes()[node].links_out.iter().copied();
        let link = links.find(|link| {
            let link = self.plan.links()[*link];
            link.kind == LinkKind::Error && link.to == target && link.edge == edge
        });
        link.ok_or_else(|| CorruptJournal::NoNode(to.clone()))
    }

    /// Remembers a finished run if its node has a compensation.
    pub(super) fn keep_for_compensation(&mut self, node: usize, output: &str) {
        if self.plan.nodes()[node].compensation.is_some() {
            self.undoable.push(UndoableRun { node, output: output.to_owned() });
        }
    }

    /// Begins the end of the workflow.
    pub(crate) fn begin_ending(
        &mut self,
        failure: Option<CompensationCause>,
    ) -> Result<(), CorruptJournal> {
        let plan = Arc::clone(&self.plan);
        self.progress.begin_ending(&plan, failure.is_none())?;
        for run in &mut self.runs {
            (run.began, run.map, run.call) = (None, None, None);
        }
        if let Some(CompensationCause { code, error, node }) = failure.clone() {
            self.error =
                Some(CaughtError { code, category: code.category(), message: error, node });
        }
        self.ending = Some(WorkflowEnding { failure, current: None, failed: Vec::new() });
        Ok(())
    }

    /// Takes the newest run that is not undone yet, because its compensation begins.
    pub(super) fn begin_compensation(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.current = self.undoable.pop();
        }
    }

    /// Ends the current compensation. One that could not begin is taken here.
    pub(super) fn end_compensation(&mut self) {
        if let Some(ending) = &mut self.ending
            && ending.current.take().is_none()
        {
            self.undoable.pop();
        }
    }

    /// True if finished nodes have been undone, or are about to be.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// The node that undoes the newest run that is not undone yet.
    pub(crate) fn next_compensation(&self) -> Option<usize> {
        self.undoable.last().and_then(|run| self.plan.nodes()[run.node].compensation)
    }

    /// The scope of a compensation: `last` is the output of the run that it undoes.
    pub(super) fn compensation_scope<'a>(
        &'a self,
        node: usize,
        mut scope: EvaluationScope<'a>,
    ) -> EvaluationScope<'a> {
        if self.plan.nodes()[node].compensates.is_none() {
            return scope;
        }
        let current = self.ending.as_ref().and_then(|ending| ending.current.as_ref());
        if let Some(undone) = current.or(self.undoable.last()) {
            let name = self.plan.nodes()[undone.node].name().as_str();
            scope.last = &undone.output;
            scope.outputs.retain(|(known, _)| *known != name);
            scope.outputs.push((name, &undone.output));
        }
        scope
    }

    /// The events that end the task after its compensations. `cut` says why the remaining ones do
    /// not run, if any remain.
    pub(crate) fn end_events(&self, cut: Option<&str>) -> Vec<Event> {
        let Some(ending) = &self.ending else { return Vec::new() };
        let mut problems = ending.failed.clone();
        if let Some(why) = cut {
            let running = ending.current.iter().map(|run| run.node);
            let left = running.chain(self.undoable.iter().rev().map(|run| run.node));
            let left: Vec<&str> = left
                .filter_map(|node| self.plan.nodes()[node].compensation)
                .map(|node| self.plan.nodes()[node].name().as_str())
                .collect();
            if !left.is_empty() {
                problems.push(format!("{why}: {}", left.join(", ")));
            }
        }
        let problems = problems.join("; ");
        match &ending.failure {
            Some(CompensationCause { code, error, .. }) => {
                let error = if problems.is_empty() {
                    error.clone()
                } else {
                    format!("{error}; not everything was undone: {problems}")
                };
                let partial = self.newest_output().map(|text| ResultRef::Text(text.to_owned()));
                vec![Event::TaskFailed { code: *code, error, partial_result: partial }]
            }
            None if problems.is_empty() => vec![Event::TaskCancelled],
            None => {
                let error = format!("not everything was undone: {problems}");
                vec![Event::CompensationFailed { error }, Event::TaskCancelled]
            }
        }
    }
}
