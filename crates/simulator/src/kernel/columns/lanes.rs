//! Reusable lists and buffers for the agents of a block.

use std::ops::Deref;

use crate::kernel::BLOCK;

/// One value per agent of a list, in list order.
pub(crate) type LaneValues<T> = Box<[T; BLOCK]>;

/// A pool of unused buffers.
#[derive(Debug)]
pub(crate) struct LanePool<T>(Vec<LaneValues<T>>);

impl<T> Default for LanePool<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + Default> LanePool<T> {
    /// Takes a buffer with arbitrary content.
    #[inline]
    #[expect(clippy::unnecessary_box_returns, reason = "they are passed on and given back")]
    pub(crate) fn take(&mut self) -> LaneValues<T> {
        self.0.pop().unwrap_or_else(|| Box::new([T::default(); BLOCK]))
    }

    /// Returns a buffer to the pool.
    #[inline]
    pub(crate) fn release(&mut self, rows: LaneValues<T>) {
        self.0.push(rows);
    }
}

/// The result of splitting a list of agents.
pub(crate) enum LaneSplit {
    All,
    Nobody,
    /// The agents that match, and the others if requested.
    Some(LaneList, Option<LaneList>),
}

/// Agents of a block by lane, in order.
pub(crate) struct LaneList {
    lanes: LaneValues<u16>,
    length: usize,
}

impl Deref for LaneList {
    type Target = [u16];

    #[inline]
    fn deref(&self) -> &[u16] {
        &self.lanes[..self.length]
    }
}

impl LanePool<u16> {
    /// Partitions agents by a predicate over the index in the list and the lane.
    #[inline]
    pub(crate) fn partition(
        &mut self,
        list: &[u16],
        predicate: impl Fn(usize, usize) -> bool,
    ) -> (LaneList, LaneList) {
        let (mut selected, mut rest) = (self.take(), self.take());
        let mut matched = 0;
        for (number, lane) in list.iter().enumerate() {
            // Branch-free, because the predicate is hard to predict.
            selected[matched % BLOCK] = *lane;
            rest[(number - matched) % BLOCK] = *lane;
            matched += usize::from(predicate(number, lane_index(*lane)));
        }
        (
            LaneList { lanes: selected, length: matched },
            LaneList { lanes: rest, length: list.len() - matched },
        )
    }

    /// Selects the agents that match a predicate.
    #[inline]
    pub(crate) fn select(
        &mut self,
        list: &[u16],
        predicate: impl Fn(usize, usize) -> bool,
    ) -> LaneList {
        let mut selected = self.take();
        let mut matched = 0;
        for (number, lane) in list.iter().enumerate() {
            selected[matched % BLOCK] = *lane;
            matched += usize::from(predicate(number, lane_index(*lane)));
        }
        LaneList { lanes: selected, length: matched }
    }

    /// Splits off the agents that match a predicate, with the others unless this is the last step.
    #[inline]
    pub(crate) fn split(
        &mut self,
        list: &[u16],
        is_last: bool,
        predicate: impl Fn(usize, usize) -> bool,
    ) -> LaneSplit {
        if is_last {
            return LaneSplit::Some(self.select(list, predicate), None);
        }
        let (selected, rest) = self.partition(list, predicate);
        LaneSplit::Some(selected, Some(rest))
    }

    /// Returns a list to the pool.
    #[inline]
    pub(crate) fn release_list(&mut self, list: LaneList) {
        self.release(list.lanes);
    }
}

/// Converts a lane to an index below the block size, which lets the compiler drop bounds checks.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is nothing but a mask")]
pub(crate) fn lane_index(lane: u16) -> usize {
    usize::from(lane) % BLOCK
}
