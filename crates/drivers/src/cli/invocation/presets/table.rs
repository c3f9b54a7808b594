//! The presets for well-known CLI agents.
//!
//! Input goes over stdin or a file if the program supports it. Arguments are limited in size,
//! visible to all users of the machine, and parsed as options if they start with a dash.
//!
//! Built-in retries, which may take minutes without output, are disabled as far as possible: Polity
//! retries.

use polity_definition::{CliPlaceholder, CliPreset, ErrorStream, InputPattern};
use polity_model::failure::ErrorCategory::{AgentError, Permanent, Transient};

use super::preset_spec::{
    EVENTS, PresetArg, PresetCondition, PresetParser, PresetPick, PresetRule, PresetSpec, TEXT,
};

use PresetArg::{Text, TextWith};

const MODEL: PresetArg = TextWith("", CliPlaceholder::Model);
const SESSION: PresetArg = TextWith("", CliPlaceholder::SessionId);

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
const RESULT: &[PresetCondition] = &[(&["type"], "result")];

/// The events of Claude Code and Qwen Code. Only `is_error` reports a refused key, not `subtype`.
const CLAUDE_EVENTS: PresetParser = PresetParser {
    answer: Some(PresetPick(&["result"], RESULT)),
    shown: Some(PresetPick(&["message", "content"], &[(&["type"], "assistant")])),
    error: Some(PresetPick(&["result"], &[(&["type"], "result"), (&["is_error"], "true")])),
    status: Some(PresetPick(&["subtype"], RESULT)),
    terminal: Some(PresetPick(&["type"], RESULT)),
    session_id: Some(PresetPick(&["session_id"], &[])),
    input_tokens: Some(PresetPick(&["usage", "input_tokens"], RESULT)),
    output_tokens: Some(PresetPick(&["usage", "output_tokens"], RESULT)),
    cost: Some(PresetPick(&["total_cost_usd"], RESULT)),
    ..EVENTS
};

static CLAUDE: PresetSpec = PresetSpec {
    executable: "claude",
    install: "npm install -g @anthropic-ai/claude-code",
    args: &[
        Text("-p"),
        Text("--output-format"),
        Text("stream-json"),
        Text("--verbose"),
        Text("--model"),
        MODEL,
        Text("--resume"),
        SESSION,
    ],
    resumed: None,
    allow_args: &[Text("--dangerously-skip-permissions")],
    input: InputPattern::Stdin,
    trailing_args: &[],
    parser: CLAUDE_EVENTS,
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
    exit_categories: &[],
    error_rules: &[],
};

/// The final event of a successful Codex turn.
const TURN: &[PresetCondition] = &[(&["type"], "turn.completed")];

static CODEX: PresetSpec = PresetSpec {
    executable: "codex",
    install: "npm install -g @openai/codex",
    args: &[Text("exec"), Text("--json"), Text("--skip-git-repo-check"), Text("--model"), MODEL],
    resumed: Some(&[
        Text("exec"),
        Text("resume"),
        SESSION,
        Text("--json"),
        Text("--skip-git-repo-check"),
        Text("--model"),
        MODEL,
    ]),
    allow_args: &[Text("--dangerously-bypass-approvals-and-sandbox")],
    input: InputPattern::Stdin,
    trailing_args: &[Text("-")],
    // Events and items of type `error` also report problems that Codex recovered from.
    parser: PresetParser {
        answer: Some(PresetPick(
            &["item", "text"],
            &[(&["type"], "item.completed"), (&["item", "type"], "agent_message")],
        )),
        error: Some(PresetPick(&["error", "message"], &[(&["type"], "turn.failed")])),
        terminal: Some(PresetPick(&["type"], TURN)),
        session_id: Some(PresetPick(&["thread_id"], &[(&["type"], "thread.started")])),
        input_tokens: Some(PresetPick(&["usage", "input_tokens"], TURN)),
        output_tokens: Some(PresetPick(&["usage", "output_tokens"], TURN)),
        ..EVENTS
    },
    envs: &[],
    env_allow: &["CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"],
    exit_categories: &[],
    error_rules: &[],
};

static GEMINI: PresetSpec = PresetSpec {
    executable: "gemini",
    install: "npm install -g @google/gemini-cli",
    args: &[Text("--skip-trust"), Text("-o"), Text("stream-json"), Text("-m"), MODEL],
    resumed: None,
    allow_args: &[Text("-y")],
    input: InputPattern::Stdin,
    trailing_args: &[],
    parser: PresetParser {
        answer: Some(PresetPick(&["content"], &[(&["type"], "message"), (&["role"], "assistant")])),
        join_answers: true,
        error: Some(PresetPick(
            &["error", "message"],
            &[(&["type"], "result"), (&["status"], "error")],
        )),
        status: Some(PresetPick(&["status"], RESULT)),
        terminal: Some(PresetPick(&["type"], RESULT)),
        session_id: Some(PresetPick(&["session_id"], &[(&["type"], "init")])),
        input_tokens: Some(PresetPick(&["stats", "input_tokens"], RESULT)),
        output_tokens: Some(PresetPick(&["stats", "output_tokens"], RESULT)),
        ..EVENTS
    },
    envs: &[],
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
    error_rules: &[PresetRule {
        pattern: r#"(?m)^\{"type":"error",[^\n]*"message":"Loop detected"#,
        stream: ErrorStream::Stdout,
        category: AgentError,
    }],
};

static QWEN: PresetSpec = PresetSpec {
    executable: "qwen",
    install: "npm install -g @qwen-code/qwen-code",
    args: &[
        Text("--auth-type"),
        Text("openai"),
        Text("-o"),
        Text("stream-json"),
        Text("-m"),
        MODEL,
        Text("--resume"),
        SESSION,
    ],
    resumed: None,
    allow_args: &[Text("-y")],
    input: InputPattern::Stdin,
    trailing_args: &[],
    parser: CLAUDE_EVENTS,
    envs: &[],
    env_allow: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"],
    exit_categories: &[],
    // API errors are returned as the answer, with exit code 0 and without `is_error`.
    error_rules: &[
        PresetRule {
            pattern: r"(?is)\A\[API Error:.*(?:\b429\b|\b5\d\d\b|rate.?limit|overloaded|timed? ?out|connection)",
            stream: ErrorStream::Stdout,
            category: Transient,
        },
        PresetRule { pattern: r"\A\[API Error:", stream: ErrorStream::Stdout, category: Permanent },
    ],
};

static OPENCODE: PresetSpec = PresetSpec {
    executable: "opencode",
    install: "npm install -g opencode-ai",
    args: &[
        Text("run"),
        Text("--format"),
        Text("json"),
        Text("--model"),
        MODEL,
        Text("--session"),
        SESSION,
    ],
    resumed: None,
    allow_args: &[],
    input: InputPattern::Stdin,
    trailing_args: &[],
    // Tokens are counted per step, and no event ends a run.
    parser: PresetParser {
        answer: Some(PresetPick(&["part", "text"], &[(&["type"], "text")])),
        error: Some(PresetPick(&["error"], &[(&["type"], "error")])),
        session_id: Some(PresetPick(&["sessionID"], &[])),
        ..EVENTS
    },
    envs: &[("OPENCODE_DISABLE_AUTOUPDATE", "1")],
    env_allow: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"],
    exit_categories: &[],
    error_rules: &[],
};

static COPILOT: PresetSpec = PresetSpec {
    executable: "copilot",
    install: "npm install -g @github/copilot",
    args: &[
        Text("--output-format"),
        Text("json"),
        Text("--no-auto-update"),
        Text("--no-ask-user"),
        Text("--model"),
        MODEL,
        TextWith("--resume=", CliPlaceholder::SessionId),
    ],
    resumed: None,
    allow_args: &[Text("--allow-all-tools")],
    input: InputPattern::Stdin,
    trailing_args: &[],
    parser: PresetParser {
        answer: Some(PresetPick(&["data", "content"], &[(&["type"], "assistant.message")])),
        error: Some(PresetPick(&["data", "message"], &[(&["type"], "session.error")])),
        status: Some(PresetPick(&["exitCode"], RESULT)),
        terminal: Some(PresetPick(&["type"], RESULT)),
        session_id: Some(PresetPick(&["sessionId"], RESULT)),
        ..EVENTS
    },
    envs: &[],
    env_allow: &[
        "COPILOT_GITHUB_TOKEN",
        "COPILOT_MODEL",
        "COPILOT_OFFLINE",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BASE_URL",
        "GH_TOKEN",
        "GITHUB_TOKEN",
    ],
    exit_categories: &[],
    error_rules: &[],
};

static AIDER: PresetSpec = PresetSpec {
    executable: "aider",
    install: "python -m pip install aider-chat",
    args: &[
        Text("--yes-always"),
        Text("--no-stream"),
        Text("--no-pretty"),
        Text("--no-check-update"),
        Text("--model"),
        MODEL,
    ],
    resumed: None,
    allow_args: &[],
    input: InputPattern::File,
    trailing_args: &[Text("--message-file"), TextWith("", CliPlaceholder::InputFile)],
    parser: TEXT,
    // `--yes` also accepts the question about sending analytics.
    envs: &[("AIDER_ANALYTICS", "false")],
    env_allow: &[
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENAI_API_BASE",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
    ],
    exit_categories: &[],
    // The exit code is always 0. A retried error is a failure only if no token count follows it.
    error_rules: &[
        PresetRule {
            pattern: r"(?m)^litellm\.(?:Authentication|PermissionDenied|NotFound|BadRequest|ContextWindowExceeded)\w*Error",
            stream: ErrorStream::Stdout,
            category: Permanent,
        },
        PresetRule {
            pattern: r"(?m)^litellm\.[^\n]*(?:\n(?:[^T\n][^\n]*|T[^o\n][^\n]*|T)?)*\z",
            stream: ErrorStream::Stdout,
            category: Transient,
        },
    ],
};

static AICHAT: PresetSpec = PresetSpec {
    executable: "aichat",
    install: "cargo install aichat",
    args: &[Text("--model"), MODEL],
    resumed: None,
    allow_args: &[],
    input: InputPattern::Stdin,
    trailing_args: &[],
    parser: TEXT,
    envs: &[],
    env_allow: &["ANTHROPIC_API_KEY", "CLAUDE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"],
    exit_categories: &[],
    error_rules: &[],
};

static LLM: PresetSpec = PresetSpec {
    executable: "llm",
    install: "python -m pip install llm",
    args: &[Text("-m"), MODEL],
    resumed: None,
    allow_args: &[],
    input: InputPattern::Stdin,
    trailing_args: &[],
    parser: TEXT,
    envs: &[],
    env_allow: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "LLM_USER_PATH", "OPENAI_API_KEY"],
    exit_categories: &[],
    error_rules: &[],
};
