//! From words to an expression.

use super::token::Token;
use super::{Arithmetic, Compare, EXPRESSION_DEPTH_MAX, Expression, Namespace};

/// Reads an expression, which ends where the words end. The error says what is wrong.
pub(crate) fn parse(tokens: &[Token]) -> Result<Expression, String> {
    let mut parser = Parser { tokens, next: 0, draws: 0, depth: 0 };
    let expression = parser.disjunction()?;
    match parser.peek() {
        None => Ok(expression),
        Some(Token::Symbol("=")) => Err("\"=\" has no meaning here; equality is \"==\"".to_owned()),
        Some(token) => Err(format!("{} stands where the expression is over", token.shown())),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    next: usize,
    draws: u16,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.accept(symbol) {
            return Ok(());
        }
        Err(match self.peek() {
            Some(token) => format!("\"{symbol}\" is missing before {}", token.shown()),
            None => format!("\"{symbol}\" is missing at the end"),
        })
    }

    fn deeper<T>(
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

    fn disjunction(&mut self) -> Result<Expression, String> {
        let mut left = self.conjunction()?;
        while self.accept("||") {
            left = Expression::Or(Box::new(left), Box::new(self.conjunction()?));
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<Expression, String> {
        let mut left = self.comparison()?;
        while self.accept("&&") {
            left = Expression::And(Box::new(left), Box::new(self.comparison()?));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expression, String> {
        let left = self.sum()?;
        let Some(operator) = self.compare() else { return Ok(left) };
        let right = self.sum()?;
        if self.compare().is_some() {
            return Err("comparisons do not chain; join two of them with \"&&\"".to_owned());
        }
        Ok(Expression::Compare(operator, Box::new(left), Box::new(right)))
    }

    fn compare(&mut self) -> Option<Compare> {
        let all = [
            Compare::LessOrEqual,
            Compare::GreaterOrEqual,
            Compare::Equal,
            Compare::NotEqual,
            Compare::Less,
            Compare::Greater,
        ];
        all.into_iter().find(|operator| self.accept(operator.as_str()))
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        loop {
            let operator = if self.accept("+") {
                Arithmetic::Add
            } else if self.accept("-") {
                Arithmetic::Subtract
            } else {
                return Ok(left);
            };
            left = Expression::Arithmetic(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.unary()?;
        loop {
            let operator = if self.accept("*") {
                Arithmetic::Multiply
            } else if self.accept("/") {
                Arithmetic::Divide
            } else {
                return Ok(left);
            };
            left = Expression::Arithmetic(operator, Box::new(left), Box::new(self.unary()?));
        }
    }

    fn unary(&mut self) -> Result<Expression, String> {
        if self.accept("!") {
            let inner = self.deeper(Self::unary)?;
            return Ok(Expression::Not(Box::new(inner)));
        }
        if self.accept("-") {
            let inner = self.deeper(Self::unary)?;
            return Ok(match inner {
                Expression::Number(number) => Expression::Number(-number),
                inner => Expression::Negate(Box::new(inner)),
            });
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Expression, String> {
        if self.accept("(") {
            let inner = self.deeper(Self::disjunction)?;
            self.expect(")")?;
            return Ok(inner);
        }
        let Some(token) = self.peek().cloned() else {
            return Err("a value is missing at the end".to_owned());
        };
        self.next += 1;
        match token {
            Token::Number(number) => Ok(Expression::Number(number)),
            Token::Text(text) => Ok(Expression::Text(text)),
            Token::Symbol(symbol) => Err(format!("a value is missing before \"{symbol}\"")),
            Token::Name(name) => match name.as_str() {
                "true" => Ok(Expression::Bool(true)),
                "false" => Ok(Expression::Bool(false)),
                "draw" => {
                    self.expect("(")?;
                    self.expect(")")?;
                    Ok(self.draw())
                }
                "chance" => {
                    self.expect("(")?;
                    let limit = self.deeper(Self::disjunction)?;
                    self.expect(")")?;
                    if let Expression::Number(chance) = limit
                        && !(0.0..=1.0).contains(&chance)
                    {
                        return Err(format!("chance({chance}) must be from 0 to 1"));
                    }
                    if matches!(limit, Expression::Text(_) | Expression::Bool(_)) {
                        return Err("chance(p) takes a number from 0 to 1".to_owned());
                    }
                    let draw = self.draw();
                    Ok(Expression::Compare(Compare::Less, Box::new(draw), Box::new(limit)))
                }
                _ => read(&name),
            },
        }
    }

    fn draw(&mut self) -> Expression {
        let draw = Expression::Draw(self.draws);
        self.draws += 1;
        draw
    }
}

fn read(name: &str) -> Result<Expression, String> {
    let Some((namespace, rest)) = name.split_once('.') else {
        return Err(format!(
            "\"{name}\" is not known; a name is agent.{name}, context.{name} or world.{name}, and \
             the functions are draw() and chance(p)"
        ));
    };
    let known = Namespace::ALL.into_iter().find(|known| known.as_str() == namespace);
    let Some(known) = known else {
        return Err(format!("\"{namespace}\" is not known; allowed: agent, context, world"));
    };
    if rest.split('.').any(str::is_empty) {
        return Err(format!("\"{name}\" has a dot without a name"));
    }
    if rest.contains('.') && known != Namespace::Context {
        return Err(format!("\"{name}\" has too many dots: {namespace} holds plain values"));
    }
    Ok(Expression::Read(known, rest.to_owned()))
}
