//! Where the agents of a block go in a tick.

use multiversion::multiversion;
use polity_statechart::TransitionOutcome;

use super::BLOCK;
use super::block::{ACTING, Block};
use super::pool::{Rows, place};

/// Where each agent of a block goes: a state, and above it the code of the way there, which is 0 for
/// those who stay. It takes effect at once for all when a tick ends, because two columns are written
/// faster from one end to the other than here and there.
#[derive(Debug)]
pub(super) struct Moves(Rows<u16>);

impl Default for Moves {
    fn default() -> Self {
        Self(Box::new([0; BLOCK]))
    }
}

impl Moves {
    /// The first agents of a block stay where they are.
    pub(super) fn begin(&mut self, states: &[u8]) {
        self.0.iter_mut().zip(states).for_each(|(stays, state)| *stays = u16::from(*state));
    }

    /// The agents of a list go somewhere.
    pub(super) fn put(&mut self, list: &[u16], to: TransitionOutcome) {
        let there = u16::from_le_bytes([to.to.get(), to.code]);
        // Where the moves stand is known from here on, however often they are written to.
        let moves = &mut *self.0;
        for lane in list {
            moves[place(*lane)] = there;
        }
    }

    /// Has the first agents of a block be where they have gone, and counts the ticks of those who have
    /// stayed.
    pub(super) fn settle(&self, block: &mut Block, agents: usize, column: usize, counted: u8) {
        let Block { states, held, status, history, .. } = block;
        let places = (&mut states[..agents], &mut history.column(column)[..agents]);
        settle(&self.0[..agents], places, &mut held[..agents], &status[..agents], counted);
    }
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn settle(
    moves: &[u16],
    (states, codes): (&mut [u8], &mut [u8]),
    held: &mut [u32],
    acts: &[u8],
    counted: u8,
) {
    let agents = states.iter_mut().zip(codes).zip(held).zip(acts);
    for (moved, (((state, code), held), acts)) in moves.iter().zip(agents) {
        [*state, *code] = moved.to_le_bytes();
        let more = u32::from(*acts == ACTING) * u32::from(counted);
        *held = held.saturating_add(more) * u32::from(*code == 0);
    }
}
