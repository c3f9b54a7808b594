//! The values that an expression reads for a list of agents.

use std::sync::Arc;

use polity_statechart::{EvalError, ExprNode, ExprOperand, ExprTree, ScalarKind, ScalarValue};

use crate::kernel::columns::fields::{FieldColumn, TextColumn};
use crate::kernel::draws::draw_cache::DrawInput;

/// The inputs of evaluating an expression for some agents.
#[derive(Clone, Copy)]
pub(crate) struct EvalInput<'a> {
    pub(crate) fields: &'a [FieldColumn],
    pub(crate) world: &'a [Option<ScalarValue>],
    pub(crate) list: &'a [u16],
    pub(crate) draws: DrawInput<'a>,
}

/// The kind of a node's value for these agents.
pub(crate) enum OperandKind {
    Known(ScalarKind),
    Missing(EvalError),
}

/// The source of a text operand.
pub(crate) enum TextSource<'a> {
    Same(&'a Arc<str>),
    Each(&'a TextColumn),
}

impl<'a> EvalInput<'a> {
    /// Returns the kind of a node's value.
    pub(crate) fn kind(&self, tree: ExprTree<'_>, node: u16) -> OperandKind {
        OperandKind::Known(match &tree.nodes[usize::from(node)] {
            ExprNode::Negate(_) | ExprNode::Arithmetic(..) => ScalarKind::Number,
            ExprNode::Not(_) | ExprNode::Compare(..) | ExprNode::And(..) | ExprNode::Or(..) => {
                ScalarKind::Bool
            }
            ExprNode::Leaf(leaf) => match leaf {
                ExprOperand::Number(_) | ExprOperand::Draw(_) => ScalarKind::Number,
                ExprOperand::Bool(_) => ScalarKind::Bool,
                ExprOperand::Text(_) => ScalarKind::Text,
                ExprOperand::Field(field) => match &self.fields[field.index()] {
                    FieldColumn::Numbers(_) => ScalarKind::Number,
                    FieldColumn::Flags(_) => ScalarKind::Bool,
                    FieldColumn::Texts(_) => ScalarKind::Text,
                },
                ExprOperand::World(world) => match &self.world[world.index()] {
                    Some(value) => value.kind(),
                    None => return OperandKind::Missing(EvalError::NoWorld(*world)),
                },
                ExprOperand::Context(context) => {
                    return OperandKind::Missing(EvalError::NoContext(*context));
                }
            },
        })
    }

    /// Returns the kind of the expression's value, if it has one.
    pub(crate) fn root_kind(&self, tree: ExprTree<'_>) -> Option<ScalarKind> {
        match self.kind(tree, tree.root) {
            OperandKind::Known(kind) => Some(kind),
            OperandKind::Missing(_) => None,
        }
    }

    /// Returns the texts of a node. Only operands can be texts.
    pub(crate) fn texts(&self, tree: ExprTree<'a>, node: u16) -> Option<TextSource<'a>> {
        let ExprNode::Leaf(leaf) = &tree.nodes[usize::from(node)] else { return None };
        match leaf {
            ExprOperand::Text(text) => Some(TextSource::Same(text)),
            ExprOperand::Field(field) => match &self.fields[field.index()] {
                FieldColumn::Texts(texts) => Some(TextSource::Each(texts)),
                FieldColumn::Numbers(_) | FieldColumn::Flags(_) => None,
            },
            ExprOperand::World(world) => match &self.world[world.index()] {
                Some(ScalarValue::Text(text)) => Some(TextSource::Same(text)),
                Some(ScalarValue::Number(_) | ScalarValue::Bool(_)) | None => None,
            },
            _ => None,
        }
    }
}
