//! Resolves an agent's definition against its preset.

mod preset_spec;
mod table;

#[cfg(test)]
#[path = "presets/presets_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use polity_definition::{
    CliAgent, CliPlaceholder, CliPreset, CliTemplate, EmptyOutputPolicy, EnvName, ErrorRule,
    InputPattern, OutputFormat, OutputParser, OutputPattern, PermissionPolicy, ScriptProgram, Text,
};
use polity_model::failure::ErrorCategory;

use self::preset_spec::{PresetRule, PresetSpec, templates};
pub(crate) use self::table::preset_spec;
use crate::cli::output::parser::EventRules;

/// An agent's settings with all defaults of its preset filled in.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedAgent {
    /// The executable: a path, or a name to look up in the PATH.
    pub(crate) executable: String,
    /// An install command for the executable, if known.
    pub(crate) install: Option<&'static str>,
    pub(crate) args: Vec<CliTemplate>,
    /// Argument templates for resuming a session, if they differ.
    pub(crate) resumed_args: Option<Vec<CliTemplate>>,
    pub(crate) model: Option<String>,
    pub(crate) input: InputMode,
    pub(crate) output: OutputMode,
    pub(crate) parser: OutputParser,
    /// The rules of the preset's own parser.
    pub(crate) event_rules: EventRules,
    /// Variables to set; a value may refer to another variable as `${NAME}`.
    pub(crate) envs: BTreeMap<String, String>,
    /// Variables to pass on from this process.
    pub(crate) env_allow: BTreeSet<String>,
    /// Variables to remove.
    pub(crate) env_unset: BTreeSet<String>,
    pub(crate) working_directory: Option<String>,
    /// The exit codes of a successful run.
    pub(crate) success_exit_codes: Vec<i32>,
    /// The reaction to a run that went well and printed nothing.
    pub(crate) empty_output: EmptyOutputPolicy,
    /// Error categories of known exit codes.
    pub(crate) exit_categories: &'static [(i32, ErrorCategory)],
    pub(crate) error_rules: Vec<ErrorRule>,
    /// The reason that the permission policy does not hold, if nothing enforces it.
    pub(crate) policy_problem: Option<String>,
    /// The names of the variables on which the permission policy depends.
    pub(crate) policy_envs: BTreeSet<String>,
    /// Files and folders of the working directory that defeat the permission policy.
    pub(crate) folder_code: &'static [&'static str],
    pub(crate) preset_rules: &'static [PresetRule],
    /// The script of a workflow's node that the agent runs.
    pub(crate) script: Option<ScriptProgram>,
}

/// The way a CLI agent receives its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputMode {
    Stdin,
    Args,
    /// In a file with this content.
    File(CliTemplate),
    JsonRpc,
}

/// The way a CLI agent returns its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputMode {
    Stdout,
    /// In a file at this path; `None` means a private file.
    File(Option<CliTemplate>),
    JsonRpc,
}

/// Resolves an agent's settings. The definition overrides the preset; variables are merged.
pub(crate) fn resolve(agent: &CliAgent) -> ResolvedAgent {
    let preset = agent.preset.map(preset_spec);
    let input = input_mode(agent, preset);
    let (args, resumed_args) = resolve_args(agent, preset, &input);
    let own_envs = agent.envs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let preset_envs = preset.map_or(&[][..], |preset| preset.envs).iter().copied();
    let withholding = match agent.permission_policy {
        PermissionPolicy::Allow => None,
        PermissionPolicy::Deny | PermissionPolicy::Ask => preset,
    };
    let withhold_envs = withholding.map_or(&[][..], |preset| preset.withhold_envs).iter().copied();
    let preset_allow = preset.map_or(&[][..], |preset| preset.env_allow).iter().copied();
    ResolvedAgent {
        executable: match (&agent.executable_path, preset) {
            (Some(path), _) => path.as_str().to_owned(),
            (None, Some(preset)) => preset.executable.to_owned(),
            // A valid definition has one of them.
            (None, None) => String::new(),
        },
        install: preset.filter(|_| agent.executable_path.is_none()).map(|preset| preset.install),
        args,
        resumed_args,
        model: agent.model.as_ref().map(|model| model.as_str().to_owned()),
        input,
        output: output_mode(agent),
        parser: match (&agent.parser, preset) {
            (Some(parser), _) => parser.clone(),
            (None, Some(preset)) => (preset.parser)(),
            (None, None) => OutputParser::new(OutputFormat::Text),
        },
        event_rules: preset
            .filter(|_| agent.parser.is_none())
            .map_or_else(EventRules::default, |preset| (preset.event_rules)()),
        envs: preset_envs
            .chain(own_envs)
            // The policy is also the agent's own setting.
            .chain(withhold_envs)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        env_allow: names(&agent.env_allow).chain(preset_allow).map(str::to_owned).collect(),
        env_unset: names(&agent.env_unset).map(str::to_owned).collect(),
        working_directory: agent.working_directory.as_ref().map(Text::as_str).map(str::to_owned),
        success_exit_codes: agent.success_exit_codes.clone(),
        empty_output: agent.empty_output,
        exit_categories: preset.map_or(&[], |preset| preset.exit_categories),
        error_rules: agent.error_rules.clone(),
        policy_problem: agent.policy_problem(),
        policy_envs: agent
            .preset
            .filter(|_| withholding.is_some())
            .map_or(&[][..], CliPreset::policy_variables)
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        // With arguments of its own, `ask` depends on the program.
        folder_code: withholding
            .filter(|_| agent.cli_args.is_none())
            .map_or(&[], |preset| preset.folder_code),
        preset_rules: preset.map_or(&[], |preset| preset.error_rules),
        script: agent.script.clone(),
    }
}

fn names(names: &[EnvName]) -> impl Iterator<Item = &str> {
    names.iter().map(EnvName::as_str)
}

fn input_mode(agent: &CliAgent, preset: Option<&PresetSpec>) -> InputMode {
    let pattern = agent.input_pattern.or(preset.map(|preset| preset.input));
    match pattern.unwrap_or(InputPattern::Stdin) {
        InputPattern::Stdin => InputMode::Stdin,
        InputPattern::Args => InputMode::Args,
        InputPattern::File => {
            let input_only = || CliTemplate::ending_in("", CliPlaceholder::Input);
            InputMode::File(agent.input_file_template.clone().unwrap_or_else(input_only))
        }
        InputPattern::JsonRpc => InputMode::JsonRpc,
    }
}

fn output_mode(agent: &CliAgent) -> OutputMode {
    match agent.output_pattern.unwrap_or(OutputPattern::Stdout) {
        OutputPattern::Stdout => OutputMode::Stdout,
        OutputPattern::File => OutputMode::File(agent.output_file_template.clone()),
        OutputPattern::JsonRpc => OutputMode::JsonRpc,
    }
}

/// The argument templates, and those for resuming a session.
fn resolve_args(
    agent: &CliAgent,
    preset: Option<&PresetSpec>,
    input: &InputMode,
) -> (Vec<CliTemplate>, Option<Vec<CliTemplate>>) {
    let (preset, is_own_input) = match (&agent.cli_args, preset) {
        (Some(own), _) => return (own.clone(), None),
        (None, None) => return (Vec::new(), None),
        (None, Some(preset)) => (preset, input_pattern(input) == preset.input),
    };
    let policy = match agent.permission_policy {
        PermissionPolicy::Allow => preset.allow_args,
        // Without a terminal, a CLI agent refuses actions that need approval.
        PermissionPolicy::Deny | PermissionPolicy::Ask => preset.withhold_args,
    };
    // The preset's last arguments fit only its own input mode.
    let tail = if is_own_input { preset.trailing_args } else { "" };
    let all = |args: &str| [args, policy, tail].into_iter().flat_map(templates).collect();
    (all(preset.args), preset.resumed.map(all))
}

fn input_pattern(input: &InputMode) -> InputPattern {
    match input {
        InputMode::Stdin => InputPattern::Stdin,
        InputMode::Args => InputPattern::Args,
        InputMode::File(_) => InputPattern::File,
        InputMode::JsonRpc => InputPattern::JsonRpc,
    }
}
