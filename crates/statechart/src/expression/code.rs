//! Compiled expressions: a flat list of nodes that refer to each other by index.

use std::sync::Arc;

use super::{ArithmeticOp, CompareOp, ExpressionAst, VariableScope};
use crate::error::ChartError;
use crate::ids::{ContextId, FieldId, WorldId};
use crate::value::{ScalarKind, ScalarRef};

/// The values that an expression can read.
pub trait EvalScope {
    /// Returns a field of the agent, if it has one.
    fn field(&self, field: FieldId) -> Option<ScalarRef<'_>>;
    /// Returns a value of the context, if it has one.
    fn context(&self, context: ContextId) -> Option<ScalarRef<'_>>;
    /// Returns a world value, if it has one.
    fn world(&self, world: WorldId) -> Option<ScalarRef<'_>>;
    /// Returns a random number in [0, 1), or `None` without a source of random numbers. Each
    /// `draw()` of a state and trigger has its own `index`, and the same index always gives the
    /// same number.
    fn draw(&self, index: u32) -> Option<f64>;
}

/// The reason why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvalError {
    /// The agent has no such field.
    NoField(FieldId),
    /// The context has no such value.
    NoContext(ContextId),
    /// The world has no such value.
    NoWorld(WorldId),
    /// There is no source of random numbers.
    NoDraws,
    /// A division by zero.
    DivisionByZero,
    /// The result is too large for a number.
    Overflow,
    /// An operator does not apply to these kinds of values.
    Mismatch {
        /// The operator as written.
        operator: &'static str,
        /// The kind of its left or only side.
        left: ScalarKind,
        /// The kind of its right side.
        right: Option<ScalarKind>,
    },
    /// A value is not a boolean.
    NotBool(ScalarKind),
    /// The field may not have this value.
    OutOfRange(FieldId),
    /// A Rust guard returned this error.
    Rust(Arc<str>),
}

/// An operand of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprOperand {
    /// A constant number.
    Number(f64),
    /// A constant boolean.
    Bool(bool),
    /// A constant text.
    Text(Arc<str>),
    /// A field of the agent.
    Field(FieldId),
    /// A value of the context.
    Context(ContextId),
    /// A world value.
    World(WorldId),
    /// A random draw, by its index within the expression.
    Draw(u16),
}

/// A node of a compiled expression. It refers to others by index.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprNode {
    /// An operand.
    Leaf(ExprOperand),
    /// `!`
    Not(u16),
    /// `-` before a value.
    Negate(u16),
    /// An arithmetic operation.
    Arithmetic(ArithmeticOp, u16, u16),
    /// A comparison.
    Compare(CompareOp, u16, u16),
    /// `&&`
    And(u16, u16),
    /// `||`
    Or(u16, u16),
}

/// A borrowed compiled expression, for batch evaluation.
#[derive(Debug, Clone, Copy)]
pub struct ExprTree<'a> {
    /// The nodes.
    pub nodes: &'a [ExprNode],
    /// The index of the root node.
    pub root: u16,
    /// The offset to add to each draw index.
    pub first_draw: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompiledExpression {
    pub(super) nodes: Box<[ExprNode]>,
    pub(super) root: u16,
    draws: u16,
}

/// Resolves names to ids and to kinds of values, if known.
pub(crate) trait NameResolver {
    fn field(&mut self, name: &str) -> Result<(FieldId, Option<ScalarKind>), ChartError>;
    fn context(&mut self, name: &str) -> Result<ContextId, ChartError>;
    fn world(&mut self, name: &str) -> Result<(WorldId, Option<ScalarKind>), ChartError>;
}

impl CompiledExpression {
    /// Compiles an expression. Also returns the kind of its value, if known.
    pub(crate) fn compile(
        expression: &ExpressionAst,
        names: &mut impl NameResolver,
    ) -> Result<(Self, Option<ScalarKind>), ChartError> {
        let mut compiler = ExpressionCompiler { nodes: Vec::new(), draws: 0, names };
        let (root, kind) = compiler.node(expression)?;
        let ExpressionCompiler { nodes, draws, .. } = compiler;
        Ok((Self { nodes: nodes.into(), root, draws }, kind))
    }

    /// True if the expression reads one of the world values.
    pub(crate) fn reads_world(&self, world_values: &[WorldId]) -> bool {
        let is_one = |node: &ExprNode| matches!(node, ExprNode::Leaf(ExprOperand::World(world)) if world_values.contains(world));
        self.nodes.iter().any(is_one)
    }

    pub(crate) fn tree(&self, first_draw: u32) -> ExprTree<'_> {
        ExprTree { nodes: &self.nodes, root: self.root, first_draw }
    }

    /// Returns the value of a constant numeric expression.
    pub(crate) fn constant(&self) -> Option<f64> {
        match self.leaf(self.root)? {
            ExprOperand::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the operand, if the node is one.
    pub(super) fn leaf(&self, node: u16) -> Option<&ExprOperand> {
        match &self.nodes[usize::from(node)] {
            ExprNode::Leaf(operand) => Some(operand),
            _ => None,
        }
    }

    /// Returns the maximum number of draws.
    pub(crate) fn draws(&self) -> u16 {
        self.draws
    }

    /// Evaluates the expression as a boolean.
    #[inline]
    pub(crate) fn holds(&self, scope: &impl EvalScope, first_draw: u32) -> Result<bool, EvalError> {
        match self.fast_bool(self.root, scope, first_draw) {
            Some(holds) => Ok(holds),
            None => self.bool(self.root, scope, first_draw),
        }
    }

    /// Evaluates a boolean node over numbers. Returns `None` if only [`bool`](Self::bool) can tell
    /// the value or the error.
    fn fast_bool(&self, node: u16, scope: &impl EvalScope, first_draw: u32) -> Option<bool> {
        match &self.nodes[usize::from(node)] {
            ExprNode::Compare(operator, left, right) => {
                let left = self.fast_operand(*left, scope, first_draw)?;
                let right = self.fast_operand(*right, scope, first_draw)?;
                Some(operator.holds(left, right))
            }
            ExprNode::And(left, right) => {
                let left = self.fast_bool(*left, scope, first_draw)?;
                Some(left && self.fast_bool(*right, scope, first_draw)?)
            }
            ExprNode::Or(left, right) => {
                let left = self.fast_bool(*left, scope, first_draw)?;
                Some(left || self.fast_bool(*right, scope, first_draw)?)
            }
            ExprNode::Not(inner) => Some(!self.fast_bool(*inner, scope, first_draw)?),
            ExprNode::Leaf(ExprOperand::Bool(bool)) => Some(*bool),
            ExprNode::Leaf(_) | ExprNode::Negate(_) | ExprNode::Arithmetic(..) => None,
        }
    }

    /// Evaluates the most frequent operands inline.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "guards are evaluated for every agent and tick")]
    fn fast_operand(&self, node: u16, scope: &impl EvalScope, first_draw: u32) -> Option<f64> {
        match &self.nodes[usize::from(node)] {
            ExprNode::Leaf(leaf) => match leaf {
                ExprOperand::Number(number) => Some(*number),
                ExprOperand::Draw(draw) => scope.draw(first_draw + u32::from(*draw)),
                ExprOperand::Field(field) => scope.field(*field)?.as_number(),
                ExprOperand::Context(name) => scope.context(*name)?.as_number(),
                ExprOperand::World(name) => scope.world(*name)?.as_number(),
                ExprOperand::Bool(_) | ExprOperand::Text(_) => None,
            },
            ExprNode::Arithmetic(operator, left, right) => {
                self.fast_arithmetic(*operator, *left, *right, scope, first_draw)
            }
            _ => None,
        }
    }

    fn fast_arithmetic(
        &self,
        operator: ArithmeticOp,
        left: u16,
        right: u16,
        scope: &impl EvalScope,
        first_draw: u32,
    ) -> Option<f64> {
        let left = self.fast_operand(left, scope, first_draw)?;
        let right = self.fast_operand(right, scope, first_draw)?;
        Some(operator.apply(left, right)).filter(|number| number.is_finite())
    }

    /// Evaluates the expression.
    pub(crate) fn evaluate<'s>(
        &'s self,
        scope: &'s impl EvalScope,
        first_draw: u32,
    ) -> Result<ScalarRef<'s>, EvalError> {
        self.value(self.root, scope, first_draw)
    }

    fn bool(&self, node: u16, scope: &impl EvalScope, first_draw: u32) -> Result<bool, EvalError> {
        match self.value(node, scope, first_draw)? {
            ScalarRef::Bool(bool) => Ok(bool),
            other @ (ScalarRef::Number(_) | ScalarRef::Text(_)) => {
                Err(EvalError::NotBool(other.kind()))
            }
        }
    }

    fn value<'s>(
        &'s self,
        node: u16,
        scope: &'s impl EvalScope,
        first_draw: u32,
    ) -> Result<ScalarRef<'s>, EvalError> {
        let value = |node: u16| self.value(node, scope, first_draw);
        let bool = |node: u16| self.bool(node, scope, first_draw);
        match &self.nodes[usize::from(node)] {
            ExprNode::Leaf(leaf) => leaf.value(scope, first_draw),
            ExprNode::Not(inner) => Ok(ScalarRef::Bool(!bool(*inner)?)),
            ExprNode::Negate(inner) => match value(*inner)? {
                ScalarRef::Number(number) => Ok(ScalarRef::Number(-number)),
                other @ (ScalarRef::Bool(_) | ScalarRef::Text(_)) => {
                    Err(EvalError::Mismatch { operator: "-", left: other.kind(), right: None })
                }
            },
            ExprNode::Arithmetic(operator, left, right) => {
                arithmetic(*operator, value(*left)?, value(*right)?)
            }
            ExprNode::Compare(operator, left, right) => {
                compare(*operator, value(*left)?, value(*right)?).map(ScalarRef::Bool)
            }
            ExprNode::And(left, right) => Ok(ScalarRef::Bool(bool(*left)? && bool(*right)?)),
            ExprNode::Or(left, right) => Ok(ScalarRef::Bool(bool(*left)? || bool(*right)?)),
        }
    }
}

impl ExprOperand {
    fn value<'s>(
        &'s self,
        scope: &'s impl EvalScope,
        first_draw: u32,
    ) -> Result<ScalarRef<'s>, EvalError> {
        match self {
            Self::Number(number) => Ok(ScalarRef::Number(*number)),
            Self::Bool(bool) => Ok(ScalarRef::Bool(*bool)),
            Self::Text(text) => Ok(ScalarRef::Text(text)),
            Self::Field(field) => scope.field(*field).ok_or(EvalError::NoField(*field)),
            Self::Context(name) => scope.context(*name).ok_or(EvalError::NoContext(*name)),
            Self::World(name) => scope.world(*name).ok_or(EvalError::NoWorld(*name)),
            Self::Draw(draw) => scope
                .draw(first_draw + u32::from(*draw))
                .map(ScalarRef::Number)
                .ok_or(EvalError::NoDraws),
        }
    }
}

fn arithmetic<'s>(
    operator: ArithmeticOp,
    left: ScalarRef<'s>,
    right: ScalarRef<'s>,
) -> Result<ScalarRef<'s>, EvalError> {
    let (ScalarRef::Number(a), ScalarRef::Number(b)) = (left, right) else {
        let operator = operator.as_str();
        return Err(EvalError::Mismatch { operator, left: left.kind(), right: Some(right.kind()) });
    };
    if operator == ArithmeticOp::Divide && b == 0.0 {
        return Err(EvalError::DivisionByZero);
    }
    let number = operator.apply(a, b);
    if number.is_finite() { Ok(ScalarRef::Number(number)) } else { Err(EvalError::Overflow) }
}

fn compare(
    operator: CompareOp,
    left: ScalarRef<'_>,
    right: ScalarRef<'_>,
) -> Result<bool, EvalError> {
    let equal = match (left, right) {
        (ScalarRef::Number(a), ScalarRef::Number(b)) => return Ok(operator.holds(a, b)),
        (ScalarRef::Bool(a), ScalarRef::Bool(b)) => Some(a == b),
        (ScalarRef::Text(a), ScalarRef::Text(b)) => Some(a == b),
        (ScalarRef::Number(_) | ScalarRef::Bool(_) | ScalarRef::Text(_), _) => None,
    };
    match (operator, equal) {
        (CompareOp::Equal, Some(equal)) => Ok(equal),
        (CompareOp::NotEqual, Some(equal)) => Ok(!equal),
        _ => Err(EvalError::Mismatch {
            operator: operator.as_str(),
            left: left.kind(),
            right: Some(right.kind()),
        }),
    }
}

struct ExpressionCompiler<'n, N> {
    nodes: Vec<ExprNode>,
    draws: u16,
    names: &'n mut N,
}

type TypedNode = (u16, Option<ScalarKind>);

impl<N: NameResolver> ExpressionCompiler<'_, N> {
    fn push(&mut self, node: ExprNode, kind: Option<ScalarKind>) -> Result<TypedNode, ChartError> {
        // An expression of the maximum length has fewer nodes.
        let index = u16::try_from(self.nodes.len())
            .map_err(|_| ChartError::from("it is too long".to_owned()))?;
        self.nodes.push(node);
        Ok((index, kind))
    }

    fn leaf(
        &mut self,
        operand: ExprOperand,
        kind: Option<ScalarKind>,
    ) -> Result<TypedNode, ChartError> {
        self.push(ExprNode::Leaf(operand), kind)
    }

    fn node(&mut self, expression: &ExpressionAst) -> Result<TypedNode, ChartError> {
        if let Some(number) = constant(expression) {
            return self.leaf(ExprOperand::Number(number), Some(ScalarKind::Number));
        }
        match expression {
            ExpressionAst::Number(number) => {
                self.leaf(ExprOperand::Number(*number), Some(ScalarKind::Number))
            }
            ExpressionAst::Bool(bool) => {
                self.leaf(ExprOperand::Bool(*bool), Some(ScalarKind::Bool))
            }
            ExpressionAst::Text(text) => {
                self.leaf(ExprOperand::Text(text.as_str().into()), Some(ScalarKind::Text))
            }
            ExpressionAst::Read(VariableScope::Agent, name) => {
                let (field, kind) = self.names.field(name)?;
                self.leaf(ExprOperand::Field(field), kind)
            }
            ExpressionAst::Read(VariableScope::World, name) => {
                let (world, kind) = self.names.world(name)?;
                self.leaf(ExprOperand::World(world), kind)
            }
            ExpressionAst::Read(VariableScope::Context, name) => {
                let context = self.names.context(name)?;
                self.leaf(ExprOperand::Context(context), None)
            }
            ExpressionAst::Draw(draw) => {
                self.draws = self.draws.max(draw + 1);
                self.leaf(ExprOperand::Draw(*draw), Some(ScalarKind::Number))
            }
            ExpressionAst::Not(inner) => {
                let inner = self.operand(inner, "!", ScalarKind::Bool)?;
                self.push(ExprNode::Not(inner), Some(ScalarKind::Bool))
            }
            ExpressionAst::Negate(inner) => {
                let inner = self.operand(inner, "-", ScalarKind::Number)?;
                self.push(ExprNode::Negate(inner), Some(ScalarKind::Number))
            }
            ExpressionAst::And(left, right) => {
                let [left, right] = self.operands([left, right], "&&", ScalarKind::Bool)?;
                self.push(ExprNode::And(left, right), Some(ScalarKind::Bool))
            }
            ExpressionAst::Or(left, right) => {
                let [left, right] = self.operands([left, right], "||", ScalarKind::Bool)?;
                self.push(ExprNode::Or(left, right), Some(ScalarKind::Bool))
            }
            ExpressionAst::Arithmetic(operator, left, right) => {
                if *operator == ArithmeticOp::Divide && constant(right) == Some(0.0) {
                    return Err("it divides by zero".to_owned().into());
                }
                let [left, right] =
                    self.operands([left, right], operator.as_str(), ScalarKind::Number)?;
                self.push(ExprNode::Arithmetic(*operator, left, right), Some(ScalarKind::Number))
            }
            ExpressionAst::Compare(operator, left, right) => self.compare(*operator, left, right),
        }
    }

    fn operands(
        &mut self,
        [left, right]: [&ExpressionAst; 2],
        operator: &str,
        wanted: ScalarKind,
    ) -> Result<[u16; 2], ChartError> {
        Ok([self.operand(left, operator, wanted)?, self.operand(right, operator, wanted)?])
    }

    fn operand(
        &mut self,
        expression: &ExpressionAst,
        operator: &str,
        wanted: ScalarKind,
    ) -> Result<u16, ChartError> {
        match self.node(expression)? {
            (node, None) => Ok(node),
            (node, Some(kind)) if kind == wanted => Ok(node),
            (_, Some(kind)) => {
                let (wanted, kind) = (wanted.describe(), kind.describe());
                Err(format!("\"{operator}\" needs {wanted} and is given {kind}").into())
            }
        }
    }

    fn compare(
        &mut self,
        operator: CompareOp,
        left: &ExpressionAst,
        right: &ExpressionAst,
    ) -> Result<TypedNode, ChartError> {
        let (left, left_kind) = self.node(left)?;
        let (right, right_kind) = self.node(right)?;
        let is_equality = matches!(operator, CompareOp::Equal | CompareOp::NotEqual);
        if let (Some(left_kind), Some(right_kind)) = (left_kind, right_kind)
            && left_kind != right_kind
        {
            let (left, right) = (left_kind.describe(), right_kind.describe());
            let operator = operator.as_str();
            return Err(format!("\"{operator}\" cannot compare {left} with {right}").into());
        }
        if let Some(kind) = left_kind.or(right_kind)
            && !is_equality
            && kind != ScalarKind::Number
        {
            let (operator, kind) = (operator.as_str(), kind.describe());
            return Err(format!("\"{operator}\" needs numbers and is given {kind}").into());
        }
        self.push(ExprNode::Compare(operator, left, right), Some(ScalarKind::Bool))
    }
}

/// Returns the value of a constant numeric expression.
fn constant(expression: &ExpressionAst) -> Option<f64> {
    match expression {
        ExpressionAst::Number(number) => Some(*number),
        ExpressionAst::Negate(inner) => constant(inner).map(|number| -number),
        ExpressionAst::Arithmetic(operator, left, right) => {
            let (left, right) = (constant(left)?, constant(right)?);
            Some(operator.apply(left, right)).filter(|number| number.is_finite())
        }
        _ => None,
    }
}
