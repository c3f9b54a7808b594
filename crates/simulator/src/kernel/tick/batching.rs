//! The number of ticks that run before world changes apply.
//!
//! Running several ticks per block keeps its agents in the cache. This is possible if no agent
//! reads world values that others change. The changes are kept until all blocks are done, so they
//! should not outnumber the agents.

use polity_statechart::Chart;

/// The maximum number of ticks at once in a chart with a world.
const TICKS_MAX: usize = 16;

/// The number of ticks that run at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TickBatching {
    /// One, because agents read world values that actions change.
    SingleTick,
    /// Up to this many.
    UpTo(usize),
}

impl TickBatching {
    pub(crate) fn new(chart: &Chart) -> Self {
        if chart.world_values().is_empty() {
            Self::UpTo(usize::MAX)
        } else if chart.reads_written_world_values() {
            Self::SingleTick
        } else {
            Self::UpTo(1)
        }
    }

    pub(crate) fn ticks(self) -> usize {
        match self {
            Self::SingleTick => 1,
            Self::UpTo(ticks) => ticks,
        }
    }

    /// Adapts to the number of world changes of the last ticks.
    pub(crate) fn adapt(&mut self, ticks: usize, changes: usize, agents: usize) {
        match self {
            Self::SingleTick => {}
            Self::UpTo(ahead) if changes > agents => *ahead = (ticks / 2).max(1),
            Self::UpTo(ahead) if changes <= agents / 2 => {
                *ahead = (*ahead).max(TICKS_MAX.min(ticks.saturating_mul(2)));
            }
            Self::UpTo(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_changes_mean_smaller_batches() {
        let mut batching = TickBatching::UpTo(1);
        for _ in 0..6 {
            batching.adapt(batching.ticks(), 0, 100);
        }
        assert_eq!(batching.ticks(), 16);
        // Between half and all of the agents, the number stays.
        batching.adapt(16, 51, 100);
        assert_eq!(batching.ticks(), 16);
        // A batch that ended early does not reduce the number.
        batching.adapt(3, 10, 100);
        assert_eq!(batching.ticks(), 16);
        for _ in 0..9 {
            batching.adapt(batching.ticks(), 101, 100);
        }
        assert_eq!(batching.ticks(), 1);
    }

    #[test]
    fn charts_that_read_changed_values_run_single_ticks() {
        let is_in_step = |guard: &str, action: &str| {
            let text = format!(
                "name: n\nstates: [a, b]\ninitial: a\nworld: {{price: 1, sold: 0}}\nfields: {{bid: 1}}\n\
                 transitions:\n  - {{trigger: t, source: a, target: b, guard: {guard}}}\n  \
                 - {{trigger: t, source: b, target: a, action: {action}}}\n"
            );
            matches!(TickBatching::new(&Chart::from_text(&text).unwrap()), TickBatching::SingleTick)
        };
        assert!(!is_in_step("world.price > draw()", "add world.sold = agent.bid"));
        assert!(!is_in_step("draw() < 0.5", "set agent.bid = world.price + world.sold"));
        assert!(is_in_step("world.sold < 3", "add world.sold = agent.bid"));
        assert!(is_in_step("world.sold > 3", "set world.sold = 1"));
        assert!(is_in_step("draw() < 0.5", "[add world.sold = 1, set agent.bid = world.sold]"));
        assert!(is_in_step("draw() < 0.5", "add world.sold = world.sold"));
    }
}
