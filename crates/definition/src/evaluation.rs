//! Conditions and templates over the State of a task.

pub(crate) mod expression;
pub(crate) mod scope;
pub(crate) mod template;
