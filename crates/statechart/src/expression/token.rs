//! The expression lexer.

use super::EXPRESSION_BYTES_MAX;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExpressionToken {
    Number(f64),
    Text(String),
    /// A name, possibly with dots.
    Name(String),
    Symbol(&'static str),
}

impl ExpressionToken {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => format!("the text \"{text}\""),
            Self::Name(name) => format!("\"{name}\""),
            Self::Symbol(symbol) => format!("\"{symbol}\""),
        }
    }
}

/// Longer symbols come first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 17] =
    ["<=", ">=", "==", "!=", "&&", "||", "<", ">", "+", "-", "*", "/", "!", "(", ")", ",", "="];

/// Splits an expression into tokens.
pub(crate) fn tokens(text: &str) -> Result<Vec<ExpressionToken>, String> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(format!(
            "it has {} bytes, and the limit expression_bytes is {EXPRESSION_BYTES_MAX}",
            text.len()
        ));
    }
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' => {
                let inside = &rest[1..];
                let Some(end) = inside.find(first) else {
                    return Err(format!("the text that begins with {first} has no end"));
                };
                tokens.push(ExpressionToken::Text(inside[..end].to_owned()));
                end + 2
            }
            '0'..='9' => {
                let length = number_length(rest);
                let number: f64 = rest[..length]
                    .parse()
                    .ok()
                    .filter(|number: &f64| number.is_finite())
                    .ok_or_else(|| format!("\"{}\" is not a number", &rest[..length]))?;
                tokens.push(ExpressionToken::Number(number));
                length
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                tokens.push(ExpressionToken::Name(rest[..length].to_owned()));
                length
            }
            _ => {
                let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
                let Some(symbol) = symbol else {
                    return Err(format!("\"{first}\" has no meaning here"));
                };
                tokens.push(ExpressionToken::Symbol(symbol));
                symbol.len()
            }
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// Returns the length of a number with fraction and exponent.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while let Some(byte) = bytes.get(end) {
        let is_sign =
            matches!(byte, b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
        if !(byte.is_ascii_alphanumeric() || *byte == b'.' || is_sign) {
            break;
        }
        end += 1;
    }
    end
}
