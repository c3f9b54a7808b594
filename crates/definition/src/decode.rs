//! From the tree of a file to the types that describe it as written.
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
use self::error::{DecodeError, Fault};
use super::path::{Path, Segment};
use super::problem::{Finding, Place, Problem};
use super::source::{Node, NodeKind};
use super::suggest;

/// The most problems that are listed for one file; a file with more is not a definition.
pub const PROBLEMS_PER_FILE_MAX: usize = 50;

/// Decodes as much of the tree as can be decoded and adds what cannot to `problems`. What was
/// wrong is pruned from the tree.
pub(crate) fn decode<T: DeserializeOwned>(
    file: &str,
    tree: &mut Node,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    loop {
        let error = match T::deserialize(NodeDeserializer::new(tree)) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        problems.extend(problem_of(file, tree, &error));
        if problems.len() >= PROBLEMS_PER_FILE_MAX {
            let more = format!("only the first {PROBLEMS_PER_FILE_MAX} problems are listed");
            problems.push(Finding::new(more).at(file, &Place::start()));
            return None;
        }
        let path = error.path();
        if path.0.is_empty() || !prune(tree, &path) {
            return None;
        }
    }
}

/// Takes a value out of the tree. False when there is no such value, or it is gone already.
fn prune(tree: &mut Node, path: &Path) -> bool {
    let mut node = tree;
    for segment in &path.0 {
        let next = match (&mut node.kind, segment) {
            (NodeKind::Mapping(entries), Segment::Field(name)) => {
                entries.iter_mut().find(|(key, _)| key.text == *name).map(|(_, node)| node)
            }
            (NodeKind::Sequence(items), Segment::Index(index)) => items.get_mut(*index),
            (
                NodeKind::Null
                | NodeKind::Bool(_)
                | NodeKind::Integer(_)
                | NodeKind::Float(_)
                | NodeKind::Text(_)
                | NodeKind::Sequence(_)
                | NodeKind::Mapping(_)
                | NodeKind::Pruned,
                Segment::Field(_) | Segment::Index(_),
            ) => None,
        };
        match next {
            Some(next) => node = next,
            None => return false,
        }
    }
    let was_there = node.kind != NodeKind::Pruned;
    node.kind = NodeKind::Pruned;
    was_there
}

/// Tells an error to the reader of the file; nothing when it only follows from an earlier one.
fn problem_of(file: &str, tree: &Node, error: &DecodeError) -> Option<Problem> {
    let path = error.path();
    let (place, node) = locate(tree, &path, error.at_key)?;
    let field = &place.field;
    let subject = if field.is_empty() { "the file" } else { field };
    let finding = match &error.fault {
        Fault::UnknownField { name, allowed, tag } => {
            let allowed: Vec<_> = tag.iter().chain(*allowed).copied().collect();
            unknown_field(&path, name, &allowed)
        }
        Fault::UnknownValue { found, allowed } => {
            Finding::new(format!("{subject}: unknown value \"{}\"", excerpt(found)))
                .one_of(found, *allowed)
        }
        Fault::MissingTag { tag, allowed } => {
            Finding::new(format!("missing field \"{}\"", path.field(tag)))
                .allowed(allowed.join(", "))
        }
        Fault::MissingField(name) => {
            if node.entry(name).is_some() {
                return None;
            }
            Finding::new(format!("missing field \"{}\"", path.field(name)))
        }
        Fault::WrongType { expected } => {
            let in_words = node.in_words();
            let expected = error::in_words(expected);
            let hint = if expected == "a text" && is_unquoted_scalar(node) {
                "; put it in quotes"
            } else {
                ""
            };
            Finding::new(format!("{subject} must be {expected}, found {in_words}{hint}"))
                .found(node.shown())
        }
        Fault::Rule(message) => {
            let (message, suggestion) = suggest::split(message);
            // `temperature must be from 0 to 2` is a sentence already.
            let separator = if message.starts_with("must ") { " " } else { ": " };
            let mut finding = Finding::new(format!("{subject}{separator}{message}"));
            finding.suggestion = suggestion.map(str::to_owned);
            let shown = node.shown();
            // A type whose message leaves the value out has a reason: it may be a secret.
            if message.contains(&shown) { finding.found(shown) } else { finding }
        }
        Fault::Consequence => return None,
    };
    Some(finding.at(file, &place))
}

fn is_unquoted_scalar(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Bool(_) | NodeKind::Integer(_) | NodeKind::Float(_))
}

fn unknown_field(path: &Path, name: &str, allowed: &[&str]) -> Finding {
    let container = Path(path.0[..path.0.len().saturating_sub(1)].to_vec()).to_string();
    let inside = if container.is_empty() { String::new() } else { format!(" in {container}") };
    let in_environment = format!("{name}_env");
    if allowed.contains(&in_environment.as_str()) {
        // What was found is a secret, so it is not repeated.
        return Finding::new(format!(
            "\"{name}\"{inside} may not be written in a file: put the secret into an environment \
             variable and its name into \"{in_environment}\""
        ));
    }
    Finding::new(format!("unknown field \"{}\"{inside}", excerpt(name)))
        .one_of(name, allowed.iter().filter(|allowed| !allowed.is_empty()))
}

/// Finds a value by the path that decoding took, which counts pruned items too.
fn locate<'t>(tree: &'t Node, path: &Path, at_key: bool) -> Option<(Place, &'t Node)> {
    let mut node = tree;
    let (mut line, mut column) = (tree.line, tree.column);
    for (depth, segment) in path.0.iter().enumerate() {
        match (&node.kind, segment) {
            (NodeKind::Mapping(_), Segment::Field(name)) => {
                let (key, value) = node.entry(name)?;
                let key_is_meant = at_key && depth + 1 == path.0.len();
                let null = value.kind == NodeKind::Null;
                (line, column) = if key_is_meant || null {
                    (key.line, key.column)
                } else {
                    (value.line, value.column)
                };
                node = value;
            }
            (NodeKind::Sequence(items), Segment::Index(index)) => {
                node = items.get(*index)?;
                (line, column) = (node.line, node.column);
            }
            (
                NodeKind::Null
                | NodeKind::Bool(_)
                | NodeKind::Integer(_)
                | NodeKind::Float(_)
                | NodeKind::Text(_)
                | NodeKind::Sequence(_)
                | NodeKind::Mapping(_)
                | NodeKind::Pruned,
                Segment::Field(_) | Segment::Index(_),
            ) => return None,
        }
    }
    Some((Place { line, column, field: path.to_string() }, node))
}
