//! The routing keys that an expression can give, and those that it compares with.

use std::collections::BTreeSet;

use cel::common::ast::operators::{
    CONDITIONAL, EQUALS, GREATER, GREATER_EQUALS, IN, LESS, LESS_EQUALS, LOGICAL_AND, LOGICAL_NOT,
    LOGICAL_OR, NOT_EQUALS,
};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use crate::evaluation::scope::ScopeField;

/// The texts that an expression can give; none if that depends on the State.
pub(super) fn outcomes(expr: &Expr) -> Option<BTreeSet<String>> {
    match expr {
        Expr::Literal(LiteralValue::String(text)) => Some(one(text.inner())),
        Expr::Literal(LiteralValue::Boolean(value)) => Some(one(&value.inner().to_string())),
        Expr::Literal(LiteralValue::Int(number)) => Some(one(&number.inner().to_string())),
        Expr::Literal(LiteralValue::Null) => Some(one("null")),
        Expr::Call(call) => of_call(call),
        Expr::Select(select) => select.test.then(booleans),
        Expr::Comprehension(of) => match &of.accu_init.expr {
            // `all` and `exists` collect a boolean.
            Expr::Literal(LiteralValue::Boolean(_)) => Some(booleans()),
            _ => outcomes(&of.result.expr),
        },
        Expr::Literal(LiteralValue::Bytes(_) | LiteralValue::Double(_) | LiteralValue::UInt(_))
        | Expr::Unspecified
        | Expr::Ident(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Struct(_) => None,
    }
}

fn of_call(call: &CallExpr) -> Option<BTreeSet<String>> {
    match call.func_name.as_str() {
        EQUALS | NOT_EQUALS | GREATER | GREATER_EQUALS | LESS | LESS_EQUALS | IN | LOGICAL_AND
        | LOGICAL_OR | LOGICAL_NOT | "accepts" | "bool" | "contains" | "endsWith" | "matches"
        | "startsWith" => Some(booleans()),
        CONDITIONAL => match call.args.as_slice() {
            [_, one, other] => {
                let mut both = outcomes(&one.expr)?;
                both.extend(outcomes(&other.expr)?);
                Some(both)
            }
            _ => None,
        },
        _ => None,
    }
}

fn one(text: &str) -> BTreeSet<String> {
    BTreeSet::from([text.to_owned()])
}

fn booleans() -> BTreeSet<String> {
    ["true", "false"].map(str::to_owned).into()
}

/// Collects the texts that an expression compares the routing key with, by `==`.
pub(super) fn compared(expr: &Expr, found: &mut BTreeSet<String>) {
    let mut all = |exprs: &[IdedExpr]| {
        for expr in exprs {
            compared(&expr.expr, found);
        }
    };
    match expr {
        Expr::Call(call) => {
            all(&call.args);
            if let Some(target) = &call.target {
                compared(&target.expr, found);
            }
            if let (EQUALS, [one, other]) = (call.func_name.as_str(), call.args.as_slice()) {
                let pairs = [(&one.expr, &other.expr), (&other.expr, &one.expr)];
                found.extend(pairs.into_iter().filter_map(|(key, text)| comparison(key, text)));
            }
        }
        Expr::List(list) => all(&list.elements),
        Expr::Select(select) => compared(&select.operand.expr, found),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    compared(&entry.key.expr, found);
                    compared(&entry.value.expr, found);
                }
            }
        }
        Expr::Comprehension(of) => {
            compared(&of.iter_range.expr, found);
            compared(&of.loop_step.expr, found);
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}

fn comparison(key: &Expr, text: &Expr) -> Option<String> {
    let Expr::Ident(name) = key else { return None };
    let is_key = name.strip_prefix('.').unwrap_or(name) == ScopeField::RoutingKey.as_str();
    match text {
        Expr::Literal(LiteralValue::String(text)) if is_key => Some(text.inner().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::evaluation::expression::ConditionExpression;

    #[test]
    fn finds_the_keys_that_an_expression_can_give() {
        for (text, expected) in [
            ("'yes'", Some("yes")),
            ("size(last) > 3", Some("false, true")),
            ("has(metadata.x)", Some("false, true")),
            ("accepts(last) && last != ''", Some("false, true")),
            ("messages.exists(m, m.role == 'user')", Some("false, true")),
            ("[1].exists_one(x, x == 1)", Some("false, true")),
            ("'a' in metadata", Some("false, true")),
            (
                "last == '' ? 'empty' : size(last) > 9 ? 'long' : 'short'",
                Some("empty, long, short"),
            ),
            ("last == '' ? 7 : null", Some("7, null")),
            ("last == '' ? 'empty' : last", None),
            ("metadata.kind", None),
            ("last.trim()", None),
            ("[1, 2].map(x, x)", None),
        ] {
            let keys = text.parse::<ConditionExpression>().unwrap().routing_keys();
            let keys = keys.map(|keys| keys.into_iter().collect::<Vec<_>>().join(", "));
            assert_eq!(keys.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn finds_the_keys_that_an_expression_compares_with() {
        for (text, expected) in [
            ("routing_key == 'a' || ('b' == routing_key && last != 'c')", "a, b"),
            ("routing_key != 'a' && last == 'x'", ""),
            ("messages.all(m, routing_key == 'd')", "d"),
        ] {
            let keys = text.parse::<ConditionExpression>().unwrap().compared_routing_keys();
            assert_eq!(keys.into_iter().collect::<Vec<_>>().join(", "), expected, "{text}");
        }
    }
}
