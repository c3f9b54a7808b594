//! The name of a tool: its MCP server, and the tool within it.

use std::sync::Arc;

use crate::name::Name;
use crate::text_type;
use crate::value::excerpt;

/// The longest tool name within its server, in characters.
pub const TOOL_CHARACTERS_MAX: usize = 128;

/// The server whose tools are an agent's sub-agents. No MCP server has this name.
pub const SUB_AGENT_SERVER: &str = "agent";

text_type!(
    /// One tool of one MCP server, such as `files/read_file`.
    ToolName,
    check_tool_name,
    { "type": "string", "pattern": "^[a-z][a-z0-9_]*/[A-Za-z0-9_./-]{1,128}$" }
);
text_type!(
    /// One tool of one MCP server, such as `files/read_file`, or all of them: `files/*`.
    ToolPattern,
    check_tool_pattern,
    { "type": "string", "pattern": "^[a-z][a-z0-9_]*/(\\*|[A-Za-z0-9_./-]{1,128})$" }
);

impl ToolName {
    /// The tool name of a sub-agent.
    pub fn of_sub_agent(name: &Name) -> Self {
        Self(format!("{SUB_AGENT_SERVER}/{name}").into())
    }

    /// The sub-agent behind this tool, if it is one.
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

    /// True if the pattern covers this tool.
    pub fn covers(&self, tool: &ToolName) -> bool {
        self.server() == tool.server() && self.tool().is_none_or(|own| own == tool.tool())
    }

    /// True if some tool may be covered by both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.server() == other.server()
            && match (self.tool(), other.tool()) {
                (Some(own), Some(others)) => own == others,
                (None, _) | (_, None) => true,
            }
    }
}

fn check_tool_name(text: &str) -> Result<(), String> {
    if is_tool(text, false) {
        Ok(())
    } else {
        Err(format!("\"{}\" is not a tool: write server/tool", excerpt(text)))
    }
}

fn check_tool_pattern(text: &str) -> Result<(), String> {
    if is_tool(text, true) {
        Ok(())
    } else {
        Err(format!("\"{}\" is not a tool: write server/tool or server/*", excerpt(text)))
    }
}

/// True if `text` is a valid tool name within a server. The characters are those of MCP.
pub fn is_tool_part(text: &str) -> bool {
    (1..=TOOL_CHARACTERS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/'))
}

fn is_tool(text: &str, star_allowed: bool) -> bool {
    text.split_once('/').is_some_and(|(server, tool)| {
        server.parse::<Name>().is_ok() && (is_tool_part(tool) || (star_allowed && tool == "*"))
    })
}
