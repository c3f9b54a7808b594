//! A definition file as a tree with positions.
//!
//! YAML and JSON share one parser, so that errors have the same form. The tree has no meaning yet.

use std::fmt;

use polity_model::value::excerpt;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error as YamlError, Options, Spanned};

use crate::file::problem::{DefinitionProblem, FindingText, SourcePosition};

/// The largest definition file, in bytes.
pub const DEFINITION_BYTES_MAX: usize = 1 << 20;

/// One value of a file and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceNode {
    pub(crate) kind: SourceNodeKind,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// The kinds of values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SourceNodeKind {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    Sequence(Vec<SourceNode>),
    Mapping(Vec<(SourceKey, SourceNode)>),
    /// A value that was found to be wrong and is skipped from then on, so that the rest of the
    /// file can still be read. It keeps its place in its sequence or mapping.
    Pruned,
}

/// The key of a mapping entry and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceKey {
    pub(crate) text: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl SourceNode {
    /// The entry of a mapping, pruned or not.
    pub(crate) fn entry(&self, key: &str) -> Option<(&SourceKey, &SourceNode)> {
        match &self.kind {
            SourceNodeKind::Mapping(entries) => {
                entries.iter().find(|(k, _)| k.text == key).map(|(k, node)| (k, node))
            }
            _ => None,
        }
    }

    /// The value in the file, shortened.
    pub(crate) fn shown(&self) -> String {
        match &self.kind {
            SourceNodeKind::Null => "null".to_owned(),
            SourceNodeKind::Bool(value) => value.to_string(),
            SourceNodeKind::Integer(value) => value.to_string(),
            SourceNodeKind::Float(value) => value.to_string(),
            SourceNodeKind::Text(text) => excerpt(text),
            SourceNodeKind::Sequence(_) | SourceNodeKind::Mapping(_) | SourceNodeKind::Pruned => {
                self.in_words()
            }
        }
    }

    /// The value in words: `the text "abc"`, `a list`.
    pub(crate) fn in_words(&self) -> String {
        match &self.kind {
            SourceNodeKind::Null => "nothing".to_owned(),
            SourceNodeKind::Bool(value) => value.to_string(),
            SourceNodeKind::Integer(value) => format!("the number {value}"),
            SourceNodeKind::Float(value) => format!("the number {value:?}"),
            SourceNodeKind::Text(text) => format!("the text \"{}\"", excerpt(text)),
            SourceNodeKind::Sequence(_) => "a list".to_owned(),
            SourceNodeKind::Mapping(_) => "a mapping".to_owned(),
            SourceNodeKind::Pruned => "a wrong value".to_owned(),
        }
    }
}

/// A parsed file, or as much of it as could be read.
#[derive(Debug)]
pub(crate) struct ParsedSource {
    /// The tree; absent when the text is no YAML at all.
    pub(crate) tree: Option<SourceNode>,
    /// The problems of the text itself.
    pub(crate) problems: Vec<DefinitionProblem>,
}

/// Parses one file. An empty file is a `Null` tree without a problem; the caller decides about it.
pub(crate) fn parse(file: &str, text: &str) -> ParsedSource {
    match read(text, DuplicateKeyPolicy::Error) {
        Ok(tree) => ParsedSource { tree: Some(tree), problems: Vec::new() },
        Err(error) => {
            // A duplicate key is an error, but the rest of the file can still be checked.
            let repeated = matches!(error.without_snippet(), YamlError::DuplicateMappingKey { .. });
            let tree = if repeated { read(text, DuplicateKeyPolicy::FirstWins).ok() } else { None };
            ParsedSource { tree, problems: vec![syntax_problem(file, text, &error)] }
        }
    }
}

fn read(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<SourceNode, YamlError> {
    let options: Options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        // YAML 1.2: `yes`, `no`, `on` and `off` are texts.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

fn syntax_problem(file: &str, text: &str, error: &YamlError) -> DefinitionProblem {
    let error = error.without_snippet();
    let mut place = error.location().map_or(SourcePosition::start(), |at| SourcePosition {
        line: position(at.line()),
        column: position(at.column()),
        field: String::new(),
    });
    let finding = match error {
        YamlError::DuplicateMappingKey { key: Some(key), .. } => {
            FindingText::new(format!("the field \"{}\" appears twice", excerpt(key)))
        }
        YamlError::DuplicateMappingKey { key: None, .. } => {
            FindingText::new("the same field appears twice")
        }
        YamlError::MultipleDocuments { .. } => {
            FindingText::new("the file holds several documents (\"---\"), a definition is one")
        }
        YamlError::NullIntoString { .. } => FindingText::new("a field without a name"),
        YamlError::Budget { breach, .. } => budget_finding(breach),
        YamlError::AliasReplayLimitExceeded { .. }
        | YamlError::AliasReplayStackDepthExceeded { .. } => {
            FindingText::new("the aliases (\"*name\") of the file unfold to too much")
        }
        YamlError::AliasError { error, .. } if matches!(**error, YamlError::Budget { .. }) => {
            FindingText::new("the aliases (\"*name\") of the file unfold to too much")
        }
        other => {
            let is_json = file.rsplit_once('.').is_some_and(|(_, extension)| extension == "json");
            let json = is_json.then(|| serde_json::from_str::<serde::de::IgnoredAny>(text));
            // JSON is parsed as YAML, but messages use the terms of JSON.
            let (language, message) = if let Some(Err(error)) = json {
                place.line = position(error.line() as u64);
                place.column = position(error.column() as u64);
                ("JSON", error.to_string())
            } else {
                ("YAML", other.render())
            };
            let message = message.lines().next().unwrap_or_default();
            // The position is part of the problem already.
            let message = message.split(" at line ").next().unwrap_or_default();
            FindingText::new(format!("this is not valid {language}: {message}"))
        }
    };
    finding.at(file, &place)
}

fn budget_finding(breach: &BudgetBreach) -> FindingText {
    match breach {
        BudgetBreach::Depth { depth } => FindingText::new(format!(
            "values are nested more than {} deep",
            depth.saturating_sub(1)
        )),
        BudgetBreach::Nodes { nodes } => {
            FindingText::new(format!("the file has more than {} values", nodes.saturating_sub(1)))
        }
        other => FindingText::new(format!("the file is too large to be a definition: {other:?}")),
    }
}

fn position(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}

impl<'de> Deserialize<'de> for SourceNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: NodeKindOnly(kind), referenced, .. } =
            Spanned::<NodeKindOnly>::deserialize(deserializer)?;
        let (line, column) = (position(referenced.line()), position(referenced.column()));
        Ok(Self { kind, line, column })
    }
}

/// Reads the value without its place, which [`Spanned`] around it adds.
struct NodeKindOnly(SourceNodeKind);

impl<'de> Deserialize<'de> for NodeKindOnly {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeKindVisitor).map(Self)
    }
}

struct NodeKindVisitor;

impl<'de> Visitor<'de> for NodeKindVisitor {
    type Value = SourceNodeKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Null)
    }

    fn visit_none<E>(self) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<SourceNodeKind, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<SourceNodeKind, E> {
        // No field holds a number this large; it only appears in messages.
        Ok(SourceNodeKind::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<SourceNodeKind, E> {
        Ok(SourceNodeKind::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<SourceNodeKind, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element()? {
            nodes.push(node);
        }
        Ok(SourceNodeKind::Sequence(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SourceNodeKind, A::Error> {
        let mut nodes = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let key = SourceKey {
                text: key.value,
                line: position(key.referenced.line()),
                column: position(key.referenced.column()),
            };
            nodes.push((key, entries.next_value()?));
        }
        Ok(SourceNodeKind::Mapping(nodes))
    }
}
