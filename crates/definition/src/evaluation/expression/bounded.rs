//! Runs conditions within the budget of an evaluation.
//!
//! The interpreter has no hook for the size of values, so [`bound`] rewrites the parsed expression:
//! whatever makes a value becomes an argument of [`CHARGE`], which charges for it and returns it.

use cel::common::ast::operators::{
    ADD, CONDITIONAL, DIVIDE, EQUALS, GREATER, GREATER_EQUALS, IN, INDEX, LESS, LESS_EQUALS,
    LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, MODULO, MULTIPLY, NEGATE, NOT_EQUALS, SUBSTRACT,
};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr};
use cel::common::types::{
    CelBytes, CelInt, CelList, CelMap, CelString, DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};

use super::CelArguments;
use crate::evaluation::budget::{self, BudgetError, NESTING_MAX, VALUE_BYTES};

/// Charges for a value. No expression can call it: it is not a name.
pub(super) const CHARGE: &str = "@charge";

/// Checks a text before it is split.
const CHECK_PIECES: &str = "@check_pieces";

/// The bounded form of `+`: one call, because a chain of them nests as deep as it is long.
const BOUNDED_ADD: &str = "@add";

/// Bounded forms of functions whose result can be far larger than their arguments.
const REPLACE: &str = "@replace";
const JOIN: &str = "@join";

/// The memory of a piece of a text that is split, in bytes.
const PIECE_BYTES: u64 = 64;

/// Operators whose result is a boolean, a number or a part of an argument.
const FREE: [&str; 17] = [
    CONDITIONAL,
    DIVIDE,
    EQUALS,
    GREATER,
    GREATER_EQUALS,
    IN,
    INDEX,
    LESS,
    LESS_EQUALS,
    LOGICAL_AND,
    LOGICAL_NOT,
    LOGICAL_OR,
    MODULO,
    MULTIPLY,
    NEGATE,
    NOT_EQUALS,
    SUBSTRACT,
];

/// Declares the functions that bounded expressions call.
pub(super) fn register(environment: &mut Env) {
    let text = || STRING_TYPE;
    // These names are declared nowhere else, so none of this can fail.
    let _ = environment.add_overload(CHARGE, "charge_dyn", vec![DYN_TYPE], charge_value);
    let _ = environment.add_overload(CHECK_PIECES, "pieces_dyn", vec![DYN_TYPE], check_pieces);
    let two = vec![DYN_TYPE, DYN_TYPE];
    let _ = environment.add_overload(BOUNDED_ADD, "add_dyn", two, add);
    let three = vec![text(), text(), text()];
    let _ = environment.add_overload(REPLACE, "replace_three", three, replace);
    let four = vec![text(), text(), text(), INT_TYPE];
    let _ = environment.add_overload(REPLACE, "replace_four", four, replace);
    let _ = environment.add_overload(JOIN, "join_list", vec![LIST_TYPE], join);
    let _ = environment.add_overload(JOIN, "join_list_text", vec![LIST_TYPE, text()], join);
}

/// Rewrites an expression so that it stays within the budget.
pub(super) fn bound(expression: &IdedExpr) -> IdedExpr {
    let id = expression.id;
    let expr = match &expression.expr {
        Expr::Call(call) => return bound_call(id, call),
        Expr::List(list) => {
            let mut list = list.clone();
            list.elements = list.elements.iter().map(bound).collect();
            return charged(IdedExpr { id, expr: Expr::List(list) });
        }
        Expr::Map(map) => {
            let mut map = map.clone();
            for entry in &mut map.entries {
                match &mut entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        (entry.key, entry.value) = (bound(&entry.key), bound(&entry.value));
                    }
                    EntryExpr::StructField(field) => field.value = bound(&field.value),
                }
            }
            return charged(IdedExpr { id, expr: Expr::Map(map) });
        }
        Expr::Select(select) => {
            let mut select = select.clone();
            select.operand = Box::new(bound(&select.operand));
            Expr::Select(select)
        }
        Expr::Comprehension(comprehension) => {
            Expr::Comprehension(Box::new(bound_loop(comprehension)))
        }
        // Expressions have no structs: the reader refuses them.
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {
            expression.expr.clone()
        }
    };
    IdedExpr { id, expr }
}

fn bound_call(id: u64, call: &CallExpr) -> IdedExpr {
    let mut call = call.clone();
    call.args = call.args.iter().map(bound).collect();
    call.target = call.target.map(|target| Box::new(bound(&target)));
    let bounded = match (call.func_name.as_str(), call.args.len()) {
        ("replace", 2 | 3) => Some(REPLACE),
        ("join", 0 | 1) => Some(JOIN),
        ("split" | "steps", _) => {
            if let Some(text) = call.target.take() {
                call.target = Some(Box::new(function(CHECK_PIECES, vec![*text])));
            } else {
                let args = std::mem::take(&mut call.args).into_iter();
                call.args = args.map(|text| function(CHECK_PIECES, vec![text])).collect();
            }
            None
        }
        _ => None,
    };
    if let (Some(name), true) = (bounded, call.target.is_some()) {
        let target = call.target.take().map(|target| *target);
        call.args = target.into_iter().chain(call.args).collect();
        name.clone_into(&mut call.func_name);
    }
    if call.func_name == ADD && call.args.len() == 2 {
        return function(BOUNDED_ADD, call.args);
    }
    let is_free = FREE.contains(&call.func_name.as_str());
    let call = IdedExpr { id, expr: Expr::Call(call) };
    if is_free { call } else { charged(call) }
}

/// Bounds a loop. A step that appends to the result keeps its form, which the interpreter runs
/// without copying the result each time.
fn bound_loop(comprehension: &ComprehensionExpr) -> ComprehensionExpr {
    let mut bounded = comprehension.clone();
    bounded.iter_range = bound(&comprehension.iter_range);
    bounded.loop_step = bound_step(&comprehension.loop_step, &comprehension.accu_var);
    bounded
}

fn bound_step(step: &IdedExpr, result: &str) -> IdedExpr {
    let Expr::Call(call) = &step.expr else { return bound(step) };
    let mut call = call.clone();
    match (call.func_name.as_str(), call.args.as_mut_slice()) {
        (ADD, [whole, new]) if matches!(&whole.expr, Expr::Ident(name) if name == result) => {
            let Expr::List(list) = &mut new.expr else { return bound(step) };
            list.elements = list.elements.iter().map(|item| charged(bound(item))).collect();
        }
        (CONDITIONAL, [condition, then, otherwise]) => {
            *condition = bound(condition);
            *then = bound_step(then, result);
            *otherwise = bound_step(otherwise, result);
        }
        _ => return bound(step),
    }
    IdedExpr { id: step.id, expr: Expr::Call(call) }
}

fn charged(expression: IdedExpr) -> IdedExpr {
    function(CHARGE, vec![expression])
}

fn function(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let id = args.first().map_or(0, |first| first.id);
    let call = CallExpr { func_name: name.to_owned(), target: None, args };
    IdedExpr { id, expr: Expr::Call(call) }
}

fn exceeded(error: BudgetError) -> ExecutionError {
    ExecutionError::function_error(CHARGE, error)
}

fn charge_value<'b, 'v>(mut args: CelArguments<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    size_of(value.as_ref(), 0).and_then(budget::charge).map_err(exceeded)?;
    Ok(value)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that cel asks for")]
fn add<'b, 'v>(args: CelArguments<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [left, right] = args.as_slice() else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let bytes = |value: &CowVal<'b, 'v>| size_of(value.as_ref(), 0);
    let made = bytes(left).and_then(|made| Ok(made + bytes(right)?));
    made.and_then(budget::charge).map_err(exceeded)?;
    let no_adder = || {
        let types = [left, right].map(|value| value.get_type().name().to_owned());
        ExecutionError::no_such_overload(ADD, types.to_vec())
    };
    let sum = left.as_adder().ok_or_else(no_adder)?.add(right.as_ref())?;
    Ok(CowVal::from(sum.into_owned()))
}

fn check_pieces<'b, 'v>(mut args: CelArguments<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let bytes = size_of(value.as_ref(), 0).map_err(exceeded)?;
    budget::check(bytes.saturating_mul(PIECE_BYTES)).map_err(exceeded)?;
    Ok(value)
}

/// The size of a value with all that it contains.
fn size_of(value: &dyn Val, depth: usize) -> Result<u64, BudgetError> {
    if depth > NESTING_MAX {
        return Err(BudgetError::Nesting);
    }
    let mut bytes = VALUE_BYTES;
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        bytes += text.inner().len() as u64;
    } else if let Some(data) = value.downcast_ref::<CelBytes<'_>>() {
        bytes += data.inner().len() as u64;
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        for item in list.inner() {
            bytes += size_of(item.as_ref(), depth + 1)?;
        }
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        for (key, item) in map.inner() {
            bytes += size_of(key.inner(), depth + 1)? + size_of(item.as_ref(), depth + 1)?;
        }
    }
    Ok(bytes)
}

fn text<'a>(args: &'a [CowVal<'_, '_>], index: usize) -> &'a str {
    let text = args.get(index).and_then(|text| text.downcast_ref::<CelString<'_>>());
    text.map(CelString::inner).unwrap_or_default()
}

#[expect(clippy::needless_pass_by_value, reason = "the form that cel asks for")]
fn replace<'b, 'v>(args: CelArguments<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (whole, old, new) = (text(&args, 0), text(&args, 1), text(&args, 2));
    let times = args.get(3).and_then(|times| times.downcast_ref::<CelInt>());
    // A negative number replaces all.
    let times = times.and_then(|times| usize::try_from(*times.inner()).ok()).unwrap_or(usize::MAX);
    let made = (whole.matches(old).count().min(times) as u64).saturating_mul(new.len() as u64);
    budget::check(made.saturating_add(whole.len() as u64)).map_err(exceeded)?;
    Ok(CowVal::owned(CelString::from(whole.replacen(old, new, times))))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that cel asks for")]
fn join<'b, 'v>(args: CelArguments<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let list = args.first().and_then(|list| list.downcast_ref::<CelList<'_>>());
    let items = list.map(CelList::inner).unwrap_or_default();
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        let part = item.downcast_ref::<CelString<'_>>().map(CelString::inner);
        let only_texts = || ExecutionError::function_error("join", "a list of texts is needed");
        parts.push(part.ok_or_else(only_texts)?);
    }
    let separator = text(&args, 1);
    let length: usize = parts.iter().map(|part| part.len() + separator.len()).sum();
    budget::check(length as u64).map_err(exceeded)?;
    Ok(CowVal::owned(CelString::from(parts.join(separator))))
}
