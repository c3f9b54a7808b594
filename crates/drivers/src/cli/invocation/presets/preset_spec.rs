//! The types of the preset table.

use polity_definition::{
    CliPlaceholder, CliTemplate, ErrorStream, InputPattern, JsonPick, JsonPointer, JsonScalar,
    OutputFormat, OutputParser,
};
use polity_model::failure::ErrorCategory;

/// The settings of a preset.
#[derive(Debug)]
pub(crate) struct PresetSpec {
    pub(crate) executable: &'static str,
    pub(crate) install: &'static str,
    pub(crate) args: &'static [PresetArg],
    /// Argument templates for resuming a session, if they differ.
    pub(crate) resumed: Option<&'static [PresetArg]>,
    /// Arguments that grant all permissions.
    pub(crate) allow_args: &'static [PresetArg],
    pub(crate) input: InputPattern,
    /// Trailing arguments that name the input.
    pub(crate) trailing_args: &'static [PresetArg],
    pub(crate) parser: PresetParser,
    pub(crate) envs: &'static [(&'static str, &'static str)],
    /// Variables to pass on if set.
    pub(crate) env_allow: &'static [&'static str],
    pub(crate) exit_categories: &'static [(i32, ErrorCategory)],
    pub(crate) error_rules: &'static [PresetRule],
}

/// An argument template.
#[derive(Debug)]
pub(crate) enum PresetArg {
    Text(&'static str),
    /// A text that ends with a placeholder.
    TextWith(&'static str, CliPlaceholder),
}

impl PresetArg {
    pub(crate) fn to_template(&self) -> CliTemplate {
        match self {
            Self::Text(text) => CliTemplate::literal(text),
            Self::TextWith(text, placeholder) => CliTemplate::ending_in(text, placeholder.clone()),
        }
    }
}

/// A message pattern that marks a run as failed.
#[derive(Debug)]
pub(crate) struct PresetRule {
    pub(crate) pattern: &'static str,
    /// The streams to search.
    pub(crate) stream: ErrorStream,
    pub(crate) category: ErrorCategory,
}

/// A field of a JSON document: its path, and conditions on other fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PresetPick(
    pub(crate) &'static [&'static str],
    pub(crate) &'static [PresetCondition],
);

/// The path of a field, and the value it must have.
pub(crate) type PresetCondition = (&'static [&'static str], &'static str);

impl PresetPick {
    fn to_pick(self) -> JsonPick {
        let when = self.1.iter().map(|(at, text)| (JsonPointer::to(at), JsonScalar::new(text)));
        JsonPick { at: JsonPointer::to(self.0), when: when.collect() }
    }
}

/// Parser rules of a preset.
#[derive(Debug)]
pub(crate) struct PresetParser {
    pub(crate) format: OutputFormat,
    pub(crate) strip_ansi: bool,
    pub(crate) answer: Option<PresetPick>,
    pub(crate) join_answers: bool,
    pub(crate) shown: Option<PresetPick>,
    pub(crate) error: Option<PresetPick>,
    pub(crate) status: Option<PresetPick>,
    pub(crate) terminal: Option<PresetPick>,
    pub(crate) session_id: Option<PresetPick>,
    pub(crate) input_tokens: Option<PresetPick>,
    pub(crate) output_tokens: Option<PresetPick>,
    pub(crate) cost: Option<PresetPick>,
}

/// Plain text.
pub(crate) const TEXT: PresetParser = PresetParser {
    format: OutputFormat::Text,
    strip_ansi: true,
    answer: None,
    join_answers: false,
    shown: None,
    error: None,
    status: None,
    terminal: None,
    session_id: None,
    input_tokens: None,
    output_tokens: None,
    cost: None,
};

/// JSON events without any field rules.
pub(crate) const EVENTS: PresetParser =
    PresetParser { format: OutputFormat::StreamJson, strip_ansi: false, ..TEXT };

impl PresetParser {
    pub(crate) fn to_parser(&self) -> OutputParser {
        let pick = |at: Option<PresetPick>| at.map(PresetPick::to_pick);
        OutputParser {
            format: self.format,
            strip_ansi: self.strip_ansi,
            answer: pick(self.answer),
            join_answers: self.join_answers,
            shown: pick(self.shown),
            error: pick(self.error),
            status: pick(self.status),
            terminal: pick(self.terminal),
            session_id: pick(self.session_id),
            input_tokens: pick(self.input_tokens),
            output_tokens: pick(self.output_tokens),
            cost: pick(self.cost),
        }
    }
}
