//! The rules of a workflow: names that exist, every node reachable, no circle without a limit.

use std::collections::BTreeMap;

use super::file::{EdgeFile, EdgeTargetFile, MAX_ITERATIONS_DEFAULT, NodeFile, WorkflowFile};
use super::{Edge, EdgeTarget, NodeKind, WorkflowDefinition, WorkflowNode};
use crate::definition::checker::{Checker, Reference};
use crate::definition::graph;
use crate::definition::path::Path;
use crate::definition::problem::Finding;
use crate::name::Name;

impl WorkflowFile {
    pub(crate) fn check(self, checker: &mut Checker) -> Option<WorkflowDefinition> {
        let root = Path::root();
        let has_nodes = self.check_parts(checker);
        let name = checker.require(&root.field("name"), self.name);
        let agents_path = root.field("agents");
        for (role, agent) in self.agents.iter().flatten() {
            checker.refer(agents_path.field(role.as_str()), Reference::Agent(agent.clone()));
        }
        let files = self.nodes.map(|nodes| nodes.0).unwrap_or_default();
        if checker.is_empty(&root.field("nodes")) {
            let message = "\"nodes\" is empty: a workflow needs at least one node";
            checker.report(&root.field("nodes"), Finding::new(message));
        }
        let names: Vec<Name> = files.iter().map(|(name, _)| name.clone()).collect();
        let known = Known { names: &names };
        let nodes: Vec<Option<WorkflowNode>> =
            files.into_iter().map(|(name, file)| check_node(name, file, &known, checker)).collect();
        let edges_path = root.field("edges");
        let edges: Vec<Option<Edge>> = self
            .edges
            .unwrap_or_default()
            .into_iter()
            .enumerate()
            .map(|(index, file)| check_edge(file, &edges_path.index(index), &known, checker))
            .collect();
        let entry_path = root.field("entry_point");
        let entry_point = if has_nodes {
            checker.require_when(&entry_path, self.entry_point, "with nodes")
        } else {
            None
        };
        if let Some(entry_point) = &entry_point {
            known.check(entry_point, &entry_path, checker);
        }
        let checkpoints = self.checkpoints.unwrap_or_default();
        let checkpoints_path = root.field("checkpoints");
        checker.refuse_repeats(&checkpoints_path, &checkpoints);
        for (index, node) in checkpoints.iter().enumerate() {
            known.check(node, &checkpoints_path.index(index), checker);
        }
        let workflow = WorkflowDefinition {
            name: name?,
            patterns: self.patterns.unwrap_or_default(),
            agents: self.agents.unwrap_or_default(),
            nodes: nodes.into_iter().collect::<Option<_>>()?,
            edges: edges.into_iter().collect::<Option<_>>()?,
            entry_point,
            checkpoints,
            max_iterations: self.max_iterations.unwrap_or(MAX_ITERATIONS_DEFAULT),
        };
        // What follows from a wrong edge or node is not worth telling.
        if checker.is_clean() {
            check_graph(&workflow, checker);
        }
        Some(workflow)
    }

    /// A workflow has nodes with edges, or patterns with agents, or all of it. Says whether there
    /// are nodes.
    fn check_parts(&self, checker: &mut Checker) -> bool {
        let root = Path::root();
        let (patterns_path, agents_path) = (root.field("patterns"), root.field("agents"));
        let has_nodes = checker.is_there(&root.field("nodes"));
        let has_patterns = checker.is_there(&patterns_path) && !checker.is_empty(&patterns_path);
        if !has_nodes && !has_patterns {
            let message = "missing field \"nodes\": a workflow has nodes, or patterns with agents";
            checker.report(&root.field("nodes"), Finding::new(message).allowed("nodes, patterns"));
        }
        if has_patterns && !has_nodes {
            let when = "with patterns: role to agent";
            checker.require_when(&agents_path, self.agents.as_ref(), when);
            if checker.is_empty(&agents_path) {
                let message = "\"agents\" is empty: the patterns need agents for their roles";
                checker.report(&agents_path, Finding::new(message));
            }
        }
        for field in ["edges", "entry_point", "checkpoints"] {
            let path = root.field(field);
            checker.refuse_unless(has_nodes || checker.is_empty(&path), &path, "with nodes");
        }
        has_nodes
    }
}

/// The nodes that edges and branches may name.
struct Known<'a> {
    names: &'a [Name],
}

impl Known<'_> {
    fn check(&self, name: &Name, path: &Path, checker: &mut Checker) {
        // An empty list of nodes is reported once.
        let is_known = self.names.is_empty()
            || checker.is_there(&Path::root().field("nodes").field(name.as_str()));
        if !is_known {
            let message = format!("{path}: there is no node \"{name}\"");
            checker.report(path, Finding::new(message).one_of(name.as_str(), self.names));
        }
    }
}

fn check_node(
    name: Name,
    file: NodeFile,
    known: &Known<'_>,
    checker: &mut Checker,
) -> Option<WorkflowNode> {
    let path = Path::root().field("nodes").field(name.as_str());
    let common = file.common();
    let kind = match file {
        NodeFile::Agent(file) => NodeKind::Agent {
            agent: checker.require(&path.field("agent"), file.agent)?,
            input: file.input,
        },
        NodeFile::Tool(file) => NodeKind::Tool {
            tool: checker.require(&path.field("tool"), file.tool)?,
            arguments: file.arguments.unwrap_or_default(),
        },
        NodeFile::Condition(file) => NodeKind::Condition {
            expression: checker.require(&path.field("expression"), file.expression)?,
        },
        NodeFile::Human(file) => {
            checker.refuse_unless(
                checker.is_there(&path.field("deadline_seconds")),
                &path.field("default_action"),
                "with deadline_seconds",
            );
            NodeKind::Human {
                question: checker.require(&path.field("question"), file.question)?,
                deadline_seconds: file.deadline_seconds,
                default_action: file.default_action,
            }
        }
        NodeFile::Parallel(file) => {
            let branches_path = path.field("branches");
            let branches = checker.require(&branches_path, file.branches)?;
            if checker.is_empty(&branches_path) {
                let message = format!("{branches_path} must name at least one node");
                checker.report(&branches_path, Finding::new(message));
            }
            checker.refuse_repeats(&branches_path, &branches);
            for (index, branch) in branches.iter().enumerate() {
                known.check(branch, &branches_path.index(index), checker);
            }
            NodeKind::Parallel { branches, join: file.join.unwrap_or_default() }
        }
        NodeFile::Workflow(file) => NodeKind::Workflow {
            workflow: checker.require(&path.field("workflow"), file.workflow)?,
            input: file.input,
        },
    };
    match &kind {
        NodeKind::Agent { agent, .. } => {
            checker.refer(path.field("agent"), Reference::Agent(agent.clone()));
        }
        NodeKind::Tool { tool, .. } => {
            checker.refer(path.field("tool"), Reference::Server(tool.server().to_owned()));
        }
        NodeKind::Workflow { workflow, .. } => {
            checker.refer(path.field("workflow"), Reference::Workflow(workflow.clone()));
        }
        NodeKind::Condition { .. } | NodeKind::Human { .. } | NodeKind::Parallel { .. } => {}
    }
    Some(WorkflowNode {
        name,
        kind,
        inputs: common.inputs.unwrap_or_default(),
        outputs: common.outputs.unwrap_or_default(),
        idempotent: common.idempotent.unwrap_or(false),
        max_retries: common.max_retries,
        timeout_seconds: common.timeout_seconds,
    })
}

fn check_edge(
    file: EdgeFile,
    path: &Path,
    known: &Known<'_>,
    checker: &mut Checker,
) -> Option<Edge> {
    let (from_path, to_path) = (path.field("from"), path.field("to"));
    let from = checker.require(&from_path, file.from);
    if let Some(from) = &from {
        known.check(from, &from_path, checker);
    }
    let to = match checker.require(&to_path, file.to) {
        Some(EdgeTargetFile::Node(node)) => {
            known.check(&node, &to_path, checker);
            Some(EdgeTarget::Node(node))
        }
        Some(EdgeTargetFile::ByRoutingKey(mut nodes)) => {
            if checker.is_empty(&to_path) {
                let message = format!("{to_path} must name at least one node");
                checker.report(&to_path, Finding::new(message));
            }
            for (key, node) in &nodes {
                known.check(node, &to_path.field(key), checker);
            }
            let default = nodes.remove("default");
            Some(EdgeTarget::ByRoutingKey { nodes, default })
        }
        None => None,
    };
    Some(Edge { from: from?, to: to?, condition: file.condition, max_loops: file.max_loops })
}

/// Every node can be reached, and every circle has an edge that says how often it may be taken.
fn check_graph(workflow: &WorkflowDefinition, checker: &mut Checker) {
    let Some(entry_point) = &workflow.entry_point else { return };
    let numbers: BTreeMap<&Name, usize> =
        workflow.nodes.iter().enumerate().map(|(number, node)| (&node.name, number)).collect();
    // Every name was found to be there, so the fallback is never taken.
    let number = |name: &Name| numbers.get(name).copied().unwrap_or(0);
    let mut all = vec![Vec::new(); workflow.nodes.len()];
    let mut unlimited = all.clone();
    for (index, node) in workflow.nodes.iter().enumerate() {
        if let NodeKind::Parallel { branches, .. } = &node.kind {
            all[index].extend(branches.iter().map(number));
            unlimited[index].extend(branches.iter().map(number));
        }
    }
    for edge in &workflow.edges {
        let from = number(&edge.from);
        all[from].extend(edge.to.nodes().map(number));
        if edge.max_loops.is_none() {
            unlimited[from].extend(edge.to.nodes().map(number));
        }
    }
    let reached = graph::reachable(&all, number(entry_point));
    let nodes_path = Path::root().field("nodes");
    for node in workflow.nodes.iter().zip(&reached).filter(|(_, r)| !**r).map(|(node, _)| node) {
        let name = &node.name;
        let message = format!("no way leads from \"{entry_point}\" to the node \"{name}\"");
        checker.report_key(&nodes_path.field(name.as_str()), Finding::new(message));
    }
    for circle in graph::cycles(&unlimited) {
        let names: Vec<&str> =
            circle.iter().map(|node| workflow.nodes[*node].name.as_str()).collect();
        let message = format!(
            "the workflow runs in a circle, {}, without a limit: give one of these edges max_loops",
            graph::circle_in_words(names)
        );
        let place = closing_edge(workflow, &circle).unwrap_or_else(Path::root);
        checker.report(&place, Finding::new(message));
    }
}

/// The edge that leads from the last node of a circle back to its first.
fn closing_edge(workflow: &WorkflowDefinition, circle: &[usize]) -> Option<Path> {
    let (first, last) = (circle.first()?, circle.last()?);
    let (first, last) = (&workflow.nodes[*first].name, &workflow.nodes[*last].name);
    let closes = |edge: &Edge| {
        edge.max_loops.is_none() && edge.from == *last && edge.to.nodes().any(|to| to == first)
    };
    let edge = workflow.edges.iter().position(closes);
    let edges = Path::root().field("edges");
    // A circle may also be closed by a parallel node that has itself as a branch.
    Some(
        edge.map_or_else(
            || Path::root().field("nodes").field(last.as_str()),
            |edge| edges.index(edge),
        ),
    )
}
