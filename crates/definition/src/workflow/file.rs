//! A workflow as written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use polity_model::name::Name;
use polity_model::review::ReviewAction;
use polity_model::tool::ToolName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize, Serializer};

use super::{
    ArgumentTemplates, JoinMode, REFLECTION_ROUNDS, REFLECTION_ROUNDS_MAX, WorkflowPattern,
};
use crate::evaluation::expression::ConditionExpression;
use crate::evaluation::template::Template;
use crate::file::canonical;
use crate::file::ordered::OrderedMap;
use crate::nonzero_u32;
use crate::value::Text;

pub(super) const MAX_ITERATIONS_DEFAULT: NonZeroU32 = nonzero_u32(50);

/// Agents, tools, conditions and people joined by edges.
#[derive(Debug, Clone, Default, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "workflow")]
pub(crate) struct WorkflowFile {
    /// The workflow's name; the same as the name of its file.
    #[schemars(required)]
    pub(crate) name: Option<Name>,
    /// Known ways to work together, in sequence. Give these with `agents`, or `nodes`.
    pub(super) patterns: Option<Vec<WorkflowPattern>>,
    /// The agent of each role in the patterns.
    #[schemars(with = "Option<OrderedMap<Name, Name>>")]
    pub(super) agents: Option<BTreeMap<Name, Name>>,
    /// The number of rounds of the pattern `reflection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = REFLECTION_ROUNDS_MAX), extend("default" = REFLECTION_ROUNDS))]
    pub(super) rounds: Option<NonZeroU32>,
    /// The steps by name. Results of steps that run at once are merged in this order.
    pub(super) nodes: Option<OrderedMap<Name, NodeFile>>,
    /// The edges between steps. A step without an outgoing edge ends the workflow.
    #[schemars(extend("default" = []))]
    pub(super) edges: Option<Vec<EdgeFile>>,
    /// The step that runs first; needed with `nodes`.
    pub(super) entry_point: Option<Name>,
    /// Steps that wait for a person before they run.
    #[schemars(extend("default" = [], "uniqueItems" = true))]
    pub(super) checkpoints: Option<Vec<Name>>,
    /// The most steps of one task.
    #[schemars(extend("default" = MAX_ITERATIONS_DEFAULT))]
    pub(super) max_iterations: Option<NonZeroU32>,
}

/// One step, selected by its `type`.
#[derive(Debug, Clone, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "type")]
pub(crate) enum NodeFile {
    /// Runs an agent.
    Agent(AgentNodeFile),
    /// Calls a tool.
    Tool(ToolNodeFile),
    /// Evaluates an expression, whose value becomes the routing key.
    Condition(ConditionNodeFile),
    /// Asks a person, whose answer becomes the routing key.
    Human(HumanNodeFile),
    /// Runs other nodes at once.
    Parallel(ParallelNodeFile),
    /// Runs another workflow.
    Workflow(WorkflowNodeFile),
}

/// The common fields of steps.
#[derive(Debug, Clone, Default)]
pub(super) struct CommonFile {
    pub(super) inputs: Option<Vec<Text>>,
    pub(super) outputs: Option<Vec<Text>>,
    pub(super) idempotent: Option<bool>,
    pub(super) max_retries: Option<u32>,
    pub(super) timeout_seconds: Option<NonZeroU64>,
}

// Flattening the common fields would give up the check for unknown ones, so each type has them.
macro_rules! node_file {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Serialize, DeriveDeserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$attribute])* pub(super) $field: Option<$type>,)*
            /// The parts of the State that the step reads; default all.
            pub(super) inputs: Option<Vec<Text>>,
            /// The parts of the State that the step writes.
            pub(super) outputs: Option<Vec<Text>>,
            /// True if the step is safe to repeat.
            #[schemars(extend("default" = false))]
            pub(super) idempotent: Option<bool>,
            /// The retry limit after transient failures.
            pub(super) max_retries: Option<u32>,
            /// The time limit of the step, in seconds.
            pub(super) timeout_seconds: Option<NonZeroU64>,
        }

        impl $name {
            fn common(&self) -> CommonFile {
                CommonFile {
                    inputs: self.inputs.clone(),
                    outputs: self.outputs.clone(),
                    idempotent: self.idempotent,
                    max_retries: self.max_retries,
                    timeout_seconds: self.timeout_seconds,
                }
            }

            pub(super) fn with_common(self, common: CommonFile) -> Self {
                let CommonFile { inputs, outputs, idempotent, max_retries, timeout_seconds } =
                    common;
                Self { inputs, outputs, idempotent, max_retries, timeout_seconds, ..self }
            }
        }
    };
}

node_file!(
    /// Runs an agent.
    AgentNodeFile {
        /// The agent's name.
        #[schemars(required)]
        agent: Name,
        /// A template of the agent's input; default the newest message.
        input: Template,
        /// Additional sub-agents of this step's agent.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("default" = [], "uniqueItems" = true))]
        sub_agents: Vec<Name>,
    }
);
node_file!(
    /// Calls a tool.
    ToolNodeFile {
        /// The tool, as `server/tool`.
        #[schemars(required)]
        tool: ToolName,
        /// Its arguments; texts in them are templates.
        arguments: ArgumentTemplates,
    }
);
node_file!(
    /// Evaluates an expression, whose value becomes the routing key.
    ConditionNodeFile {
        /// A CEL expression over the State.
        #[schemars(required)]
        expression: ConditionExpression,
    }
);
node_file!(
    /// Asks a person, whose answer becomes the routing key.
    HumanNodeFile {
        /// A template for the question.
        #[schemars(required)]
        question: Template,
        /// The time limit for the answer, in seconds; default unlimited.
        deadline_seconds: NonZeroU64,
        /// The answer when the deadline passes; without one the task fails.
        default_action: ReviewAction,
    }
);
node_file!(
    /// Runs other nodes at once.
    ParallelNodeFile {
        /// The names of the nodes.
        #[schemars(required, length(min = 1))]
        branches: Vec<Name>,
        /// The join condition: all branches succeeded, one succeeded, or the first ended.
        #[schemars(extend("default" = JoinMode::All))]
        join: JoinMode,
    }
);
node_file!(
    /// Runs another workflow.
    WorkflowNodeFile {
        /// The workflow's name.
        #[schemars(required)]
        workflow: Name,
        /// A template of the workflow's input; default the newest message.
        input: Template,
    }
);

impl NodeFile {
    pub(super) fn common(&self) -> CommonFile {
        match self {
            Self::Agent(file) => file.common(),
            Self::Tool(file) => file.common(),
            Self::Condition(file) => file.common(),
            Self::Human(file) => file.common(),
            Self::Parallel(file) => file.common(),
            Self::Workflow(file) => file.common(),
        }
    }
}

impl Serialize for NodeFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (r#type, mut value) = match self {
            Self::Agent(file) => ("agent", canonical::to_value(file)),
            Self::Tool(file) => ("tool", canonical::to_value(file)),
            Self::Condition(file) => ("condition", canonical::to_value(file)),
            Self::Human(file) => ("human", canonical::to_value(file)),
            Self::Parallel(file) => ("parallel", canonical::to_value(file)),
            Self::Workflow(file) => ("workflow", canonical::to_value(file)),
        };
        if let Some(fields) = value.as_object_mut() {
            fields.insert("type".to_owned(), r#type.into());
        }
        value.serialize(serializer)
    }
}

/// An edge from one step to the next.
#[derive(Debug, Clone, Default, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeFile {
    /// The step it starts from.
    #[schemars(required)]
    pub(super) from: Option<Name>,
    /// The step it leads to; or a mapping of routing keys to steps, with `default` for every other
    /// key.
    #[schemars(required)]
    pub(super) to: Option<EdgeTargetFile>,
    /// A CEL expression; the edge is taken if it is true.
    pub(super) condition: Option<ConditionExpression>,
    /// The most times the edge may be taken in one task; required for an edge back.
    pub(super) max_loops: Option<NonZeroU32>,
}

/// The target of an edge, as written.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum EdgeTargetFile {
    Node(Name),
    ByRoutingKey(BTreeMap<String, Name>),
}

impl<'de> Deserialize<'de> for EdgeTargetFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EdgeTargetVisitor)
    }
}

struct EdgeTargetVisitor;

impl<'de> Visitor<'de> for EdgeTargetVisitor {
    type Value = EdgeTargetFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a node, or a mapping of routing keys to nodes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<EdgeTargetFile, E> {
        text.parse().map(EdgeTargetFile::Node).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EdgeTargetFile, A::Error> {
        let nodes = BTreeMap::deserialize(MapAccessDeserializer::new(map))?;
        Ok(EdgeTargetFile::ByRoutingKey(nodes))
    }
}

impl JsonSchema for EdgeTargetFile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "EdgeTarget".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let name = generator.subschema_for::<Name>();
        json_schema!({
            "anyOf": [
                name.clone(),
                { "type": "object", "minProperties": 1, "additionalProperties": name }
            ]
        })
    }
}
