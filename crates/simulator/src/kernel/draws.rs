//! Random draws: the generator, a cache of draws per block, and trigger rates.

pub(crate) mod draw_cache;
pub(crate) mod philox;
pub(crate) mod rates;
