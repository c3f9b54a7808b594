//! Resolves an agent's definition against its preset.

mod preset_spec;
mod table;

#[cfg(test)]
#[path = "presets/presets_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use polity_definition::{
    CliAgent, CliPlaceholder, CliTemplate, EnvName, ErrorRule, InputPattern, OutputFormat,
    OutputParser, OutputPattern, PermissionPolicy, Text,
};
use polity_model::failure::ErrorCategory;

use self::preset_spec::{PresetArg, PresetErrorRule, PresetSpec};
use self::table::preset_spec;

/// An agent's settings with all defaults of its preset filled in.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedAgent {
    /// The executable: a path, or a name to look up in the PATH.
    pub(crate) executable: String,
    /// An install command for the executable, if known.
    pub(crate) install: Option<&'static str>,
    /// Argument templates.
    pub(crate) args: Vec<CliTemplate>,
    /// Argument templates for resuming a session, if they differ.
    pub(crate) resumed_args: Option<Vec<CliTemplate>>,
    /// The model to use.
    pub(crate) model: Option<String>,
    /// The input mode.
    pub(crate) input: InputMode,
    /// The output mode.
    pub(crate) output: OutputMode,
    /// Rules for parsing the output.
    pub(crate) parser: OutputParser,
    /// Variables to set; a value may refer to another variable as `${NAME}`.
    pub(crate) envs: BTreeMap<String, String>,
    /// Variables to pass on from this process.
    pub(crate) env_allow: BTreeSet<String>,
    /// Variables to remove.
    pub(crate) env_unset: BTreeSet<String>,
    /// The working directory from the definition.
    pub(crate) working_directory: Option<String>,
    /// The exit codes of a successful run.
    pub(crate) success_exit_codes: Vec<i32>,
    /// Error categories of known exit codes.
    pub(crate) exit_categories: &'static [(i32, ErrorCategory)],
    /// The error rules of the definition.
    pub(crate) error_rules: Vec<ErrorRule>,
    /// The error rules of the preset.
    pub(crate) known_rules: &'static [PresetErrorRule],
}

/// The way a CLI agent receives its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputMode {
    /// On stdin.
    Stdin,
    /// As an argument.
    Args,
    /// In a file with this content.
    File(CliTemplate),
    /// As JSON-RPC on stdin.
    JsonRpc,
}

/// The way a CLI agent returns its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputMode {
    /// On stdout.
    Stdout,
    /// In a file at this path; `None` means a private file.
    File(Option<CliTemplate>),
    /// As JSON-RPC on stdout.
    JsonRpc,
}

/// Resolves an agent's settings. The definition overrides the preset; environment variables of both
/// are merged.
pub(crate) fn filled(agent: &CliAgent) -> ResolvedAgent {
    let known = agent.preset.map(preset_spec);
    let input = input_of(agent, known);
    let (args, resumed_args) = args_of(agent, known, &input);
    let own_envs = agent.envs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let known_envs = known.map_or(&[][..], |known| known.envs).iter().copied();
    let known_allow = known.map_or(&[][..], |known| known.env_allow).iter().copied();
    ResolvedAgent {
        executable: match (&agent.executable_path, known) {
            (Some(path), _) => path.as_str().to_owned(),
            (None, Some(known)) => known.executable.to_owned(),
            // A valid definition has one of them.
            (None, None) => String::new(),
        },
        install: known.filter(|_| agent.executable_path.is_none()).map(|known| known.install),
        args,
        resumed_args,
        model: agent.model.as_ref().map(|model| model.as_str().to_owned()),
        input,
        output: output_of(agent),
        parser: match (&agent.parser, known) {
            (Some(parser), _) => parser.clone(),
            (None, Some(known)) => known.parser.settled(),
            (None, None) => OutputParser::new(OutputFormat::Text),
        },
        envs: known_envs.chain(own_envs).map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        env_allow: names(&agent.env_allow).chain(known_allow).map(str::to_owned).collect(),
        env_unset: names(&agent.env_unset).map(str::to_owned).collect(),
        working_directory: agent.working_directory.as_ref().map(Text::as_str).map(str::to_owned),
        success_exit_codes: agent.success_exit_codes.clone(),
        exit_categories: known.map_or(&[], |known| known.exit_categories),
        error_rules: agent.error_rules.clone(),
        known_rules: known.map_or(&[], |known| known.rules),
    }
}

fn names(names: &[EnvName]) -> impl Iterator<Item = &str> {
    names.iter().map(EnvName::as_str)
}

fn input_of(agent: &CliAgent, known: Option<&PresetSpec>) -> InputMode {
    let pattern = agent.input_pattern.or(known.map(|known| known.input));
    match pattern.unwrap_or(InputPattern::Stdin) {
        InputPattern::Stdin => InputMode::Stdin,
        InputPattern::Args => InputMode::Args,
        InputPattern::File => {
            let whole = || CliTemplate::ending_in("", CliPlaceholder::Input);
            InputMode::File(agent.input_file_template.clone().unwrap_or_else(whole))
        }
        InputPattern::JsonRpc => InputMode::JsonRpc,
    }
}

fn output_of(agent: &CliAgent) -> OutputMode {
    match agent.output_pattern.unwrap_or(OutputPattern::Stdout) {
        OutputPattern::Stdout => OutputMode::Stdout,
        OutputPattern::File => OutputMode::File(agent.output_file_template.clone()),
        OutputPattern::JsonRpc => OutputMode::JsonRpc,
    }
}

/// The argument templates, and those for resuming a session.
fn args_of(
    agent: &CliAgent,
    known: Option<&PresetSpec>,
    input: &InputMode,
) -> (Vec<CliTemplate>, Option<Vec<CliTemplate>>) {
    let (known, own) = match (&agent.cli_args, known) {
        (Some(own), _) => return (own.clone(), None),
        (None, None) => return (Vec::new(), None),
        (None, Some(known)) => (known, pattern_of(input) == known.input),
    };
    let allow = match agent.permission_policy {
        PermissionPolicy::Allow => known.allow,
        // A CLI agent without a terminal refuses whatever it would have to ask for.
        PermissionPolicy::Deny | PermissionPolicy::Ask => &[],
    };
    // The preset's last arguments fit only its own input mode.
    let tail = if own { known.tail } else { &[] };
    let all = |args: &'static [PresetArg]| {
        args.iter().chain(allow).chain(tail).map(PresetArg::settled).collect()
    };
    (all(known.args), known.resumed.map(all))
}

fn pattern_of(input: &InputMode) -> InputPattern {
    match input {
        InputMode::Stdin => InputPattern::Stdin,
        InputMode::Args => InputPattern::Args,
        InputMode::File(_) => InputPattern::File,
        InputMode::JsonRpc => InputPattern::JsonRpc,
    }
}
