//! Patterns of cooperation between agents, expanded to nodes and edges.
//!
//! A workflow of patterns runs like any other. Rounds are written out one after the other, so that
//! no edge leads back, and each phase is a node of its own, so that the trace shows it. A pattern
//! reads one text and ends in one node, whose output is its result and the text that the next
//! pattern reads.

mod plan_execute;
mod reflection;
mod roles;
mod supervisor;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use polity_model::name::{InvalidName, Name};
use polity_model::value::InvalidValue;

pub(super) use self::roles::check_roles;
use super::{
    EdgeTarget, WorkflowDefinition, WorkflowEdge, WorkflowNode, WorkflowNodeKind, WorkflowPattern,
};

/// The default number of reflection rounds.
pub const REFLECTION_ROUNDS: u32 = 3;

/// The most rounds that a workflow may ask for.
pub const REFLECTION_ROUNDS_MAX: u32 = 10;

/// The most steps of a plan that are carried out one by one. The last of them takes all the rest.
pub const PLAN_STEPS_MAX: usize = 8;

/// The graph that a workflow runs: as written, or as its patterns expand to.
#[derive(Debug, Clone, Copy)]
pub struct ExpandedGraph<'a> {
    /// The nodes, in the order their results are merged in.
    pub nodes: &'a [WorkflowNode],
    /// The edges.
    pub edges: &'a [WorkflowEdge],
    /// The node that runs first.
    pub entry_point: &'a Name,
}

impl<'a> ExpandedGraph<'a> {
    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&'a WorkflowNode> {
        self.nodes.iter().find(|node| node.name.as_str() == name)
    }
}

impl WorkflowDefinition {
    /// The graph that the workflow runs. If it has nodes, patterns are only a label.
    pub fn expanded(&self) -> ExpandedGraph<'_> {
        match (&self.entry_point, &self.from_patterns) {
            (Some(entry_point), _) => {
                ExpandedGraph { nodes: &self.nodes, edges: &self.edges, entry_point }
            }
            (None, Some(graph)) => ExpandedGraph {
                nodes: &graph.nodes,
                edges: &graph.edges,
                entry_point: &graph.entry_point,
            },
            // Unreachable: every file has nodes with an entry point, or patterns.
            (None, None) => ExpandedGraph { nodes: &[], edges: &[], entry_point: &self.name },
        }
    }
}

/// The graph of patterns.
#[derive(Debug, PartialEq)]
pub(super) struct PatternGraph {
    nodes: Vec<WorkflowNode>,
    edges: Vec<WorkflowEdge>,
    entry_point: Name,
}

/// An invalid text in a built-in pattern. Tests expand every pattern, so this does not occur.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpansionError {
    #[error(transparent)]
    Value(#[from] InvalidValue),
    #[error(transparent)]
    Name(#[from] InvalidName),
}

/// Expands patterns in sequence; none if there are none, or if a role is missing.
pub(super) fn expand(
    patterns: &[WorkflowPattern],
    agents: &BTreeMap<Name, Name>,
    rounds: u32,
) -> Result<Option<PatternGraph>, ExpansionError> {
    let mut builder =
        PatternBuilder { nodes: Vec::new(), edges: Vec::new(), suffix: String::new() };
    let mut entry_point = None;
    let mut former: Option<Name> = None;
    for (place, pattern) in patterns.iter().enumerate() {
        let earlier = patterns[..place].iter().filter(|other| *other == pattern).count();
        builder.suffix = if earlier == 0 { String::new() } else { format!("_{}", earlier + 1) };
        let goal = former.as_ref().map_or_else(
            || "{{ input }}".to_owned(),
            |former| format!("{{{{ nodes.{former}.output }}}}"),
        );
        let ends = match pattern {
            WorkflowPattern::React => react(&mut builder, agents, &goal)?,
            WorkflowPattern::Reflection => reflection::expand(&mut builder, agents, &goal, rounds)?,
            WorkflowPattern::PlanExecute => plan_execute::expand(&mut builder, agents, &goal)?,
            WorkflowPattern::Supervisor => supervisor::expand(&mut builder, agents, &goal)?,
        };
        let Some(PatternEnds { first, last }) = ends else { return Ok(None) };
        if let Some(former) = former {
            builder.edge(&former, &first, None)?;
        }
        entry_point.get_or_insert(first);
        former = Some(last);
    }
    let PatternBuilder { nodes, edges, .. } = builder;
    Ok(entry_point.map(|entry_point| PatternGraph { nodes, edges, entry_point }))
}

/// One agent with its own tool loop.
fn react(
    builder: &mut PatternBuilder,
    agents: &BTreeMap<Name, Name>,
    goal: &str,
) -> Result<Option<PatternEnds>, ExpansionError> {
    let Some(agent) = roles::agent(agents, &roles::REACT) else { return Ok(None) };
    let node = builder.agent("react", agent, goal)?;
    Ok(Some(PatternEnds { first: node.clone(), last: node }))
}

/// The first and last nodes of a pattern.
struct PatternEnds {
    first: Name,
    /// The node whose output is the pattern's result.
    last: Name,
}

/// The nodes and edges so far.
struct PatternBuilder {
    nodes: Vec<WorkflowNode>,
    edges: Vec<WorkflowEdge>,
    /// The suffix that keeps node names of repeated patterns unique.
    suffix: String,
}

impl PatternBuilder {
    /// The name that a node has in this pattern.
    fn name(&self, base: &str) -> String {
        format!("{base}{}", self.suffix)
    }

    fn agent(&mut self, base: &str, agent: &Name, input: &str) -> Result<Name, ExpansionError> {
        self.supervising(base, agent, input, Vec::new())
    }

    fn supervising(
        &mut self,
        base: &str,
        agent: &Name,
        input: &str,
        sub_agents: Vec<Name>,
    ) -> Result<Name, ExpansionError> {
        let input = Some(input.parse()?);
        self.node(base, WorkflowNodeKind::Agent { agent: agent.clone(), input, sub_agents })
    }

    fn node(&mut self, base: &str, kind: WorkflowNodeKind) -> Result<Name, ExpansionError> {
        let name: Name = self.name(base).parse()?;
        self.nodes.push(WorkflowNode {
            name: name.clone(),
            kind,
            inputs: Vec::new(),
            outputs: Vec::new(),
            idempotent: None,
            max_retries: None,
            timeout_seconds: None,
            on_error: None,
            compensate: None,
        });
        Ok(name)
    }

    fn edge(
        &mut self,
        from: &Name,
        to: &Name,
        condition: Option<&str>,
    ) -> Result<(), ExpansionError> {
        let condition = condition.map(str::parse).transpose()?;
        let to = EdgeTarget::Node(to.clone());
        self.edges.push(WorkflowEdge {
            from: from.clone(),
            to,
            condition,
            max_loops: None,
            on_error: None,
        });
        Ok(())
    }
}
