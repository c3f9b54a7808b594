//! Small types for the values of fields: each holds only what its field allows, and says what that
//! is both to the reader of an error and to the JSON Schema.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::source::shorten;
use crate::name::{NAME_CHARACTERS_MAX, NAME_PATTERN, Name};

/// The longest template or expression, in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 4096;

/// The longest tool name within its server, in characters.
pub const TOOL_CHARACTERS_MAX: usize = 128;

/// A value that its field does not allow; the text says what it allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

impl InvalidValue {
    pub(crate) fn new(message: String) -> Self {
        Self(message)
    }
}

impl JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": NAME_PATTERN, "maxLength": NAME_CHARACTERS_MAX })
    }
}

/// What every type whose form is a text has, given `as_str` and `FromStr`.
macro_rules! text_form {
    ($name:ident, $schema:tt) => {
        impl TryFrom<String> for $name {
            type Error = $crate::definition::InvalidValue;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

/// A type that holds what its text was compiled to. Its text is what it is known by.
macro_rules! compiled_text {
    ($name:ident, $schema:tt) => {
        impl $name {
            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0.text
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::definition::InvalidValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match compile(text) {
                    Ok(compiled) => Ok(Self(std::sync::Arc::new(compiled))),
                    Err(message) => Err($crate::definition::InvalidValue::new(message)),
                }
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_str() == other.as_str()
            }
        }

        impl Eq for $name {}

        $crate::definition::value::text_form!($name, $schema);
    };
}

pub(crate) use {compiled_text, text_form};

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:path, $schema:tt) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidValue;

            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                match $check(text) {
                    Ok(()) => Ok(Self(text.into())),
                    Err(message) => Err(InvalidValue(message)),
                }
            }
        }

        text_form!($name, $schema);
    };
}

text_type!(
    /// A text that is not empty.
    Text,
    check_text,
    { "type": "string", "pattern": "\\S" }
);
text_type!(
    /// A regular expression that is known to be well formed. It is compiled where it is used.
    Pattern,
    check_pattern,
    { "type": "string", "format": "regex", "minLength": 1 }
);
text_type!(
    /// An address that starts with `http://` or `https://`.
    HttpUrl,
    check_http_url,
    { "type": "string", "format": "uri", "pattern": "^https?://[^\\s/]" }
);
text_type!(
    /// An address that starts with `http://` or `https://`. `${NAME}` in it stands for what an
    /// environment variable holds, which may be all of it.
    UrlTemplate,
    check_url_template,
    { "type": "string", "pattern": "^(https?://[^\\s/]|\\$\\{)\\S*$" }
);
text_type!(
    /// The name of an environment variable.
    EnvName,
    check_env_name,
    { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" }
);
text_type!(
    /// One tool of one MCP server, such as `files/read_file`.
    ToolName,
    check_tool_name,
    { "type": "string", "pattern": "^[a-z][a-z0-9_]*/[A-Za-z0-9_.-]{1,128}$" }
);
text_type!(
    /// One tool of one MCP server, such as `files/read_file`, or all of them: `files/*`.
    ToolPattern,
    check_tool_pattern,
    { "type": "string", "pattern": "^[a-z][a-z0-9_]*/(\\*|[A-Za-z0-9_.-]{1,128})$" }
);
text_type!(
    /// A JSON Pointer such as `/result/text`; the empty one is the whole document.
    JsonPointer,
    check_json_pointer,
    { "type": "string", "pattern": "^(/.*)?$" }
);

fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() { Err("must not be empty".to_owned()) } else { Ok(()) }
}

/// The rules of templates and expressions alike.
pub(super) fn check_template(text: &str) -> Result<(), String> {
    check_text(text)?;
    if text.len() > TEMPLATE_BYTES_MAX {
        return Err(format!("has {} bytes, {TEMPLATE_BYTES_MAX} are the most", text.len()));
    }
    Ok(())
}

fn check_pattern(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("must not be empty; write \".*\" for anything".to_owned());
    }
    match regex_syntax::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("not a regular expression: {}", regex_reason(&error))),
    }
}

/// The part of a regular expression's error that says why; the rest draws the pattern.
pub(crate) fn regex_reason(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

fn check_http_url(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest)
            if !rest.is_empty()
                && !rest.starts_with('/')
                && !text.contains(char::is_whitespace) =>
        {
            Ok(())
        }
        Some(_) | None => Err(format!(
            "\"{}\" is not an address that starts with http:// or https://",
            shorten(text)
        )),
    }
}

fn check_url_template(text: &str) -> Result<(), String> {
    let is_filled_in = text.starts_with("${") && !text.contains(char::is_whitespace);
    if is_filled_in || check_http_url(text).is_ok() {
        Ok(())
    } else {
        // The value is not repeated: whoever holds such an address may write to it.
        Err("must be an address that starts with http:// or https://, or with ${NAME} for what an \
             environment variable holds"
            .to_owned())
    }
}

fn check_env_name(text: &str) -> Result<(), String> {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts_well && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(())
    } else {
        // The value is not repeated: it may be the secret itself.
        Err("must be the name of an environment variable: letters, digits and underscores, not \
             starting with a digit"
            .to_owned())
    }
}

fn check_tool_name(text: &str) -> Result<(), String> {
    if is_tool(text, false) {
        Ok(())
    } else {
        Err(format!("\"{}\" is not a tool: write server/tool", shorten(text)))
    }
}

fn check_tool_pattern(text: &str) -> Result<(), String> {
    if is_tool(text, true) {
        Ok(())
    } else {
        Err(format!("\"{}\" is not a tool: write server/tool or server/*", shorten(text)))
    }
}

/// Whether `text` is a tool's name within its server.
pub(crate) fn is_tool_part(text: &str) -> bool {
    (1..=TOOL_CHARACTERS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn is_tool(text: &str, star_allowed: bool) -> bool {
    text.split_once('/').is_some_and(|(server, tool)| {
        server.parse::<Name>().is_ok() && (is_tool_part(tool) || (star_allowed && tool == "*"))
    })
}

fn check_json_pointer(text: &str) -> Result<(), String> {
    if text.is_empty() || text.starts_with('/') {
        Ok(())
    } else {
        Err(format!("\"{}\" is not a JSON Pointer: it starts with \"/\"", shorten(text)))
    }
}

impl JsonPointer {
    /// The pointer that takes these steps, from the whole document on.
    pub fn to(steps: &[&str]) -> Self {
        let written = steps.iter().map(|step| step.replace('~', "~0").replace('/', "~1"));
        let whole = written.fold(String::new(), |whole, step| whole + "/" + &step);
        Self(whole.into())
    }
}

/// The server whose tools are an agent's sub-agents. No MCP server has this name.
pub const SUB_AGENT_SERVER: &str = "agent";

impl ToolName {
    /// The tool that a sub-agent is to the agent that hands work to it.
    pub fn of_sub_agent(name: &Name) -> Self {
        Self(format!("{SUB_AGENT_SERVER}/{name}").into())
    }

    /// The sub-agent that this tool is, if it is one.
    pub fn sub_agent(&self) -> Option<Name> {
        (self.server() == SUB_AGENT_SERVER).then(|| self.tool().parse().ok()).flatten()
    }

    /// The name of the MCP server.
    pub fn server(&self) -> &str {
        self.0.split_once('/').map_or("", |(server, _)| server)
    }

    /// The tool within the server.
    pub fn tool(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, tool)| tool)
    }
}

impl ToolPattern {
    /// The pattern that covers one tool and no other.
    pub fn exactly(tool: &ToolName) -> Self {
        Self(Arc::clone(&tool.0))
    }

    /// The name of the MCP server.
    pub fn server(&self) -> &str {
        self.0.split_once('/').map_or("", |(server, _)| server)
    }

    /// The tool within the server; none for all of them.
    pub fn tool(&self) -> Option<&str> {
        self.0.split_once('/').map(|(_, tool)| tool).filter(|tool| *tool != "*")
    }

    /// Whether the pattern covers one tool.
    pub fn covers(&self, tool: &ToolName) -> bool {
        self.server() == tool.server() && self.tool().is_none_or(|own| own == tool.tool())
    }

    /// Whether some tool may be covered by both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.server() == other.server()
            && match (self.tool(), other.tool()) {
                (Some(own), Some(others)) => own == others,
                (None, _) | (_, None) => true,
            }
    }
}
