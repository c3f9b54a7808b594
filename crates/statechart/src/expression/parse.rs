//! The expression parser.

use super::token::ExpressionToken;
use super::{ArithmeticOp, CompareOp, EXPRESSION_DEPTH_MAX, ExpressionAst, VariableScope};

/// Parses an expression that spans all tokens.
pub(crate) fn parse(tokens: &[ExpressionToken]) -> Result<ExpressionAst, String> {
    let mut parser = ExpressionParser { tokens, next: 0, draws: 0, depth: 0 };
    let expression = parser.disjunction()?;
    match parser.peek() {
        None => Ok(expression),
        Some(ExpressionToken::Symbol("=")) => {
            Err("\"=\" has no meaning here; equality is \"==\"".to_owned())
        }
        Some(token) => Err(format!("{} stands where the expression is over", token.describe())),
    }
}

struct ExpressionParser<'t> {
    tokens: &'t [ExpressionToken],
    next: usize,
    draws: u16,
    depth: usize,
}

/// Joins the two sides of an operator.
type BinaryNode = fn(Box<ExpressionAst>, Box<ExpressionAst>) -> ExpressionAst;

impl ExpressionParser<'_> {
    fn peek(&self) -> Option<&ExpressionToken> {
        self.tokens.get(self.next)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(ExpressionToken::Symbol(found)) if *found == symbol);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.accept(symbol) {
            return Ok(());
        }
        Err(match self.peek() {
            Some(token) => format!("\"{symbol}\" is missing before {}", token.describe()),
            None => format!("\"{symbol}\" is missing at the end"),
        })
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.depth += 1;
        if self.depth > EXPRESSION_DEPTH_MAX {
            return Err(format!(
                "it is nested too deep: the limit expression_depth is {EXPRESSION_DEPTH_MAX}"
            ));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Parses operands that these operators join, from left to right.
    fn chain<const N: usize>(
        &mut self,
        operand: fn(&mut Self) -> Result<ExpressionAst, String>,
        operators: [(&str, BinaryNode); N],
    ) -> Result<ExpressionAst, String> {
        let mut left = operand(self)?;
        while let Some((_, node)) = operators.iter().find(|(symbol, _)| self.accept(symbol)) {
            left = node(Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn disjunction(&mut self) -> Result<ExpressionAst, String> {
        self.chain(Self::conjunction, [("||", ExpressionAst::Or)])
    }

    fn conjunction(&mut self) -> Result<ExpressionAst, String> {
        self.chain(Self::comparison, [("&&", ExpressionAst::And)])
    }

    fn comparison(&mut self) -> Result<ExpressionAst, String> {
        let left = self.sum()?;
        let Some(operator) = self.compare() else { return Ok(left) };
        let right = self.sum()?;
        if self.compare().is_some() {
            return Err("comparisons do not chain; join two of them with \"&&\"".to_owned());
        }
        Ok(ExpressionAst::Compare(operator, Box::new(left), Box::new(right)))
    }

    fn compare(&mut self) -> Option<CompareOp> {
        let all = [
            CompareOp::LessOrEqual,
            CompareOp::GreaterOrEqual,
            CompareOp::Equal,
            CompareOp::NotEqual,
            CompareOp::Less,
            CompareOp::Greater,
        ];
        all.into_iter().find(|operator| self.accept(operator.as_str()))
    }

    fn sum(&mut self) -> Result<ExpressionAst, String> {
        let add: BinaryNode =
            |left, right| ExpressionAst::Arithmetic(ArithmeticOp::Add, left, right);
        let subtract: BinaryNode =
            |left, right| ExpressionAst::Arithmetic(ArithmeticOp::Subtract, left, right);
        self.chain(Self::product, [("+", add), ("-", subtract)])
    }

    fn product(&mut self) -> Result<ExpressionAst, String> {
        let multiply: BinaryNode =
            |left, right| ExpressionAst::Arithmetic(ArithmeticOp::Multiply, left, right);
        let divide: BinaryNode =
            |left, right| ExpressionAst::Arithmetic(ArithmeticOp::Divide, left, right);
        self.chain(Self::unary, [("*", multiply), ("/", divide)])
    }

    fn unary(&mut self) -> Result<ExpressionAst, String> {
        if self.accept("!") {
            let inner = self.nested(Self::unary)?;
            return Ok(ExpressionAst::Not(Box::new(inner)));
        }
        if self.accept("-") {
            let inner = self.nested(Self::unary)?;
            return Ok(match inner {
                ExpressionAst::Number(number) => ExpressionAst::Number(-number),
                inner => ExpressionAst::Negate(Box::new(inner)),
            });
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<ExpressionAst, String> {
        if self.accept("(") {
            let inner = self.nested(Self::disjunction)?;
            self.expect(")")?;
            return Ok(inner);
        }
        let Some(token) = self.peek().cloned() else {
            return Err("a value is missing at the end".to_owned());
        };
        self.next += 1;
        match token {
            ExpressionToken::Number(number) => Ok(ExpressionAst::Number(number)),
            ExpressionToken::Text(text) => Ok(ExpressionAst::Text(text)),
            ExpressionToken::Symbol(symbol) => {
                Err(format!("a value is missing before \"{symbol}\""))
            }
            ExpressionToken::Name(name) => match name.as_str() {
                "true" => Ok(ExpressionAst::Bool(true)),
                "false" => Ok(ExpressionAst::Bool(false)),
                "draw" => {
                    self.expect("(")?;
                    self.expect(")")?;
                    Ok(self.draw())
                }
                "chance" => {
                    self.expect("(")?;
                    let limit = self.nested(Self::disjunction)?;
                    self.expect(")")?;
                    if let ExpressionAst::Number(chance) = limit
                        && !(0.0..=1.0).contains(&chance)
                    {
                        return Err(format!("chance({chance}) must be from 0 to 1"));
                    }
                    if matches!(limit, ExpressionAst::Text(_) | ExpressionAst::Bool(_)) {
                        return Err("chance(p) takes a number from 0 to 1".to_owned());
                    }
                    let draw = self.draw();
                    Ok(ExpressionAst::Compare(CompareOp::Less, Box::new(draw), Box::new(limit)))
                }
                _ => read(&name),
            },
        }
    }

    fn draw(&mut self) -> ExpressionAst {
        let draw = ExpressionAst::Draw(self.draws);
        self.draws += 1;
        draw
    }
}

fn read(name: &str) -> Result<ExpressionAst, String> {
    let Some((namespace, rest)) = name.split_once('.') else {
        return Err(format!(
            "\"{name}\" is not known; a name is agent.{name}, context.{name} or world.{name}, and \
             the functions are draw() and chance(p)"
        ));
    };
    let known = VariableScope::ALL.into_iter().find(|known| known.as_str() == namespace);
    let Some(known) = known else {
        return Err(format!("\"{namespace}\" is not known; allowed: agent, context, world"));
    };
    if rest.split('.').any(str::is_empty) {
        return Err(format!("\"{name}\" has a dot without a name"));
    }
    if rest.contains('.') && known != VariableScope::Context {
        return Err(format!("\"{name}\" has too many dots: {namespace} holds plain values"));
    }
    Ok(ExpressionAst::Read(known, rest.to_owned()))
}
