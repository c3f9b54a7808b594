//! Definition files of a home folder: decoding, validation, templates and conditions.
//!
//! A file passes four steps. `source` parses YAML or JSON to a tree with positions; `decode` turns
//! the tree into types that mirror the file; their `check` applies the rules of one file; `home`
//! applies the rules between files. Every step continues after a problem, so that all problems of
//! all files are reported at once.
//!
//! Nothing here reads a file: texts are passed in. Templates and conditions are compiled with their
//! file, so that an error in one is a problem of the file and not of a task.

mod agent;
mod config;
mod evaluation;
mod file;
pub mod graph;
mod home;
mod json_schema;
mod schedule;
mod script;
mod value;
mod workflow;

#[cfg(test)]
mod tests;

use std::num::{NonZeroU32, NonZeroU64};

pub use self::agent::{
    A2aCapabilities, A2aDefinition, A2aTransport, AccessType, AgentDefinition, AgentIdentity,
    AgentKind, AgentMode, AgentType, AuthenticationDefinition, AuthenticationType, CliAgent,
    CliPlaceholder, CliPreset, CliTemplate, EmptyOutputPolicy, ErrorRule, ErrorStream, GlobMatcher,
    InputPattern, JsonPick, JsonScalar, LlmAgent, LlmConfig, LlmProvider, OutputFormat,
    OutputParser, OutputPattern, OutputSchema, PathGlob, PermissionPolicy, QueueFullPolicy,
    RateLimit, RemoteAgent, ResourceLimits, SCRIPT_RUNS_MAX, StopSignal, TokenPrice,
    TruncationPolicy, WorkspaceMode,
};
pub use self::config::mcp_server::{McpServerDefinition, McpTransport, ToolSettings};
pub use self::config::protection::{RateLimits, TlsSettings};
pub use self::config::retention::{RetentionPolicy, RetentionRule, RetentionStatus};
pub use self::config::settings::{
    DurabilitySetting, HomeSettings, Limits, MAP_ITEMS_MAX, OnReview, ServerSettings,
};
pub use self::config::webhooks::{WebhookSettings, WebhookTopic};
pub use self::evaluation::expression::ConditionExpression;
pub use self::evaluation::scope::{EvaluationError, EvaluationScope, ItemScope};
pub use self::evaluation::template::Template;
pub use self::file::decode::PROBLEMS_PER_FILE_MAX;
pub use self::file::document::{DocumentProblem, ExternalDocument};
pub use self::file::problem::DefinitionProblem;
pub use self::file::schema::{DefinitionKind, UnknownDefinitionKind, schema};
pub use self::file::source::DEFINITION_BYTES_MAX;
pub use self::home::{
    EXTENSIONS, Home, HomeFile, MISSING_SCRIPT, NameLookup, is_retention_policy, is_servers,
    is_settings,
};
pub use self::json_schema::{InvalidSchema, SchemaError, SchemaValidator};
pub use self::schedule::{
    CatchUpPolicy, CronExpression, DstPolicy, DueTimes, MissingTime, OverlapPolicy, RepeatedTime,
    ScheduleDefinition, ScheduleTarget, time_zone_database,
};
pub use self::script::{
    ScriptAnswer, ScriptDefinition, ScriptOutcome, ScriptRole, ScriptRule, ScriptToolCall,
};
pub use self::value::command_line::ProgramCommand;
pub(crate) use self::value::suggest::did_you_mean;
pub use self::value::suggest::nearest;
pub use self::value::{
    EnvName, HttpUrl, JsonPointer, Pattern, TEMPLATE_BYTES_MAX, Text, UrlTemplate,
};
pub use self::workflow::{
    ArgumentTemplates, COMPENSATION_PREFIX, DeclaredOutput, EdgeTarget, ExpandedGraph, ITEM_INDEX,
    ITEM_NAME_DEFAULT, ItemErrorPolicy, JoinMode, LinkKind, MAP_PARALLEL_DEFAULT, OutputType,
    PLAN_STEPS_MAX, PlanEdge, PlanLink, PlanNode, PlanTarget, REFLECTION_ROUNDS,
    REFLECTION_ROUNDS_MAX, SCRIPT_BYTES_MAX, ScriptInterpreter, ScriptPath, ScriptProgram,
    ScriptSource, ValueSource, WorkflowDefinition, WorkflowEdge, WorkflowNode, WorkflowNodeKind,
    WorkflowPattern, WorkflowPlan,
};

/// A number above 0 as a constant; 1 for 0.
const fn nonzero_u32(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

/// A number above 0 as a constant; 1 for 0.
const fn nonzero_u64(number: u64) -> NonZeroU64 {
    match NonZeroU64::new(number) {
        Some(number) => number,
        None => NonZeroU64::MIN,
    }
}
