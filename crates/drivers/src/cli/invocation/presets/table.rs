//! The presets for well-known CLI agents.
//!
//! Input goes over stdin or a file if the program supports it. Arguments are limited in size,
//! visible to all users of the machine, and parsed as options if they start with a dash.
//!
//! Built-in retries, which may take minutes without output, are disabled as far as possible: Polity
//! retries.

use polity_definition::{CliPreset, InputPattern, OutputParser};
use polity_model::failure::ErrorCategory::{AgentError, Permanent, Transient};

use crate::cli::output::parser::EventRules;

use super::preset_spec::{DEFAULT, PresetSpec, events, pick};

pub(crate) fn preset_spec(preset: CliPreset) -> &'static PresetSpec {
    match preset {
        CliPreset::Claude => &CLAUDE,
        CliPreset::Codex => &CODEX,
        CliPreset::Gemini => &GEMINI,
        CliPreset::Qwen => &QWEN,
        CliPreset::Opencode => &OPENCODE,
        CliPreset::Copilot => &COPILOT,
        CliPreset::Aider => &AIDER,
        CliPreset::Aichat => &AICHAT,
        CliPreset::Llm => &LLM,
    }
}

/// The final event of Claude Code and compatible programs.
const RESULT: &[(&str, &str)] = &[("type", "result")];

/// The events of Claude Code and Qwen Code. Only `is_error` reports a refused key, not `subtype`.
fn claude_events() -> OutputParser {
    OutputParser {
        answer: pick("result", RESULT),
        shown: pick("message/content", &[("type", "assistant")]),
        error: pick("result", &[("type", "result"), ("is_error", "true")]),
        status: pick("subtype", RESULT),
        terminal: pick("type", RESULT),
        session_id: pick("session_id", &[]),
        input_tokens: pick("usage/input_tokens", RESULT),
        output_tokens: pick("usage/output_tokens", RESULT),
        cost: pick("total_cost_usd", RESULT),
        ..events()
    }
}

static CLAUDE: PresetSpec = PresetSpec {
    executable: "claude",
    install: "npm install -g @anthropic-ai/claude-code",
    args: "-p --output-format stream-json --verbose --model {{model}} --resume {{session_id}}",
    allow_args: "--dangerously-skip-permissions",
    // Hooks, helpers and servers in settings of the working directory would run otherwise.
    withhold_args: "--permission-mode default --setting-sources user",
    parser: claude_events,
    envs: &[
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ],
    env_allow: &[
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_OAUTH_TOKEN",
    ],
    ..DEFAULT
};

/// The final event of a successful Codex turn.
const TURN: &[(&str, &str)] = &[("type", "turn.completed")];

static CODEX: PresetSpec = PresetSpec {
    executable: "codex",
    install: "npm install -g @openai/codex",
    args: "exec --json --skip-git-repo-check --model {{model}}",
    resumed: Some("exec resume {{session_id}} --json --skip-git-repo-check --model {{model}}"),
    allow_args: "--dangerously-bypass-approvals-and-sandbox",
    // Commands run, but can change nothing. `exec resume` has no option for the sandbox.
    withhold_args: "-c sandbox_mode=read-only -c approval_policy=never",
    trailing_args: "-",
    // Events and items of type `error` also report problems that Codex recovered from.
    parser: || OutputParser {
        answer: pick("item/text", &[("type", "item.completed"), ("item/type", "agent_message")]),
        error: pick("error/message", &[("type", "turn.failed")]),
        terminal: pick("type", TURN),
        session_id: pick("thread_id", &[("type", "thread.started")]),
        input_tokens: pick("usage/input_tokens", TURN),
        output_tokens: pick("usage/output_tokens", TURN),
        ..events()
    },
    env_allow: &["CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"],
    ..DEFAULT
};

static GEMINI: PresetSpec = PresetSpec {
    executable: "gemini",
    install: "npm install -g @google/gemini-cli",
    args: "--skip-trust -o stream-json -m {{model}}",
    allow_args: "-y",
    withhold_args: "--approval-mode default",
    parser: || OutputParser {
        answer: pick("content", &[("type", "message"), ("role", "assistant")]),
        join_answers: true,
        error: pick("error/message", &[("type", "result"), ("status", "error")]),
        status: pick("status", RESULT),
        terminal: pick("type", RESULT),
        session_id: pick("session_id", &[("type", "init")]),
        input_tokens: pick("stats/input_tokens", RESULT),
        output_tokens: pick("stats/output_tokens", RESULT),
        ..events()
    },
    env_allow: &[
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_GENAI_USE_VERTEXAI",
    ],
    // The exit code is the low byte of the HTTP status: 401 becomes 145. Small codes are the
    // program's own: not signed in, wrong usage.
    exit_categories: &[
        (41, Permanent),
        (42, Permanent),
        (145, Permanent),
        (147, Permanent),
        (148, Permanent),
        (173, Transient),
        (244, Transient),
        (247, Transient),
    ],
    // A looping model is stopped and reported as a success without an answer.
    error_rules: &[(r#"(?m)^\{"type":"error",[^\n]*"message":"Loop detected"#, AgentError)],
    ..DEFAULT
};

static QWEN: PresetSpec = PresetSpec {
    executable: "qwen",
    install: "npm install -g @qwen-code/qwen-code",
    args: "--auth-type openai -o stream-json -m {{model}} --resume {{session_id}}",
    allow_args: "-y",
    // Settings in the working directory could grant everything otherwise, and start hooks, servers
    // and commands that list tools.
    withhold_args: "--approval-mode default --bare",
    parser: claude_events,
    env_allow: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"],
    // API errors end a line of the answer, with exit code 0 and without `is_error`. A part of the
    // real answer may precede them, and advice may follow.
    error_rules: &[
        (r"(?s)\[API Error:.*\]\s*(?:Possible quota limitations|Please wait and try)", Transient),
        (
            r"(?ims)\[API Error:.*(?:\b429\b|\b5\d\d\b|rate.?limit|overloaded|timed? ?out|connection|terminated|socket|network|fetch failed|econn\w+|stream ended|premature).*\][ \t\r]*$",
            Transient,
        ),
        (r"(?ms)\[API Error:.*\][ \t\r]*$", Permanent),
    ],
    ..DEFAULT
};

/// The event at the end of a step of `OpenCode`, which has the usage of this step.
const STEP: &[(&str, &str)] = &[("type", "step_finish")];

static OPENCODE: PresetSpec = PresetSpec {
    executable: "opencode",
    install: "npm install -g opencode-ai",
    args: "run --format json --model {{model}} --session {{session_id}}",
    // Without these, everything is allowed. A file in the working directory can grant permissions to
    // a single mode, so such files are not read.
    withhold_envs: &[
        (
            "OPENCODE_PERMISSION",
            r#"{"*":"deny","read":"allow","list":"allow","glob":"allow","grep":"allow"}"#,
        ),
        ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
        ("OPENCODE_PURE", "1"),
    ],
    // Version 1.18 loads plugins of the working directory in spite of the last two.
    folder_code: &[".opencode", "opencode.json", "opencode.jsonc"],
    // The last step has the reason `stop`.
    parser: || OutputParser {
        answer: pick("part/text", &[("type", "text")]),
        error: pick("error", &[("type", "error")]),
        terminal: pick("type", &[("type", "step_finish"), ("part/reason", "stop")]),
        session_id: pick("sessionID", &[]),
        input_tokens: pick("part/tokens/input", STEP),
        output_tokens: pick("part/tokens/output", STEP),
        cost: pick("part/cost", STEP),
        ..events()
    },
    event_rules: || EventRules {
        sums_usage: true,
        cut: ["length", "content-filter"]
            .into_iter()
            .filter_map(|reason| pick("part/reason", &[STEP[0], ("part/reason", reason)]))
            .collect(),
    },
    envs: &[("OPENCODE_DISABLE_AUTOUPDATE", "1")],
    env_allow: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"],
    ..DEFAULT
};

static COPILOT: PresetSpec = PresetSpec {
    executable: "copilot",
    install: "npm install -g @github/copilot",
    args: "--output-format json --no-auto-update --no-ask-user --model {{model}} \
           --resume={{session_id}}",
    allow_args: "--allow-all-tools",
    withhold_envs: &[("COPILOT_ALLOW_ALL", "false")],
    parser: || OutputParser {
        answer: pick("data/content", &[("type", "assistant.message")]),
        error: pick("data/message", &[("type", "session.error")]),
        status: pick("exitCode", RESULT),
        terminal: pick("type", RESULT),
        session_id: pick("sessionId", RESULT),
        ..events()
    },
    env_allow: &[
        "COPILOT_GITHUB_TOKEN",
        "COPILOT_MODEL",
        "COPILOT_OFFLINE",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BASE_URL",
        "GH_TOKEN",
        "GITHUB_TOKEN",
    ],
    ..DEFAULT
};

static AIDER: PresetSpec = PresetSpec {
    executable: "aider",
    install: "python -m pip install aider-chat",
    args: "--yes-always --no-stream --no-pretty --no-check-update --model {{model}}",
    input: InputPattern::File,
    trailing_args: "--message-file {{input_file}}",
    // `--yes` also accepts the question about sending analytics.
    envs: &[("AIDER_ANALYTICS", "false")],
    env_allow: &[
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENAI_API_BASE",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
    ],
    // The exit code is always 0. A retried error is a failure only if no token count follows it.
    error_rules: &[
        (
            r"(?m)^litellm\.(?:Authentication|PermissionDenied|NotFound|BadRequest|ContextWindowExceeded)\w*Error",
            Permanent,
        ),
        (r"(?m)^litellm\.[^\n]*(?:\n(?:[^T\n][^\n]*|T[^o\n][^\n]*|T)?)*\z", Transient),
    ],
    ..DEFAULT
};

static AICHAT: PresetSpec = PresetSpec {
    executable: "aichat",
    install: "cargo install aichat",
    args: "--model {{model}}",
    env_allow: &["ANTHROPIC_API_KEY", "CLAUDE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"],
    ..DEFAULT
};

static LLM: PresetSpec = PresetSpec {
    executable: "llm",
    install: "python -m pip install llm",
    args: "-m {{model}}",
    env_allow: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "LLM_USER_PATH", "OPENAI_API_KEY"],
    ..DEFAULT
};
