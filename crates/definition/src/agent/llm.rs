//! Agents that are a language model with tools.

use std::borrow::Cow;
use std::num::{NonZeroU32, NonZeroU64};

use polity_model::budget::Budget;
use polity_model::name::Name;
use polity_model::number::{Temperature, Usd};
use polity_model::tool::{SUB_AGENT_SERVER, ToolName, ToolPattern};
use polity_model::usage::Cost;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::AgentIdentity;
use super::a2a::A2aEndpointFile;
use super::output_schema::OutputSchema;
use crate::file::checker::{FileChecker, NameReference};
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::{EnvName, HttpUrl, Text};
use crate::{nonzero_u32, nonzero_u64};

const MAX_ITERATIONS_DEFAULT: NonZeroU32 = nonzero_u32(10);
const TOOL_RETRIES_DEFAULT: u32 = 3;
const MAX_RETRY_SECONDS_DEFAULT: u32 = 600;
const TIMEOUT_SECONDS_DEFAULT: NonZeroU64 = nonzero_u64(120);
const TOTAL_TIMEOUT_SECONDS_DEFAULT: NonZeroU64 = nonzero_u64(3600);

/// A language model with tools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LlmAgentFile {
    /// The agent's name; the same as the name of its file.
    #[schemars(required)]
    pub(crate) name: Option<Name>,
    /// The agent's role in a few words, for people and other agents.
    #[schemars(required)]
    role: Option<Text>,
    /// The instruction that opens each of the agent's conversations.
    #[schemars(required)]
    system_prompt: Option<Text>,
    /// The tools it may use, each `server/tool`, or `server/*` for all tools of a server.
    #[schemars(extend("default" = [], "uniqueItems" = true))]
    tools: Option<Vec<ToolPattern>>,
    /// The iteration limit: model calls with tools, per task.
    #[schemars(extend("default" = MAX_ITERATIONS_DEFAULT))]
    max_iterations: Option<NonZeroU32>,
    /// The sampling temperature, from 0 to 2.
    #[schemars(extend("default" = 0.7))]
    temperature: Option<Temperature>,
    /// The model and its provider.
    #[schemars(required)]
    llm_config: Option<LlmConfigFile>,
    /// The sub-agents it may delegate to.
    #[schemars(extend("default" = [], "uniqueItems" = true))]
    sub_agents: Option<Vec<Name>>,
    /// The tools that wait for a person's approval before each call; `agent/NAME` is a sub-agent.
    #[schemars(extend("default" = [], "uniqueItems" = true))]
    approval: Option<Vec<ToolPattern>>,
    /// A JSON Schema that the final answer must satisfy.
    output_schema: Option<Map<String, Value>>,
    /// The reaction to an answer that is cut at the model's output limit, refused or filtered.
    #[schemars(extend("default" = TruncationPolicy::Fail))]
    on_truncation: Option<TruncationPolicy>,
    /// The budget of one task, sub-agents included.
    budget: Option<Budget>,
    /// The retry limit after transient failures; default 3 for a tool call. A model call has none
    /// by default: it is retried for `max_retry_seconds`.
    max_retries: Option<u32>,
    /// The time in which a model call is retried after its first transient failure, in seconds: 429,
    /// 5xx, a refused connection, a cut answer, a timeout; 0 for no retry.
    #[schemars(extend("default" = MAX_RETRY_SECONDS_DEFAULT))]
    max_retry_seconds: Option<u32>,
    /// The agent's A2A endpoint.
    pub(crate) a2a: Option<A2aEndpointFile>,
}

/// The model and its provider.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LlmConfigFile {
    /// The provider. `scripted` is a deterministic model read from a file in scripts/.
    #[schemars(required)]
    provider: Option<LlmProvider>,
    /// The base address of the API. Required for `openai_compatible`; others have a default.
    endpoint: Option<HttpUrl>,
    /// The model's identifier. Needed for every provider but `scripted`.
    model: Option<Text>,
    /// The environment variable that holds the API key; each provider has its usual one.
    api_key_env: Option<EnvName>,
    /// The idle time of a model call, in seconds: the longest wait for the first or the next piece
    /// of the answer.
    #[schemars(extend("default" = TIMEOUT_SECONDS_DEFAULT))]
    timeout_seconds: Option<NonZeroU64>,
    /// The total time of a model call, in seconds.
    #[schemars(extend("default" = TOTAL_TIMEOUT_SECONDS_DEFAULT))]
    total_timeout_seconds: Option<NonZeroU64>,
    /// The price of the model, for budgets and reports.
    price: Option<TokenPrice>,
    /// The name of a file in scripts/, for the provider `scripted` only.
    script: Option<Name>,
}

/// A provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Provider")]
pub enum LlmProvider {
    /// The `OpenAI` API.
    #[serde(rename = "openai")]
    OpenAi,
    /// The Anthropic API.
    Anthropic,
    /// The Gemini API.
    Gemini,
    /// A local Ollama server.
    Ollama,
    /// Any server that speaks the `OpenAI` API.
    #[serde(rename = "openai_compatible")]
    OpenAiCompatible,
    /// A deterministic model that follows a script.
    Scripted,
}

impl LlmProvider {
    /// The provider as files spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::OpenAiCompatible => "openai_compatible",
            Self::Scripted => "scripted",
        }
    }
}

/// The reaction to an answer that is not whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TruncationPolicy {
    /// Fail the task and keep the text as its partial result.
    #[default]
    Fail,
    /// Take the text as the answer.
    Accept,
    /// Ask the model to continue an answer that was cut at its output limit, and join the parts.
    Continue,
}

/// The price of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Price")]
pub struct TokenPrice {
    /// US dollars for a million tokens that the model reads.
    pub input_per_million_usd: Usd,
    /// US dollars for a million tokens that the model writes.
    pub output_per_million_usd: Usd,
}

impl TokenPrice {
    /// The price of a model that is free per token.
    pub const FREE: Self =
        Self { input_per_million_usd: Usd::ZERO, output_per_million_usd: Usd::ZERO };

    /// The cost of this many tokens.
    pub fn of(&self, input_tokens: u64, output_tokens: u64) -> Cost {
        let mut cost = Cost::of_tokens(input_tokens, self.input_per_million_usd.get());
        cost += Cost::of_tokens(output_tokens, self.output_per_million_usd.get());
        cost
    }
}

/// A language model with tools, valid and frozen.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmAgent {
    /// The identity of the agent.
    pub identity: AgentIdentity,
    /// The tools it may use.
    pub tools: Vec<ToolPattern>,
    /// The iteration limit: model calls with tools, per task.
    pub max_iterations: NonZeroU32,
    /// The sampling temperature.
    pub temperature: Temperature,
    /// The model and its provider.
    pub llm_config: LlmConfig,
    /// The sub-agents it may delegate to.
    pub sub_agents: Vec<Name>,
    /// The tools that wait for a person's approval before each call.
    pub approval: Vec<ToolPattern>,
    /// A JSON Schema that the final answer must satisfy.
    pub output_schema: Option<OutputSchema>,
    /// The reaction to an answer that is not whole.
    pub on_truncation: TruncationPolicy,
    /// The budget of one task.
    pub budget: Option<Budget>,
    /// The retry limit of each model call and tool call, if one is set.
    pub max_retries: Option<u32>,
    /// The time in which a model call is retried after its first transient failure.
    pub max_retry_seconds: u32,
}

/// The model and its provider.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmConfig {
    /// The provider.
    pub provider: LlmProvider,
    /// The base address of the API; always there for `openai_compatible`.
    pub endpoint: Option<HttpUrl>,
    /// The model's identifier; always there unless the provider is scripted.
    pub model: Option<Text>,
    /// The environment variable that holds the API key.
    pub api_key_env: Option<EnvName>,
    /// The idle time of a model call.
    pub timeout_seconds: NonZeroU64,
    /// The total time of a model call.
    pub total_timeout_seconds: NonZeroU64,
    /// The price of the model.
    pub price: Option<TokenPrice>,
    /// The script; there exactly when the provider is scripted.
    pub script: Option<Name>,
}

impl LlmAgentFile {
    pub(super) fn check(self, checker: &mut FileChecker) -> Option<LlmAgent> {
        let root = FieldPath::root();
        let role = checker.require(&root.field("role"), self.role);
        let prompt_path = root.field("system_prompt");
        let system_prompt = checker.require(&prompt_path, self.system_prompt);
        if let Some(prompt) = &system_prompt {
            checker.refuse_secret_in_prompt(&prompt_path, prompt.as_str());
        }
        let config_path = root.field("llm_config");
        let llm_config = checker
            .require(&config_path, self.llm_config)
            .and_then(|config| config.check(&config_path, checker));
        let tools = self.tools.unwrap_or_default();
        checker.refuse_repeats(&root.field("tools"), &tools);
        let sub_agents = self.sub_agents.unwrap_or_default();
        checker.refuse_repeats(&root.field("sub_agents"), &sub_agents);
        for (index, tool) in tools.iter().enumerate() {
            if tool.server() == SUB_AGENT_SERVER {
                let message = format!("tools: \"{tool}\" is no tool; name agents in sub_agents");
                checker.report(
                    &root.field("tools").index(index),
                    FindingText::new(message).found(tool.as_str()),
                );
                continue;
            }
            let server = NameReference::Server(tool.server().to_owned());
            checker.refer(root.field("tools").index(index), server);
        }
        for (index, name) in sub_agents.iter().enumerate() {
            let path = root.field("sub_agents").index(index);
            checker.refer(path, NameReference::Agent(name.clone()));
        }
        let approval = self.approval.unwrap_or_default();
        check_approval(&approval, &tools, &sub_agents, checker);
        check_budget(self.budget, checker);
        let output_schema = self
            .output_schema
            .and_then(|schema| OutputSchema::read(schema, &root.field("output_schema"), checker));
        Some(LlmAgent {
            identity: AgentIdentity {
                name: self.name?,
                role: role?,
                system_prompt: system_prompt?,
            },
            tools,
            max_iterations: self.max_iterations.unwrap_or(MAX_ITERATIONS_DEFAULT),
            temperature: self.temperature.unwrap_or(Temperature::DEFAULT),
            llm_config: llm_config?,
            sub_agents,
            approval,
            output_schema,
            on_truncation: self.on_truncation.unwrap_or_default(),
            budget: self.budget,
            max_retries: self.max_retries,
            max_retry_seconds: self.max_retry_seconds.unwrap_or(MAX_RETRY_SECONDS_DEFAULT),
        })
    }
}

/// A slip in `approval` would let a tool run unasked, so each entry must cover a tool of the agent.
fn check_approval(
    approval: &[ToolPattern],
    tools: &[ToolPattern],
    sub_agents: &[Name],
    checker: &mut FileChecker,
) {
    let path = FieldPath::root().field("approval");
    checker.refuse_repeats(&path, approval);
    if checker.has_wrong_items(&FieldPath::root().field("tools")) {
        return;
    }
    for (index, wanted) in approval.iter().enumerate() {
        let covers_sub_agent =
            sub_agents.iter().any(|name| wanted.covers(&ToolName::of_sub_agent(name)));
        if !covers_sub_agent && !tools.iter().any(|tool| tool.overlaps(wanted)) {
            let message = format!("approval: \"{wanted}\" is none of the agent's tools");
            checker.report(
                &path.index(index),
                FindingText::new(message).one_of(wanted.as_str(), tools),
            );
        }
    }
}

/// A budget without a limit would look like one.
fn check_budget(budget: Option<Budget>, checker: &mut FileChecker) {
    let path = FieldPath::root().field("budget");
    // An invalid limit is reported already.
    if budget.is_some() && checker.is_empty(&path) {
        let message = "budget limits nothing: give max_cost_usd or max_tokens";
        checker.report(&path, FindingText::new(message.to_owned()));
    }
}

impl LlmConfigFile {
    fn check(self, path: &FieldPath, checker: &mut FileChecker) -> Option<LlmConfig> {
        let provider = checker.require(&path.field("provider"), self.provider)?;
        let scripted = provider == LlmProvider::Scripted;
        if scripted {
            let when = "when the provider is scripted";
            checker.require_when(&path.field("script"), self.script.as_ref(), when);
        } else {
            let when = format!("when the provider is {}", provider.as_str());
            checker.require_when(&path.field("model"), self.model.as_ref(), &when);
        }
        if provider == LlmProvider::OpenAiCompatible {
            let when = "when the provider is openai_compatible";
            checker.require_when(&path.field("endpoint"), self.endpoint.as_ref(), when);
        }
        checker.refuse_unless(scripted, &path.field("script"), "when the provider is scripted");
        if let Some(script) = self.script.as_ref().filter(|_| scripted) {
            checker.refer(path.field("script"), NameReference::Script(script.clone()));
        }
        Some(LlmConfig {
            provider,
            endpoint: self.endpoint,
            model: self.model,
            api_key_env: self.api_key_env,
            timeout_seconds: self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS_DEFAULT),
            total_timeout_seconds: self
                .total_timeout_seconds
                .unwrap_or(TOTAL_TIMEOUT_SECONDS_DEFAULT),
            price: self.price,
            script: self.script,
        })
    }
}

impl LlmConfig {
    fn to_file(&self) -> LlmConfigFile {
        LlmConfigFile {
            provider: Some(self.provider),
            endpoint: self.endpoint.clone(),
            model: self.model.clone(),
            api_key_env: self.api_key_env.clone(),
            timeout_seconds: Some(self.timeout_seconds),
            total_timeout_seconds: Some(self.total_timeout_seconds),
            price: self.price,
            script: self.script.clone(),
        }
    }
}

impl LlmAgent {
    /// The retry limit of a tool call, and of listing the tools.
    pub fn tool_retries_max(&self) -> u32 {
        self.max_retries.unwrap_or(TOOL_RETRIES_DEFAULT)
    }

    /// The instruction that opens each conversation: the system prompt and the output format.
    pub fn instruction(&self) -> Cow<'_, str> {
        let prompt = self.identity.system_prompt.as_str();
        match &self.output_schema {
            None => Cow::Borrowed(prompt),
            Some(schema) => Cow::Owned(format!("{prompt}\n\n{}", schema.instruction())),
        }
    }

    pub(super) fn to_file(&self, name: Option<Name>, a2a: Option<A2aEndpointFile>) -> LlmAgentFile {
        LlmAgentFile {
            name,
            role: Some(self.identity.role.clone()),
            system_prompt: Some(self.identity.system_prompt.clone()),
            tools: Some(self.tools.clone()),
            max_iterations: Some(self.max_iterations),
            temperature: Some(self.temperature),
            llm_config: Some(self.llm_config.to_file()),
            sub_agents: Some(self.sub_agents.clone()),
            approval: Some(self.approval.clone()),
            output_schema: self.output_schema.as_ref().map(|schema| schema.json().clone()),
            on_truncation: Some(self.on_truncation),
            budget: self.budget,
            max_retries: self.max_retries,
            max_retry_seconds: Some(self.max_retry_seconds),
            a2a,
        }
    }
}
