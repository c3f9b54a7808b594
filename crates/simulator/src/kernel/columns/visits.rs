//! Counts how often each state was entered.
//!
//! A tick leaves an arrival code per agent. Reading the columns backwards from the current states,
//! each code gives the state that was entered and its source.

use multiversion::multiversion;
use polity_statechart::Chart;

use crate::kernel::columns::block::AgentBlock;
use crate::kernel::columns::masks::{LaneMask, NO, mask_of};
use crate::kernel::{BLOCK, LANES};

/// Charts with more arrivals are counted agent by agent, because each arrival costs a vector pass.
const ARRIVALS_MAX: usize = 96;

/// The number of columns that a byte can count.
const COLUMNS_AT_ONCE: usize = 255;

/// The arrivals of all states.
#[derive(Debug)]
pub(crate) struct VisitCounter {
    states: Vec<StateArrivals>,
    arrivals: usize,
}

#[derive(Debug)]
struct StateArrivals {
    state: u8,
    /// The source state, by code.
    before: [u8; 256],
    /// The codes.
    codes: Vec<u8>,
}

impl VisitCounter {
    pub(crate) fn new(chart: &Chart) -> Self {
        let states = chart.states().map(|to| {
            let mut before = [to.get(); 256];
            let mut codes = Vec::new();
            for code in 1..=u8::MAX {
                if let Some((from, _)) = chart.decode_arrival(to, code) {
                    before[usize::from(code)] = from.get();
                    codes.push(code);
                }
            }
            StateArrivals { state: to.get(), before, codes }
        });
        let states: Vec<StateArrivals> = states.collect();
        Self { arrivals: states.iter().map(|entered| entered.codes.len()).sum(), states }
    }

    /// Counts the visits in the newest columns of a block.
    pub(crate) fn count(&self, block: &mut AgentBlock, columns: usize) {
        block.effects.visits.resize(self.states.len(), 0);
        let mut states = [0; BLOCK];
        let states = &mut states[..block.length.next_multiple_of(LANES)];
        states.copy_from_slice(&block.states[..states.len()]);
        let columns: Vec<&[u8]> = block.history.newest(columns).rev().collect();
        let visits = &mut block.effects.visits;
        let mut counts = vec![NO; self.states.len()];
        for columns in columns.chunks(COLUMNS_AT_ONCE) {
            if self.arrivals > ARRIVALS_MAX {
                for codes in columns {
                    count_scalar(self, codes, states, visits);
                }
                continue;
            }
            for (group, states) in states.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                count_simd(self, columns, group * LANES, states, &mut counts);
                for (visits, counts) in visits.iter_mut().zip(&mut counts) {
                    let counts = std::mem::replace(counts, NO);
                    *visits += counts.into_iter().map(u64::from).sum::<u64>();
                }
            }
        }
    }
}

fn count_scalar(counter: &VisitCounter, codes: &[u8], states: &mut [u8], visits: &mut [u64]) {
    for (code, state) in codes.iter().zip(states).filter(|(code, _)| **code != 0) {
        let entered = usize::from(*state);
        visits[entered] += 1;
        *state = counter.states[entered].before[usize::from(*code)];
    }
}

/// Counts a group of agents without branches.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn count_simd(
    counter: &VisitCounter,
    columns: &[&[u8]],
    base: usize,
    states: &mut LaneMask,
    counts: &mut [LaneMask],
) {
    for column in columns {
        let Some(codes) = column[base..].first_chunk::<LANES>() else { continue };
        let mut before = *states;
        for (entered, counts) in counter.states.iter().zip(&mut *counts) {
            let mut here = NO;
            for lane in 0..LANES {
                here[lane] = codes[lane] & mask_of(states[lane] == entered.state);
                counts[lane] += u8::from(here[lane] != 0);
            }
            for code in &entered.codes {
                let from = entered.before[usize::from(*code)];
                for lane in 0..LANES {
                    let came = mask_of(here[lane] == *code);
                    before[lane] = (before[lane] & !came) | (came & from);
                }
            }
        }
        *states = before;
    }
}
