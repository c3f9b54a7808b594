//! For whom an expression has no value, and why.

use polity_statechart::EvalError;

use super::BLOCK;
use super::masks::yes;
use super::pool::{Pool, Rows};

/// The agents of a list for whom an expression has no value.
#[derive(Default)]
pub(super) struct Doubts {
    mask: Option<Rows<u8>>,
    cause: Cause,
}

/// Why an expression has no value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Cause {
    /// It has one for everyone.
    #[default]
    None,
    /// It is the same for everyone who is concerned.
    One(EvalError),
    /// It must be found out for each of them.
    Several,
}

impl Doubts {
    /// About whom there is a doubt, if about anyone.
    pub(super) fn mask(&self) -> Option<&[u8; BLOCK]> {
        self.mask.as_deref()
    }

    pub(super) fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Whether there is a doubt about the agent of this number.
    #[inline]
    pub(super) fn is_about(&self, number: usize) -> bool {
        self.mask.as_ref().is_some_and(|mask| mask[number % BLOCK] != 0)
    }

    /// Doubts about some of so many agents, unless there were doubts about them before.
    pub(super) fn add(
        &mut self,
        pool: &mut Pool<u8>,
        count: usize,
        is_about: impl Fn(usize) -> bool,
        cause: Cause,
    ) {
        if !(0..count).any(|number| is_about(number) && !self.is_about(number)) {
            return;
        }
        let mask = self.mask.get_or_insert_with(|| {
            let mut mask = pool.take();
            mask[..count].fill(0);
            mask
        });
        for (number, mask) in mask[..count].iter_mut().enumerate() {
            *mask |= yes(is_about(number));
        }
        let before = std::mem::take(&mut self.cause);
        self.cause = match before {
            Cause::None => cause,
            one @ Cause::One(_) if one == cause => one,
            Cause::One(_) | Cause::Several => Cause::Several,
        };
    }

    pub(super) fn end(self, pool: &mut Pool<u8>) {
        if let Some(mask) = self.mask {
            pool.give(mask);
        }
    }
}
