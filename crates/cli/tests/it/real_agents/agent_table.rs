//! The agents, and their configuration for a local model server.
//!
//! In variables and files, `@URL@` is the address of the server and `@HOME@` a private folder of
//! the run, so the tests leave the user's home unchanged. Telemetry and updates are disabled.

use std::path::PathBuf;

use polity_testkit::model_server::{ModelCall, ModelTurn, RecordedRequest};
use polity_testkit::peers;
use serde_json::json;

/// A third-party agent.
pub(super) struct RealAgent {
    /// The preset, which is also the agent's name.
    pub(super) preset: &'static str,
    /// The installation path.
    pub(super) program: fn() -> PathBuf,
    /// The test runs that include it.
    pub(super) runs: InstalledAs,
    /// True if it always retries for longer than a minute.
    pub(super) is_patient: bool,
    /// The configured model.
    pub(super) model: &'static str,
    /// The environment variables.
    pub(super) envs: &'static [(&'static str, &'static str)],
    /// The files in its home.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// The tool that runs commands.
    pub(super) shell: Option<ShellTool>,
    /// True if it prints nothing but the answer.
    pub(super) is_terse: bool,
    /// True if it reports a session id.
    pub(super) has_session: bool,
    /// The tokens that it reports for [`INPUT_TOKENS`] and [`OUTPUT_TOKENS`].
    pub(super) tokens: Option<(u64, u64)>,
}

/// The test runs that include an agent.
#[derive(PartialEq)]
pub(super) enum InstalledAs {
    /// Every run: it installs quickly.
    All,
    /// Only the long run.
    Long,
}

/// A tool that runs commands.
pub(super) struct ShellTool {
    tool: &'static str,
    /// The name of the command argument.
    argument: &'static str,
}

impl ShellTool {
    /// Calls the tool with a command, if the request offers the tool.
    pub(super) fn call(&self, request: &RecordedRequest, command: &str) -> Option<ModelTurn> {
        let arguments = json!({self.argument: command, "description": "Sleeps"});
        let call = ModelCall::new(self.tool, &arguments.to_string());
        request.tool_names().contains(&self.tool).then(|| ModelTurn::calls([call]))
    }
}

/// The input tokens that the server reports.
pub(super) const INPUT_TOKENS: u64 = 120;

/// The output tokens that the server reports.
pub(super) const OUTPUT_TOKENS: u64 = 40;

/// The variable of the Polity process that holds the key.
pub(super) const KEY_VARIABLE: &str = "POLITY_TEST_MODEL_KEY";

const KEY: &str = "${POLITY_TEST_MODEL_KEY}";

pub(super) const GEMINI: RealAgent = RealAgent {
    preset: "gemini",
    program: || peers::npm_agent("gemini"),
    runs: InstalledAs::All,
    is_patient: false,
    model: "gemini-2.5-pro",
    envs: &[("GEMINI_API_KEY", KEY), ("GOOGLE_GEMINI_BASE_URL", "@URL@")],
    // With a custom endpoint it would otherwise ask for a gateway sign-in.
    files: &[(
        ".gemini/settings.json",
        r#"{"security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": false},
            "general": {"enableAutoUpdate": false, "maxAttempts": 2}}"#,
    )],
    shell: Some(ShellTool { tool: "run_shell_command", argument: "command" }),
    is_terse: true,
    has_session: true,
    // Half of the output tokens are thoughts, which it does not count.
    tokens: Some((INPUT_TOKENS, OUTPUT_TOKENS / 2)),
};

pub(super) const QWEN: RealAgent = RealAgent {
    preset: "qwen",
    program: || peers::npm_agent("qwen"),
    runs: InstalledAs::All,
    is_patient: true,
    model: "gpt-5",
    envs: &[("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", "@URL@/v1")],
    files: &[(
        ".qwen/settings.json",
        r#"{"privacy": {"usageStatisticsEnabled": false},
            "general": {"disableAutoUpdate": true, "enableAutoUpdate": false},
            "memory": {"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
            "model": {"generationConfig": {"maxRetries": 0}}}"#,
    )],
    shell: Some(ShellTool { tool: "run_shell_command", argument: "command" }),
    is_terse: true,
    has_session: true,
    tokens: Some((INPUT_TOKENS, OUTPUT_TOKENS)),
};

pub(super) const CLAUDE: RealAgent = RealAgent {
    preset: "claude",
    program: || peers::native_agent("@anthropic-ai", "claude-code-", "claude"),
    runs: InstalledAs::Long,
    is_patient: false,
    model: "claude-sonnet-4-5",
    envs: &[
        ("ANTHROPIC_API_KEY", KEY),
        ("ANTHROPIC_BASE_URL", "@URL@"),
        // It refuses to skip permissions as root without this.
        ("IS_SANDBOX", "1"),
    ],
    files: &[],
    shell: Some(ShellTool { tool: "Bash", argument: "command" }),
    is_terse: true,
    has_session: true,
    // Half of the input tokens come from a cache and are counted separately.
    tokens: Some((INPUT_TOKENS / 2, OUTPUT_TOKENS)),
};

pub(super) const CODEX: RealAgent = RealAgent {
    preset: "codex",
    program: || peers::npm_agent_of_the_long_run("codex"),
    runs: InstalledAs::Long,
    is_patient: false,
    model: "gpt-5",
    envs: &[("OPENAI_API_KEY", KEY)],
    files: &[(
        ".codex/config.toml",
        r#"model_provider = "here"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.here]
name = "here"
base_url = "@URL@/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"#,
    )],
    shell: Some(ShellTool { tool: "exec_command", argument: "cmd" }),
    is_terse: true,
    has_session: true,
    tokens: Some((INPUT_TOKENS, OUTPUT_TOKENS)),
};

pub(super) const COPILOT: RealAgent = RealAgent {
    preset: "copilot",
    program: || peers::npm_agent_of_the_long_run("copilot"),
    runs: InstalledAs::Long,
    is_patient: false,
    model: "gpt-5",
    envs: &[
        ("COPILOT_MODEL", "gpt-5"),
        ("COPILOT_OFFLINE", "true"),
        ("COPILOT_PROVIDER_API_KEY", KEY),
        ("COPILOT_PROVIDER_BASE_URL", "@URL@/v1"),
    ],
    files: &[],
    shell: Some(ShellTool { tool: "bash", argument: "command" }),
    is_terse: true,
    has_session: true,
    tokens: None,
};

pub(super) const OPENCODE: RealAgent = RealAgent {
    preset: "opencode",
    program: || peers::native_agent("", "opencode-", "bin/opencode"),
    runs: InstalledAs::Long,
    is_patient: false,
    model: "here/m",
    envs: &[
        ("MODEL_KEY", KEY),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ],
    files: &[(
        ".config/opencode/opencode.json",
        r#"{"share": "disabled", "provider": {"here": {"npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "@URL@/v1", "apiKey": "{env:MODEL_KEY}"}, "models": {"m": {}}}}}"#,
    )],
    shell: Some(ShellTool { tool: "bash", argument: "command" }),
    is_terse: true,
    has_session: true,
    tokens: Some((INPUT_TOKENS, OUTPUT_TOKENS)),
};

pub(super) const LLM: RealAgent = RealAgent {
    preset: "llm",
    program: || peers::python_agent("llm"),
    runs: InstalledAs::Long,
    is_patient: false,
    model: "here",
    envs: &[("LLM_USER_PATH", "@HOME@/llm"), ("OPENAI_API_KEY", KEY)],
    files: &[(
        "llm/extra-openai-models.yaml",
        "[{model_id: here, model_name: gpt-5, api_base: '@URL@/v1', api_key_name: openai}]",
    )],
    shell: None,
    is_terse: true,
    has_session: false,
    tokens: None,
};

pub(super) const AIDER: RealAgent = RealAgent {
    preset: "aider",
    program: || peers::python_agent("aider"),
    runs: InstalledAs::Long,
    is_patient: true,
    model: "openai/gpt-5",
    envs: &[
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ("OPENAI_API_BASE", "@URL@/v1"),
        ("OPENAI_API_KEY", KEY),
    ],
    files: &[],
    shell: None,
    is_terse: false,
    has_session: false,
    tokens: None,
};
