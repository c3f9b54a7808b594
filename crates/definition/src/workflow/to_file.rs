//! A valid workflow back in file form, for its canonical JSON.

use serde_json::Value;

use super::file::{
    AgentNodeFile, CommonFile, ConditionNodeFile, EdgeFile, EdgeTargetFile, HumanNodeFile,
    MapNodeFile, NodeFile, ParallelNodeFile, ScriptNodeFile, ToolNodeFile, WorkflowFile,
    WorkflowNodeFile,
};
use super::outputs::OutputsFile;
use super::{
    EdgeTarget, ScriptProgram, WorkflowDefinition, WorkflowEdge, WorkflowNode, WorkflowNodeKind,
};
use crate::agent::EmptyOutputPolicy;
use crate::file::canonical;
use crate::file::ordered::OrderedMap;

impl WorkflowFile {
    /// The nodes as JSON, in file order.
    pub(super) fn ordered_nodes(&self) -> Vec<(String, Value)> {
        let nodes = self.nodes.iter().flat_map(|nodes| &nodes.0);
        nodes.map(|(name, node)| (name.to_string(), canonical::to_value(node))).collect()
    }
}

impl WorkflowDefinition {
    pub(super) fn to_file(&self) -> WorkflowFile {
        let nodes = self.nodes.iter().map(|node| (node.name.clone(), node.to_file())).collect();
        WorkflowFile {
            name: Some(self.name.clone()),
            patterns: Some(self.patterns.clone()),
            agents: Some(self.agents.clone()),
            rounds: self.rounds,
            nodes: if self.nodes.is_empty() { None } else { Some(OrderedMap(nodes)) },
            edges: Some(self.edges.iter().map(WorkflowEdge::to_file).collect()),
            entry_point: self.entry_point.clone(),
            on_cancel: self.on_cancel.clone(),
            checkpoints: Some(self.checkpoints.clone()),
            max_iterations: Some(self.max_iterations),
        }
    }
}

impl WorkflowNode {
    fn to_file(&self) -> NodeFile {
        let common = CommonFile {
            inputs: Some(self.inputs.clone()),
            outputs: Some(OutputsFile::of(&self.outputs)),
            idempotent: self.idempotent,
            max_retries: self.max_retries,
            timeout_seconds: self.timeout_seconds,
            on_error: self.on_error.clone(),
            compensate: self.compensate.as_ref().and_then(|node| node.to_file().into_step()),
        };
        match self.kind.clone() {
            WorkflowNodeKind::Agent { agent, input, sub_agents } => NodeFile::Agent(
                AgentNodeFile {
                    agent: Some(agent),
                    input,
                    sub_agents: if sub_agents.is_empty() { None } else { Some(sub_agents) },
                    ..Default::default()
                }
                .with_common(common),
            ),
            WorkflowNodeKind::Tool { tool, arguments } => NodeFile::Tool(
                ToolNodeFile { tool: Some(tool), arguments: Some(arguments), ..Default::default() }
                    .with_common(common),
            ),
            WorkflowNodeKind::Condition { expression } => NodeFile::Condition(
                ConditionNodeFile { expression: Some(expression), ..Default::default() }
                    .with_common(common),
            ),
            WorkflowNodeKind::Human { question, deadline_seconds, default_action } => {
                NodeFile::Human(
                    HumanNodeFile {
                        question: Some(question),
                        deadline_seconds,
                        default_action,
                        ..Default::default()
                    }
                    .with_common(common),
                )
            }
            WorkflowNodeKind::Parallel { branches, join } => NodeFile::Parallel(
                ParallelNodeFile {
                    branches: Some(branches),
                    join: Some(join),
                    ..Default::default()
                }
                .with_common(common),
            ),
            WorkflowNodeKind::Workflow { workflow, input } => NodeFile::Workflow(
                WorkflowNodeFile { workflow: Some(workflow), input, ..Default::default() }
                    .with_common(common),
            ),
            WorkflowNodeKind::Script { program, arguments, envs, empty_output } => {
                let (file, command) = match program {
                    ScriptProgram::File(file) => (Some(file), None),
                    ScriptProgram::Command(command) => (None, Some(command)),
                };
                let script = ScriptNodeFile {
                    file,
                    command,
                    arguments: Some(arguments),
                    envs: Some(envs),
                    // The default stays unsaid, so that the digests of older workflows hold.
                    empty_output: (empty_output != EmptyOutputPolicy::Fail).then_some(empty_output),
                    ..Default::default()
                };
                NodeFile::Script(script.with_common(common))
            }
            WorkflowNodeKind::Map { over, item_name, node, max_parallel, on_item_error } => {
                NodeFile::Map(
                    MapNodeFile {
                        over: Some(over),
                        r#as: Some(item_name),
                        node: node.to_file().into_step(),
                        max_parallel: Some(max_parallel),
                        on_item_error: Some(on_item_error),
                        ..Default::default()
                    }
                    .with_common(common),
                )
            }
        }
    }
}

impl WorkflowEdge {
    fn to_file(&self) -> EdgeFile {
        let to = match &self.to {
            EdgeTarget::Node(name) => EdgeTargetFile::Node(name.clone()),
            EdgeTarget::ByRoutingKey { nodes, default } => {
                let mut nodes = nodes.clone();
                nodes.extend(default.clone().map(|node| ("default".to_owned(), node)));
                EdgeTargetFile::ByRoutingKey(nodes)
            }
        };
        EdgeFile {
            from: Some(self.from.clone()),
            to: Some(to),
            condition: self.condition.clone(),
            max_loops: self.max_loops,
            on_error: self.on_error.clone(),
        }
    }
}
