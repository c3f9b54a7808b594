//! Guards that are nothing but comparisons, for those who evaluate many at once.

use std::sync::Arc;

use super::Compare;
use super::code::{Code, Node};
use crate::ids::{ContextId, FieldId, WorldId};

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A number that stands in the chart.
    Number(f64),
    /// `true` or `false`.
    Bool(bool),
    /// A text that stands in the chart.
    Text(Arc<str>),
    /// A field of the agent.
    Field(FieldId),
    /// A value of the context.
    Context(ContextId),
    /// A value of the world.
    World(WorldId),
    /// A random number; which of the guard's is the number, from 0.
    Draw(u16),
}

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
            Node::Bool(_) | Node::Field(_) | Node::Context(_) | Node::World(_) => {
                let left = self.flag(node)?;
                let right = Operand::Bool(true);
                comparisons.push(Comparison { left, operator: Compare::Equal, right });
                Some(())
            }
            Node::Number(_)
            | Node::Text(_)
            | Node::Draw(_)
            | Node::Negate(_)
            | Node::Arithmetic(..)
            | Node::Or(..) => None,
        }
    }

    fn flag(&self, node: u16) -> Option<Operand> {
        self.operand(node).filter(|operand| {
            !matches!(operand, Operand::Number(_) | Operand::Text(_) | Operand::Draw(_))
        })
    }

    fn operand(&self, node: u16) -> Option<Operand> {
        match &self.nodes[usize::from(node)] {
            Node::Number(number) => Some(Operand::Number(*number)),
            Node::Bool(bool) => Some(Operand::Bool(*bool)),
            Node::Text(text) => Some(Operand::Text(Arc::clone(text))),
            Node::Field(field) => Some(Operand::Field(*field)),
            Node::Context(context) => Some(Operand::Context(*context)),
            Node::World(world) => Some(Operand::World(*world)),
            Node::Draw(draw) => Some(Operand::Draw(*draw)),
            Node::Not(_)
            | Node::Negate(_)
            | Node::Arithmetic(..)
            | Node::Compare(..)
            | Node::And(..)
            | Node::Or(..) => None,
        }
    }
}
