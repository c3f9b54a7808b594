//! The values that an expression reads for a list of agents.

use std::sync::Arc;

use polity_statechart::{
    EvalError, ExpressionNode, ExpressionOperand, ExpressionTree, ScalarKind, ScalarValue,
};

use crate::kernel::columns::fields::{FieldColumn, TextColumn};
use crate::kernel::draws::draw_cache::DrawInput;

/// The inputs of evaluating an expression for some agents.
#[derive(Clone, Copy)]
pub(crate) struct EvalInput<'a> {
    pub(crate) fields: &'a [FieldColumn],
    pub(crate) world: &'a [Option<ScalarValue>],
    pub(crate) list: &'a [u16],
    pub(crate) draw_input: DrawInput<'a>,
}

/// The kind of a node's value for these agents.
pub(crate) enum OperandKind {
    ScalarKind(ScalarKind),
    Missing(EvalError),
}

/// The source of a text operand.
pub(crate) enum TextSource<'a> {
    Same(&'a Arc<str>),
    Each(&'a TextColumn),
}

impl<'a> EvalInput<'a> {
    /// Returns the kind of a node's value.
    pub(crate) fn kind(&self, tree: ExpressionTree<'_>, node: u16) -> OperandKind {
        OperandKind::ScalarKind(match &tree.nodes[usize::from(node)] {
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
                    FieldColumn::Numbers(_) => ScalarKind::Number,
                    FieldColumn::Flags(_) => ScalarKind::Bool,
                    FieldColumn::Texts(_) => ScalarKind::Text,
                },
                ExpressionOperand::World(world) => match &self.world[world.index()] {
                    Some(value) => value.kind(),
                    None => return OperandKind::Missing(EvalError::NoWorld(*world)),
                },
                ExpressionOperand::Context(context) => {
                    return OperandKind::Missing(EvalError::NoContext(*context));
                }
            },
        })
    }

    /// Returns the kind of the expression's value, if it has one.
    pub(crate) fn root_kind(&self, tree: ExpressionTree<'_>) -> Option<ScalarKind> {
        match self.kind(tree, tree.root) {
            OperandKind::ScalarKind(kind) => Some(kind),
            OperandKind::Missing(_) => None,
        }
    }

    /// Returns the texts of a node. Only operands can be texts.
    pub(crate) fn texts(&self, tree: ExpressionTree<'a>, node: u16) -> Option<TextSource<'a>> {
        let ExpressionNode::Leaf(leaf) = &tree.nodes[usize::from(node)] else { return None };
        match leaf {
            ExpressionOperand::Text(text) => Some(TextSource::Same(text)),
            ExpressionOperand::Field(field) => match &self.fields[field.index()] {
                FieldColumn::Texts(texts) => Some(TextSource::Each(texts)),
                FieldColumn::Numbers(_) | FieldColumn::Flags(_) => None,
            },
            ExpressionOperand::World(world) => match &self.world[world.index()] {
                Some(ScalarValue::Text(text)) => Some(TextSource::Same(text)),
                Some(ScalarValue::Number(_) | ScalarValue::Bool(_)) | None => None,
            },
            ExpressionOperand::Number(_)
            | ExpressionOperand::Bool(_)
            | ExpressionOperand::Context(_)
            | ExpressionOperand::Draw(_) => None,
        }
    }
}
