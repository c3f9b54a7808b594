//! Evaluation errors of a list of agents.

use polity_statechart::EvalError;

use crate::kernel::BLOCK;
use crate::kernel::columns::lanes::{LanePool, LaneValues};
use crate::kernel::columns::masks::mask_of;

/// The agents of a list for which an expression has no value.
#[derive(Default)]
pub(crate) struct EvalErrors {
    mask: Option<LaneValues<u8>>,
    cause: ErrorCause,
}

/// The reason why an expression has no value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum ErrorCause {
    /// No error.
    #[default]
    None,
    /// The same error for all agents concerned.
    One(EvalError),
    /// Different errors, to be determined agent by agent.
    Several,
}

impl EvalErrors {
    /// Returns the mask of agents with an error, if there are any.
    pub(crate) fn mask(&self) -> Option<&[u8; BLOCK]> {
        self.mask.as_deref()
    }

    pub(crate) fn cause(&self) -> &ErrorCause {
        &self.cause
    }

    /// True if the agent at this index has an error.
    #[inline]
    pub(crate) fn has_error(&self, number: usize) -> bool {
        self.mask.as_ref().is_some_and(|mask| mask[number % BLOCK] != 0)
    }

    /// Adds an error for the agents that match and have none yet.
    pub(crate) fn add(
        &mut self,
        pool: &mut LanePool<u8>,
        count: usize,
        has_error: impl Fn(usize) -> bool,
        cause: ErrorCause,
    ) {
        if !(0..count).any(|number| has_error(number) && !self.has_error(number)) {
            return;
        }
        let mask = self.mask.get_or_insert_with(|| {
            let mut mask = pool.take();
            mask[..count].fill(0);
            mask
        });
        for (number, mask) in mask[..count].iter_mut().enumerate() {
            *mask |= mask_of(has_error(number));
        }
        let before = std::mem::take(&mut self.cause);
        self.cause = match before {
            ErrorCause::None => cause,
            one @ ErrorCause::One(_) if one == cause => one,
            ErrorCause::One(_) | ErrorCause::Several => ErrorCause::Several,
        };
    }

    pub(crate) fn end(self, pool: &mut LanePool<u8>) {
        if let Some(mask) = self.mask {
            pool.release(mask);
        }
    }
}
