//! Effects of agents on the world and the population, collected per block and applied in agent order.

pub(crate) mod block_effects;
pub(crate) mod world;
