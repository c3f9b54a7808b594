//! The form in which the settings of known programs are written down.

use polity_definition::{
    CliTemplate, ErrorStream, InputPattern, JsonPick, JsonPointer, JsonScalar, OutputFormat,
    OutputParser, Placeholder,
};
use polity_model::failure::ErrorCategory;

/// What is known of a program.
#[derive(Debug)]
pub(super) struct Known {
    /// The name of its executable.
    pub(super) executable: &'static str,
    /// How to get it.
    pub(super) install: &'static str,
    /// Its arguments.
    pub(super) args: &'static [Arg],
    /// Its arguments where a conversation goes on, if they are others.
    pub(super) resumed: Option<&'static [Arg]>,
    /// The arguments that grant it whatever it would ask for.
    pub(super) allow: &'static [Arg],
    /// How it takes its input.
    pub(super) input: InputPattern,
    /// The last arguments, which say where its input is.
    pub(super) tail: &'static [Arg],
    /// How its output is understood.
    pub(super) parser: KnownParser,
    /// Variables to set.
    pub(super) envs: &'static [(&'static str, &'static str)],
    /// Variables that it gets where they are set.
    pub(super) env_allow: &'static [&'static str],
    /// What exit codes mean, where it is more than that it failed.
    pub(super) exit_categories: &'static [(i32, ErrorCategory)],
    /// What its messages mean.
    pub(super) rules: &'static [KnownRule],
}

/// One argument.
#[derive(Debug)]
pub(super) enum Arg {
    /// As it is.
    Is(&'static str),
    /// With something filled in at its end.
    With(&'static str, Placeholder),
}

impl Arg {
    pub(super) fn settled(&self) -> CliTemplate {
        match self {
            Self::Is(text) => CliTemplate::literal(text),
            Self::With(text, placeholder) => CliTemplate::ending_in(text, placeholder.clone()),
        }
    }
}

/// What a message of a program means. A run in which one is found has failed.
#[derive(Debug)]
pub(crate) struct KnownRule {
    /// A regular expression.
    pub(crate) pattern: &'static str,
    /// Where such messages stand.
    pub(crate) stream: ErrorStream,
    /// The kind of failure.
    pub(crate) category: ErrorCategory,
}

/// Where something stands: the steps to it, and what must stand elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct At(pub(super) &'static [&'static str], pub(super) &'static [When]);

/// The steps to a place, and what must stand there.
pub(super) type When = (&'static [&'static str], &'static str);

impl At {
    fn settled(self) -> JsonPick {
        let when = self.1.iter().map(|(at, text)| (JsonPointer::to(at), JsonScalar::new(text)));
        JsonPick { at: JsonPointer::to(self.0), when: when.collect() }
    }
}

/// How the output of a program is understood.
#[derive(Debug)]
pub(super) struct KnownParser {
    pub(super) format: OutputFormat,
    pub(super) strip_ansi: bool,
    pub(super) answer: Option<At>,
    pub(super) join_answers: bool,
    pub(super) shown: Option<At>,
    pub(super) error: Option<At>,
    pub(super) status: Option<At>,
    pub(super) terminal: Option<At>,
    pub(super) session_id: Option<At>,
    pub(super) input_tokens: Option<At>,
    pub(super) output_tokens: Option<At>,
    pub(super) cost: Option<At>,
}

/// Plain text.
pub(super) const TEXT: KnownParser = KnownParser {
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

/// Events, of which nothing is known.
pub(super) const EVENTS: KnownParser =
    KnownParser { format: OutputFormat::StreamJson, strip_ansi: false, ..TEXT };

impl KnownParser {
    pub(super) fn settled(&self) -> OutputParser {
        let pick = |at: Option<At>| at.map(At::settled);
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
