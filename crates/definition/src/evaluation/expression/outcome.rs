//! The type of an expression, if it does not depend on the State.

use cel::common::ast::operators::{ADD, CONDITIONAL, DIVIDE, MODULO, MULTIPLY, NEGATE, SUBSTRACT};
use cel::common::ast::{CallExpr, Expr, LiteralValue};

use crate::evaluation::scope::ScopeField;

/// The type of the expression, if it can never be a boolean.
pub(super) fn never_boolean(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => None,
            LiteralValue::Bytes(_) => Some("bytes"),
            LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => {
                Some("a number")
            }
            LiteralValue::Null => Some("null"),
            LiteralValue::String(_) => Some("a text"),
        },
        Expr::List(_) => Some("a list"),
        Expr::Map(_) => Some("a mapping"),
        Expr::Call(call) => of_call(call),
        Expr::Ident(name) => {
            ScopeField::named(name.strip_prefix('.').unwrap_or(name)).map(of_field)
        }
        Expr::Unspecified | Expr::Select(_) | Expr::Struct(_) | Expr::Comprehension(_) => None,
    }
}

fn of_call(call: &CallExpr) -> Option<&'static str> {
    match call.func_name.as_str() {
        ADD => Some("a number, a text or a list"),
        SUBSTRACT | MULTIPLY | DIVIDE | MODULO | NEGATE => Some("a number"),
        "double" | "indexOf" | "int" | "lastIndexOf" | "size" | "uint" => Some("a number"),
        "charAt" | "format" | "join" | "lowerAscii" | "replace" | "reverse" | "string"
        | "substring" | "trim" | "upperAscii" => Some("a text"),
        "split" | "steps" => Some("a list"),
        "bytes" => Some("bytes"),
        "type" => Some("a type"),
        CONDITIONAL => match call.args.as_slice() {
            [_, one, other] => never_boolean(&other.expr).and(never_boolean(&one.expr)),
            _ => None,
        },
        _ => None,
    }
}

fn of_field(field: ScopeField) -> &'static str {
    match field {
        ScopeField::Input | ScopeField::Last | ScopeField::CurrentAgent => "a text",
        ScopeField::NextAction | ScopeField::RoutingKey => "a text or null",
        ScopeField::Messages => "a list",
        ScopeField::Metadata | ScopeField::Nodes => "a mapping",
        ScopeField::Error => "a mapping or null",
    }
}

#[cfg(test)]
mod tests {
    use crate::evaluation::expression::ConditionExpression;

    #[test]
    fn detects_expressions_that_are_never_boolean() {
        for (text, expected) in [
            ("'yes'", Some("a text")),
            ("1", Some("a number")),
            ("2.5", Some("a number")),
            ("null", Some("null")),
            ("[last]", Some("a list")),
            ("{'a': true}", Some("a mapping")),
            ("size(messages)", Some("a number")),
            ("last.size()", Some("a number")),
            ("metadata.count - 1", Some("a number")),
            ("last + '!'", Some("a number, a text or a list")),
            ("last.trim()", Some("a text")),
            ("routing_key", Some("a text or null")),
            ("last == '' ? 1 : 'a'", Some("a number")),
            ("last == '' ? true : 'a'", None),
            ("true", None),
            ("size(last) > 3", None),
            ("metadata.done", None),
            ("metadata['done']", None),
            ("nodes.a.json.good", None),
            ("has(metadata.x)", None),
            ("accepts(last)", None),
            ("dyn(last)", None),
            ("bool(last)", None),
            ("messages.exists(m, m.role == 'user')", None),
            ("!accepts(last) && last != ''", None),
            ("'a' in metadata", None),
        ] {
            assert_eq!(
                text.parse::<ConditionExpression>().unwrap().never_boolean(),
                expected,
                "{text}"
            );
        }
    }
}
