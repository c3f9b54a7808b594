//! `workflows/NAME.yaml`: agents, tools, conditions and people joined by edges.

mod arguments;
mod check;
mod check_graph;
mod check_steps;
mod file;
mod outputs;
mod patterns;
mod plan;
mod script_interpreter;
mod script_source;
mod script_step;
mod to_file;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use polity_model::digest::Digest;
use polity_model::name::Name;
use polity_model::review::ReviewAction;
use polity_model::tool::ToolName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::arguments::{ArgumentTemplates, ValueSource};
pub(crate) use self::file::WorkflowFile;
pub use self::outputs::{DeclaredOutput, OutputType};
use self::patterns::PatternGraph;
pub use self::patterns::{ExpandedGraph, PLAN_STEPS_MAX, REFLECTION_ROUNDS, REFLECTION_ROUNDS_MAX};
use self::plan::PlanSource;
pub use self::plan::{LinkKind, PlanEdge, PlanLink, PlanNode, PlanTarget, WorkflowPlan};
pub use self::script_interpreter::ScriptInterpreter;
pub use self::script_source::{SCRIPT_BYTES_MAX, ScriptSource};
pub use self::script_step::{ScriptPath, ScriptProgram};
use crate::agent::EmptyOutputPolicy;
use crate::evaluation::expression::ConditionExpression;
use crate::evaluation::template::Template;
use crate::file::canonical;
use crate::file::problem::DefinitionProblem;
use crate::nonzero_u32;
use crate::value::{EnvName, Text};

/// A workflow, valid and frozen.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowDefinition {
    /// The name it is called by.
    pub name: Name,
    /// The patterns it is made of, in sequence.
    pub patterns: Vec<WorkflowPattern>,
    /// The agent of each role in the patterns.
    pub agents: BTreeMap<Name, Name>,
    /// The number of reflection rounds, if not the default.
    pub rounds: Option<NonZeroU32>,
    /// The nodes in file order, in which results are merged. Without nodes the patterns apply.
    pub nodes: Vec<WorkflowNode>,
    /// The edges, in file order.
    pub edges: Vec<WorkflowEdge>,
    /// The node that runs first; there when nodes are.
    pub entry_point: Option<Name>,
    /// The node that runs when the workflow is cancelled, before it ends as cancelled.
    pub on_cancel: Option<Name>,
    /// Nodes that wait for a person before they run.
    pub checkpoints: Vec<Name>,
    /// The most node runs of one task.
    pub max_iterations: NonZeroU32,
    /// The graph of the patterns, if there are no nodes.
    from_patterns: Option<Arc<PatternGraph>>,
}

/// A pattern of cooperation between agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowPattern {
    /// Think, act, look, until done.
    React,
    /// Write, criticise, rewrite.
    Reflection,
    /// Plan first, then carry out the steps.
    PlanExecute,
    /// One agent delegates to others.
    Supervisor,
}

/// One step of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowNode {
    /// The name that edges use.
    pub name: Name,
    /// The kind of step.
    pub kind: WorkflowNodeKind,
    /// The parts of the State that it reads; all of them if none is named.
    pub inputs: Vec<Text>,
    /// The parts of the State that it writes.
    pub outputs: Vec<DeclaredOutput>,
    /// True if it is safe to repeat, false if it is not; none if its agent or tool decides.
    pub idempotent: Option<bool>,
    /// The retry limit after transient failures, if not the agent's.
    pub max_retries: Option<u32>,
    /// The time limit, if not that of its agent or tool.
    pub timeout_seconds: Option<NonZeroU64>,
    /// The node to go to when this one has failed; the task fails if none.
    pub on_error: Option<Name>,
    /// The node that undoes this one, if the workflow fails or is cancelled after it finished. Its
    /// name is `compensate_` and the name of this node.
    pub compensate: Option<Box<WorkflowNode>>,
}

/// The beginning of the name of a node that undoes another.
pub const COMPENSATION_PREFIX: &str = "compensate_";

/// The most items of a map that are worked on at once, by default.
pub const MAP_PARALLEL_DEFAULT: NonZeroU32 = nonzero_u32(8);

/// The name of an item's index in the templates of a map.
pub const ITEM_INDEX: &str = "item_index";

/// The default name of an item in the templates of a map.
pub const ITEM_NAME_DEFAULT: &str = "item";

/// The kinds of steps.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkflowNodeKind {
    /// Runs an agent.
    Agent {
        /// The agent.
        agent: Name,
        /// The input; default the newest message.
        input: Option<Template>,
        /// Additional sub-agents.
        sub_agents: Vec<Name>,
    },
    /// Calls a tool.
    Tool {
        /// The tool.
        tool: ToolName,
        /// Its arguments; texts in them are templates.
        arguments: ArgumentTemplates,
    },
    /// Evaluates an expression, whose value becomes the routing key.
    Condition {
        /// The expression.
        expression: ConditionExpression,
    },
    /// Asks a person, whose answer becomes the routing key.
    Human {
        /// The question.
        question: Template,
        /// The time limit for the answer; unlimited if none.
        deadline_seconds: Option<NonZeroU64>,
        /// The answer when the deadline passes; the task fails if none.
        default_action: Option<ReviewAction>,
    },
    /// Runs other nodes at once.
    Parallel {
        /// The nodes.
        branches: Vec<Name>,
        /// The join condition.
        join: JoinMode,
    },
    /// Runs another workflow.
    Workflow {
        /// The workflow.
        workflow: Name,
        /// The input; default the newest message.
        input: Option<Template>,
    },
    /// Runs a script, which reads JSON and writes JSON.
    Script {
        /// The program.
        program: ScriptProgram,
        /// The arguments in its input; texts in them are templates.
        arguments: ArgumentTemplates,
        /// Environment variables to set; a value may name another variable as `${NAME}`.
        envs: BTreeMap<EnvName, String>,
        /// The reaction to a script that went well and printed nothing.
        empty_output: EmptyOutputPolicy,
    },
    /// Runs one node for every item of a list.
    Map {
        /// The list.
        over: ValueSource,
        /// The name of the item in the templates of the node.
        item_name: Name,
        /// The node that runs for each item: an agent, a tool, a condition, a workflow or a script.
        /// It has the name of the map. An agent or workflow without an input is given the item.
        node: Box<WorkflowNode>,
        /// The most items that are worked on at once.
        max_parallel: NonZeroU32,
        /// The consequence of an item's failure.
        on_item_error: ItemErrorPolicy,
    },
}

/// The consequence of a failed item of a map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemErrorPolicy {
    /// The map fails.
    #[default]
    Fail,
    /// The error takes the place of the item's result.
    Collect,
}

/// The join condition of a parallel node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Join")]
pub enum JoinMode {
    /// All branches succeeded.
    #[default]
    All,
    /// One branch succeeded; the others continue.
    Any,
    /// One branch ended; the others are cancelled.
    First,
}

/// An edge from one node to the next.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowEdge {
    /// The node it starts from.
    pub from: Name,
    /// The target.
    pub to: EdgeTarget,
    /// The condition; always taken if none.
    pub condition: Option<ConditionExpression>,
    /// The most times it may be taken in one task; required if the edge closes a cycle.
    pub max_loops: Option<NonZeroU32>,
    /// The node to go to when the condition cannot be evaluated or the node at the start fails.
    pub on_error: Option<Name>,
}

/// The target of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EdgeTarget {
    /// To one node.
    Node(Name),
    /// To the node that the routing key names.
    ByRoutingKey {
        /// The node for each key.
        nodes: BTreeMap<String, Name>,
        /// The node for every other key.
        default: Option<Name>,
    },
}

impl WorkflowNode {
    /// The node, the node inside it if it is a map, and its compensation.
    pub fn with_inner(&self) -> impl Iterator<Item = &Self> {
        let inner = match &self.kind {
            WorkflowNodeKind::Map { node, .. } => Some(node.as_ref()),
            WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Workflow { .. }
            | WorkflowNodeKind::Script { .. } => None,
        };
        std::iter::once(self).chain(inner).chain(self.compensate.as_deref())
    }
}

impl EdgeTarget {
    /// Every node the edge may lead to.
    pub fn nodes(&self) -> impl Iterator<Item = &Name> {
        let (one, keyed, default) = match self {
            Self::Node(name) => (Some(name), None, None),
            Self::ByRoutingKey { nodes, default } => (None, Some(nodes), default.as_ref()),
        };
        one.into_iter().chain(keyed.into_iter().flat_map(BTreeMap::values)).chain(default)
    }
}

impl WorkflowDefinition {
    /// A node by its name, patterns not expanded.
    pub fn node(&self, name: &str) -> Option<&WorkflowNode> {
        self.nodes.iter().find(|node| node.name.as_str() == name)
    }

    /// The same workflow with its patterns expanded to nodes and edges. Pinning it protects running
    /// tasks from changes of the expansion.
    pub fn written_out(&self) -> Self {
        let mut written = self.clone();
        if self.from_patterns.is_some() {
            let expanded = self.expanded();
            written.nodes = expanded.nodes.to_vec();
            written.edges = expanded.edges.to_vec();
            written.entry_point = Some(expanded.entry_point.clone());
            written.rounds = None;
            written.from_patterns = None;
        }
        written
    }

    /// The workflow ready to run; none if it has no nodes.
    pub fn plan(&self) -> Option<WorkflowPlan> {
        let source = self.plan_source();
        (!source.graph.nodes.is_empty()).then(|| WorkflowPlan::new(&source))
    }

    fn plan_source(&self) -> PlanSource<'_> {
        PlanSource {
            graph: self.expanded(),
            checkpoints: &self.checkpoints,
            on_cancel: self.on_cancel.as_ref(),
            max_iterations: self.max_iterations,
        }
    }

    /// Every node that may run, patterns expanded: also those inside maps, and compensations.
    pub fn all_nodes(&self) -> impl Iterator<Item = &WorkflowNode> {
        self.expanded().nodes.iter().flat_map(WorkflowNode::with_inner)
    }

    /// The definition as canonical JSON: with its defaults, in one spelling.
    ///
    /// Nodes keep their order, because it means something; all other keys are sorted.
    pub fn canonical_json(&self) -> String {
        let file = self.to_file();
        canonical::to_json_with_ordered(&file, "nodes", &file.ordered_nodes())
    }

    /// The digest of the canonical JSON.
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical_json().as_bytes())
    }

    /// Reads a definition back from its canonical JSON.
    pub fn from_canonical(json: &str) -> Result<Self, Vec<DefinitionProblem>> {
        crate::file::from_text(json, WorkflowFile::check)
    }
}
