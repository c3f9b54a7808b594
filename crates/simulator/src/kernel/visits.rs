//! How often each state was entered.
//!
//! A tick leaves the code of the way that each agent took. From the states that agents are in, the
//! columns are gone through backwards, and each code tells which state was entered and from where.

use multiversion::multiversion;
use polity_statechart::Chart;

use super::block::Block;
use super::masks::{Mask, NO, yes};
use super::{BLOCK, LANES};

/// Charts with more ways are gone through agent by agent, because each way is a look at everyone.
const WAYS_MAX: usize = 96;

/// So many columns are counted in a byte.
const COLUMNS_AT_ONCE: usize = 255;

/// Where agents came from.
#[derive(Debug)]
pub(super) struct Visits {
    states: Vec<Entered>,
    ways: usize,
}

/// A state, and the ways into it.
#[derive(Debug)]
struct Entered {
    state: u8,
    /// The state before, by code.
    before: [u8; 256],
    /// The codes that there are.
    codes: Vec<u8>,
}

impl Visits {
    pub(super) fn new(chart: &Chart) -> Self {
        let states = chart.states().map(|to| {
            let mut before = [to.get(); 256];
            let mut codes = Vec::new();
            for code in 1..=u8::MAX {
                if let Some((from, _)) = chart.decode_arrival(to, code) {
                    before[usize::from(code)] = from.get();
                    codes.push(code);
                }
            }
            Entered { state: to.get(), before, codes }
        });
        let states: Vec<Entered> = states.collect();
        Self { ways: states.iter().map(|entered| entered.codes.len()).sum(), states }
    }

    /// Counts what the newest columns of a block tell.
    pub(super) fn count(&self, block: &mut Block, columns: usize) {
        block.outbox.visits.resize(self.states.len(), 0);
        let mut states = [0; BLOCK];
        let states = &mut states[..block.length.next_multiple_of(LANES)];
        states.copy_from_slice(&block.states[..states.len()]);
        let columns: Vec<&[u8]> = block.history.newest(columns).rev().collect();
        let visits = &mut block.outbox.visits;
        let mut counts = vec![NO; self.states.len()];
        for columns in columns.chunks(COLUMNS_AT_ONCE) {
            if self.ways > WAYS_MAX {
                for codes in columns {
                    one_by_one(self, codes, states, visits);
                }
                continue;
            }
            for (group, states) in states.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                together(self, columns, group * LANES, states, &mut counts);
                for (visits, counts) in visits.iter_mut().zip(&mut counts) {
                    let counts = std::mem::replace(counts, NO);
                    *visits += counts.into_iter().map(u64::from).sum::<u64>();
                }
            }
        }
    }
}

fn one_by_one(known: &Visits, codes: &[u8], states: &mut [u8], visits: &mut [u64]) {
    for (code, state) in codes.iter().zip(states).filter(|(code, _)| **code != 0) {
        let entered = usize::from(*state);
        visits[entered] += 1;
        *state = known.states[entered].before[usize::from(*code)];
    }
}

/// The same for a group of agents, without a branch that depends on one.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn together(
    known: &Visits,
    columns: &[&[u8]],
    base: usize,
    states: &mut Mask,
    counts: &mut [Mask],
) {
    for column in columns {
        let Some(codes) = column[base..].first_chunk::<LANES>() else { continue };
        let mut before = *states;
        for (entered, counts) in known.states.iter().zip(&mut *counts) {
            let mut here = NO;
            for lane in 0..LANES {
                here[lane] = codes[lane] & yes(states[lane] == entered.state);
                counts[lane] += u8::from(here[lane] != 0);
            }
            for code in &entered.codes {
                let from = entered.before[usize::from(*code)];
                for lane in 0..LANES {
                    let came = yes(here[lane] == *code);
                    before[lane] = (before[lane] & !came) | (came & from);
                }
            }
        }
        *states = before;
    }
}
