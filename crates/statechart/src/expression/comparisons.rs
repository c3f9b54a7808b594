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
        match (left, right) {
            (_, ExprOperand::Number(number)) => Some((left, *operator, *number)),
            (ExprOperand::Number(number), _) => Some((right, operator.mirrored(), *number)),
            _ => None,
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
                let (left, right) = (self.leaf(*left)?.clone(), self.leaf(*right)?.clone());
                comparisons.push(OperandComparison { left, operator: *operator, right });
                Some(())
            }
            ExprNode::Not(inner) => self.collect_flag(*inner, false, comparisons),
            ExprNode::Leaf(_) => self.collect_flag(node, true, comparisons),
            ExprNode::Negate(_) | ExprNode::Arithmetic(..) | ExprNode::Or(..) => None,
        }
    }

    /// Adds the comparison of an operand, if it can be a boolean.
    fn collect_flag(
        &self,
        node: u16,
        wanted: bool,
        comparisons: &mut Vec<OperandComparison>,
    ) -> Option<()> {
        let left = self.leaf(node)?.clone();
        if matches!(left, ExprOperand::Number(_) | ExprOperand::Text(_) | ExprOperand::Draw(_)) {
            return None;
        }
        let right = ExprOperand::Bool(wanted);
        comparisons.push(OperandComparison { left, operator: CompareOp::Equal, right });
        Some(())
    }
}
