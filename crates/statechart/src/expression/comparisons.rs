//! Guards that are conjunctions of comparisons, for batch evaluation.

use super::CompareOp;
use super::code::{CompiledExpression, ExprNode, ExprOperand};

/// A comparison of two operands.
#[derive(Debug, Clone, PartialEq)]
pub struct OperandComparison {
    /// The left operand.
    pub left: ExprOperand,
    /// The operator.
    pub operator: CompareOp,
    /// The right operand.
    pub right: ExprOperand,
}

impl OperandComparison {
    /// Returns the parts of a comparison with a constant number, with the number on the right.
    pub fn with_number(&self) -> Option<(&ExprOperand, CompareOp, f64)> {
        let Self { left, operator, right } = self;
        if let ExprOperand::Number(number) = right {
            return Some((left, *operator, *number));
        }
        match left {
            ExprOperand::Number(number) => Some((right, operator.mirrored(), *number)),
            ExprOperand::Bool(_)
            | ExprOperand::Text(_)
            | ExprOperand::Field(_)
            | ExprOperand::Context(_)
            | ExprOperand::World(_)
            | ExprOperand::Draw(_) => None,
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
            ExprNode::And(left, right) => {
                self.collect(*left, comparisons)?;
                self.collect(*right, comparisons)
            }
            ExprNode::Compare(operator, left, right) => {
                let (left, right) = (self.operand(*left)?, self.operand(*right)?);
                comparisons.push(OperandComparison { left, operator: *operator, right });
                Some(())
            }
            ExprNode::Not(inner) => {
                let left = self.flag(*inner)?;
                let right = ExprOperand::Bool(false);
                comparisons.push(OperandComparison { left, operator: CompareOp::Equal, right });
                Some(())
            }
            ExprNode::Leaf(_) => {
                let left = self.flag(node)?;
                let right = ExprOperand::Bool(true);
                comparisons.push(OperandComparison { left, operator: CompareOp::Equal, right });
                Some(())
            }
            ExprNode::Negate(_) | ExprNode::Arithmetic(..) | ExprNode::Or(..) => None,
        }
    }

    /// Returns the operand, if it can be a boolean.
    fn flag(&self, node: u16) -> Option<ExprOperand> {
        self.operand(node).filter(|operand| match operand {
            ExprOperand::Bool(_)
            | ExprOperand::Field(_)
            | ExprOperand::Context(_)
            | ExprOperand::World(_) => true,
            ExprOperand::Number(_) | ExprOperand::Text(_) | ExprOperand::Draw(_) => false,
        })
    }

    fn operand(&self, node: u16) -> Option<ExprOperand> {
        match &self.nodes[usize::from(node)] {
            ExprNode::Leaf(operand) => Some(operand.clone()),
            ExprNode::Not(_)
            | ExprNode::Negate(_)
            | ExprNode::Arithmetic(..)
            | ExprNode::Compare(..)
            | ExprNode::And(..)
            | ExprNode::Or(..) => None,
        }
    }
}
