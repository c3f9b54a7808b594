//! Built-in presets for well-known CLI agents.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A well-known CLI agent with built-in arguments, parser and error rules.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CliPreset {
    /// Claude Code of Anthropic.
    Claude,
    /// Codex of OpenAI.
    Codex,
    /// Gemini CLI of Google.
    Gemini,
    /// Qwen Code.
    Qwen,
    /// `OpenCode`.
    Opencode,
    /// Copilot CLI of GitHub.
    Copilot,
    /// Aider.
    Aider,
    /// `AIChat`.
    Aichat,
    /// LLM of Simon Willison.
    Llm,
}

impl CliPreset {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Qwen,
        Self::Opencode,
        Self::Copilot,
        Self::Aider,
        Self::Aichat,
        Self::Llm,
    ];

    /// True if the program can be started so that it takes no action that needs a permission.
    pub fn can_withhold_permissions(self) -> bool {
        match self {
            Self::Claude
            | Self::Codex
            | Self::Gemini
            | Self::Qwen
            | Self::Opencode
            | Self::Copilot
            // Without arguments that name tools, these two only answer.
            | Self::Aichat
            | Self::Llm => true,
            // It changes files without asking.
            Self::Aider => false,
        }
    }

    /// The variables on which a permission policy other than `allow` depends: those that enforce it,
    /// and those that name a configuration with other permissions.
    pub fn policy_variables(self) -> &'static [&'static str] {
        match self {
            Self::Opencode => &[
                "OPENCODE_PERMISSION",
                "OPENCODE_DISABLE_PROJECT_CONFIG",
                "OPENCODE_PURE",
                "OPENCODE_CONFIG",
                "OPENCODE_CONFIG_CONTENT",
                "OPENCODE_CONFIG_DIR",
            ],
            Self::Copilot => &["COPILOT_ALLOW_ALL"],
            Self::Claude
            | Self::Codex
            | Self::Gemini
            | Self::Qwen
            | Self::Aider
            | Self::Aichat
            | Self::Llm => &[],
        }
    }

    /// The name as files spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
            Self::Opencode => "opencode",
            Self::Copilot => "copilot",
            Self::Aider => "aider",
            Self::Aichat => "aichat",
            Self::Llm => "llm",
        }
    }
}

impl fmt::Display for CliPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_names_match_files() {
        for preset in CliPreset::ALL {
            assert_eq!(serde_json::to_value(preset).unwrap(), preset.as_str());
        }
    }
}
