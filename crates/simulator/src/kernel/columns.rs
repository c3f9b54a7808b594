//! Agent storage in columns, block by block, and the masks and lists of lanes that select agents.

pub(crate) mod agents;
pub(crate) mod block;
pub(crate) mod fields;
pub(crate) mod history;
pub(crate) mod lanes;
pub(crate) mod masks;
pub(crate) mod snapshot;
pub(crate) mod sorter;
pub(crate) mod visits;
