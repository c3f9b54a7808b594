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
mod canonical;
mod checker;
mod command_line;
mod decode;
mod document;
mod expression;
pub mod graph;
mod home;
pub mod json_schema;
mod mcp_server;
mod ordered;
mod path;
mod problem;
mod retention;
mod schedule;
mod schema;
pub mod scope;
mod script;
mod settings;
mod source;
mod suggest;
mod template;
mod value;
mod workflow;

#[cfg(test)]
mod tests;

use std::num::{NonZeroU32, NonZeroU64};

use serde::de::DeserializeOwned;

pub use self::agent::{
    A2aCapabilities, A2aDefinition, A2aTransport, AccessType, AgentDefinition, AgentIdentity,
    AgentKind, AgentMode, AgentType, AuthenticationDefinition, AuthenticationType, CliAgent,
    CliPlaceholder, CliPreset, CliTemplate, ErrorRule, ErrorStream, GlobMatcher, InputPattern,
    JsonPick, JsonScalar, LlmAgent, LlmConfig, LlmProvider, OutputFormat, OutputParser,
    OutputPattern, OutputSchema, PathGlob, PermissionPolicy, RateLimit, RemoteAgent,
    ResourceLimits, StopSignal, TokenPrice, WorkspaceMode,
};
pub use self::command_line::CommandLine;
pub use self::decode::PROBLEMS_PER_FILE_MAX;
pub use self::document::{DocumentProblem, ExternalDocument};
pub use self::expression::ConditionExpression;
pub use self::home::{
    EXTENSIONS, Home, NameLookup, SourceFile, is_retention_policy, is_servers, is_settings,
};
pub use self::mcp_server::{McpServerDefinition, McpTransport, ToolSettings};
pub use self::problem::DefinitionProblem;
pub use self::retention::{RetentionPolicy, RetentionRule, RetentionStatus};
pub use self::schedule::{
    CatchUpPolicy, CronExpression, OverlapPolicy, ScheduleDefinition, ScheduleTarget,
};
pub use self::schema::{DefinitionKind, UnknownDefinitionKind, schema};
pub use self::script::{
    ScriptAnswer, ScriptDefinition, ScriptOutcome, ScriptRole, ScriptRule, ScriptToolCall,
};
pub use self::settings::{
    DurabilitySetting, HomeSettings, Limits, OnReview, RedactionSettings, ServerSettings,
};
pub use self::source::DEFINITION_BYTES_MAX;
pub(crate) use self::suggest::did_you_mean;
pub use self::suggest::nearest;
pub use self::template::Template;
pub use self::value::{
    EnvName, HttpUrl, JsonPointer, Pattern, TEMPLATE_BYTES_MAX, Text, UrlTemplate,
};
pub use self::workflow::{
    ArgumentTemplates, EdgeTarget, ExpandedGraph, JoinMode, PLAN_STEPS_MAX, PlanEdge, PlanLink,
    PlanNode, PlanTarget, REFLECTION_ROUNDS, REFLECTION_ROUNDS_MAX, WorkflowDefinition,
    WorkflowEdge, WorkflowNode, WorkflowNodeKind, WorkflowPattern, WorkflowPlan,
};

use self::checker::FileChecker;
use self::problem::{FindingText, SourcePosition};
use self::source::{SourceNode, SourceNodeKind};

/// The file name in problems of a pinned definition.
const PINNED_FILE: &str = "(pinned definition)";

/// The rule for an empty file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EmptyFile {
    /// An empty file means the defaults.
    Allowed,
    /// An empty file is a problem.
    Refused,
}

/// Reads one file as far as possible. The checker has every problem.
fn read<F: DeserializeOwned, T>(
    file: &str,
    text: Result<&str, &str>,
    empty: EmptyFile,
    check: impl FnOnce(F, &mut FileChecker) -> Option<T>,
) -> (Option<T>, FileChecker) {
    let refuse = |finding: FindingText| {
        (None, unreadable(file, vec![finding.at(file, &SourcePosition::start())]))
    };
    match text {
        Err(reason) => refuse(FindingText::new(reason)),
        Ok(text) if text.len() > DEFINITION_BYTES_MAX => refuse(FindingText::new(format!(
            "the file has more than {DEFINITION_BYTES_MAX} bytes, the most a definition may have"
        ))),
        Ok(text) => read_text(file, text, empty, check),
    }
}

fn read_text<F: DeserializeOwned, T>(
    file: &str,
    text: &str,
    empty: EmptyFile,
    check: impl FnOnce(F, &mut FileChecker) -> Option<T>,
) -> (Option<T>, FileChecker) {
    let source::ParsedSource { tree, mut problems } = source::parse(file, text);
    let Some(mut tree) = tree else {
        return (None, unreadable(file, problems));
    };
    if tree.kind == SourceNodeKind::Null {
        match empty {
            EmptyFile::Allowed => tree.kind = SourceNodeKind::Mapping(Vec::new()),
            EmptyFile::Refused => {
                problems
                    .push(FindingText::new("the file is empty").at(file, &SourcePosition::start()));
                return (None, unreadable(file, problems));
            }
        }
    }
    let decoded = decode::decode::<F>(file, &mut tree, &mut problems);
    let mut checker = FileChecker::new(file, tree, problems);
    let value = decoded.and_then(|decoded| check(decoded, &mut checker));
    (value, checker)
}

/// The checker of a file that cannot be read.
fn unreadable(file: &str, problems: Vec<DefinitionProblem>) -> FileChecker {
    FileChecker::new(
        file,
        SourceNode { kind: SourceNodeKind::Pruned, line: 1, column: 1 },
        problems,
    )
}

/// Reads a definition outside a home, such as a pinned one.
///
/// Its size is not limited: its file was already checked, and canonical JSON may be longer.
fn from_text<F: DeserializeOwned, T>(
    text: &str,
    check: impl FnOnce(F, &mut FileChecker) -> Option<T>,
) -> Result<T, Vec<DefinitionProblem>> {
    let (value, checker) = read_text(PINNED_FILE, text, EmptyFile::Refused, check);
    match value {
        Some(value) if checker.is_clean() => Ok(value),
        Some(_) | None => Err(checker.into_problems()),
    }
}

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
