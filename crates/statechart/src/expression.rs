//! The language of guards and of what actions compute.
//!
//! ```text
//! agent.engagement_threshold < context.score && !agent.tired
//! chance(0.2) || world.alarm == "red"
//! agent.energy - 2 * draw() > 0
//! ```
//!
//! There are numbers, `true` and `false`, texts in double or single quotes, `agent.FIELD`,
//! `context.NAME` (also `context.post.score`) and `world.NAME`, `+ - * /`, `< <= > >= == !=`,
//! `&& || !` and parentheses. `draw()` is a fresh random number from 0 up to but not including 1;
//! `chance(p)` is short for `draw() < p`. `&&` and `||` look at their right side only when it
//! matters. Comparisons do not chain.
//!
//! An expression is compiled when the chart is loaded. What can be known then is checked then:
//! names, kinds of values, division by a constant zero. The rest can fail when it is evaluated; see
//! [`Fault`].

mod code;
mod parse;
mod simple;
mod token;

pub(crate) use self::code::{Code, Names};
pub use self::code::{Fault, Node, Operand, Scope, Tree};
pub(crate) use self::parse::parse;
pub use self::simple::Comparison;
pub(crate) use self::token::{Token, tokens};

/// The most bytes that an expression may have.
pub const EXPRESSION_BYTES_MAX: usize = 1024;

/// How deep parentheses, signs and negations of an expression may be nested.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// The operators that take two numbers to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// The operators that compare two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compare {
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

impl Compare {
    /// The operator as it is written.
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

    /// The operator that says the same with its sides exchanged.
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

    /// Compares two numbers, which must be finite.
    #[inline]
    #[expect(clippy::float_cmp, reason = "the author of a guard asked for exactly this")]
    pub fn holds(self, left: f64, right: f64) -> bool {
        let (less, equal, greater) = (1, 2, 4);
        // There is no branch: which operator a guard has cannot always be foreseen.
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

impl Arithmetic {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
        }
    }
}

/// An expression as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Number(f64),
    Bool(bool),
    Text(String),
    Read(Namespace, String),
    /// The number tells the draws of one expression apart.
    Draw(u16),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    Arithmetic(Arithmetic, Box<Expression>, Box<Expression>),
    Compare(Compare, Box<Expression>, Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
}

/// Whose value a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    Agent,
    Context,
    World,
}

impl Namespace {
    pub(crate) const ALL: [Self; 3] = [Self::Agent, Self::Context, Self::World];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Context => "context",
            Self::World => "world",
        }
    }
}
