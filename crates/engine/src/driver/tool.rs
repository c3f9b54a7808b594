//! Tool calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::SchemaValidator;
use polity_model::failure::{AttemptFailure, ErrorCode};
use polity_model::name::Name;
use polity_model::tool::{ToolName, ToolPattern};
use serde_json::{Map, Value};

use super::{BoxFuture, CallSite, NotReady};

/// A tool, as described by its server and the settings of the home.
#[derive(Debug)]
pub struct ToolSpec {
    /// The server and the tool.
    pub name: ToolName,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Map<String, Value>,
    /// The JSON Schema of its structured results, if it has one.
    pub output_schema: Option<Map<String, Value>>,
    /// True if a call may be repeated, according to the server or the settings.
    pub repeatable: bool,
    /// The time limit of a call.
    pub timeout: Duration,
    /// The tools to try instead when this one fails, in order.
    pub fallback_tools: Vec<ToolName>,
    arguments: Option<SchemaValidator>,
    results: Option<SchemaValidator>,
}

impl ToolSpec {
    /// A tool, with its schemas compiled once. A schema that cannot be compiled checks nothing.
    pub fn new(
        name: ToolName,
        description: String,
        input_schema: Map<String, Value>,
        output_schema: Option<Map<String, Value>>,
        repeatable: bool,
        timeout: Duration,
        fallback_tools: Vec<ToolName>,
    ) -> Self {
        let arguments = shape(&input_schema, "input", &name);
        let results = output_schema.as_ref().and_then(|schema| shape(schema, "output", &name));
        Self {
            name,
            description,
            input_schema,
            output_schema,
            repeatable,
            timeout,
            fallback_tools,
            arguments,
            results,
        }
    }

    /// Checks arguments against the input schema. The error tells a model what to change.
    pub fn check_arguments(&self, arguments: &Map<String, Value>) -> Result<(), String> {
        match &self.arguments {
            Some(shape) => shape.check(&Value::Object(arguments.clone())),
            None => Ok(()),
        }
    }

    /// Checks a structured result against the output schema.
    pub fn check_result(&self, result: &Value) -> Result<(), String> {
        self.results.as_ref().map_or(Ok(()), |shape| shape.check(result))
    }
}

/// A schema that cannot be compiled checks nothing: a server's mistake should not make its tool
/// useless.
fn shape(schema: &Map<String, Value>, which: &str, tool: &ToolName) -> Option<SchemaValidator> {
    let shape = SchemaValidator::compile(schema);
    if let Err(error) = &shape {
        tracing::warn!("the {which} schema of {tool} is not checked: {error}");
    }
    shape.ok()
}

/// The current tools of an agent.
#[derive(Debug, Clone, Default)]
pub struct Toolbox {
    offered: Vec<Arc<ToolSpec>>,
    in_reserve: Vec<Arc<ToolSpec>>,
    /// The errors of servers whose tools are missing.
    unavailable: BTreeMap<String, Arc<str>>,
}

impl Toolbox {
    /// No tools, because those of a server could not be listed.
    pub fn lost(server: &str, why: &str) -> Self {
        let unavailable = BTreeMap::from([(server.to_owned(), why.into())]);
        Self { unavailable, ..Self::default() }
    }

    /// The error of a server whose tools could not be listed.
    pub fn unavailable(&self, server: &str) -> Option<&str> {
        self.unavailable.get(server).map(|why| &**why)
    }

    /// `offered` are the tools that the agent may call; `in_reserve` are only fallbacks for them.
    pub fn new(offered: Vec<Arc<ToolSpec>>, in_reserve: Vec<Arc<ToolSpec>>) -> Self {
        Self { offered, in_reserve, unavailable: BTreeMap::new() }
    }

    /// Adds the tools of other servers.
    pub fn and(mut self, other: &Self) -> Self {
        let is_new =
            |known: &[Arc<ToolSpec>], tool: &ToolSpec| known.iter().all(|k| k.name != tool.name);
        for tool in &other.offered {
            if is_new(&self.offered, tool) {
                self.offered.push(Arc::clone(tool));
            }
        }
        for tool in &other.in_reserve {
            if is_new(&self.in_reserve, tool) {
                self.in_reserve.push(Arc::clone(tool));
            }
        }
        self.unavailable.extend(other.unavailable.clone());
        self
    }

    /// The tools that the agent may call.
    pub fn offered(&self) -> &[Arc<ToolSpec>] {
        &self.offered
    }

    /// The tools that are only fallbacks.
    pub fn in_reserve(&self) -> &[Arc<ToolSpec>] {
        &self.in_reserve
    }

    /// Adds more tools that the agent may call.
    pub fn joined(&self, more: &[Arc<ToolSpec>]) -> Self {
        let offered = self.offered.iter().chain(more).cloned().collect();
        Self { offered, ..self.clone() }
    }

    /// The tool of that name, offered or in reserve.
    pub fn find(&self, server: &str, tool: &str) -> Option<&Arc<ToolSpec>> {
        self.offered
            .iter()
            .chain(&self.in_reserve)
            .find(|known| known.name.server() == server && known.name.tool() == tool)
    }
}

/// One call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolRequest<'a> {
    /// The tool.
    pub tool: &'a ToolName,
    /// The arguments.
    pub arguments: &'a Map<String, Value>,
    /// The time limit, from the start of the call.
    pub limit: Duration,
    /// The node whose `timeout_seconds` is the limit; none if it is the tool's own.
    pub limited_by: Option<&'a Name>,
    /// The call site.
    pub call_site: CallSite<'a>,
    /// The index of the call in its turn, from 0.
    pub index: usize,
}

/// The reply of a tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolReply {
    /// The text. Pictures and other data are described in it, not contained.
    pub content: String,
    /// The result as JSON, where the tool gives one.
    pub structured: Option<Value>,
    /// True if the tool reports a failure.
    pub is_error: bool,
    /// True if the reply was too long and was cut.
    pub is_cut: bool,
    /// The error code of a failed sub-agent.
    pub code: Option<ErrorCode>,
}

/// A failed tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFailure {
    /// Why.
    pub failure: AttemptFailure,
    /// True if the call may have reached the tool and had its effect.
    pub maybe_done: bool,
    /// True if the call exceeded its time limit.
    pub timed_out: bool,
}

/// The tools of an agent cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", failure.message)]
pub struct ToolsUnavailable {
    /// Why. A transient failure may pass.
    pub failure: AttemptFailure,
}

/// Lists and calls tools. Servers are started when they are first needed, and shared.
pub trait ToolDriver: Send + Sync {
    /// Checks that the servers of these tools are defined, without asking them. Called before a task
    /// is created or adopted.
    fn ready(&self, patterns: &[ToolPattern]) -> Result<(), NotReady>;

    /// Lists the tools that an agent may use.
    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>>;

    /// Makes one call, within its time limit. Dropping the future abandons the call and notifies the
    /// server.
    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;

    #[test]
    fn invalid_schema_accepts_everything() {
        for schema in [
            json!({"type": "no such type"}),
            json!({"$ref": "https://example.com/schema.json"}),
            json!({"$ref": "#/nowhere"}),
        ] {
            let schema = schema.as_object().unwrap();
            let name = "files/read".parse().unwrap();
            let (output, second) = (Some(schema.clone()), Duration::from_secs(1));
            let (text, input) = (String::new(), schema.clone());
            let tool = ToolSpec::new(name, text, input, output, true, second, Vec::new());
            assert_eq!(tool.check_arguments(&Map::new()), Ok(()), "{schema:?}");
            assert_eq!(tool.check_result(&json!(7)), Ok(()), "{schema:?}");
        }
    }
}
