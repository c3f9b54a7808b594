//! The settings of known programs.
//!
//! The input goes over stdin or through a file wherever the program reads one: an argument has a
//! largest size, can be read by everyone on the machine, and is an option if it begins with a dash.
//! Programs that try again by themselves, silently and for minutes, are kept from it where they
//! can be: trying again is Polity's.

use polity_definition::{CliPreset, ErrorStream, InputPattern, Placeholder};
use polity_model::failure::ErrorCategory::{AgentError, Permanent, Transient};

use super::known::{Arg, At, EVENTS, Known, KnownParser, KnownRule, TEXT};

use Arg::{Is, With};

const MODEL: Arg = With("", Placeholder::Model);
const SESSION: Arg = With("", Placeholder::SessionId);

/// What is known of a program.
pub(super) fn known(preset: CliPreset) -> &'static Known {
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

/// The event that ends a run of Claude Code, and of those who print the same.
const RESULT: &[super::known::When] = &[(&["type"], "result")];

/// What Claude Code prints, and Qwen Code does too. A refused key is told by `is_error` alone:
/// `subtype` says `success`.
const CLAUDE_EVENTS: KnownParser = KnownParser {
    answer: Some(At(&["result"], RESULT)),
    shown: Some(At(&["message", "content"], &[(&["type"], "assistant")])),
    error: Some(At(&["result"], &[(&["type"], "result"), (&["is_error"], "true")])),
    status: Some(At(&["subtype"], RESULT)),
    terminal: Some(At(&["type"], RESULT)),
    session_id: Some(At(&["session_id"], &[])),
    input_tokens: Some(At(&["usage", "input_tokens"], RESULT)),
    output_tokens: Some(At(&["usage", "output_tokens"], RESULT)),
    cost: Some(At(&["total_cost_usd"], RESULT)),
    ..EVENTS
};

static CLAUDE: Known = Known {
    executable: "claude",
    install: "npm install -g @anthropic-ai/claude-code",
    args: &[
        Is("-p"),
        Is("--output-format"),
        Is("stream-json"),
        Is("--verbose"),
        Is("--model"),
        MODEL,
        Is("--resume"),
        SESSION,
    ],
    resumed: None,
    allow: &[Is("--dangerously-skip-permissions")],
    input: InputPattern::Stdin,
    tail: &[],
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
    rules: &[],
};

/// The event that ends a turn of Codex that went well.
const TURN: &[super::known::When] = &[(&["type"], "turn.completed")];

static CODEX: Known = Known {
    executable: "codex",
    install: "npm install -g @openai/codex",
    args: &[Is("exec"), Is("--json"), Is("--skip-git-repo-check"), Is("--model"), MODEL],
    resumed: Some(&[
        Is("exec"),
        Is("resume"),
        SESSION,
        Is("--json"),
        Is("--skip-git-repo-check"),
        Is("--model"),
        MODEL,
    ]),
    allow: &[Is("--dangerously-bypass-approvals-and-sandbox")],
    input: InputPattern::Stdin,
    tail: &[Is("-")],
    // Events of the type `error`, and items of it, also tell of what it got over by itself.
    parser: KnownParser {
        answer: Some(At(
            &["item", "text"],
            &[(&["type"], "item.completed"), (&["item", "type"], "agent_message")],
        )),
        error: Some(At(&["error", "message"], &[(&["type"], "turn.failed")])),
        terminal: Some(At(&["type"], TURN)),
        session_id: Some(At(&["thread_id"], &[(&["type"], "thread.started")])),
        input_tokens: Some(At(&["usage", "input_tokens"], TURN)),
        output_tokens: Some(At(&["usage", "output_tokens"], TURN)),
        ..EVENTS
    },
    envs: &[],
    env_allow: &["CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"],
    exit_categories: &[],
    rules: &[],
};

static GEMINI: Known = Known {
    executable: "gemini",
    install: "npm install -g @google/gemini-cli",
    args: &[Is("--skip-trust"), Is("-o"), Is("stream-json"), Is("-m"), MODEL],
    resumed: None,
    allow: &[Is("-y")],
    input: InputPattern::Stdin,
    tail: &[],
    parser: KnownParser {
        answer: Some(At(&["content"], &[(&["type"], "message"), (&["role"], "assistant")])),
        join_answers: true,
        error: Some(At(&["error", "message"], &[(&["type"], "result"), (&["status"], "error")])),
        status: Some(At(&["status"], RESULT)),
        terminal: Some(At(&["type"], RESULT)),
        session_id: Some(At(&["session_id"], &[(&["type"], "init")])),
        input_tokens: Some(At(&["stats", "input_tokens"], RESULT)),
        output_tokens: Some(At(&["stats", "output_tokens"], RESULT)),
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
    // It exits with the HTTP status, of which eight bits are left: 401 is 145. The small ones are
    // its own: no way to sign in, and wrong usage.
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
    // It stops a model that repeats itself, and calls that a success without an answer.
    rules: &[KnownRule {
        pattern: r#"(?m)^\{"type":"error",[^\n]*"message":"Loop detected"#,
        stream: ErrorStream::Stdout,
        category: AgentError,
    }],
};

static QWEN: Known = Known {
    executable: "qwen",
    install: "npm install -g @qwen-code/qwen-code",
    args: &[
        Is("--auth-type"),
        Is("openai"),
        Is("-o"),
        Is("stream-json"),
        Is("-m"),
        MODEL,
        Is("--resume"),
        SESSION,
    ],
    resumed: None,
    allow: &[Is("-y")],
    input: InputPattern::Stdin,
    tail: &[],
    parser: CLAUDE_EVENTS,
    envs: &[],
    env_allow: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"],
    exit_categories: &[],
    // What the server refused is its answer, with exit code 0 and without `is_error`.
    rules: &[
        KnownRule {
            pattern: r"(?is)\A\[API Error:.*(?:\b429\b|\b5\d\d\b|rate.?limit|overloaded|timed? ?out|connection)",
            stream: ErrorStream::Stdout,
            category: Transient,
        },
        KnownRule { pattern: r"\A\[API Error:", stream: ErrorStream::Stdout, category: Permanent },
    ],
};

static OPENCODE: Known = Known {
    executable: "opencode",
    install: "npm install -g opencode-ai",
    args: &[Is("run"), Is("--format"), Is("json"), Is("--model"), MODEL, Is("--session"), SESSION],
    resumed: None,
    allow: &[],
    input: InputPattern::Stdin,
    tail: &[],
    // It counts tokens by step and has no event that ends a run.
    parser: KnownParser {
        answer: Some(At(&["part", "text"], &[(&["type"], "text")])),
        error: Some(At(&["error"], &[(&["type"], "error")])),
        session_id: Some(At(&["sessionID"], &[])),
        ..EVENTS
    },
    envs: &[("OPENCODE_DISABLE_AUTOUPDATE", "1")],
    env_allow: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"],
    exit_categories: &[],
    rules: &[],
};

static COPILOT: Known = Known {
    executable: "copilot",
    install: "npm install -g @github/copilot",
    args: &[
        Is("--output-format"),
        Is("json"),
        Is("--no-auto-update"),
        Is("--no-ask-user"),
        Is("--model"),
        MODEL,
        With("--resume=", Placeholder::SessionId),
    ],
    resumed: None,
    allow: &[Is("--allow-all-tools")],
    input: InputPattern::Stdin,
    tail: &[],
    parser: KnownParser {
        answer: Some(At(&["data", "content"], &[(&["type"], "assistant.message")])),
        error: Some(At(&["data", "message"], &[(&["type"], "session.error")])),
        status: Some(At(&["exitCode"], RESULT)),
        terminal: Some(At(&["type"], RESULT)),
        session_id: Some(At(&["sessionId"], RESULT)),
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
    rules: &[],
};

static AIDER: Known = Known {
    executable: "aider",
    install: "python -m pip install aider-chat",
    args: &[
        Is("--yes-always"),
        Is("--no-stream"),
        Is("--no-pretty"),
        Is("--no-check-update"),
        Is("--model"),
        MODEL,
    ],
    resumed: None,
    allow: &[],
    input: InputPattern::File,
    tail: &[Is("--message-file"), With("", Placeholder::InputFile)],
    parser: TEXT,
    // It answers yes to all of its questions, also to whether it may tell others of its use.
    envs: &[("AIDER_ANALYTICS", "false")],
    env_allow: &[
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENAI_API_BASE",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
    ],
    exit_categories: &[],
    // It exits with 0 whatever the server says. What it tries again by itself is a failure only if
    // no line of counted tokens comes after it.
    rules: &[
        KnownRule {
            pattern: r"(?m)^litellm\.(?:Authentication|PermissionDenied|NotFound|BadRequest|ContextWindowExceeded)\w*Error",
            stream: ErrorStream::Stdout,
            category: Permanent,
        },
        KnownRule {
            pattern: r"(?m)^litellm\.[^\n]*(?:\n(?:[^T\n][^\n]*|T[^o\n][^\n]*|T)?)*\z",
            stream: ErrorStream::Stdout,
            category: Transient,
        },
    ],
};

static AICHAT: Known = Known {
    executable: "aichat",
    install: "cargo install aichat",
    args: &[Is("--model"), MODEL],
    resumed: None,
    allow: &[],
    input: InputPattern::Stdin,
    tail: &[],
    parser: TEXT,
    envs: &[],
    env_allow: &["ANTHROPIC_API_KEY", "CLAUDE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"],
    exit_categories: &[],
    rules: &[],
};

static LLM: Known = Known {
    executable: "llm",
    install: "python -m pip install llm",
    args: &[Is("-m"), MODEL],
    resumed: None,
    allow: &[],
    input: InputPattern::Stdin,
    tail: &[],
    parser: TEXT,
    envs: &[],
    env_allow: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "LLM_USER_PATH", "OPENAI_API_KEY"],
    exit_categories: &[],
    rules: &[],
};
