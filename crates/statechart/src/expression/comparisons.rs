//! Guards that are conjunctions of comparisons, for batch evaluation.

use super::CompareOp;
use super::code::{CompiledExpression, ExpressionNode, ExpressionOperand};

/// A comparison of two operands.
#[derive(Debug, Clone, PartialEq)]
pub struct OperandComparison {
    /// The left operand.
    pub left: ExpressionOperand,
    /// The operator.
    pub operator: CompareOp,
    /// The right operand.
    pub right: ExpressionOperand,
}

impl OperandComparison {
    /// Returns the parts of a comparison with a constant number, with the number on the right.
    pub fn with_number(&self) -> Option<(&ExpressionOperand, CompareOp, f64)> {
        let Self { left, operator, right } = self;
        if let ExpressionOperand::Number(number) = right {
            return Some((left, *operator, *number));
        }
        match left {
            ExpressionOperand::Number(number) => Some((right, operator.mirrored(), *number)),
            ExpressionOperand::Bool(_)
            | ExpressionOperand::Text(_)
            | ExpressionOperand::Field(_)
            | ExpressionOperand::Context(_)
            | ExpressionOperand::World(_)
            | ExpressionOperand::Draw(_) => None,
        }
    }
}

impl CompiledExpression {
    /// Returns the comparisons of the expression, if it is a conjunction of them.
    pub(crate) fn comparisons(&self) -> Option<Vec<OperandComparison>> {
        let mut comparisons = Vec::new();
        self.collect(self.root, &mut comparisons)?;
        Some(comparisons)
    }

    fn collect(&self, node: u16, comparisons: &mut Vec<OperandComparison>) -> Option<()> {
        match &self.nodes[usize::from(node)] {
            ExpressionNode::And(left, right) => {
                self.collect(*left, comparisons)?;
                self.collect(*right, comparisons)
            }
            ExpressionNode::Compare(operator, left, right) => {
                let (left, right) = (self.operand(*left)?, self.operand(*right)?);
                comparisons.push(OperandComparison { left, operator: *operator, right });
                Some(())
            }
            ExpressionNode::Not(inner) => {
                let left = self.flag(*inner)?;
                let right = ExpressionOperand::Bool(false);
                comparisons.push(OperandComparison { left, operator: CompareOp::Equal, right });
                Some(())
            }
            ExpressionNode::Leaf(_) => {
                let left = self.flag(node)?;
                let right = ExpressionOperand::Bool(true);
                comparisons.push(OperandComparison { left, operator: CompareOp::Equal, right });
                Some(())
            }
            ExpressionNode::Negate(_) | ExpressionNode::Arithmetic(..) | ExpressionNode::Or(..) => {
                None
            }
        }
    }

    /// Returns the operand, if it can be a boolean.
    fn flag(&self, node: u16) -> Option<ExpressionOperand> {
        self.operand(node).filter(|operand| match operand {
            ExpressionOperand::Bool(_)
            | ExpressionOperand::Field(_)
            | ExpressionOperand::Context(_)
            | ExpressionOperand::World(_) => true,
            ExpressionOperand::Number(_)
            | ExpressionOperand::Text(_)
            | ExpressionOperand::Draw(_) => false,
        })
    }

    fn operand(&self, node: u16) -> Option<ExpressionOperand> {
        match &self.nodes[usize::from(node)] {
            ExpressionNode::Leaf(operand) => Some(operand.clone()),
            ExpressionNode::Not(_)
            | ExpressionNode::Negate(_)
            | ExpressionNode::Arithmetic(..)
            | ExpressionNode::Compare(..)
            | ExpressionNode::And(..)
            | ExpressionNode::Or(..) => None,
        }
    }
}
