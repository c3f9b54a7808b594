//! Keeps the parser of expressions from being led too deep: it recurses, and a stack is finite.

/// The most brackets that may be open at once.
pub(super) const NESTING_MAX: usize = 24;

/// The most operators, dots and brackets of one expression. A chain of them nests as deep as it is
/// long.
pub(super) const OPERATORS_MAX: usize = 200;

pub(super) fn check(text: &str) -> Result<(), String> {
    let (mut depth, mut operators) = (0_usize, 0_usize);
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        if matches!(c, '"' | '\'')
            && let Some(after) = after_literal(rest, is_raw(text, rest))
        {
            rest = after;
            before = c;
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '(' | '[' | '{' => {
                depth += 1;
                operators += 1;
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '+' | '-' | '*' | '/' | '%' | '.' | '?' | '!' | '<' | '>' | '=' | '&' | '|' => {
                operators += 1;
            }
            'i' if !is_word(before) && is_in(rest) => operators += 1,
            _ => {}
        }
        if depth > NESTING_MAX {
            return Err(format!(
                "has more than {NESTING_MAX} brackets inside each other; split it over several \
                 conditions"
            ));
        }
        if operators > OPERATORS_MAX {
            return Err(format!(
                "has more than {OPERATORS_MAX} operators and brackets; split it over several \
                 conditions"
            ));
        }
        before = c;
    }
    Ok(())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// True if the word that begins with `i` is the operator `in`.
fn is_in(rest: &str) -> bool {
    rest.strip_prefix('n').is_some_and(|rest| !rest.starts_with(is_word))
}

/// True if the literal at `rest` is raw: an `r` before it disables escapes.
fn is_raw(text: &str, rest: &str) -> bool {
    let before = &text[..text.len() - rest.len()];
    let prefix = &before[before.trim_end_matches(is_word).len()..];
    matches!(prefix, "r" | "R" | "br" | "bR" | "Br" | "BR" | "rb" | "rB" | "Rb" | "RB")
}

/// The text after a literal; none if the literal does not end. Its content is then scanned as code.
fn after_literal(text: &str, is_raw: bool) -> Option<&str> {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let (quote, mut rest, one_line) = match text.strip_prefix(&triple) {
        Some(rest) => (triple.as_str(), rest, false),
        None => (quote, &text[1..], true),
    };
    loop {
        if let Some(after) = rest.strip_prefix(quote) {
            return Some(after);
        }
        let c = rest.chars().next()?;
        if one_line && matches!(c, '\n' | '\r') {
            return None;
        }
        rest = &rest[c.len_utf8()..];
        if c == '\\' && !is_raw {
            let escaped = rest.chars().next()?;
            rest = &rest[escaped.len_utf8()..];
        }
    }
}
