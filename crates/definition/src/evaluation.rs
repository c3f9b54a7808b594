//! Conditions and templates over the State of a task.

mod budget;
pub(crate) mod expression;
pub(crate) mod scope;
pub(crate) mod template;
