//! `scripts/NAME.yaml`: rules of the scripted model.

use std::num::NonZeroU32;

use polity_model::name::Name;
use polity_model::tool::ToolName;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::file::canonical::canonical_form;
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::{DefinitionProblem, FindingText};
use crate::value::{Pattern, regex_reason};

/// Rules of the scripted model; the first that matches answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "script")]
pub(crate) struct ScriptFile {
    /// The rules, tried in order.
    rules: Option<Vec<RuleFile>>,
    /// The answer when no rule matches.
    default: Option<AnswerFile>,
}

/// One rule: a pattern and an answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    /// A regular expression on the newest message. Its groups are usable below as `$1`, `$2`.
    #[schemars(required)]
    when: Option<Pattern>,
    /// The role of the newest message; default any.
    role: Option<ScriptRole>,
    /// The text of the answer.
    reply: Option<String>,
    /// The tools that the model asks for.
    tool_calls: Option<Vec<ScriptToolCallFile>>,
    /// The failure of the call.
    error: Option<ScriptErrorFile>,
    /// The reported usage.
    usage: Option<ScriptUsageFile>,
    /// The delay of the answer, in milliseconds.
    #[schemars(extend("default" = 0))]
    delay_ms: Option<u64>,
    /// The number of times the rule applies in one task; default always.
    times: Option<NonZeroU32>,
}

/// The answer if no rule matches.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerFile {
    /// The text of the answer.
    reply: Option<String>,
    /// The tools that the model asks for.
    tool_calls: Option<Vec<ScriptToolCallFile>>,
    /// The failure of the call.
    error: Option<ScriptErrorFile>,
    /// The reported usage.
    usage: Option<ScriptUsageFile>,
    /// The delay of the answer, in milliseconds.
    #[schemars(extend("default" = 0))]
    delay_ms: Option<u64>,
}

/// One tool that the model asks for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptToolCallFile {
    /// The tool, as `server/tool`.
    tool: ToolName,
    /// Its arguments.
    arguments: Option<Map<String, Value>>,
}

/// A failure of the model.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptErrorFile {
    /// The HTTP status, from 400 to 599.
    #[schemars(range(min = 400, max = 599))]
    status: u16,
    /// After how many seconds the model asks to be called again.
    retry_after_seconds: Option<u64>,
}

/// The reported usage of a call.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptUsageFile {
    /// The tokens that the model read.
    #[schemars(extend("default" = 0))]
    input_tokens: Option<u64>,
    /// The tokens that the model wrote.
    #[schemars(extend("default" = 0))]
    output_tokens: Option<u64>,
}

/// The role of the message a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScriptRole {
    /// The person's.
    User,
    /// The model's own.
    Assistant,
    /// A tool's.
    Tool,
    /// The instruction.
    System,
}

/// Rules of the scripted model, valid and frozen.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptDefinition {
    /// The name of its file.
    pub name: Name,
    /// The rules, tried in order.
    pub rules: Vec<ScriptRule>,
    /// The answer when no rule matches.
    pub default: Option<ScriptAnswer>,
}

/// One rule: a pattern and an answer.
#[derive(Debug, Clone)]
pub struct ScriptRule {
    /// The pattern of the newest message.
    pub when: Regex,
    /// The role of the newest message.
    pub role: Option<ScriptRole>,
    /// The answer.
    pub answer: ScriptAnswer,
    /// The number of times the rule applies in one task.
    pub times: Option<NonZeroU32>,
}

impl PartialEq for ScriptRule {
    fn eq(&self, other: &Self) -> bool {
        self.when.as_str() == other.when.as_str()
            && (self.role, &self.answer, self.times) == (other.role, &other.answer, other.times)
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptAnswer {
    /// A text or tool calls, or a failure.
    pub outcome: ScriptOutcome,
    /// The tokens that the call reports to have read.
    pub input_tokens: Option<u64>,
    /// The tokens that the call reports to have written.
    pub output_tokens: Option<u64>,
    /// The delay of the answer.
    pub delay_ms: u64,
}

/// The outcome of a call of the scripted model.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptOutcome {
    /// With a message.
    Message {
        /// Its text, if any.
        reply: Option<String>,
        /// The tools that it asks for.
        tool_calls: Vec<ScriptToolCall>,
    },
    /// With a failure.
    Error {
        /// The HTTP status.
        status: u16,
        /// After how long the model asks to be called again.
        retry_after_seconds: Option<u64>,
    },
}

/// One tool that the model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptToolCall {
    /// The tool.
    pub tool: ToolName,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

impl ScriptFile {
    pub(crate) fn check(self, name: &Name, checker: &mut FileChecker) -> Option<ScriptDefinition> {
        let root = FieldPath::root();
        // A field that could not be decoded is reported already.
        let no_rules = match &self.rules {
            Some(rules) => rules.is_empty(),
            None => !checker.is_there(&root.field("rules")),
        };
        let no_default = self.default.is_none() && !checker.is_there(&root.field("default"));
        let rules = self.rules.unwrap_or_default();
        if no_rules && no_default {
            let message = "the script says nothing: give it \"rules\", a \"default\", or both";
            checker.report(&root, FindingText::new(message));
        }
        let path = root.field("rules");
        let rules: Vec<_> = rules
            .into_iter()
            .enumerate()
            .map(|(index, rule)| rule.check(&path.index(index), checker))
            .collect();
        let default = self.default.map(|answer| answer.check(&root.field("default"), checker));
        Some(ScriptDefinition {
            name: name.clone(),
            rules: rules.into_iter().collect::<Option<_>>()?,
            default,
        })
    }
}

impl RuleFile {
    fn check(self, path: &FieldPath, checker: &mut FileChecker) -> Option<ScriptRule> {
        let when_path = path.field("when");
        let when = checker.require(&when_path, self.when);
        let when = when.and_then(|pattern| match Regex::new(pattern.as_str()) {
            Ok(regex) => Some(regex),
            Err(error) => {
                let reason = regex_reason(&error);
                let message = format!("{when_path}: not a regular expression: {reason}");
                checker.report(&when_path, FindingText::new(message).found(pattern.as_str()));
                None
            }
        });
        let answer = AnswerFile {
            reply: self.reply,
            tool_calls: self.tool_calls,
            error: self.error,
            usage: self.usage,
            delay_ms: self.delay_ms,
        };
        let answer = answer.check(path, checker);
        Some(ScriptRule { when: when?, role: self.role, answer, times: self.times })
    }
}

impl AnswerFile {
    fn check(self, path: &FieldPath, checker: &mut FileChecker) -> ScriptAnswer {
        let usage = self.usage.unwrap_or_default();
        let says_something = ["reply", "tool_calls", "error"]
            .map(|field| path.field(field))
            .iter()
            .any(|field| checker.is_there(field) && !checker.is_empty(field));
        if !says_something {
            let message = format!("{path} must have a reply, tool_calls or an error");
            checker.report(path, FindingText::new(message).allowed("reply, tool_calls, error"));
        }
        let outcome = match self.error {
            Some(error) => {
                self.check_error(error, path, checker);
                ScriptOutcome::Error {
                    status: error.status,
                    retry_after_seconds: error.retry_after_seconds,
                }
            }
            None => ScriptOutcome::Message {
                reply: self.reply,
                tool_calls: self
                    .tool_calls
                    .unwrap_or_default()
                    .into_iter()
                    .map(|call| ScriptToolCall {
                        tool: call.tool,
                        arguments: call.arguments.unwrap_or_default(),
                    })
                    .collect(),
            },
        };
        ScriptAnswer {
            outcome,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            delay_ms: self.delay_ms.unwrap_or(0),
        }
    }

    fn check_error(&self, error: ScriptErrorFile, path: &FieldPath, checker: &mut FileChecker) {
        let status_path = path.field("error").field("status");
        if !(400..=599).contains(&error.status) {
            let message = format!("{status_path} must be from 400 to 599, found {}", error.status);
            checker.report(&status_path, FindingText::new(message).found(error.status.to_string()));
        }
        if self.reply.is_some() || self.tool_calls.is_some() {
            let message = format!("{path} fails, so it cannot also have a reply or tool_calls");
            checker.report(&path.field("error"), FindingText::new(message));
        }
    }
}

canonical_form!(ScriptDefinition);

impl ScriptDefinition {
    /// Reads a script back from its canonical JSON. A script's name is not part of it.
    pub fn from_canonical(name: &Name, json: &str) -> Result<Self, Vec<DefinitionProblem>> {
        crate::file::from_text(json, |file: ScriptFile, checker| file.check(name, checker))
    }

    fn to_file(&self) -> ScriptFile {
        let rule = |rule: &ScriptRule| {
            let AnswerFile { reply, tool_calls, error, usage, delay_ms } = rule.answer.to_file();
            RuleFile {
                when: rule.when.as_str().parse().ok(),
                role: rule.role,
                reply,
                tool_calls,
                error,
                usage,
                delay_ms,
                times: rule.times,
            }
        };
        ScriptFile {
            rules: Some(self.rules.iter().map(rule).collect()),
            default: self.default.as_ref().map(ScriptAnswer::to_file),
        }
    }
}

impl ScriptAnswer {
    fn to_file(&self) -> AnswerFile {
        let (reply, tool_calls, error) = match &self.outcome {
            ScriptOutcome::Message { reply, tool_calls } => {
                let calls = tool_calls.iter().map(|call| ScriptToolCallFile {
                    tool: call.tool.clone(),
                    arguments: Some(call.arguments.clone()),
                });
                (reply.clone(), Some(calls.collect()), None)
            }
            ScriptOutcome::Error { status, retry_after_seconds } => {
                let (status, retry_after_seconds) = (*status, *retry_after_seconds);
                (None, None, Some(ScriptErrorFile { status, retry_after_seconds }))
            }
        };
        let usage =
            ScriptUsageFile { input_tokens: self.input_tokens, output_tokens: self.output_tokens };
        AnswerFile { reply, tool_calls, error, usage: Some(usage), delay_ms: Some(self.delay_ms) }
    }
}
