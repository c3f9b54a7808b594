//! Guards that are nothing but comparisons, for those who evaluate many at once.

use super::Compare;
use super::code::{Code, Node, Operand};

/// A comparison of two operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What stands left of the operator.
    pub left: Operand,
    /// The operator.
    pub operator: Compare,
    /// What stands right of the operator.
    pub right: Operand,
}

impl Comparison {
    /// What is compared with a number that stands in the chart, if that is what it is: with the
    /// operator as it is when the number stands right.
    pub fn with_number(&self) -> Option<(&Operand, Compare, f64)> {
        let Self { left, operator, right } = self;
        if let Operand::Number(number) = right {
            return Some((left, *operator, *number));
        }
        match left {
            Operand::Number(number) => Some((right, operator.mirrored(), *number)),
            Operand::Bool(_)
            | Operand::Text(_)
            | Operand::Field(_)
            | Operand::Context(_)
            | Operand::World(_)
            | Operand::Draw(_) => None,
        }
    }
}

impl Code {
    /// The comparisons that must all hold, if that is all the expression is.
    pub(crate) fn comparisons(&self) -> Option<Vec<Comparison>> {
        let mut comparisons = Vec::new();
        self.collect(self.root, &mut comparisons)?;
        Some(comparisons)
    }

    fn collect(&self, node: u16, comparisons: &mut Vec<Comparison>) -> Option<()> {
        match &self.nodes[usize::from(node)] {
            Node::And(left, right) => {
                self.collect(*left, comparisons)?;
                self.collect(*right, comparisons)
            }
            Node::Compare(operator, left, right) => {
                let (left, right) = (self.operand(*left)?, self.operand(*right)?);
                comparisons.push(Comparison { left, operator: *operator, right });
                Some(())
            }
            Node::Not(inner) => {
                let left = self.flag(*inner)?;
                let right = Operand::Bool(false);
                comparisons.push(Comparison { left, operator: Compare::Equal, right });
                Some(())
            }
            Node::Leaf(_) => {
                let left = self.flag(node)?;
                let right = Operand::Bool(true);
                comparisons.push(Comparison { left, operator: Compare::Equal, right });
                Some(())
            }
            Node::Negate(_) | Node::Arithmetic(..) | Node::Or(..) => None,
        }
    }

    /// What may be true or false.
    fn flag(&self, node: u16) -> Option<Operand> {
        self.operand(node).filter(|operand| match operand {
            Operand::Bool(_) | Operand::Field(_) | Operand::Context(_) | Operand::World(_) => true,
            Operand::Number(_) | Operand::Text(_) | Operand::Draw(_) => false,
        })
    }

    fn operand(&self, node: u16) -> Option<Operand> {
        match &self.nodes[usize::from(node)] {
            Node::Leaf(operand) => Some(operand.clone()),
            Node::Not(_)
            | Node::Negate(_)
            | Node::Arithmetic(..)
            | Node::Compare(..)
            | Node::And(..)
            | Node::Or(..) => None,
        }
    }
}
