//! `config/mcp_servers.yaml`: the servers that agents take their tools from.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use polity_model::name::Name;
use polity_model::tool::{SUB_AGENT_SERVER, ToolName, is_tool_part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::canonical::canonical_form;
use crate::file::checker::{FileChecker, NameReference};
use crate::file::ordered::OrderedMap;
use crate::file::path::FieldPath;
use crate::file::problem::{DefinitionProblem, FindingText};
use crate::nonzero_u64;
use crate::value::{EnvName, Text, UrlTemplate};

const TOOL_TIMEOUT_SECONDS_DEFAULT: NonZeroU64 = nonzero_u64(300);

/// The servers that agents take their tools from.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "mcp_servers")]
pub(crate) struct McpServersFile {
    /// The servers, each with a name of its own.
    servers: Option<Vec<McpServerFile>>,
}

/// One MCP server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct McpServerFile {
    /// The name that tools are called by: `name/tool`.
    #[schemars(required)]
    name: Option<Name>,
    /// The transport.
    #[schemars(required)]
    transport: Option<TransportFile>,
    /// The server's location: a command for `stdio`, an address for the others.
    #[schemars(required)]
    config: Option<McpConfigFile>,
    /// Settings of single tools.
    #[schemars(with = "Option<OrderedMap<Text, ToolSettingsFile>>")]
    tools: Option<BTreeMap<Text, ToolSettingsFile>>,
}

/// The transport of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TransportFile {
    /// As a child process.
    Stdio,
    /// Over HTTP with server-sent events.
    Sse,
    /// Over streamable HTTP.
    StreamableHttp,
}

/// The location of an MCP server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct McpConfigFile {
    /// The program to start, for `stdio`.
    command: Option<Text>,
    /// The program's arguments.
    args: Option<Vec<String>>,
    /// Environment variables of the program, which inherits only a few such as PATH and HOME. A
    /// value may name another variable as `${NAME}`.
    #[schemars(with = "Option<OrderedMap<EnvName, String>>")]
    env: Option<BTreeMap<EnvName, String>>,
    /// The server's address, for `sse` and `streamable_http`. `${NAME}` is replaced by an
    /// environment variable.
    url: Option<UrlTemplate>,
}

/// The settings of one tool.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolSettingsFile {
    /// The time limit of one call, in seconds.
    #[schemars(extend("default" = TOOL_TIMEOUT_SECONDS_DEFAULT))]
    timeout_seconds: Option<NonZeroU64>,
    /// Tools to try instead when this one fails, in order.
    #[schemars(extend("default" = []))]
    fallback_tools: Option<Vec<ToolName>>,
    /// True if a call is safe to repeat. It overrides the server's hints, which are the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent: Option<bool>,
}

/// One MCP server, valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerDefinition {
    /// The name that tools are called by.
    pub name: Name,
    /// The transport and location.
    pub transport: McpTransport,
    /// Settings of single tools, by name.
    pub tools: BTreeMap<Text, ToolSettings>,
}

/// The transport and location of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// As a child process.
    Stdio {
        /// The program.
        command: Text,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment variables; a value may name another variable as `${NAME}`.
        env: BTreeMap<EnvName, String>,
    },
    /// Over HTTP with server-sent events.
    Sse {
        /// The server's address; it may name variables as `${NAME}`.
        url: UrlTemplate,
    },
    /// Over streamable HTTP.
    StreamableHttp {
        /// The server's address; it may name variables as `${NAME}`.
        url: UrlTemplate,
    },
}

/// The settings of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// The time limit of one call.
    pub timeout_seconds: NonZeroU64,
    /// Tools to try instead when this one fails, in order.
    pub fallback_tools: Vec<ToolName>,
    /// True if a call is safe to repeat; if unset, the server's hints decide.
    pub idempotent: Option<bool>,
}

impl Default for ToolSettings {
    fn default() -> Self {
        ToolSettingsFile::default().into_valid()
    }
}

/// The servers of a file as far as they could be read.
#[derive(Debug)]
pub(crate) struct ServersRead {
    /// The valid ones.
    pub(crate) valid: Vec<McpServerDefinition>,
    /// The names of all, so that a tool of a wrong server is not reported as well.
    pub(crate) names: Vec<Name>,
}

impl McpServersFile {
    pub(crate) fn check(self, checker: &mut FileChecker) -> ServersRead {
        let path = FieldPath::root().field("servers");
        let mut valid = Vec::new();
        let mut names: Vec<Name> = Vec::new();
        for (index, file) in self.servers.unwrap_or_default().into_iter().enumerate() {
            let place = path.index(index);
            if let Some(name) = &file.name {
                if names.contains(name) {
                    let message = format!("two servers have the name \"{name}\"");
                    let finding = FindingText::new(message).found(name.as_str());
                    checker.report(&place.field("name"), finding);
                }
                if name.as_str() == SUB_AGENT_SERVER {
                    let message = format!("the name \"{name}\" is reserved for sub-agents");
                    let finding = FindingText::new(message).found(name.as_str());
                    checker.report(&place.field("name"), finding);
                }
                names.push(name.clone());
            }
            valid.extend(file.check(&place, checker));
        }
        ServersRead { valid, names }
    }
}

impl McpServerFile {
    fn check(self, path: &FieldPath, checker: &mut FileChecker) -> Option<McpServerDefinition> {
        let name = checker.require(&path.field("name"), self.name);
        let transport = checker.require(&path.field("transport"), self.transport);
        let config_path = path.field("config");
        let config = checker.require(&config_path, self.config);
        let mut tools = BTreeMap::new();
        for (tool, settings) in self.tools.unwrap_or_default() {
            if !is_tool_part(tool.as_str()) {
                let place = path.field("tools").field(tool.as_str());
                let message = format!("\"{tool}\" is not the name of a tool within its server");
                checker.report(&place, FindingText::new(message).found(tool.as_str()));
                continue;
            }
            let settings = settings.into_valid();
            let fallbacks = path.field("tools").field(tool.as_str()).field("fallback_tools");
            for (index, fallback) in settings.fallback_tools.iter().enumerate() {
                let server = NameReference::Server(fallback.server().to_owned());
                checker.refer(fallbacks.index(index), server);
            }
            tools.insert(tool, settings);
        }
        let transport = config?.check(transport?, &config_path, checker)?;
        Some(McpServerDefinition { name: name?, transport, tools })
    }
}

impl McpConfigFile {
    fn check(
        self,
        transport: TransportFile,
        path: &FieldPath,
        checker: &mut FileChecker,
    ) -> Option<McpTransport> {
        let is_stdio = transport == TransportFile::Stdio;
        for field in ["command", "args", "env"] {
            checker.refuse_unless(is_stdio, &path.field(field), "with the transport stdio");
        }
        let url_path = path.field("url");
        checker.refuse_unless(!is_stdio, &url_path, "with the transports sse and streamable_http");
        if let Some(url) = &self.url {
            checker.refuse_secret_part(&url_path, url.as_str());
        }
        match transport {
            TransportFile::Stdio => {
                let place = path.field("command");
                let command =
                    checker.require_when(&place, self.command, "with the transport stdio")?;
                let args = self.args.unwrap_or_default();
                for (index, argument) in args.iter().enumerate() {
                    checker.refuse_secret_argument(
                        &path.field("args").index(index),
                        argument,
                        "env",
                    );
                }
                let env = self.env.unwrap_or_default();
                for (name, value) in &env {
                    let place = path.field("env").field(name.as_str());
                    checker.refuse_secret(&place, name.as_str(), value);
                }
                Some(McpTransport::Stdio { command, args, env })
            }
            TransportFile::Sse => {
                let url = checker.require_when(&url_path, self.url, "with the transport sse")?;
                Some(McpTransport::Sse { url })
            }
            TransportFile::StreamableHttp => {
                let when = "with the transport streamable_http";
                let url = checker.require_when(&url_path, self.url, when)?;
                Some(McpTransport::StreamableHttp { url })
            }
        }
    }
}

impl ToolSettingsFile {
    fn into_valid(self) -> ToolSettings {
        ToolSettings {
            timeout_seconds: self.timeout_seconds.unwrap_or(TOOL_TIMEOUT_SECONDS_DEFAULT),
            fallback_tools: self.fallback_tools.unwrap_or_default(),
            idempotent: self.idempotent,
        }
    }
}

canonical_form!(McpServerDefinition);

impl McpServerDefinition {
    /// Reads a definition back from its canonical JSON.
    pub fn from_canonical(json: &str) -> Result<Self, Vec<DefinitionProblem>> {
        crate::file::from_text(json, |file: McpServerFile, checker| {
            file.check(&FieldPath::root(), checker)
        })
    }

    fn to_file(&self) -> McpServerFile {
        let (transport, config) = match self.transport.clone() {
            McpTransport::Stdio { command, args, env } => {
                let (command, args, env) = (Some(command), Some(args), Some(env));
                (TransportFile::Stdio, McpConfigFile { command, args, env, url: None })
            }
            McpTransport::Sse { url } => {
                (TransportFile::Sse, McpConfigFile { url: Some(url), ..Default::default() })
            }
            McpTransport::StreamableHttp { url } => {
                let config = McpConfigFile { url: Some(url), ..Default::default() };
                (TransportFile::StreamableHttp, config)
            }
        };
        let tools = self.tools.iter().map(|(tool, settings)| (tool.clone(), settings.to_file()));
        McpServerFile {
            name: Some(self.name.clone()),
            transport: Some(transport),
            config: Some(config),
            tools: Some(tools.collect()),
        }
    }
}

impl ToolSettings {
    fn to_file(&self) -> ToolSettingsFile {
        ToolSettingsFile {
            timeout_seconds: Some(self.timeout_seconds),
            fallback_tools: Some(self.fallback_tools.clone()),
            idempotent: self.idempotent,
        }
    }
}
