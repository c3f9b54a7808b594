//! The execution paths of a tick: `scalar`, `batched` and `simd`.

pub(crate) mod batched;
pub(crate) mod batched_actions;
pub(crate) mod batching;
pub(crate) mod pending_states;
pub(crate) mod scalar;
pub(crate) mod simd;
