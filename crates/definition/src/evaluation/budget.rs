//! The memory that one evaluation of a template or a condition may use.
//!
//! Neither language bounds its intermediate values: a few lines that double a text forty times would
//! end the process. Every operation that makes a value is charged for it here, and fails once the
//! evaluation has used up its budget.

use std::cell::Cell;

/// The most bytes of the values that one evaluation makes, all together.
pub(super) const EVALUATION_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The memory of one value besides its text, in bytes: an allocation, its header, and its place in a
/// list that grew by doubling.
pub(super) const VALUE_BYTES: u64 = 128;

thread_local! {
    static BYTES_LEFT: Cell<u64> = const { Cell::new(0) };
    static LIST_LENGTH: Cell<usize> = const { Cell::new(0) };
}

/// The budget of the evaluation that runs on this thread, until it is dropped.
pub(super) struct EvaluationBudget {
    outer: u64,
    outer_length: usize,
}

impl EvaluationBudget {
    pub(super) fn start() -> Self {
        Self {
            outer: BYTES_LEFT.replace(EVALUATION_BYTES_MAX),
            outer_length: LIST_LENGTH.replace(0),
        }
    }

    /// The length of the value that the evaluation has measured last, if it is a list, else 0.
    pub(super) fn list_length(&self) -> usize {
        LIST_LENGTH.get()
    }
}

impl Drop for EvaluationBudget {
    fn drop(&mut self) {
        BYTES_LEFT.set(self.outer);
        LIST_LENGTH.set(self.outer_length);
    }
}

/// An evaluation would exceed a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BudgetError {
    #[error(
        "makes values of more than {EVALUATION_BYTES_MAX} bytes, the most of one template or \
         condition"
    )]
    Bytes,
    #[error("nests values more than {} levels deep, the most allowed", NESTING_MAX)]
    Nesting,
}

/// The deepest nesting of a value. Dropping one takes room on the stack for each level.
pub(super) const NESTING_MAX: usize = 64;

/// Fails if this many bytes are not left.
pub(super) fn check(bytes: u64) -> Result<(), BudgetError> {
    if bytes <= BYTES_LEFT.get() { Ok(()) } else { Err(BudgetError::Bytes) }
}

/// Records the length of the list that is measured, or 0 for any other value.
pub(super) fn record_list(length: usize) {
    LIST_LENGTH.set(length);
}

/// Takes bytes from the budget.
pub(super) fn charge(bytes: u64) -> Result<(), BudgetError> {
    check(bytes)?;
    BYTES_LEFT.set(BYTES_LEFT.get() - bytes);
    Ok(())
}
