//! Agents, workflows and costs as lists show them, the same in every front end.

mod workflow_details;

use std::collections::{BTreeMap, BTreeSet};

use polity_definition::{
    AgentDefinition, AgentKind, WorkflowDefinition, WorkflowNode, WorkflowNodeKind,
};
use polity_engine::agent_toggles::AgentToggles;
use polity_model::usage::Usage;
use polity_store::SpendingRow;
use serde_json::{Value, json};

pub use workflow_details::WorkflowDetails;

/// An agent of a list.
pub fn agent_summary(agent: &AgentDefinition, toggles: &AgentToggles) -> Value {
    json!({
        "name": agent.name,
        "kind": agent.kind.label(),
        "role": agent.role(),
        "uses": agent_engine(agent),
        "enabled": toggles.is_enabled(agent),
        "digest": agent.digest(),
    })
}

/// The definition of an agent, with its digest and its toggle.
pub fn agent_details(
    agent: &AgentDefinition,
    toggles: &AgentToggles,
) -> Result<Value, serde_json::Error> {
    let mut definition: Value = serde_json::from_str(&agent.canonical_json())?;
    let toggle = toggles
        .of(&agent.name)
        .map(|toggle| json!({"enabled": toggle.enabled, "reason": toggle.reason, "at": toggle.at}));
    definition["digest"] = json!(agent.digest());
    definition["override"] = json!(toggle);
    Ok(definition)
}

/// The model, executable or URL of an agent.
pub fn agent_engine(agent: &AgentDefinition) -> String {
    match &agent.kind {
        AgentKind::Llm(llm) => {
            let config = &llm.llm_config;
            let model = config.model.as_ref().map(ToString::to_string);
            let script = config.script.as_ref().map(ToString::to_string);
            let which = model.or(script).unwrap_or_default();
            format!("{}/{which}", config.provider.as_str())
        }
        AgentKind::Cli(cli) => cli.program().to_owned(),
        AgentKind::Remote(remote) => remote.card_url.to_string(),
    }
}

/// A workflow of a list.
pub fn workflow_summary(workflow: &WorkflowDefinition) -> Value {
    let graph = workflow.expanded();
    json!({
        "name": workflow.name,
        "nodes": graph.nodes.len(),
        "entry_point": graph.entry_point,
        "patterns": workflow.patterns,
        "uses": workflow_parts(workflow),
        "digest": workflow.digest(),
    })
}

/// The agents, tools, workflows and scripts behind a workflow.
pub fn workflow_parts(workflow: &WorkflowDefinition) -> BTreeSet<String> {
    let nodes = workflow.nodes.iter().flat_map(WorkflowNode::with_inner);
    let by_nodes = nodes.filter_map(|node| match &node.kind {
        WorkflowNodeKind::Agent { agent, .. } => Some(agent.to_string()),
        WorkflowNodeKind::Tool { tool, .. } => Some(tool.to_string()),
        WorkflowNodeKind::Workflow { workflow, .. } => Some(workflow.to_string()),
        WorkflowNodeKind::Script { program, .. } => Some(program.label().to_owned()),
        WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Map { .. } => None,
    });
    by_nodes.chain(workflow.agents.values().map(ToString::to_string)).collect()
}

/// A key by which costs are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostKey {
    /// The agent.
    Agent,
    /// The day.
    Day,
}

impl CostKey {
    /// The name of the key.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Day => "day",
        }
    }
}

/// The costs of some model calls.
#[derive(Debug, Clone, Default)]
pub struct CostSum {
    /// The values of the keys.
    pub key: Vec<String>,
    /// The number of calls.
    pub calls: u64,
    /// The usage.
    pub usage: Usage,
}

impl CostSum {
    /// The sums of rows, in the order of their keys.
    pub fn by_keys(rows: &[SpendingRow], keys: &[CostKey]) -> Vec<Self> {
        let mut sums: BTreeMap<Vec<String>, (u64, Usage)> = BTreeMap::new();
        for row in rows {
            let key = keys.iter().map(|key| match key {
                CostKey::Agent => row.agent.to_string(),
                CostKey::Day => row.day.to_string(),
            });
            let sum = sums.entry(key.collect()).or_default();
            sum.0 += row.calls;
            sum.1 += row.usage;
        }
        sums.into_iter().map(|(key, (calls, usage))| Self { key, calls, usage }).collect()
    }

    /// The sum as JSON.
    pub fn to_json(&self, keys: &[CostKey]) -> Value {
        let report = self.usage.report();
        let mut row = json!({
            "model_calls": self.calls,
            "input_tokens": report.input_tokens,
            "output_tokens": report.output_tokens,
            "cost_usd": report.cost_usd,
        });
        if report.tokens_incomplete {
            row["tokens_incomplete"] = json!(true);
        }
        if report.cost_incomplete {
            row["cost_incomplete"] = json!(true);
        }
        for (key, value) in keys.iter().zip(&self.key) {
            row[key.as_str()] = json!(value);
        }
        row
    }
}
