//! The names of the GenAI semantic conventions, as far as they are used here.
//!
//! The conventions are still in development and their Rust constants are deprecated without a
//! replacement, so they are written out: <https://github.com/open-telemetry/semantic-conventions-genai>.

use polity_definition::LlmProvider;

pub(super) const OPERATION_NAME: &str = "gen_ai.operation.name";
pub(super) const PROVIDER_NAME: &str = "gen_ai.provider.name";
pub(super) const AGENT_NAME: &str = "gen_ai.agent.name";
pub(super) const WORKFLOW_NAME: &str = "gen_ai.workflow.name";
pub(super) const CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub(super) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(super) const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
pub(super) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const SERVER_ADDRESS: &str = "server.address";
pub(super) const SERVER_PORT: &str = "server.port";
pub(super) const ERROR_TYPE: &str = "error.type";

/// The status of a task at the end of its span. The conventions have no name for it.
pub(super) const TASK_STATUS: &str = "polity.task.status";

/// The node of a workflow that a call belongs to. The conventions have no name for it.
pub(super) const WORKFLOW_NODE: &str = "polity.workflow.node";

/// The type of a tool that the program calls and the model only asks for.
pub(super) const TOOL_TYPE_FUNCTION: &str = "function";

/// The error type of a tool that reported a failure.
pub(super) const TOOL_ERROR: &str = "tool_error";

/// The error type of an operation whose process died.
pub(super) const INTERRUPTED: &str = "interrupted";

/// The error type of a call with an uncertain outcome.
pub(super) const IN_DOUBT: &str = "in_doubt";

/// The provider as the conventions spell it. A server that speaks another's format counts as that
/// one; the address tells them apart.
pub(super) fn provider_name(provider: LlmProvider) -> &'static str {
    match provider {
        LlmProvider::OpenAi | LlmProvider::OpenAiCompatible => "openai",
        LlmProvider::Anthropic => "anthropic",
        LlmProvider::Gemini => "gcp.gemini",
        LlmProvider::Ollama => "ollama",
        LlmProvider::Scripted => "scripted",
    }
}
