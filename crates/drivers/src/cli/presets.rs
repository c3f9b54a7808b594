//! What a definition leaves open is settled here, from the preset that it names.

mod known;
mod table;

#[cfg(test)]
#[path = "presets/presets_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use polity_definition::{
    CliAgent, CliTemplate, EnvName, ErrorRule, InputPattern, OutputFormat, OutputParser,
    OutputPattern, PermissionPolicy, Placeholder, Text,
};
use polity_model::failure::ErrorCategory;

use self::known::{Known, KnownRule};
use self::table::known;

/// How a program is called and understood, with nothing left open.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    /// The program, by a path or by a name to look up.
    pub(crate) executable: String,
    /// How to get the program where it is missing, if that is known.
    pub(crate) install: Option<&'static str>,
    /// Its arguments.
    pub(crate) args: Vec<CliTemplate>,
    /// Its arguments where a conversation goes on, if they are others.
    pub(crate) resumed_args: Option<Vec<CliTemplate>>,
    /// The model that it is to use.
    pub(crate) model: Option<String>,
    /// How it takes its input.
    pub(crate) input: Input,
    /// How it gives its output.
    pub(crate) output: Output,
    /// How its output is understood.
    pub(crate) parser: OutputParser,
    /// Variables to set; a value may name another variable as `${NAME}`.
    pub(crate) envs: BTreeMap<String, String>,
    /// Variables that are handed on.
    pub(crate) env_allow: BTreeSet<String>,
    /// Variables that are never handed on.
    pub(crate) env_unset: BTreeSet<String>,
    /// Where it runs, if its definition says so.
    pub(crate) working_directory: Option<String>,
    /// The exit codes of a run that went well.
    pub(crate) success_exit_codes: Vec<i32>,
    /// What other exit codes are known to mean.
    pub(crate) exit_categories: &'static [(i32, ErrorCategory)],
    /// The definition's own rules on messages.
    pub(crate) error_rules: Vec<ErrorRule>,
    /// What else is known of its messages.
    pub(crate) known_rules: &'static [KnownRule],
}

/// How a program takes its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// On stdin.
    Stdin,
    /// As an argument.
    Args,
    /// In a file with this content.
    File(CliTemplate),
    /// As JSON-RPC on stdin.
    JsonRpc,
}

/// How a program gives its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// On stdout.
    Stdout,
    /// In a file at this path; a private one where there is none.
    File(Option<CliTemplate>),
    /// As JSON-RPC on stdout.
    JsonRpc,
}

/// The agent with everything settled. What its definition says counts; variables of a preset are
/// added to its own.
pub(crate) fn filled(agent: &CliAgent) -> Settled {
    let known = agent.preset.map(known);
    let input = input_of(agent, known);
    let (args, resumed_args) = args_of(agent, known, &input);
    let own_envs = agent.envs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let known_envs = known.map_or(&[][..], |known| known.envs).iter().copied();
    let known_allow = known.map_or(&[][..], |known| known.env_allow).iter().copied();
    Settled {
        executable: match (&agent.executable_path, known) {
            (Some(path), _) => path.as_str().to_owned(),
            (None, Some(known)) => known.executable.to_owned(),
            // A definition has one or the other.
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

fn input_of(agent: &CliAgent, known: Option<&Known>) -> Input {
    let pattern = agent.input_pattern.or(known.map(|known| known.input));
    match pattern.unwrap_or(InputPattern::Stdin) {
        InputPattern::Stdin => Input::Stdin,
        InputPattern::Args => Input::Args,
        InputPattern::File => {
            let whole = || CliTemplate::ending_in("", Placeholder::Input);
            Input::File(agent.input_file_template.clone().unwrap_or_else(whole))
        }
        InputPattern::JsonRpc => Input::JsonRpc,
    }
}

fn output_of(agent: &CliAgent) -> Output {
    match agent.output_pattern.unwrap_or(OutputPattern::Stdout) {
        OutputPattern::Stdout => Output::Stdout,
        OutputPattern::File => Output::File(agent.output_file_template.clone()),
        OutputPattern::JsonRpc => Output::JsonRpc,
    }
}

/// The arguments, and those where a conversation goes on.
fn args_of(
    agent: &CliAgent,
    known: Option<&Known>,
    input: &Input,
) -> (Vec<CliTemplate>, Option<Vec<CliTemplate>>) {
    let (known, own) = match (&agent.cli_args, known) {
        (Some(own), _) => return (own.clone(), None),
        (None, None) => return (Vec::new(), None),
        (None, Some(known)) => (known, pattern_of(input) == known.input),
    };
    let allow = match agent.permission_policy {
        PermissionPolicy::Allow => known.allow,
        // A program without a person before it refuses what it would have to ask for.
        PermissionPolicy::Deny | PermissionPolicy::Ask => &[],
    };
    // How the input is named depends on how it is handed over.
    let tail = if own { known.tail } else { &[] };
    let all = |args: &'static [known::Arg]| {
        args.iter().chain(allow).chain(tail).map(known::Arg::settled).collect()
    };
    (all(known.args), known.resumed.map(all))
}

fn pattern_of(input: &Input) -> InputPattern {
    match input {
        Input::Stdin => InputPattern::Stdin,
        Input::Args => InputPattern::Args,
        Input::File(_) => InputPattern::File,
        Input::JsonRpc => InputPattern::JsonRpc,
    }
}
