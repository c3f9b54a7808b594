//! Compiled expressions: a flat list of nodes that refer to each other by number.

use std::sync::Arc;

use super::{Arithmetic, Compare, Expression, Namespace};
use crate::error::ChartError;
use crate::ids::{ContextId, FieldId, WorldId};
use crate::value::{Kind, Scalar};

/// Where an expression finds what it reads.
pub trait Scope {
    /// A field of the agent; nothing if it has no such field.
    fn field(&self, field: FieldId) -> Option<Scalar<'_>>;
    /// A value of the context; nothing if there is none.
    fn context(&self, context: ContextId) -> Option<Scalar<'_>>;
    /// A value of the world; nothing if there is none.
    fn world(&self, world: WorldId) -> Option<Scalar<'_>>;
    /// A random number from 0 up to but not including 1. Each `draw()` of a state and trigger has
    /// its own `index`, whether or not those before it were needed; the same index gives the same
    /// number again. Nothing if there is no source of random numbers.
    fn draw(&self, index: u32) -> Option<f64>;
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The agent has no such field.
    NoField(FieldId),
    /// The context has no such value.
    NoContext(ContextId),
    /// The world has no such value.
    NoWorld(WorldId),
    /// There is no source of random numbers.
    NoDraws,
    /// Something was divided by zero.
    DivisionByZero,
    /// The result is too large for a number.
    Overflow,
    /// An operator got a value of a kind that it has no meaning for.
    Mismatch {
        /// The operator as it is written.
        operator: &'static str,
        /// The kind of its left side, or of its only one.
        left: Kind,
        /// The kind of its right side.
        right: Option<Kind>,
    },
    /// A value must be true or false, and is not.
    NotBool(Kind),
    /// A value is not one that the field may have.
    OutOfRange(FieldId),
    /// A guard in Rust failed, for the reason it gave.
    Rust(Arc<str>),
}

/// A value that an expression has or finds.
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
    /// A random number; which of the expression's is the number, from 0.
    Draw(u16),
}

/// A part of a compiled expression. Others are referred to by their number.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// What nothing has to be calculated for.
    Leaf(Operand),
    /// `!`
    Not(u16),
    /// `-` before a value.
    Negate(u16),
    /// `+`, `-`, `*` or `/` between two values.
    Arithmetic(Arithmetic, u16, u16),
    /// A comparison of two values.
    Compare(Compare, u16, u16),
    /// `&&`
    And(u16, u16),
    /// `||`
    Or(u16, u16),
}

/// A compiled expression, for those who evaluate it for many agents at once.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    /// Its parts.
    pub nodes: &'a [Node],
    /// The part that is the whole.
    pub root: u16,
    /// What to add to the number of each draw.
    pub first_draw: u32,
}

/// A compiled expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Code {
    pub(super) nodes: Box<[Node]>,
    pub(super) root: u16,
    draws: u16,
}

/// What names stand for, and which kind of value they are, where that is known.
pub(crate) trait Names {
    fn field(&mut self, name: &str) -> Result<(FieldId, Option<Kind>), ChartError>;
    fn context(&mut self, name: &str) -> Result<ContextId, ChartError>;
    fn world(&mut self, name: &str) -> Result<(WorldId, Option<Kind>), ChartError>;
}

impl Code {
    /// Compiles an expression and says what kind its value is, where that can be known.
    pub(crate) fn compile(
        expression: &Expression,
        names: &mut impl Names,
    ) -> Result<(Self, Option<Kind>), ChartError> {
        let mut compiler = Compiler { nodes: Vec::new(), draws: 0, names };
        let (root, kind) = compiler.node(expression)?;
        let Compiler { nodes, draws, .. } = compiler;
        Ok((Self { nodes: nodes.into(), root, draws }, kind))
    }

    /// Whether it looks at one of some values of the world.
    pub(crate) fn looks_at(&self, worlds: &[WorldId]) -> bool {
        let is_one = |node: &Node| matches!(node, Node::Leaf(Operand::World(world)) if worlds.contains(world));
        self.nodes.iter().any(is_one)
    }

    pub(crate) fn tree(&self, first_draw: u32) -> Tree<'_> {
        Tree { nodes: &self.nodes, root: self.root, first_draw }
    }

    /// The number that it is whatever it sees, if it is one.
    pub(crate) fn constant(&self) -> Option<f64> {
        match &self.nodes[usize::from(self.root)] {
            Node::Leaf(Operand::Number(number)) => Some(*number),
            Node::Leaf(_)
            | Node::Not(_)
            | Node::Negate(_)
            | Node::Arithmetic(..)
            | Node::Compare(..)
            | Node::And(..)
            | Node::Or(..) => None,
        }
    }

    /// How many random numbers it may ask for.
    pub(crate) fn draws(&self) -> u16 {
        self.draws
    }

    /// The value as true or false.
    #[inline]
    pub(crate) fn holds(&self, scope: &impl Scope, first_draw: u32) -> Result<bool, Fault> {
        match self.quick_bool(self.root, scope, first_draw) {
            Some(holds) => Ok(holds),
            None => self.bool(self.root, scope, first_draw),
        }
    }

    /// The value as true or false where nothing but numbers is compared; nothing where it takes a
    /// closer look to know the value, or why there is none.
    fn quick_bool(&self, node: u16, scope: &impl Scope, first_draw: u32) -> Option<bool> {
        match &self.nodes[usize::from(node)] {
            Node::Compare(operator, left, right) => {
                let left = self.quick_leaf(*left, scope, first_draw)?;
                let right = self.quick_leaf(*right, scope, first_draw)?;
                Some(operator.holds(left, right))
            }
            Node::And(left, right) => {
                let left = self.quick_bool(*left, scope, first_draw)?;
                Some(left && self.quick_bool(*right, scope, first_draw)?)
            }
            Node::Or(left, right) => {
                let left = self.quick_bool(*left, scope, first_draw)?;
                Some(left || self.quick_bool(*right, scope, first_draw)?)
            }
            Node::Not(inner) => Some(!self.quick_bool(*inner, scope, first_draw)?),
            Node::Leaf(Operand::Bool(bool)) => Some(*bool),
            Node::Leaf(_) | Node::Negate(_) | Node::Arithmetic(..) => None,
        }
    }

    /// What most comparisons are made of, without a call.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "guards are evaluated for every agent and tick")]
    fn quick_leaf(&self, node: u16, scope: &impl Scope, first_draw: u32) -> Option<f64> {
        match &self.nodes[usize::from(node)] {
            Node::Leaf(leaf) => match leaf {
                Operand::Number(number) => Some(*number),
                Operand::Draw(draw) => scope.draw(first_draw + u32::from(*draw)),
                Operand::Field(field) => number(scope.field(*field)),
                Operand::Context(name) => number(scope.context(*name)),
                Operand::World(name) => number(scope.world(*name)),
                Operand::Bool(_) | Operand::Text(_) => None,
            },
            Node::Arithmetic(operator, left, right) => {
                self.quick_arithmetic(*operator, *left, *right, scope, first_draw)
            }
            Node::Not(_) | Node::Negate(_) | Node::Compare(..) | Node::And(..) | Node::Or(..) => {
                None
            }
        }
    }

    fn quick_arithmetic(
        &self,
        operator: Arithmetic,
        left: u16,
        right: u16,
        scope: &impl Scope,
        first_draw: u32,
    ) -> Option<f64> {
        let left = self.quick_leaf(left, scope, first_draw)?;
        let right = self.quick_leaf(right, scope, first_draw)?;
        let number = match operator {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            // What is divided by zero is not finite.
            Arithmetic::Divide => left / right,
        };
        number.is_finite().then_some(number)
    }

    /// The value.
    pub(crate) fn evaluate<'s>(
        &'s self,
        scope: &'s impl Scope,
        first_draw: u32,
    ) -> Result<Scalar<'s>, Fault> {
        self.value(self.root, scope, first_draw)
    }

    fn bool(&self, node: u16, scope: &impl Scope, first_draw: u32) -> Result<bool, Fault> {
        match self.value(node, scope, first_draw)? {
            Scalar::Bool(bool) => Ok(bool),
            other @ (Scalar::Number(_) | Scalar::Text(_)) => Err(Fault::NotBool(other.kind())),
        }
    }

    fn value<'s>(
        &'s self,
        node: u16,
        scope: &'s impl Scope,
        first_draw: u32,
    ) -> Result<Scalar<'s>, Fault> {
        let value = |node: u16| self.value(node, scope, first_draw);
        let bool = |node: u16| self.bool(node, scope, first_draw);
        match &self.nodes[usize::from(node)] {
            Node::Leaf(leaf) => leaf.value(scope, first_draw),
            Node::Not(inner) => Ok(Scalar::Bool(!bool(*inner)?)),
            Node::Negate(inner) => match value(*inner)? {
                Scalar::Number(number) => Ok(Scalar::Number(-number)),
                other @ (Scalar::Bool(_) | Scalar::Text(_)) => {
                    Err(Fault::Mismatch { operator: "-", left: other.kind(), right: None })
                }
            },
            Node::Arithmetic(operator, left, right) => {
                arithmetic(*operator, value(*left)?, value(*right)?)
            }
            Node::Compare(operator, left, right) => {
                compare(*operator, value(*left)?, value(*right)?).map(Scalar::Bool)
            }
            Node::And(left, right) => Ok(Scalar::Bool(bool(*left)? && bool(*right)?)),
            Node::Or(left, right) => Ok(Scalar::Bool(bool(*left)? || bool(*right)?)),
        }
    }
}

impl Operand {
    fn value<'s>(&'s self, scope: &'s impl Scope, first_draw: u32) -> Result<Scalar<'s>, Fault> {
        match self {
            Self::Number(number) => Ok(Scalar::Number(*number)),
            Self::Bool(bool) => Ok(Scalar::Bool(*bool)),
            Self::Text(text) => Ok(Scalar::Text(text)),
            Self::Field(field) => scope.field(*field).ok_or(Fault::NoField(*field)),
            Self::Context(name) => scope.context(*name).ok_or(Fault::NoContext(*name)),
            Self::World(name) => scope.world(*name).ok_or(Fault::NoWorld(*name)),
            Self::Draw(draw) => {
                scope.draw(first_draw + u32::from(*draw)).map(Scalar::Number).ok_or(Fault::NoDraws)
            }
        }
    }
}

#[inline]
fn number(scalar: Option<Scalar<'_>>) -> Option<f64> {
    match scalar {
        Some(Scalar::Number(number)) => Some(number),
        Some(Scalar::Bool(_) | Scalar::Text(_)) | None => None,
    }
}

fn arithmetic<'s>(
    operator: Arithmetic,
    left: Scalar<'s>,
    right: Scalar<'s>,
) -> Result<Scalar<'s>, Fault> {
    let (Scalar::Number(a), Scalar::Number(b)) = (left, right) else {
        let operator = operator.as_str();
        return Err(Fault::Mismatch { operator, left: left.kind(), right: Some(right.kind()) });
    };
    let number = match operator {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide if b == 0.0 => return Err(Fault::DivisionByZero),
        Arithmetic::Divide => a / b,
    };
    if number.is_finite() { Ok(Scalar::Number(number)) } else { Err(Fault::Overflow) }
}

fn compare(operator: Compare, left: Scalar<'_>, right: Scalar<'_>) -> Result<bool, Fault> {
    let equal = match (left, right) {
        (Scalar::Number(a), Scalar::Number(b)) => return Ok(operator.holds(a, b)),
        (Scalar::Bool(a), Scalar::Bool(b)) => Some(a == b),
        (Scalar::Text(a), Scalar::Text(b)) => Some(a == b),
        (Scalar::Number(_) | Scalar::Bool(_) | Scalar::Text(_), _) => None,
    };
    match (operator, equal) {
        (Compare::Equal, Some(equal)) => Ok(equal),
        (Compare::NotEqual, Some(equal)) => Ok(!equal),
        (
            Compare::Equal
            | Compare::NotEqual
            | Compare::Less
            | Compare::LessOrEqual
            | Compare::Greater
            | Compare::GreaterOrEqual,
            _,
        ) => Err(Fault::Mismatch {
            operator: operator.as_str(),
            left: left.kind(),
            right: Some(right.kind()),
        }),
    }
}

struct Compiler<'n, N> {
    nodes: Vec<Node>,
    draws: u16,
    names: &'n mut N,
}

type Compiled = (u16, Option<Kind>);

impl<N: Names> Compiler<'_, N> {
    fn push(&mut self, node: Node, kind: Option<Kind>) -> Result<Compiled, ChartError> {
        // An expression of the greatest length has fewer nodes than that.
        let index = u16::try_from(self.nodes.len())
            .map_err(|_| ChartError::from("it is too long".to_owned()))?;
        self.nodes.push(node);
        Ok((index, kind))
    }

    fn leaf(&mut self, operand: Operand, kind: Option<Kind>) -> Result<Compiled, ChartError> {
        self.push(Node::Leaf(operand), kind)
    }

    fn node(&mut self, expression: &Expression) -> Result<Compiled, ChartError> {
        if let Some(number) = constant(expression) {
            return self.leaf(Operand::Number(number), Some(Kind::Number));
        }
        match expression {
            Expression::Number(number) => self.leaf(Operand::Number(*number), Some(Kind::Number)),
            Expression::Bool(bool) => self.leaf(Operand::Bool(*bool), Some(Kind::Bool)),
            Expression::Text(text) => {
                self.leaf(Operand::Text(text.as_str().into()), Some(Kind::Text))
            }
            Expression::Read(Namespace::Agent, name) => {
                let (field, kind) = self.names.field(name)?;
                self.leaf(Operand::Field(field), kind)
            }
            Expression::Read(Namespace::World, name) => {
                let (world, kind) = self.names.world(name)?;
                self.leaf(Operand::World(world), kind)
            }
            Expression::Read(Namespace::Context, name) => {
                let context = self.names.context(name)?;
                self.leaf(Operand::Context(context), None)
            }
            Expression::Draw(draw) => {
                self.draws = self.draws.max(draw + 1);
                self.leaf(Operand::Draw(*draw), Some(Kind::Number))
            }
            Expression::Not(inner) => {
                let inner = self.operand(inner, "!", Kind::Bool)?;
                self.push(Node::Not(inner), Some(Kind::Bool))
            }
            Expression::Negate(inner) => {
                let inner = self.operand(inner, "-", Kind::Number)?;
                self.push(Node::Negate(inner), Some(Kind::Number))
            }
            Expression::And(left, right) => {
                let left = self.operand(left, "&&", Kind::Bool)?;
                let right = self.operand(right, "&&", Kind::Bool)?;
                self.push(Node::And(left, right), Some(Kind::Bool))
            }
            Expression::Or(left, right) => {
                let left = self.operand(left, "||", Kind::Bool)?;
                let right = self.operand(right, "||", Kind::Bool)?;
                self.push(Node::Or(left, right), Some(Kind::Bool))
            }
            Expression::Arithmetic(operator, left, right) => {
                if *operator == Arithmetic::Divide && constant(right) == Some(0.0) {
                    return Err("it divides by zero".to_owned().into());
                }
                let left = self.operand(left, operator.as_str(), Kind::Number)?;
                let right = self.operand(right, operator.as_str(), Kind::Number)?;
                self.push(Node::Arithmetic(*operator, left, right), Some(Kind::Number))
            }
            Expression::Compare(operator, left, right) => self.compare(*operator, left, right),
        }
    }

    fn operand(
        &mut self,
        expression: &Expression,
        operator: &str,
        wanted: Kind,
    ) -> Result<u16, ChartError> {
        match self.node(expression)? {
            (node, None) => Ok(node),
            (node, Some(kind)) if kind == wanted => Ok(node),
            (_, Some(kind)) => {
                let (wanted, kind) = (wanted.in_words(), kind.in_words());
                Err(format!("\"{operator}\" needs {wanted} and is given {kind}").into())
            }
        }
    }

    fn compare(
        &mut self,
        operator: Compare,
        left: &Expression,
        right: &Expression,
    ) -> Result<Compiled, ChartError> {
        let (left, left_kind) = self.node(left)?;
        let (right, right_kind) = self.node(right)?;
        let is_equality = matches!(operator, Compare::Equal | Compare::NotEqual);
        if let (Some(left_kind), Some(right_kind)) = (left_kind, right_kind)
            && left_kind != right_kind
        {
            let (left, right) = (left_kind.in_words(), right_kind.in_words());
            let operator = operator.as_str();
            return Err(format!("\"{operator}\" cannot compare {left} with {right}").into());
        }
        if let Some(kind) = left_kind.or(right_kind)
            && !is_equality
            && kind != Kind::Number
        {
            let (operator, kind) = (operator.as_str(), kind.in_words());
            return Err(format!("\"{operator}\" needs numbers and is given {kind}").into());
        }
        self.push(Node::Compare(operator, left, right), Some(Kind::Bool))
    }
}

/// The value of an expression that reads nothing.
fn constant(expression: &Expression) -> Option<f64> {
    match expression {
        Expression::Number(number) => Some(*number),
        Expression::Negate(inner) => constant(inner).map(|number| -number),
        Expression::Arithmetic(operator, left, right) => {
            let (left, right) = (constant(left)?, constant(right)?);
            match arithmetic(*operator, Scalar::Number(left), Scalar::Number(right)) {
                Ok(Scalar::Number(number)) => Some(number),
                Ok(Scalar::Bool(_) | Scalar::Text(_)) | Err(_) => None,
            }
        }
        Expression::Bool(_)
        | Expression::Text(_)
        | Expression::Read(..)
        | Expression::Draw(_)
        | Expression::Not(_)
        | Expression::Compare(..)
        | Expression::And(..)
        | Expression::Or(..) => None,
    }
}
