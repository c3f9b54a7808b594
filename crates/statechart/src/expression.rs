//! The language of guards and of the values in actions.
//!
//! ```text
//! agent.engagement_threshold < context.score && !agent.tired
//! chance(0.2) || world.alarm == "red"
//! agent.energy - 2 * draw() > 0
//! ```
//!
//! | element | forms |
//! |---|---|
//! | values | numbers, `true`, `false`, texts in double or single quotes |
//! | names | `agent.FIELD`, `context.NAME` (also `context.post.score`), `world.NAME` |
//! | operators | `+ - * /`, `< <= > >= == !=`, `&& \|\| !`, parentheses |
//! | functions | `draw()`: a fresh random number in [0, 1); `chance(p)`: short for `draw() < p` |
//!
//! `&&` and `||` evaluate their right side only if needed. Comparisons do not chain.
//!
//! Expressions are compiled when the chart is loaded. The compiler checks names, kinds of values
//! and division by a constant zero. Other errors occur during evaluation; see [`EvalError`].

mod code;
mod comparisons;
mod parse;
mod token;

pub(crate) use self::code::{CompiledExpression, NameResolver};
pub use self::code::{EvalError, EvalScope, ExprNode, ExprOperand, ExprTree};
pub use self::comparisons::OperandComparison;
pub(crate) use self::parse::parse;
pub(crate) use self::token::{ExpressionToken, tokens};

/// The maximum length of an expression in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 1024;

/// The maximum nesting depth of parentheses, signs and negations.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl CompareOp {
    /// Returns the operator as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    /// Returns the operator for exchanged sides.
    #[must_use]
    pub fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            Self::Equal => Self::Equal,
            Self::NotEqual => Self::NotEqual,
        }
    }

    /// Compares two finite numbers.
    #[inline]
    #[expect(clippy::float_cmp, reason = "the author of a guard asked for exactly this")]
    pub fn holds(self, left: f64, right: f64) -> bool {
        let (less, equal, greater) = (1, 2, 4);
        // Branch-free, because the operator is hard to predict.
        let accepted = match self {
            Self::Less => less,
            Self::LessOrEqual => less | equal,
            Self::Greater => greater,
            Self::GreaterOrEqual => greater | equal,
            Self::Equal => equal,
            Self::NotEqual => less | greater,
        };
        let found = u8::from(left < right) * less
            + u8::from(left == right) * equal
            + u8::from(left > right) * greater;
        accepted & found != 0
    }
}

impl ArithmeticOp {
    /// Returns the result, which is not finite after an overflow or a division by zero.
    #[inline]
    pub(crate) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
        }
    }
}

/// A parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExpressionAst {
    Number(f64),
    Bool(bool),
    Text(String),
    Read(VariableScope, String),
    /// The index of the draw within its expression.
    Draw(u16),
    Not(Box<ExpressionAst>),
    Negate(Box<ExpressionAst>),
    Arithmetic(ArithmeticOp, Box<ExpressionAst>, Box<ExpressionAst>),
    Compare(CompareOp, Box<ExpressionAst>, Box<ExpressionAst>),
    And(Box<ExpressionAst>, Box<ExpressionAst>),
    Or(Box<ExpressionAst>, Box<ExpressionAst>),
}

/// The namespace of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableScope {
    Agent,
    Context,
    World,
}

impl VariableScope {
    pub(crate) const ALL: [Self; 3] = [Self::Agent, Self::Context, Self::World];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Context => "context",
            Self::World => "world",
        }
    }
}
