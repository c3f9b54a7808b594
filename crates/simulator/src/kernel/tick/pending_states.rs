//! The new states of the agents of a block, until the tick ends.

use multiversion::multiversion;
use polity_statechart::TransitionOutcome;

use crate::kernel::BLOCK;
use crate::kernel::columns::block::{ACTIVE, AgentBlock};
use crate::kernel::columns::lanes::{LaneValues, lane_index};

/// The new state and arrival code of each agent; the code is 0 without a change. All of them are
/// written when the tick ends, because sequential writes are faster.
#[derive(Debug)]
pub(crate) struct PendingStates(LaneValues<u16>);

impl Default for PendingStates {
    fn default() -> Self {
        Self(Box::new([0; BLOCK]))
    }
}

impl PendingStates {
    /// Starts with the current states.
    pub(crate) fn begin(&mut self, states: &[u8]) {
        self.0.iter_mut().zip(states).for_each(|(stays, state)| *stays = u16::from(*state));
    }

    /// Sets the new state of a list of agents.
    pub(crate) fn put(&mut self, list: &[u16], to: TransitionOutcome) {
        let there = u16::from_le_bytes([to.to.get(), to.code]);
        // A local reference lets the compiler keep the address in a register.
        let pending_states = &mut *self.0;
        for lane in list {
            pending_states[lane_index(*lane)] = there;
        }
    }

    /// Writes the new states and codes, and counts the ticks of agents that stayed.
    pub(crate) fn settle(
        &self,
        block: &mut AgentBlock,
        agents: usize,
        column: usize,
        counted_ticks: u8,
    ) {
        let AgentBlock { states, ticks_in_state, status, history, .. } = block;
        let places = (&mut states[..agents], &mut history.column(column)[..agents]);
        settle(
            &self.0[..agents],
            places,
            &mut ticks_in_state[..agents],
            &status[..agents],
            counted_ticks,
        );
    }
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn settle(
    pending_states: &[u16],
    (states, codes): (&mut [u8], &mut [u8]),
    ticks_in_state: &mut [u32],
    acts: &[u8],
    counted_ticks: u8,
) {
    let agents = states.iter_mut().zip(codes).zip(ticks_in_state).zip(acts);
    for (moved, (((state, code), ticks_in_state), acts)) in pending_states.iter().zip(agents) {
        [*state, *code] = moved.to_le_bytes();
        let more = u32::from(*acts == ACTIVE) * u32::from(counted_ticks);
        *ticks_in_state = ticks_in_state.saturating_add(more) * u32::from(*code == 0);
    }
}
