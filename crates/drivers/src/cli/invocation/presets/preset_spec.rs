//! The types of the preset table.

use polity_definition::{
    CliTemplate, InputPattern, JsonPick, JsonPointer, JsonScalar, OutputFormat, OutputParser,
};
use polity_model::failure::ErrorCategory;

use crate::cli::output::parser::EventRules;

/// The settings of a preset.
#[derive(Debug)]
pub(crate) struct PresetSpec {
    pub(crate) executable: &'static str,
    pub(crate) install: &'static str,
    /// Argument templates, separated by spaces.
    pub(crate) args: &'static str,
    /// Argument templates for resuming a session, if they differ.
    pub(crate) resumed: Option<&'static str>,
    /// Arguments that grant all permissions.
    pub(crate) allow_args: &'static str,
    /// Arguments and variables that withhold all permissions, even if files in the working directory
    /// grant them. Those of the user may.
    pub(crate) withhold_args: &'static str,
    pub(crate) withhold_envs: &'static [(&'static str, &'static str)],
    pub(crate) input: InputPattern,
    /// Trailing arguments that name the input.
    pub(crate) trailing_args: &'static str,
    pub(crate) parser: fn() -> OutputParser,
    pub(crate) event_rules: fn() -> EventRules,
    /// Files and folders of the working directory with code that the program runs whatever its
    /// options. With them, no permission can be withheld.
    pub(crate) folder_code: &'static [&'static str],
    pub(crate) envs: &'static [(&'static str, &'static str)],
    /// Variables to pass on if set.
    pub(crate) env_allow: &'static [&'static str],
    pub(crate) exit_categories: &'static [(i32, ErrorCategory)],
    pub(crate) error_rules: &'static [PresetRule],
}

/// A pattern that marks a run as failed if stdout matches it.
pub(crate) type PresetRule = (&'static str, ErrorCategory);

/// A program that reads stdin and prints its answer as plain text.
pub(crate) const DEFAULT: PresetSpec = PresetSpec {
    executable: "",
    install: "",
    args: "",
    resumed: None,
    allow_args: "",
    withhold_args: "",
    withhold_envs: &[],
    input: InputPattern::Stdin,
    trailing_args: "",
    parser: text,
    event_rules: EventRules::default,
    folder_code: &[],
    envs: &[],
    env_allow: &[],
    exit_categories: &[],
    error_rules: &[],
};

/// The templates of arguments that are separated by spaces.
pub(crate) fn templates(args: &str) -> impl Iterator<Item = CliTemplate> {
    args.split_whitespace().map(|arg| arg.parse().unwrap_or_else(|_| CliTemplate::literal(arg)))
}

/// Parses plain text.
pub(crate) fn text() -> OutputParser {
    OutputParser { strip_ansi: true, ..OutputParser::new(OutputFormat::Text) }
}

/// Parses JSON events, without any field rules.
pub(crate) fn events() -> OutputParser {
    OutputParser::new(OutputFormat::StreamJson)
}

/// Picks the field at a path such as `item/text`, if the fields at other paths have these values.
#[expect(clippy::unnecessary_wraps, reason = "the fields of a parser are optional")]
pub(crate) fn pick(path: &str, when: &[(&str, &str)]) -> Option<JsonPick> {
    let pointer = |path: &str| JsonPointer::to(&path.split('/').collect::<Vec<_>>());
    let when = when.iter().map(|(path, value)| (pointer(path), JsonScalar::new(value)));
    Some(JsonPick { at: pointer(path), when: when.collect() })
}
