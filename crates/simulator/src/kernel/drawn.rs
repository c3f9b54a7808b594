//! The draws of a block of agents in a tick, made when they are needed.

use multiversion::multiversion;

use super::philox::{DRAWS_PER_BLOCK, Philox, Purpose, TriggerDraw, counter_of, unit};
use super::pool::{Rows, place};
use super::{BLOCK, LANES};

/// How many agents must need a draw so that it is made for the whole block. So many draws one by one
/// cost as much.
const MANY: usize = 96;

/// How many counters of a purpose are drawn for the whole block. What a chart needs beyond that is
/// drawn one by one.
const COUNTERS_MAX: usize = 8;

/// How many draws are made numbers at once.
const AT_ONCE: usize = 64;

/// Whose draws, and when.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) philox: Philox,
    /// The keys of the first places of the block, so that all agents are among them.
    pub(super) keys: &'a [u64],
    pub(super) tick: u32,
    pub(super) purpose: Purpose,
}

/// The first numbers of one counter, or all of them, for all agents of a block.
#[derive(Debug)]
struct Counter<const WORDS: usize> {
    is_known: bool,
    /// For how many agents of this tick it was asked.
    asked: usize,
    /// Whether many asked in the tick before. Then it is likely that many will again.
    was_wanted: bool,
    /// Word after word.
    draws: Vec<u32>,
}

impl<const WORDS: usize> Default for Counter<WORDS> {
    fn default() -> Self {
        Self { is_known: false, asked: 0, was_wanted: false, draws: vec![0; WORDS * BLOCK] }
    }
}

impl<const WORDS: usize> Counter<WORDS> {
    fn know(&mut self, moment: &Moment<'_>, counter: u32) {
        if !std::mem::replace(&mut self.is_known, true)
            && let Some(words) = self.draws.as_chunks_mut().0.first_chunk_mut::<WORDS>()
        {
            fill(moment, counter, words);
        }
    }

    /// The draws of a word.
    #[inline]
    fn word(&self, word: usize) -> &[u32; BLOCK] {
        &self.draws.as_chunks().0[word]
    }

    /// Whether it is worth while to draw for the whole block, now that so many more agents ask.
    fn is_wanted(&mut self, more: usize) -> bool {
        self.asked += more;
        self.is_known || self.was_wanted || self.asked >= MANY
    }

    /// Forgets the draws of another tick or block.
    fn begin(&mut self) {
        self.is_known = false;
        self.was_wanted = self.asked >= MANY;
        self.asked = 0;
    }
}

/// The draws of a tick, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    trigger: TriggerDraw,
    triggers: Counter<1>,
    counters: Vec<Counter<DRAWS_PER_BLOCK>>,
}

impl Drawn {
    /// Forgets the draws of another tick or block.
    pub(super) fn begin(&mut self) {
        self.triggers.begin();
        self.counters.iter_mut().for_each(Counter::begin);
    }

    /// Makes the draws that decide on triggers, if they are not known yet.
    pub(super) fn know_triggers(&mut self, moment: &Moment<'_>, trigger: TriggerDraw) {
        self.trigger = trigger;
        match trigger {
            TriggerDraw::Own => {
                self.triggers.know(&Moment { purpose: Purpose::Trigger, ..*moment }, 0);
            }
            TriggerDraw::Left => self.counter(0).know(moment, 0),
        }
    }

    /// The draws that decide on triggers.
    #[inline]
    pub(super) fn triggers(&self) -> &[u32; BLOCK] {
        match (self.trigger, self.counters.first()) {
            (TriggerDraw::Left, Some(counter)) => counter.word(TriggerDraw::LAST),
            (TriggerDraw::Left, None) | (TriggerDraw::Own, _) => self.triggers.word(0),
        }
    }

    /// One of the counters that are drawn for the whole block.
    fn counter(&mut self, counter: usize) -> &mut Counter<DRAWS_PER_BLOCK> {
        if self.counters.len() <= counter {
            self.counters.resize_with(counter + 1, Counter::default);
        }
        &mut self.counters[counter]
    }

    /// A draw of guards or actions by agent, if it is known or so many agents make it worth while
    /// to draw for the whole block.
    #[inline]
    pub(super) fn known(
        &mut self,
        moment: &Moment<'_>,
        index: u32,
        agents: usize,
    ) -> Option<&[u32; BLOCK]> {
        let (number, word) = counter_of(index);
        if number as usize >= COUNTERS_MAX {
            return None;
        }
        let counter = self.counter(number as usize);
        if !counter.is_wanted(agents) {
            return None;
        }
        counter.know(moment, number);
        Some(counter.word(word))
    }

    /// A draw of guards or actions for each agent of a list.
    pub(super) fn numbers(
        &mut self,
        moment: &Moment<'_>,
        index: u32,
        list: &[u16],
        out: &mut Rows<f64>,
    ) {
        if let Some(draws) = self.known(moment, index, list.len()) {
            let mut some = [0; AT_ONCE];
            for (lanes, out) in list.chunks(AT_ONCE).zip(out.as_chunks_mut::<AT_ONCE>().0) {
                some.iter_mut().zip(lanes).for_each(|(some, lane)| *some = draws[place(*lane)]);
                units(&some[..lanes.len()], out);
            }
        } else {
            let Moment { philox, keys, tick, purpose } = *moment;
            let draw = |lane: u16| philox.draw(keys[place(lane)], tick, purpose, index);
            out.iter_mut().zip(list).for_each(|(out, lane)| *out = unit(draw(*lane)));
        }
    }
}

/// Draws as numbers from 0 up to but not including 1.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn units(draws: &[u32], out: &mut [f64; AT_ONCE]) {
    out.iter_mut().zip(draws).for_each(|(out, draw)| *out = unit(*draw));
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn fill<const WORDS: usize>(moment: &Moment<'_>, counter: u32, out: &mut [[u32; BLOCK]; WORDS]) {
    let Moment { philox, keys, tick, purpose } = *moment;
    for (group, keys) in keys.as_chunks::<LANES>().0.iter().enumerate() {
        let out = out.each_mut().map(|words| &mut words.as_chunks_mut::<LANES>().0[group]);
        philox.fill(keys, tick, purpose, counter, out);
    }
}
