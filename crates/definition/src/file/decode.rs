//! Decoding: from the tree of a file to types that mirror it.
//!
//! A decoder stops at its first error, and people want to see all of them. So an error is
//! recorded, the value that caused it is pruned from the tree, and decoding starts again. Fields
//! of the as-written types are optional for that reason; the checks that follow ask for the
//! required ones, and never for one that is there but was pruned.

mod deserializer;
mod error;

use polity_model::value::excerpt;
use serde::de::DeserializeOwned;

use self::deserializer::NodeDeserializer;
use self::error::{DecodeError, DecodeFault};
use crate::file::path::{FieldPath, PathSegment};
use crate::file::problem::{DefinitionProblem, FindingText, SourcePosition};
use crate::file::source::{SourceNode, SourceNodeKind};
use crate::value::suggest;

/// The most problems that are listed for one file; a file with more is not a definition.
pub const PROBLEMS_PER_FILE_MAX: usize = 50;

/// Decodes as much of the tree as possible, adds `problems`, and prunes invalid values from the
/// tree.
pub(crate) fn decode<T: DeserializeOwned>(
    file: &str,
    tree: &mut SourceNode,
    problems: &mut Vec<DefinitionProblem>,
) -> Option<T> {
    loop {
        let error = match T::deserialize(NodeDeserializer::new(tree)) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        problems.extend(problem_of(file, tree, &error));
        if problems.len() >= PROBLEMS_PER_FILE_MAX {
            let more = format!("only the first {PROBLEMS_PER_FILE_MAX} problems are listed");
            problems.push(FindingText::new(more).at(file, &SourcePosition::start()));
            return None;
        }
        let path = error.path();
        if path.0.is_empty() || !prune(tree, &path) {
            return None;
        }
    }
}

/// Prunes a value from the tree. Returns false if it does not exist or is pruned already.
fn prune(tree: &mut SourceNode, path: &FieldPath) -> bool {
    let mut node = tree;
    for segment in &path.0 {
        let next = match (&mut node.kind, segment) {
            (SourceNodeKind::Mapping(entries), PathSegment::Field(name)) => {
                entries.iter_mut().find(|(key, _)| key.text == *name).map(|(_, node)| node)
            }
            (SourceNodeKind::Sequence(items), PathSegment::Index(index)) => items.get_mut(*index),
            _ => None,
        };
        match next {
            Some(next) => node = next,
            None => return false,
        }
    }
    let was_there = node.kind != SourceNodeKind::Pruned;
    node.kind = SourceNodeKind::Pruned;
    was_there
}

/// Tells an error to the reader of the file; nothing when it only follows from an earlier one.
fn problem_of(file: &str, tree: &SourceNode, error: &DecodeError) -> Option<DefinitionProblem> {
    let path = error.path();
    let (place, node) = locate(tree, &path, error.at_key)?;
    let field = &place.field;
    let subject = if field.is_empty() { "the file" } else { field };
    let finding = match &error.fault {
        DecodeFault::UnknownField { name, allowed, tag } => {
            let allowed: Vec<_> = tag.iter().chain(*allowed).copied().collect();
            unknown_field(&path, name, &allowed)
        }
        DecodeFault::UnknownValue { found, allowed } => {
            FindingText::new(format!("{subject}: unknown value \"{}\"", excerpt(found)))
                .one_of(found, *allowed)
        }
        DecodeFault::MissingTag { tag, allowed } => {
            FindingText::new(format!("missing field \"{}\"", path.field(tag)))
                .allowed(allowed.join(", "))
        }
        DecodeFault::MissingField(name) => {
            if node.entry(name).is_some() {
                return None;
            }
            FindingText::new(format!("missing field \"{}\"", path.field(name)))
        }
        DecodeFault::WrongType { expected } => {
            let in_words = node.in_words();
            let expected = error::in_words(expected);
            let hint = if expected == "a text" && is_unquoted_scalar(node) {
                "; put it in quotes"
            } else {
                ""
            };
            FindingText::new(format!("{subject} must be {expected}, found {in_words}{hint}"))
                .found(node.shown())
        }
        DecodeFault::Rule(message) => {
            let (message, suggestion) = suggest::split(message);
            // `temperature must be from 0 to 2` is a sentence already.
            let separator = if message.starts_with("must ") { " " } else { ": " };
            let mut finding = FindingText::new(format!("{subject}{separator}{message}"));
            finding.suggestion = suggestion.map(str::to_owned);
            let shown = node.shown();
            // A type whose message leaves the value out has a reason: it may be a secret.
            if message.contains(&shown) { finding.found(shown) } else { finding }
        }
        DecodeFault::Consequence => return None,
    };
    Some(finding.at(file, &place))
}

fn is_unquoted_scalar(node: &SourceNode) -> bool {
    matches!(
        node.kind,
        SourceNodeKind::Bool(_) | SourceNodeKind::Integer(_) | SourceNodeKind::Float(_)
    )
}

fn unknown_field(path: &FieldPath, name: &str, allowed: &[&str]) -> FindingText {
    let container = FieldPath(path.0[..path.0.len().saturating_sub(1)].to_vec()).to_string();
    let inside = if container.is_empty() { String::new() } else { format!(" in {container}") };
    let in_environment = format!("{name}_env");
    if allowed.contains(&in_environment.as_str()) {
        // The value is a secret, so it is not repeated.
        return FindingText::new(format!(
            "\"{name}\"{inside} may not be written in a file: put the secret into an environment \
             variable and its name into \"{in_environment}\""
        ));
    }
    FindingText::new(format!("unknown field \"{}\"{inside}", excerpt(name)))
        .one_of(name, allowed.iter().filter(|allowed| !allowed.is_empty()))
}

/// Finds a value by the path that decoding took, which counts pruned items too.
fn locate<'t>(
    tree: &'t SourceNode,
    path: &FieldPath,
    at_key: bool,
) -> Option<(SourcePosition, &'t SourceNode)> {
    let mut node = tree;
    let (mut line, mut column) = (tree.line, tree.column);
    for (depth, segment) in path.0.iter().enumerate() {
        match (&node.kind, segment) {
            (SourceNodeKind::Mapping(_), PathSegment::Field(name)) => {
                let (key, value) = node.entry(name)?;
                let key_is_meant = at_key && depth + 1 == path.0.len();
                let null = value.kind == SourceNodeKind::Null;
                (line, column) = if key_is_meant || null {
                    (key.line, key.column)
                } else {
                    (value.line, value.column)
                };
                node = value;
            }
            (SourceNodeKind::Sequence(items), PathSegment::Index(index)) => {
                node = items.get(*index)?;
                (line, column) = (node.line, node.column);
            }
            _ => return None,
        }
    }
    Some((SourcePosition { line, column, field: path.to_string() }, node))
}
