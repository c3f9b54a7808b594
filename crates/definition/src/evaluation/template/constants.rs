//! Bounds the constants of a template, which the engine computes when it compiles.
//!
//! Only a product makes a constant that is larger than its source. The products are checked from the
//! inside out, so that each one is computed from factors of bounded size. Nothing here recurses: a
//! template may be as deep as it is long.

use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;

use super::bounded::ValueSize;
use crate::evaluation::budget::EvaluationBudget;

/// The most bytes of all constant products of a template.
const CONSTANT_BYTES_MAX: u64 = 1024 * 1024;

/// Fails if a template has constants such as `"x" * 99999999`.
pub(super) fn check(text: &str) -> Result<(), String> {
    let _budget = EvaluationBudget::start();
    // The compiler reports the errors of a text that cannot be parsed.
    let Ok(template) = parse(text, "", SyntaxConfig::default()) else { return Ok(()) };
    let mut bytes = 0_u64;
    for (left, right) in products(&template).into_iter().rev() {
        let (Some(left), Some(right)) = (left.as_const(), right.as_const()) else { continue };
        if left.is_number() && right.is_number() {
            continue;
        }
        let made = |value: &Value, times: &Value| {
            let size = ValueSize::of(value).map_or(u64::MAX, |size| size.bytes);
            size.saturating_mul(times.as_i64().map_or(1, i64::unsigned_abs))
        };
        bytes = bytes.saturating_add(made(&left, &right).max(made(&right, &left)));
        if bytes > CONSTANT_BYTES_MAX {
            return Err(format!(
                "has constants of more than {CONSTANT_BYTES_MAX} bytes, the most of one template"
            ));
        }
    }
    Ok(())
}

/// The factors of all products, outer ones before those within them.
fn products<'t>(template: &'t Stmt<'t>) -> Vec<(&'t Expr<'t>, &'t Expr<'t>)> {
    let mut expressions = expressions(template);
    let mut products = Vec::new();
    while let Some(expression) = expressions.pop() {
        match expression {
            Expr::BinOp(operation) => {
                if matches!(operation.op, BinOpKind::Mul) {
                    products.push((&operation.left, &operation.right));
                }
                expressions.extend([&operation.left, &operation.right]);
            }
            Expr::List(list) => expressions.extend(&list.items),
            Expr::Tuple(tuple) => expressions.extend(&tuple.items),
            Expr::Map(map) => expressions.extend(map.keys.iter().chain(&map.values)),
            Expr::UnaryOp(operation) => expressions.push(&operation.expr),
            Expr::Slice(slice) => {
                expressions.push(&slice.expr);
                expressions.extend([&slice.start, &slice.stop, &slice.step].into_iter().flatten());
            }
            Expr::Compare(compare) => {
                expressions.push(&compare.expr);
                expressions.extend(compare.ops.iter().map(|operation| &operation.expr));
            }
            Expr::IfExpr(condition) => {
                expressions.extend([&condition.test_expr, &condition.true_expr]);
                expressions.extend(&condition.false_expr);
            }
            Expr::Filter(filter) => {
                expressions.extend(&filter.expr);
                expressions.extend(filter.args.iter().map(argument));
            }
            Expr::Test(test) => {
                expressions.push(&test.expr);
                expressions.extend(test.args.iter().map(argument));
            }
            Expr::GetAttr(attribute) => expressions.push(&attribute.expr),
            Expr::GetItem(item) => expressions.extend([&item.expr, &item.subscript_expr]),
            Expr::Call(call) => {
                expressions.push(&call.expr);
                expressions.extend(call.args.iter().map(argument));
            }
            Expr::Var(_) | Expr::Const(_) => {}
        }
    }
    products
}

fn argument<'t>(argument: &'t CallArg<'t>) -> &'t Expr<'t> {
    match argument {
        CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value) => value,
    }
}

/// The expressions of all statements.
fn expressions<'t>(template: &'t Stmt<'t>) -> Vec<&'t Expr<'t>> {
    let (mut statements, mut expressions) = (vec![template], Vec::new());
    while let Some(statement) = statements.pop() {
        match statement {
            Stmt::Template(template) => statements.extend(&template.children),
            Stmt::EmitExpr(emit) => expressions.push(&emit.expr),
            Stmt::ForLoop(for_loop) => {
                expressions.push(&for_loop.iter);
                expressions.extend(&for_loop.filter_expr);
                statements.extend(for_loop.body.iter().chain(&for_loop.else_body));
            }
            Stmt::IfCond(condition) => {
                expressions.push(&condition.expr);
                statements.extend(condition.true_body.iter().chain(&condition.false_body));
            }
            Stmt::WithBlock(with) => {
                expressions.extend(with.assignments.iter().map(|(_, value)| value));
                statements.extend(&with.body);
            }
            Stmt::Set(set) => expressions.push(&set.expr),
            Stmt::SetBlock(set) => {
                expressions.extend(&set.filter);
                statements.extend(&set.body);
            }
            Stmt::AutoEscape(escape) => {
                expressions.push(&escape.enabled);
                statements.extend(&escape.body);
            }
            Stmt::FilterBlock(filter) => {
                expressions.push(&filter.filter);
                statements.extend(&filter.body);
            }
            Stmt::Do(statement) => {
                expressions.push(&statement.call.expr);
                expressions.extend(statement.call.args.iter().map(argument));
            }
            Stmt::EmitRaw(_) => {}
        }
    }
    expressions
}
