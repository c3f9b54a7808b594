//! What an expression sees of a list of agents.

use std::sync::Arc;

use polity_statechart::{Fault, Kind, Node, Operand, Tree, Value};

use super::drawn::Moment;
use super::fields::{Column, Texts};

/// What an expression sees of some agents.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) fields: &'a [Column],
    pub(super) world: &'a [Option<Value>],
    pub(super) list: &'a [u16],
    pub(super) moment: Moment<'a>,
}

/// What kind of value a part of an expression has for these agents.
pub(super) enum Found {
    Kind(Kind),
    Missing(Fault),
}

/// Where the texts of some agents come from.
pub(super) enum Source<'a> {
    Same(&'a Arc<str>),
    Each(&'a Texts),
}

impl<'a> Sight<'a> {
    /// The kind of value that an expression has.
    pub(super) fn kind(&self, tree: Tree<'_>, node: u16) -> Found {
        Found::Kind(match &tree.nodes[usize::from(node)] {
            Node::Negate(_) | Node::Arithmetic(..) => Kind::Number,
            Node::Not(_) | Node::Compare(..) | Node::And(..) | Node::Or(..) => Kind::Bool,
            Node::Leaf(leaf) => match leaf {
                Operand::Number(_) | Operand::Draw(_) => Kind::Number,
                Operand::Bool(_) => Kind::Bool,
                Operand::Text(_) => Kind::Text,
                Operand::Field(field) => match &self.fields[field.index()] {
                    Column::Numbers(_) => Kind::Number,
                    Column::Flags(_) => Kind::Bool,
                    Column::Texts(_) => Kind::Text,
                },
                Operand::World(world) => match &self.world[world.index()] {
                    Some(value) => value.kind(),
                    None => return Found::Missing(Fault::NoWorld(*world)),
                },
                Operand::Context(context) => return Found::Missing(Fault::NoContext(*context)),
            },
        })
    }

    /// The kind of value that a whole expression has, if it has one.
    pub(super) fn kind_of(&self, tree: Tree<'_>) -> Option<Kind> {
        match self.kind(tree, tree.root) {
            Found::Kind(kind) => Some(kind),
            Found::Missing(_) => None,
        }
    }

    /// The texts that an expression comes to. Nothing makes texts of others.
    pub(super) fn texts(&self, tree: Tree<'a>, node: u16) -> Option<Source<'a>> {
        let Node::Leaf(leaf) = &tree.nodes[usize::from(node)] else { return None };
        match leaf {
            Operand::Text(text) => Some(Source::Same(text)),
            Operand::Field(field) => match &self.fields[field.index()] {
                Column::Texts(texts) => Some(Source::Each(texts)),
                Column::Numbers(_) | Column::Flags(_) => None,
            },
            Operand::World(world) => match &self.world[world.index()] {
                Some(Value::Text(text)) => Some(Source::Same(text)),
                Some(Value::Number(_) | Value::Bool(_)) | None => None,
            },
            Operand::Number(_) | Operand::Bool(_) | Operand::Context(_) | Operand::Draw(_) => None,
        }
    }
}
