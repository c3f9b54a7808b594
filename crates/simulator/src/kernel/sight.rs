//! What an expression sees of a list of agents.

use std::sync::Arc;

use polity_statechart::{
    EvalError, ExpressionNode, ExpressionOperand, ExpressionTree, ScalarKind, ScalarValue,
};

use super::drawn::Moment;
use super::fields::{Column, Texts};

/// What an expression sees of some agents.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) fields: &'a [Column],
    pub(super) world: &'a [Option<ScalarValue>],
    pub(super) list: &'a [u16],
    pub(super) moment: Moment<'a>,
}

/// What kind of value a part of an expression has for these agents.
pub(super) enum Found {
    ScalarKind(ScalarKind),
    Missing(EvalError),
}

/// Where the texts of some agents come from.
pub(super) enum Source<'a> {
    Same(&'a Arc<str>),
    Each(&'a Texts),
}

impl<'a> Sight<'a> {
    /// The kind of value that an expression has.
    pub(super) fn kind(&self, tree: ExpressionTree<'_>, node: u16) -> Found {
        Found::ScalarKind(match &tree.nodes[usize::from(node)] {
            ExpressionNode::Negate(_) | ExpressionNode::Arithmetic(..) => ScalarKind::Number,
            ExpressionNode::Not(_)
            | ExpressionNode::Compare(..)
            | ExpressionNode::And(..)
            | ExpressionNode::Or(..) => ScalarKind::Bool,
            ExpressionNode::Leaf(leaf) => match leaf {
                ExpressionOperand::Number(_) | ExpressionOperand::Draw(_) => ScalarKind::Number,
                ExpressionOperand::Bool(_) => ScalarKind::Bool,
                ExpressionOperand::Text(_) => ScalarKind::Text,
                ExpressionOperand::Field(field) => match &self.fields[field.index()] {
                    Column::Numbers(_) => ScalarKind::Number,
                    Column::Flags(_) => ScalarKind::Bool,
                    Column::Texts(_) => ScalarKind::Text,
                },
                ExpressionOperand::World(world) => match &self.world[world.index()] {
                    Some(value) => value.kind(),
                    None => return Found::Missing(EvalError::NoWorld(*world)),
                },
                ExpressionOperand::Context(context) => {
                    return Found::Missing(EvalError::NoContext(*context));
                }
            },
        })
    }

    /// The kind of value that a whole expression has, if it has one.
    pub(super) fn kind_of(&self, tree: ExpressionTree<'_>) -> Option<ScalarKind> {
        match self.kind(tree, tree.root) {
            Found::ScalarKind(kind) => Some(kind),
            Found::Missing(_) => None,
        }
    }

    /// The texts that an expression comes to. Nothing makes texts of others.
    pub(super) fn texts(&self, tree: ExpressionTree<'a>, node: u16) -> Option<Source<'a>> {
        let ExpressionNode::Leaf(leaf) = &tree.nodes[usize::from(node)] else { return None };
        match leaf {
            ExpressionOperand::Text(text) => Some(Source::Same(text)),
            ExpressionOperand::Field(field) => match &self.fields[field.index()] {
                Column::Texts(texts) => Some(Source::Each(texts)),
                Column::Numbers(_) | Column::Flags(_) => None,
            },
            ExpressionOperand::World(world) => match &self.world[world.index()] {
                Some(ScalarValue::Text(text)) => Some(Source::Same(text)),
                Some(ScalarValue::Number(_) | ScalarValue::Bool(_)) | None => None,
            },
            ExpressionOperand::Number(_)
            | ExpressionOperand::Bool(_)
            | ExpressionOperand::Context(_)
            | ExpressionOperand::Draw(_) => None,
        }
    }
}
