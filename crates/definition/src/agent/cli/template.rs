//! Texts with placeholders, filled in when a process starts. Inserted values are not expanded
//! again, and no shell sees them.

use std::fmt;
use std::sync::Arc;

use polity_model::value::excerpt;
use serde::{Deserialize, Serialize};

use crate::value::compiled_text;
use crate::value::suggest::nearest;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// The prefix of a task parameter's name.
const PARAMETER: &str = "param.";

/// A well-formed text with placeholders such as `{{prompt}}`. `{{{{` is a literal `{{`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CliTemplate(Arc<CompiledCliTemplate>);

struct CompiledCliTemplate {
    text: Box<str>,
    pieces: Box<[CliTemplatePart]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CliTemplatePart {
    Literal(Box<str>),
    Placeholder(CliPlaceholder),
}

compiled_text!(CliTemplate, { "type": "string" });

/// A placeholder of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CliPlaceholder {
    /// The input.
    Input,
    /// The folder in which it runs.
    Workdir,
    /// The path of the file that has the input.
    InputFile,
    /// The path of the file that the output is read from.
    OutputFile,
    /// The model that it is to use.
    Model,
    /// The CLI agent's own session id.
    SessionId,
    /// A named value that came with the task.
    Parameter(Box<str>),
}

/// The placeholders that have one name. `{{input}}` is the same as `{{prompt}}`.
const NAMED: [(&str, CliPlaceholder); 7] = [
    ("prompt", CliPlaceholder::Input),
    ("input", CliPlaceholder::Input),
    ("workdir", CliPlaceholder::Workdir),
    ("input_file", CliPlaceholder::InputFile),
    ("output_file", CliPlaceholder::OutputFile),
    ("model", CliPlaceholder::Model),
    ("session_id", CliPlaceholder::SessionId),
];

impl fmt::Display for CliPlaceholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter(name) => write!(f, "{OPEN}{PARAMETER}{name}{CLOSE}"),
            Self::Input
            | Self::Workdir
            | Self::InputFile
            | Self::OutputFile
            | Self::Model
            | Self::SessionId => {
                let name = NAMED.iter().find(|(_, named)| named == self);
                write!(f, "{OPEN}{}{CLOSE}", name.map_or("", |(name, _)| name))
            }
        }
    }
}

impl CliTemplate {
    /// A text without placeholders.
    pub fn literal(text: &str) -> Self {
        Self::of(vec![CliTemplatePart::Literal(text.into())])
    }

    /// A text with a placeholder behind it.
    pub fn ending_in(text: &str, placeholder: CliPlaceholder) -> Self {
        Self::of(vec![
            CliTemplatePart::Literal(text.into()),
            CliTemplatePart::Placeholder(placeholder),
        ])
    }

    /// True if the text is a path with a part `..`.
    pub fn leads_up(&self) -> bool {
        self.0.text.split('/').any(|part| part == "..")
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &CliPlaceholder> {
        self.0.pieces.iter().filter_map(|piece| match piece {
            CliTemplatePart::Literal(_) => None,
            CliTemplatePart::Placeholder(placeholder) => Some(placeholder),
        })
    }

    /// True if the text has this placeholder.
    pub fn names(&self, placeholder: &CliPlaceholder) -> bool {
        self.placeholders().any(|own| own == placeholder)
    }

    /// The placeholder, if it is the whole text.
    pub fn only_placeholder(&self) -> Option<&CliPlaceholder> {
        let mut pieces = self.0.pieces.iter().filter(|piece| !piece.is_empty());
        match (pieces.next(), pieces.next()) {
            (Some(CliTemplatePart::Placeholder(placeholder)), None) => Some(placeholder),
            (None | Some(_), _) => None,
        }
    }

    /// The text with each placeholder replaced by its `value`, or the first error.
    pub fn render<E>(
        &self,
        mut value: impl FnMut(&CliPlaceholder) -> Result<String, E>,
    ) -> Result<String, E> {
        let mut rendered = String::new();
        for piece in &self.0.pieces {
            match piece {
                CliTemplatePart::Literal(text) => rendered.push_str(text),
                CliTemplatePart::Placeholder(placeholder) => {
                    rendered.push_str(&value(placeholder)?);
                }
            }
        }
        Ok(rendered)
    }

    /// The first `${NAME}` in the text, which is not filled in.
    pub fn variable(&self) -> Option<&str> {
        let (_, after) = self.as_str().split_once("${")?;
        let (name, _) = after.split_once('}')?;
        name.parse::<crate::EnvName>().is_ok().then_some(name)
    }

    fn of(pieces: Vec<CliTemplatePart>) -> Self {
        let text: String = pieces.iter().map(ToString::to_string).collect();
        Self(Arc::new(CompiledCliTemplate { text: text.into(), pieces: pieces.into() }))
    }
}

impl CliTemplatePart {
    fn is_empty(&self) -> bool {
        match self {
            Self::Literal(text) => text.is_empty(),
            Self::Placeholder(_) => false,
        }
    }
}

/// The piece as it is written in a template.
impl fmt::Display for CliTemplatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => f.write_str(&text.replace(OPEN, "{{{{")),
            Self::Placeholder(placeholder) => placeholder.fmt(f),
        }
    }
}

fn compile(text: &str) -> Result<CompiledCliTemplate, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix(OPEN) {
            literal.push_str(OPEN);
            rest = after;
            continue;
        }
        let Some((name, after)) = after.split_once(CLOSE) else {
            return Err(
                "has a \"{{\" that is not closed; write \"{{{{\" for a literal \"{{\"".into()
            );
        };
        pieces.push(CliTemplatePart::Literal(std::mem::take(&mut literal).into()));
        pieces.push(CliTemplatePart::Placeholder(placeholder(name.trim())?));
        rest = after;
    }
    literal.push_str(rest);
    pieces.push(CliTemplatePart::Literal(literal.into()));
    Ok(CompiledCliTemplate { text: text.into(), pieces: pieces.into() })
}

fn placeholder(name: &str) -> Result<CliPlaceholder, String> {
    if let Some(parameter) = name.strip_prefix(PARAMETER) {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        return if !parameter.is_empty() && parameter.chars().all(is_word) {
            Ok(CliPlaceholder::Parameter(parameter.into()))
        } else {
            Err(format!(
                "\"{{{{{}}}}}\" names no parameter: write {{{{param.NAME}}}}",
                excerpt(name)
            ))
        };
    }
    match NAMED.iter().find(|(known, _)| *known == name) {
        Some((_, placeholder)) => Ok(placeholder.clone()),
        None => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    let names = NAMED.map(|(name, _)| name);
    let shown = excerpt(name);
    let rest = nearest(name, names).map_or_else(
        || {
            let all = names.map(|name| format!("{{{{{name}}}}}")).join(", ");
            format!("; allowed: {all}, {{{{param.NAME}}}}")
        },
        |meant| format!(", did you mean \"{{{{{meant}}}}}\"?"),
    );
    format!("unknown placeholder \"{{{{{shown}}}}}\"{rest}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(text: &str) -> Result<String, String> {
        let template: CliTemplate = text.parse().map_err(|error| format!("{error}"))?;
        template.render(|placeholder| Ok(format!("<{placeholder}>")))
    }

    #[test]
    fn fills_in_placeholders_only() {
        for (text, expected) in [
            ("", Ok("")),
            ("plain } {x} }}", Ok("plain } {x} }}")),
            ("--prompt={{prompt}}!", Ok("--prompt=<{{prompt}}>!")),
            ("{{ input }}{{model}}", Ok("<{{prompt}}><{{model}}>")),
            ("{{param.size}}", Ok("<{{param.size}}>")),
            ("{{{{.Names}}", Ok("{{.Names}}")),
            ("a {{", Err("has a \"{{\" that is not closed; write \"{{{{\" for a literal \"{{\"")),
            ("{{promt}}", Err("unknown placeholder \"{{promt}}\", did you mean \"{{prompt}}\"?")),
            (
                "{{size}}",
                Err("unknown placeholder \"{{size}}\"; allowed: {{prompt}}, {{input}}, \
                     {{workdir}}, {{input_file}}, {{output_file}}, {{model}}, {{session_id}}, \
                     {{param.NAME}}"),
            ),
            ("{{param.}}", Err("\"{{param.}}\" names no parameter: write {{param.NAME}}")),
        ] {
            assert_eq!(
                rendered(text),
                expected.map(str::to_owned).map_err(str::to_owned),
                "{text}"
            );
        }
    }

    #[test]
    fn detects_a_lone_placeholder() {
        let only = |text: &str| text.parse::<CliTemplate>().unwrap().only_placeholder().cloned();
        assert_eq!(only("{{model}}"), Some(CliPlaceholder::Model));
        assert_eq!(only("--model={{model}}"), None);
        assert_eq!(only("{{model}}{{model}}"), None);
        assert_eq!(only("model"), None);
    }

    #[test]
    fn lists_environment_variables() {
        let variable = |text| CliTemplate::literal(text).variable().map(str::to_owned);
        assert_eq!(variable("--key=${MY_KEY}"), Some("MY_KEY".to_owned()));
        assert_eq!(variable("$MY_KEY ${} ${1"), None);
    }

    proptest! {
        /// Every text can be escaped as a template that renders it.
        #[test]
        fn any_text_can_be_escaped(text in "[{}a$]{0,12}|\\PC*") {
            let written = CliTemplate::literal(&text);
            let read: CliTemplate = written.as_str().parse().unwrap();
            let given = read.render(|_| Err(())).unwrap();
            prop_assert_eq!(given, text);
        }
    }
}
