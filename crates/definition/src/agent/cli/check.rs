//! CLI agents: the rules between fields.

use std::num::NonZeroU64;

use super::parser::OutputFormat;
use super::template::{CliPlaceholder, CliTemplate};
use super::{AgentMode, CliAgent, CliPreset, InputPattern, OutputPattern, PermissionPolicy};
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::EnvName;

/// Reports contradicting fields.
pub(super) fn check(agent: &CliAgent, checker: &mut FileChecker) {
    check_args(agent, checker);
    check_output_file(agent, checker);
    check_input_file(agent, checker);
    check_model(agent, checker);
    check_parser(agent, checker);
    check_conversation(agent, checker);
    check_timeouts(agent, checker);
    check_variables(agent, checker);
    let path = FieldPath::root().field("success_exit_codes");
    if checker.is_empty(&path) {
        checker
            .report(&path, FindingText::new("success_exit_codes must name at least one exit code"));
    }
}

impl CliAgent {
    /// The problem with the permission policy, if nothing enforces it.
    pub fn policy_problem(&self) -> Option<String> {
        let policy = match self.permission_policy {
            PermissionPolicy::Allow => return None,
            PermissionPolicy::Deny => "deny",
            PermissionPolicy::Ask => "ask",
        };
        let variables = self.preset.map_or(&[][..], CliPreset::policy_variables);
        if let Some(name) = variables.iter().find(|name| self.changes_variable(name)) {
            return Some(format!(
                "permission_policy is {policy}, but envs, env_allow or env_unset changes {name}, on \
                 which it depends; remove {name} there, or set permission_policy to allow"
            ));
        }
        match (self.preset, &self.cli_args) {
            (Some(preset), None) if preset.can_withhold_permissions() => None,
            (Some(preset), None) => Some(format!(
                "permission_policy is {policy}, but the preset {preset} can enforce only allow: the \
                 program acts without asking; set it to allow"
            )),
            // It depends on the program whether it asks.
            (None, _) | (Some(_), Some(_)) if policy == "ask" => None,
            (None, _) => Some(format!(
                "permission_policy is {policy}, but only a preset can enforce it; remove it, and \
                 restrict the program by its own options in cli_args"
            )),
            (Some(preset), Some(_)) => Some(format!(
                "permission_policy is {policy}, but cli_args replaces the arguments of the preset \
                 {preset} that enforce it; remove one of them"
            )),
        }
    }
}

impl CliAgent {
    /// True if the definition sets or removes a variable.
    fn changes_variable(&self, name: &str) -> bool {
        let is_same = |own: &EnvName| own.as_str() == name;
        self.envs.keys().chain(&self.env_allow).chain(&self.env_unset).any(is_same)
    }
}

fn args(agent: &CliAgent) -> &[CliTemplate] {
    agent.cli_args.as_deref().unwrap_or_default()
}

fn check_args(agent: &CliAgent, checker: &mut FileChecker) {
    let all = FieldPath::root().field("cli_args");
    for (index, arg) in args(agent).iter().enumerate() {
        // Options written as a mapping have no argument numbers.
        let path = if checker.is_list(&all) { all.index(index) } else { all.clone() };
        refuse_variable(
            arg,
            &path,
            "anyone on the machine can read arguments, so name the variable in envs or env_allow, \
             from where the program reads it; a shell reads $NAME too",
            checker,
        );
        checker.refuse_secret_argument(&path, arg.as_str(), "envs");
        for placeholder in arg.placeholders() {
            if let Some(needed) = pattern_needed(agent, placeholder) {
                refuse_placeholder(placeholder, &path, needed, checker);
            }
        }
    }
}

/// The pattern without which a placeholder in an argument means nothing, if it is not there.
fn pattern_needed(agent: &CliAgent, placeholder: &CliPlaceholder) -> Option<&'static str> {
    let missing = |there: bool, needed| (!there).then_some(needed);
    match placeholder {
        CliPlaceholder::Input => {
            missing(agent.input_pattern == Some(InputPattern::Args), "the input pattern args")
        }
        CliPlaceholder::InputFile => {
            missing(agent.input_pattern == Some(InputPattern::File), "the input pattern file")
        }
        CliPlaceholder::OutputFile => {
            missing(agent.output_pattern == Some(OutputPattern::File), "the output pattern file")
        }
        CliPlaceholder::Workdir
        | CliPlaceholder::Model
        | CliPlaceholder::SessionId
        | CliPlaceholder::Parameter(_) => None,
    }
}

fn check_input_file(agent: &CliAgent, checker: &mut FileChecker) {
    let path = FieldPath::root().field("input_file_template");
    let Some(template) = &agent.input_file_template else { return };
    let output_file = CliPlaceholder::OutputFile;
    if template.names(&output_file) && agent.output_pattern != Some(OutputPattern::File) {
        refuse_placeholder(&output_file, &path, "the output pattern file", checker);
    }
}

fn check_output_file(agent: &CliAgent, checker: &mut FileChecker) {
    let path = FieldPath::root().field("output_file_template");
    let Some(template) = &agent.output_file_template else { return };
    refuse_variable(template, &path, "write {{param.NAME}} or the path itself", checker);
    if template.leads_up() && !checker.is_pinned() {
        let message = format!(
            "{path}: \"..\" would lead out of the working directory, and Polity removes an older file \
             of this name before a run; write a path in the working directory, or an absolute one"
        );
        checker.report(&path, FindingText::new(message));
    }
    for placeholder in template.placeholders() {
        match placeholder {
            CliPlaceholder::Workdir | CliPlaceholder::Model | CliPlaceholder::Parameter(_) => {}
            CliPlaceholder::Input
            | CliPlaceholder::InputFile
            | CliPlaceholder::OutputFile
            | CliPlaceholder::SessionId => {
                let message = format!("{path}: {placeholder} cannot be part of the path");
                let allowed = "{{workdir}}, {{model}}, {{param.NAME}}";
                checker.report(&path, FindingText::new(message).allowed(allowed));
            }
        }
    }
}

fn refuse_placeholder(
    placeholder: &CliPlaceholder,
    path: &FieldPath,
    needed: &str,
    checker: &mut FileChecker,
) {
    let message = format!("{path}: {placeholder} has a meaning only with {needed}");
    checker.report(path, FindingText::new(message));
}

fn refuse_variable(
    template: &CliTemplate,
    path: &FieldPath,
    instead: &str,
    checker: &mut FileChecker,
) {
    if let Some(name) = template.variable() {
        let message = format!("{path}: ${{{name}}} is not filled in here; {instead}");
        checker.report(path, FindingText::new(message));
    }
}

fn check_model(agent: &CliAgent, checker: &mut FileChecker) {
    let templates = args(agent).iter().chain(&agent.input_file_template);
    let is_named =
        templates.chain(&agent.output_file_template).any(|t| t.names(&CliPlaceholder::Model));
    let by_preset = agent.preset.is_some() && agent.cli_args.is_none();
    checker.refuse_unless(
        is_named || by_preset,
        &FieldPath::root().field("model"),
        "with {{model}} in cli_args",
    );
}

fn check_parser(agent: &CliAgent, checker: &mut FileChecker) {
    let path = FieldPath::root().field("parser");
    let by_rpc = agent.output_pattern == Some(OutputPattern::JsonRpc);
    checker.refuse_unless(!by_rpc, &path, "with the output patterns stdout and file");
    let Some(parser) = &agent.parser else { return };
    let structured = match parser.format {
        OutputFormat::Text => false,
        OutputFormat::Json | OutputFormat::Jsonl | OutputFormat::StreamJson => true,
    };
    for field in [
        "answer",
        "shown",
        "error",
        "status",
        "terminal",
        "session_id",
        "input_tokens",
        "output_tokens",
        "cost",
    ] {
        checker.refuse_unless(structured, &path.field(field), "with a format other than text");
    }
    if structured {
        let answer = path.field("answer");
        checker.require_when(&answer, parser.answer.as_ref(), "with a format other than text");
    }
    if parser.join_answers {
        checker.refuse_unless(
            structured,
            &path.field("join_answers"),
            "with a format other than text",
        );
    }
}

/// A conversation needs one process, or the CLI agent's session id.
fn check_conversation(agent: &CliAgent, checker: &mut FileChecker) {
    let root = FieldPath::root();
    let interactive = agent.mode == AgentMode::Interactive;
    let when = "with the mode interactive";
    checker.refuse_unless(interactive, &root.field("session_timeout"), when);
    let keep_alive = root.field("keep_alive");
    if agent.keep_alive {
        checker.refuse_unless(interactive, &keep_alive, when);
        let by_pipe = match agent.input_pattern {
            Some(InputPattern::Stdin | InputPattern::JsonRpc) | None => true,
            Some(InputPattern::Args | InputPattern::File) => false,
        };
        checker.refuse_unless(by_pipe, &keep_alive, "with the input patterns stdin and json-rpc");
    }
    let names_session = args(agent).iter().any(|arg| arg.names(&CliPlaceholder::SessionId));
    let gives_session = agent.parser.as_ref().is_some_and(|parser| parser.session_id.is_some());
    let by_preset = agent.preset.is_some();
    let goes_on = agent.keep_alive || by_preset || (names_session && gives_session);
    if interactive && !goes_on {
        let message = "mode is interactive, but nothing says how a conversation goes on: set \
                       keep_alive to true, or name {{session_id}} in cli_args and set \
                       parser.session_id";
        checker.report(&root.field("mode"), FindingText::new(message));
    }
}

fn check_timeouts(agent: &CliAgent, checker: &mut FileChecker) {
    let total = agent.timeout_seconds;
    for (field, given) in [
        ("start_timeout", agent.start_timeout_seconds),
        ("idle_timeout", agent.idle_timeout_seconds),
    ] {
        if let Some(given) = given.filter(|given| *given > total) {
            report_timeout(field, given, total, checker);
        }
    }
}

fn report_timeout(field: &str, given: NonZeroU64, total: NonZeroU64, checker: &mut FileChecker) {
    let message = format!("{field} is {given}, but timeout ends the run after {total} seconds");
    let finding = FindingText::new(message).found(given.to_string());
    checker.report(&FieldPath::root().field(field), finding.allowed(format!("1 to {total}")));
}

fn check_variables(agent: &CliAgent, checker: &mut FileChecker) {
    for (name, value) in &agent.envs {
        let path = FieldPath::root().field("envs").field(name.as_str());
        checker.refuse_secret(&path, name.as_str(), value);
    }
    let path = FieldPath::root().field("env_unset");
    for (index, name) in agent.env_unset.iter().enumerate() {
        let elsewhere = if agent.envs.contains_key(name) {
            "envs"
        } else if agent.env_allow.contains(name) {
            "env_allow"
        } else {
            continue;
        };
        let message =
            format!("env_unset: {name} is also in {elsewhere}; take it out of one of them");
        checker.report(&path.index(index), FindingText::new(message).found(name.as_str()));
    }
}
