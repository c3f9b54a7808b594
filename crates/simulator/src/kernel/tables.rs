//! Tables compiled from a chart and its rates before the first tick.

pub(crate) mod candidates;
pub(crate) mod event_cases;
pub(crate) mod event_table;
pub(crate) mod simd_plan;
