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
use serde_json::Value;

use super::outputs::OutputsFile;
use super::{
    ArgumentTemplates, ItemErrorPolicy, JoinMode, MAP_PARALLEL_DEFAULT, REFLECTION_ROUNDS,
    REFLECTION_ROUNDS_MAX, ScriptPath, ValueSource, WorkflowPattern,
};
use crate::agent::EmptyOutputPolicy;
use crate::evaluation::expression::ConditionExpression;
use crate::evaluation::template::Template;
use crate::file::canonical;
use crate::file::ordered::OrderedMap;
use crate::nonzero_u32;
use crate::value::command_line::ProgramCommand;
use crate::value::{EnvName, Text};

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
    /// The step that runs when the workflow is cancelled, before it ends as cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) on_cancel: Option<Name>,
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
    /// Runs a script.
    Script(ScriptNodeFile),
    /// Runs one step for every item of a list.
    Map(MapNodeFile),
}

/// One step inside another: the step of a map, or a compensation.
#[derive(Debug, Clone, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "type")]
pub(crate) enum StepFile {
    /// Runs an agent.
    Agent(AgentStepFile),
    /// Calls a tool.
    Tool(ToolStepFile),
    /// Evaluates an expression.
    Condition(ConditionStepFile),
    /// Runs another workflow.
    Workflow(WorkflowStepFile),
    /// Runs a script.
    Script(ScriptStepFile),
}

/// The common fields of steps.
#[derive(Debug, Clone, Default)]
pub(super) struct CommonFile {
    pub(super) inputs: Option<Vec<Text>>,
    pub(super) outputs: Option<OutputsFile>,
    pub(super) idempotent: Option<bool>,
    pub(super) max_retries: Option<u32>,
    pub(super) timeout_seconds: Option<NonZeroU64>,
    pub(super) on_error: Option<Name>,
    pub(super) compensate: Option<StepFile>,
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
            /// The parts of the State that the step writes: a list of names, which keep text as
            /// text, or a mapping of names to `text` or `json`.
            pub(super) outputs: Option<OutputsFile>,
            /// True if the step is safe to repeat, false if it is not; default as its agent or tool
            /// says.
            pub(super) idempotent: Option<bool>,
            /// The retry limit after transient failures.
            pub(super) max_retries: Option<u32>,
            /// The time limit of the step, in seconds.
            pub(super) timeout_seconds: Option<NonZeroU64>,
            /// The step to go to when this one has failed; without one the workflow fails.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(super) on_error: Option<Name>,
            /// The step that undoes this one. It runs when this step has finished and the workflow
            /// fails or is cancelled later.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(super) compensate: Option<StepFile>,
        }

        impl $name {
            fn common(&self) -> CommonFile {
                CommonFile {
                    inputs: self.inputs.clone(),
                    outputs: self.outputs.clone(),
                    idempotent: self.idempotent,
                    max_retries: self.max_retries,
                    timeout_seconds: self.timeout_seconds,
                    on_error: self.on_error.clone(),
                    compensate: self.compensate.clone(),
                }
            }

            pub(super) fn with_common(self, common: CommonFile) -> Self {
                let CommonFile {
                    inputs,
                    outputs,
                    idempotent,
                    max_retries,
                    timeout_seconds,
                    on_error,
                    compensate,
                } = common;
                Self {
                    inputs,
                    outputs,
                    idempotent,
                    max_retries,
                    timeout_seconds,
                    on_error,
                    compensate,
                    ..self
                }
            }
        }
    };
    // A kind of step that may also be inside another.
    ($(#[$doc:meta])* $name:ident, $step:ident {
        $($(#[$attribute:meta])* $field:ident: $type:ty,)*
    }) => {
        node_file!($(#[$doc])* $name { $($(#[$attribute])* $field: $type,)* });

        $(#[$doc])*
        #[derive(Debug, Clone, Default, Serialize, DeriveDeserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $step {
            $($(#[$attribute])* $field: Option<$type>,)*
            /// True if the step is safe to repeat, false if it is not; default as its agent or tool
            /// says.
            idempotent: Option<bool>,
            /// The retry limit after transient failures.
            max_retries: Option<u32>,
            /// The time limit of the step, in seconds.
            timeout_seconds: Option<NonZeroU64>,
        }

        impl From<$step> for $name {
            fn from(step: $step) -> Self {
                let $step { $($field,)* idempotent, max_retries, timeout_seconds } = step;
                let rest = Self::default();
                Self { $($field,)* idempotent, max_retries, timeout_seconds, ..rest }
            }
        }

        impl From<$name> for $step {
            fn from(node: $name) -> Self {
                let $name { $($field,)* idempotent, max_retries, timeout_seconds, .. } = node;
                Self { $($field,)* idempotent, max_retries, timeout_seconds }
            }
        }
    };
}

node_file!(
    /// Runs an agent.
    AgentNodeFile, AgentStepFile {
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
    ToolNodeFile, ToolStepFile {
        /// The tool, as `server/tool`.
        #[schemars(required)]
        tool: ToolName,
        /// Its arguments; texts in them are templates.
        arguments: ArgumentTemplates,
    }
);
node_file!(
    /// Evaluates an expression, whose value becomes the routing key.
    ConditionNodeFile, ConditionStepFile {
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
    WorkflowNodeFile, WorkflowStepFile {
        /// The workflow's name.
        #[schemars(required)]
        workflow: Name,
        /// A template of the workflow's input; default the newest message.
        input: Template,
    }
);

node_file!(
    /// Runs a script, which reads JSON and writes JSON. Give it a `file` or a `command`.
    ScriptNodeFile, ScriptStepFile {
        /// The script's path inside the home, such as `steps/score.py`. Its ending selects the
        /// interpreter: `.py`, `.js`, `.mjs`, `.ts` or `.sh`.
        #[serde(skip_serializing_if = "Option::is_none")]
        file: ScriptPath,
        /// A program with its arguments, without a shell.
        #[serde(skip_serializing_if = "Option::is_none")]
        command: ProgramCommand,
        /// The `arguments` of the script's input; texts in them are templates.
        arguments: ArgumentTemplates,
        /// Environment variables of the script. A value may name another variable as `${NAME}`,
        /// whose value is masked wherever the script prints it.
        envs: BTreeMap<EnvName, String>,
        /// The reaction to a script that went well and printed nothing: it fails, or its output is
        /// the empty text.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("default" = EmptyOutputPolicy::Fail))]
        empty_output: EmptyOutputPolicy,
    }
);
node_file!(
    /// Runs one step for every item of a list. Give it a `node` or a `workflow`.
    MapNodeFile {
        /// The list: a template of one `{{ expression }}` that gives one, or a list.
        #[schemars(required)]
        over: ValueSource,
        /// The name of the item in the templates of the step. Its index is `item_index`.
        #[schemars(extend("default" = "item"))]
        r#as: Name,
        /// The step that runs for each item.
        node: StepFile,
        /// The workflow that runs for each item, with the item as its input.
        #[serde(skip_serializing_if = "Option::is_none")]
        workflow: Name,
        /// The most items that are worked on at once.
        #[schemars(extend("default" = MAP_PARALLEL_DEFAULT))]
        max_parallel: NonZeroU32,
        /// The result of a failed item: `fail` fails the step, `collect` puts `{error: ...}` in the
        /// item's place.
        #[schemars(extend("default" = ItemErrorPolicy::Fail))]
        on_item_error: ItemErrorPolicy,
    }
);

impl From<StepFile> for NodeFile {
    fn from(step: StepFile) -> Self {
        match step {
            StepFile::Agent(file) => Self::Agent(file.into()),
            StepFile::Tool(file) => Self::Tool(file.into()),
            StepFile::Condition(file) => Self::Condition(file.into()),
            StepFile::Workflow(file) => Self::Workflow(file.into()),
            StepFile::Script(file) => Self::Script(file.into()),
        }
    }
}

impl NodeFile {
    /// The same step inside another; none for a kind that cannot be there.
    pub(super) fn into_step(self) -> Option<StepFile> {
        match self {
            Self::Agent(file) => Some(StepFile::Agent(file.into())),
            Self::Tool(file) => Some(StepFile::Tool(file.into())),
            Self::Condition(file) => Some(StepFile::Condition(file.into())),
            Self::Workflow(file) => Some(StepFile::Workflow(file.into())),
            Self::Script(file) => Some(StepFile::Script(file.into())),
            Self::Human(_) | Self::Parallel(_) | Self::Map(_) => None,
        }
    }

    pub(super) fn common(&self) -> CommonFile {
        match self {
            Self::Agent(file) => file.common(),
            Self::Tool(file) => file.common(),
            Self::Condition(file) => file.common(),
            Self::Human(file) => file.common(),
            Self::Parallel(file) => file.common(),
            Self::Workflow(file) => file.common(),
            Self::Script(file) => file.common(),
            Self::Map(file) => file.common(),
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
            Self::Script(file) => ("script", canonical::to_value(file)),
            Self::Map(file) => ("map", canonical::to_value(file)),
        };
        with_type(&mut value, r#type).serialize(serializer)
    }
}

impl Serialize for StepFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (r#type, mut value) = match self {
            Self::Agent(file) => ("agent", canonical::to_value(file)),
            Self::Tool(file) => ("tool", canonical::to_value(file)),
            Self::Condition(file) => ("condition", canonical::to_value(file)),
            Self::Workflow(file) => ("workflow", canonical::to_value(file)),
            Self::Script(file) => ("script", canonical::to_value(file)),
        };
        with_type(&mut value, r#type).serialize(serializer)
    }
}

fn with_type<'a>(value: &'a mut Value, r#type: &str) -> &'a Value {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("type".to_owned(), r#type.into());
    }
    value
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
    /// The step to go to when the condition cannot be evaluated or the step in `from` has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) on_error: Option<Name>,
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
