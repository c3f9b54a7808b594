//! Evaluation of expressions for many agents at once.

pub(crate) mod arithmetic;
pub(crate) mod eval_errors;
pub(crate) mod eval_input;
pub(crate) mod evaluator;
