//! The rules of a workflow: defined names, every node reachable, no cycle without a limit.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use polity_model::name::Name;

use super::check_steps::{check_compensation, check_map, check_map_outputs, check_script};
use super::file::{EdgeFile, EdgeTargetFile, MAX_ITERATIONS_DEFAULT, NodeFile, WorkflowFile};
use super::outputs::OutputsFile;
use super::patterns::{self, PatternGraph};
use super::{
    EdgeTarget, ITEM_INDEX, REFLECTION_ROUNDS, REFLECTION_ROUNDS_MAX, WorkflowDefinition,
    WorkflowEdge, WorkflowNode, WorkflowNodeKind, WorkflowPattern,
};
use crate::evaluation::scope::ScopeReads;
use crate::file::checker::{FileChecker, NameReference};
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::suggest;

impl WorkflowFile {
    pub(crate) fn check(self, checker: &mut FileChecker) -> Option<WorkflowDefinition> {
        let root = FieldPath::root();
        let has_nodes = self.check_parts(checker);
        let name = checker.require(&root.field("name"), self.name);
        let agents_path = root.field("agents");
        for (role, agent) in self.agents.iter().flatten() {
            checker.refer(agents_path.field(role.as_str()), NameReference::Agent(agent.clone()));
        }
        let files = self.nodes.map(|nodes| nodes.0).unwrap_or_default();
        if checker.is_empty(&root.field("nodes")) {
            let message = "\"nodes\" is empty: a workflow needs at least one node";
            checker.report(&root.field("nodes"), FindingText::new(message));
        }
        let names: Vec<Name> = files.iter().map(|(name, _)| name.clone()).collect();
        let known = KnownNodes { names: &names };
        let nodes: Vec<Option<WorkflowNode>> = files
            .into_iter()
            .map(|(name, file)| {
                let path = root.field("nodes").field(name.as_str());
                check_node(name, &path, file, &known, checker)
            })
            .collect();
        let edges_path = root.field("edges");
        let edges: Vec<Option<WorkflowEdge>> = self
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
        for node in nodes.iter().flatten() {
            let path = root.field("nodes").field(node.name.as_str());
            known.check_read_by(node, &path, &[], checker);
        }
        if let Some(on_cancel) = &self.on_cancel {
            known.check(on_cancel, &root.field("on_cancel"), checker);
        }
        let patterns = self.patterns.unwrap_or_default();
        let agents = self.agents.unwrap_or_default();
        let from_patterns =
            if has_nodes { None } else { expand(&patterns, &agents, self.rounds, checker) };
        let workflow = WorkflowDefinition {
            name: name?,
            patterns,
            agents,
            rounds: self.rounds,
            nodes: nodes.into_iter().collect::<Option<_>>()?,
            edges: edges.into_iter().collect::<Option<_>>()?,
            entry_point,
            on_cancel: self.on_cancel,
            checkpoints,
            max_iterations: self.max_iterations.unwrap_or(MAX_ITERATIONS_DEFAULT),
            from_patterns,
        };
        // Follow-up problems of an invalid edge or node are not reported.
        if checker.is_clean() {
            super::check_graph::check_graph(&workflow, checker);
        }
        Some(workflow)
    }

    /// A workflow has nodes with edges, or patterns with agents, or all of it. Says whether there
    /// are nodes.
    fn check_parts(&self, checker: &mut FileChecker) -> bool {
        let root = FieldPath::root();
        let (patterns_path, agents_path) = (root.field("patterns"), root.field("agents"));
        let has_nodes = checker.is_there(&root.field("nodes"));
        let has_patterns = checker.is_there(&patterns_path) && !checker.is_empty(&patterns_path);
        if !has_nodes && !has_patterns {
            let message = "missing field \"nodes\": a workflow has nodes, or patterns with agents";
            checker
                .report(&root.field("nodes"), FindingText::new(message).allowed("nodes, patterns"));
        }
        if has_patterns && !has_nodes {
            let when = "with patterns: role to agent";
            checker.require_when(&agents_path, self.agents.as_ref(), when);
            if checker.is_empty(&agents_path) {
                let message = "\"agents\" is empty: the patterns need agents for their roles";
                checker.report(&agents_path, FindingText::new(message));
            }
        }
        for field in ["edges", "entry_point", "on_cancel", "checkpoints"] {
            let path = root.field(field);
            checker.refuse_unless(has_nodes || checker.is_empty(&path), &path, "with nodes");
        }
        let rounds_path = root.field("rounds");
        checker.refuse_unless(has_patterns && !has_nodes, &rounds_path, "with patterns");
        if self.rounds.is_some_and(|rounds| rounds.get() > REFLECTION_ROUNDS_MAX) {
            let message = format!("rounds must be from 1 to {REFLECTION_ROUNDS_MAX}");
            checker.report(&rounds_path, FindingText::new(message));
        }
        has_nodes
    }
}

/// Expands the patterns, once every role has an agent.
fn expand(
    patterns: &[WorkflowPattern],
    agents: &BTreeMap<Name, Name>,
    rounds: Option<NonZeroU32>,
    checker: &mut FileChecker,
) -> Option<Arc<PatternGraph>> {
    let root = FieldPath::root();
    // Undecodable agents and patterns and an empty list are reported already.
    let agents_path = root.field("agents");
    if !checker.is_there(&agents_path) || checker.is_empty(&agents_path) {
        return None;
    }
    if checker.has_wrong_items(&root.field("patterns")) {
        return None;
    }
    patterns::check_roles(patterns, agents, checker);
    if !checker.is_clean() {
        return None;
    }
    match patterns::expand(patterns, agents, rounds.map_or(REFLECTION_ROUNDS, NonZeroU32::get)) {
        Ok(graph) => graph.map(Arc::new),
        Err(error) => {
            checker.report(&root.field("patterns"), FindingText::new(error.to_string()));
            None
        }
    }
}

/// The nodes that edges and branches may name.
pub(super) struct KnownNodes<'a> {
    pub(super) names: &'a [Name],
}

impl KnownNodes<'_> {
    fn check(&self, name: &Name, path: &FieldPath, checker: &mut FileChecker) {
        // An empty list of nodes is reported once.
        let is_known = self.names.is_empty()
            || checker.is_there(&FieldPath::root().field("nodes").field(name.as_str()));
        if !is_known {
            let message = format!("{path}: there is no node \"{name}\"");
            checker.report(path, FindingText::new(message).one_of(name.as_str(), self.names));
        }
    }

    /// Checks the nodes and names that a condition or template reads.
    fn check_read(
        &self,
        reading: &ScopeReads,
        path: &FieldPath,
        item_names: &[&str],
        checker: &mut FileChecker,
    ) {
        if let Err(message) = reading.check_names(item_names) {
            let (message, suggestion) = suggest::split(&message);
            let mut finding = FindingText::new(format!("{path}: {message}"));
            finding.suggestion = suggestion.map(str::to_owned);
            checker.report(path, finding);
        }
        for node in &reading.nodes {
            let is_known = self.names.iter().any(|name| name.as_str() == node)
                || checker.is_there(&FieldPath::root().field("nodes").field(node));
            if !is_known {
                let message = format!("{path}: nodes.{node}: there is no node \"{node}\"");
                checker.report(path, FindingText::new(message).one_of(node, self.names));
            }
        }
    }

    /// Checks everything that a node, the node inside it and its compensation read.
    fn check_read_by(
        &self,
        node: &WorkflowNode,
        path: &FieldPath,
        item_names: &[&str],
        checker: &mut FileChecker,
    ) {
        for (place, reading) in readings(&node.kind, path) {
            self.check_read(reading, &place, item_names, checker);
        }
        if let WorkflowNodeKind::Map { node, item_name, .. } = &node.kind {
            let names = [item_name.as_str(), ITEM_INDEX];
            self.check_read_by(node, &path.field("node"), &names, checker);
        }
        if let Some(compensation) = &node.compensate {
            self.check_read_by(compensation, &path.field("compensate"), &[], checker);
        }
    }
}

/// The State fields that the templates and conditions of a node read, with their paths.
fn readings<'n>(kind: &'n WorkflowNodeKind, path: &FieldPath) -> Vec<(FieldPath, &'n ScopeReads)> {
    match kind {
        WorkflowNodeKind::Agent { input: Some(input), .. }
        | WorkflowNodeKind::Workflow { input: Some(input), .. } => {
            vec![(path.field("input"), input.reading())]
        }
        WorkflowNodeKind::Tool { arguments, .. } | WorkflowNodeKind::Script { arguments, .. } => {
            arguments.readings(&path.field("arguments"))
        }
        WorkflowNodeKind::Condition { expression } => {
            vec![(path.field("expression"), expression.reading())]
        }
        WorkflowNodeKind::Human { question, .. } => {
            vec![(path.field("question"), question.reading())]
        }
        WorkflowNodeKind::Map { over, .. } => over.readings(&path.field("over")),
        WorkflowNodeKind::Agent { input: None, .. }
        | WorkflowNodeKind::Workflow { input: None, .. }
        | WorkflowNodeKind::Parallel { .. } => Vec::new(),
    }
}

pub(super) fn check_node(
    name: Name,
    path: &FieldPath,
    file: NodeFile,
    known: &KnownNodes<'_>,
    checker: &mut FileChecker,
) -> Option<WorkflowNode> {
    let common = file.common();
    let kind = match file {
        NodeFile::Agent(file) => WorkflowNodeKind::Agent {
            agent: checker.require(&path.field("agent"), file.agent)?,
            input: file.input,
            sub_agents: file.sub_agents.unwrap_or_default(),
        },
        NodeFile::Tool(file) => WorkflowNodeKind::Tool {
            tool: checker.require(&path.field("tool"), file.tool)?,
            arguments: file.arguments.unwrap_or_default(),
        },
        NodeFile::Condition(file) => WorkflowNodeKind::Condition {
            expression: checker.require(&path.field("expression"), file.expression)?,
        },
        NodeFile::Human(file) => {
            checker.refuse_unless(
                checker.is_there(&path.field("deadline_seconds")),
                &path.field("default_action"),
                "with deadline_seconds",
            );
            WorkflowNodeKind::Human {
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
                checker.report(&branches_path, FindingText::new(message));
            }
            checker.refuse_repeats(&branches_path, &branches);
            for (index, branch) in branches.iter().enumerate() {
                known.check(branch, &branches_path.index(index), checker);
            }
            WorkflowNodeKind::Parallel { branches, join: file.join.unwrap_or_default() }
        }
        NodeFile::Workflow(file) => WorkflowNodeKind::Workflow {
            workflow: checker.require(&path.field("workflow"), file.workflow)?,
            input: file.input,
        },
        NodeFile::Script(file) => check_script(file, path, checker)?,
        NodeFile::Map(file) => check_map(&name, file, path, known, checker)?,
    };
    match &kind {
        WorkflowNodeKind::Agent { agent, sub_agents, .. } => {
            checker.refer(path.field("agent"), NameReference::Agent(agent.clone()));
            check_sub_agents(agent, sub_agents, &path.field("sub_agents"), checker);
        }
        WorkflowNodeKind::Tool { tool, .. } => {
            checker.refer(path.field("tool"), NameReference::Server(tool.server().to_owned()));
        }
        WorkflowNodeKind::Workflow { workflow, .. } => {
            checker.refer(path.field("workflow"), NameReference::Workflow(workflow.clone()));
        }
        WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Script { .. } => {}
        WorkflowNodeKind::Map { .. } => check_map_outputs(common.outputs.as_ref(), path, checker),
    }
    if let Some(target) = &common.on_error {
        known.check(target, &path.field("on_error"), checker);
    }
    let compensate = match common.compensate {
        Some(step) => Some(Box::new(check_compensation(&name, step, path, known, checker)?)),
        None => None,
    };
    Some(WorkflowNode {
        name,
        kind,
        inputs: common.inputs.unwrap_or_default(),
        outputs: common.outputs.map(OutputsFile::into_outputs).unwrap_or_default(),
        idempotent: common.idempotent,
        max_retries: common.max_retries,
        timeout_seconds: common.timeout_seconds,
        on_error: common.on_error,
        compensate,
    })
}

/// Checks the additional sub-agents of a node.
fn check_sub_agents(
    agent: &Name,
    sub_agents: &[Name],
    path: &FieldPath,
    checker: &mut FileChecker,
) {
    checker.refuse_repeats(path, sub_agents);
    for (index, sub_agent) in sub_agents.iter().enumerate() {
        let place = path.index(index);
        if sub_agent == agent {
            let message = format!("{place}: \"{agent}\" cannot hand work to itself");
            checker.report(&place, FindingText::new(message));
        }
        checker.refer(place, NameReference::Agent(sub_agent.clone()));
    }
}

fn check_edge(
    file: EdgeFile,
    path: &FieldPath,
    known: &KnownNodes<'_>,
    checker: &mut FileChecker,
) -> Option<WorkflowEdge> {
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
                checker.report(&to_path, FindingText::new(message));
            }
            for (key, node) in &nodes {
                known.check(node, &to_path.field(key), checker);
            }
            let default = nodes.remove("default");
            Some(EdgeTarget::ByRoutingKey { nodes, default })
        }
        None => None,
    };
    if let Some(condition) = &file.condition {
        let condition_path = path.field("condition");
        known.check_read(condition.reading(), &condition_path, &[], checker);
        if let Some(kind) = condition.never_boolean() {
            let message = format!(
                "{condition_path} gives {kind}, but true or false is needed: compare it with \
                 something"
            );
            checker.report(&condition_path, FindingText::new(message).found(condition.as_str()));
        }
    }
    if let Some(target) = &file.on_error {
        known.check(target, &path.field("on_error"), checker);
    }
    Some(WorkflowEdge {
        from: from?,
        to: to?,
        condition: file.condition,
        max_loops: file.max_loops,
        on_error: file.on_error,
    })
}
