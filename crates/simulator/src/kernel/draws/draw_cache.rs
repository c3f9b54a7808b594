//! A cache of the draws of a block in a tick, filled on demand.

use multiversion::multiversion;

use crate::kernel::columns::lanes::{LaneValues, lane_index};
use crate::kernel::draws::philox::{
    DRAWS_PER_BLOCK, DrawPurpose, PhiloxRng, TriggerDraw, counter_of, unit,
};
use crate::kernel::{BLOCK, LANES};

/// The number of agents from which drawing for the whole block is cheaper.
const MANY: usize = 96;

/// The number of counters that are drawn for a whole block. Others are drawn one by one.
const COUNTERS_MAX: usize = 8;

/// The number of draws converted at once.
const AT_ONCE: usize = 64;

/// The identity of a draw: generator, agents, tick and purpose.
#[derive(Clone, Copy)]
pub(crate) struct DrawInput<'a> {
    pub(crate) philox: PhiloxRng,
    /// The keys of the block, up to the last agent.
    pub(crate) keys: &'a [u64],
    pub(crate) tick: u32,
    pub(crate) purpose: DrawPurpose,
}

/// The first words of one counter for all agents of a block.
#[derive(Debug)]
struct CounterDraws<const WORDS: usize> {
    is_filled: bool,
    /// The number of agents in this tick that needed it.
    requested: usize,
    /// True if many agents needed it in the previous tick, which predicts the next one.
    was_requested: bool,
    /// The draws, word after word.
    draws: Vec<u32>,
}

impl<const WORDS: usize> Default for CounterDraws<WORDS> {
    fn default() -> Self {
        Self { is_filled: false, requested: 0, was_requested: false, draws: vec![0; WORDS * BLOCK] }
    }
}

impl<const WORDS: usize> CounterDraws<WORDS> {
    fn ensure(&mut self, input: &DrawInput<'_>, counter: u32) {
        if !std::mem::replace(&mut self.is_filled, true)
            && let Some(words) = self.draws.as_chunks_mut().0.first_chunk_mut::<WORDS>()
        {
            fill(input, counter, words);
        }
    }

    /// Returns the draws of a word.
    #[inline]
    fn word(&self, word: usize) -> &[u32; BLOCK] {
        &self.draws.as_chunks().0[word]
    }

    /// True if drawing for the whole block pays off, given this many more agents.
    fn is_worthwhile(&mut self, more: usize) -> bool {
        self.requested += more;
        self.is_filled || self.was_requested || self.requested >= MANY
    }

    /// Discards the draws of another tick or block.
    fn begin(&mut self) {
        self.is_filled = false;
        self.was_requested = self.requested >= MANY;
        self.requested = 0;
    }
}

/// The draws of a tick so far.
#[derive(Debug, Default)]
pub(crate) struct DrawCache {
    trigger: TriggerDraw,
    triggers: CounterDraws<1>,
    counters: Vec<CounterDraws<DRAWS_PER_BLOCK>>,
}

impl DrawCache {
    /// Discards the draws of another tick or block.
    pub(crate) fn begin(&mut self) {
        self.triggers.begin();
        self.counters.iter_mut().for_each(CounterDraws::begin);
    }

    /// Makes the draws that decide on triggers, unless cached.
    pub(crate) fn ensure_triggers(&mut self, input: &DrawInput<'_>, trigger: TriggerDraw) {
        self.trigger = trigger;
        match trigger {
            TriggerDraw::Own => {
                self.triggers.ensure(&DrawInput { purpose: DrawPurpose::Trigger, ..*input }, 0);
            }
            TriggerDraw::Spare => self.counter(0).ensure(input, 0),
        }
    }

    /// Returns the draws that decide on triggers.
    #[inline]
    pub(crate) fn triggers(&self) -> &[u32; BLOCK] {
        match (self.trigger, self.counters.first()) {
            (TriggerDraw::Spare, Some(counter)) => counter.word(TriggerDraw::LAST),
            (TriggerDraw::Spare, None) | (TriggerDraw::Own, _) => self.triggers.word(0),
        }
    }

    /// Returns a counter that is drawn for the whole block.
    fn counter(&mut self, counter: usize) -> &mut CounterDraws<DRAWS_PER_BLOCK> {
        if self.counters.len() <= counter {
            self.counters.resize_with(counter + 1, CounterDraws::default);
        }
        &mut self.counters[counter]
    }

    /// Returns a draw for all agents, if it is cached or enough agents need it.
    #[inline]
    pub(crate) fn known(
        &mut self,
        input: &DrawInput<'_>,
        index: u32,
        agents: usize,
    ) -> Option<&[u32; BLOCK]> {
        let (number, word) = counter_of(index);
        if number as usize >= COUNTERS_MAX {
            return None;
        }
        let counter = self.counter(number as usize);
        if !counter.is_worthwhile(agents) {
            return None;
        }
        counter.ensure(input, number);
        Some(counter.word(word))
    }

    /// Writes a draw as a number for each agent of a list.
    pub(crate) fn numbers(
        &mut self,
        input: &DrawInput<'_>,
        index: u32,
        list: &[u16],
        out: &mut LaneValues<f64>,
    ) {
        if let Some(draws) = self.known(input, index, list.len()) {
            let mut some = [0; AT_ONCE];
            for (lanes, out) in list.chunks(AT_ONCE).zip(out.as_chunks_mut::<AT_ONCE>().0) {
                some.iter_mut()
                    .zip(lanes)
                    .for_each(|(some, lane)| *some = draws[lane_index(*lane)]);
                units(&some[..lanes.len()], out);
            }
        } else {
            let DrawInput { philox, keys, tick, purpose } = *input;
            let draw = |lane: u16| philox.draw(keys[lane_index(lane)], tick, purpose, index);
            out.iter_mut().zip(list).for_each(|(out, lane)| *out = unit(draw(*lane)));
        }
    }
}

/// Converts draws to numbers in [0, 1).
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn units(draws: &[u32], out: &mut [f64; AT_ONCE]) {
    out.iter_mut().zip(draws).for_each(|(out, draw)| *out = unit(*draw));
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn fill<const WORDS: usize>(input: &DrawInput<'_>, counter: u32, out: &mut [[u32; BLOCK]; WORDS]) {
    let DrawInput { philox, keys, tick, purpose } = *input;
    for (group, keys) in keys.as_chunks::<LANES>().0.iter().enumerate() {
        let out = out.each_mut().map(|words| &mut words.as_chunks_mut::<LANES>().0[group]);
        philox.fill(keys, tick, purpose, counter, out);
    }
}
