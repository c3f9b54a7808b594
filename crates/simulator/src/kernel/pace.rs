//! How many ticks are run before the world is brought up to date.
//!
//! The agents of a block are at hand while several ticks are run with them, which is faster than to
//! go from block to block for each tick. That is possible where no agent looks at what others change.
//! But the changes have to be kept until all blocks are done, and should not be more than the agents.

use polity_statechart::Chart;

/// The most ticks that are run at once where there is a world. When all agents begin to change it,
/// there are as many changes for each.
const TICKS_MAX: usize = 16;

/// How many ticks are run at once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    /// One, because each may see what the one before did to the world.
    InStep,
    /// So many.
    Ahead(usize),
}

impl Pace {
    pub(super) fn new(chart: &Chart) -> Self {
        if chart.world_values().is_empty() {
            Self::Ahead(usize::MAX)
        } else if chart.reads_written_world_values() {
            Self::InStep
        } else {
            Self::Ahead(1)
        }
    }

    pub(super) fn ticks(self) -> usize {
        match self {
            Self::InStep => 1,
            Self::Ahead(ticks) => ticks,
        }
    }

    /// Learns how many changes some ticks of so many agents came to.
    pub(super) fn went(&mut self, ticks: usize, changes: usize, agents: usize) {
        match self {
            Self::InStep => {}
            Self::Ahead(ahead) if changes > agents => *ahead = (ticks / 2).max(1),
            Self::Ahead(ahead) if changes <= agents / 2 => {
                *ahead = (*ahead).max(TICKS_MAX.min(ticks.saturating_mul(2)));
            }
            Self::Ahead(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_changes_there_are_the_fewer_ticks_are_run_at_once() {
        let mut pace = Pace::Ahead(1);
        for _ in 0..6 {
            pace.went(pace.ticks(), 0, 100);
        }
        assert_eq!(pace.ticks(), 16);
        // Between half of the agents and all of them it is just right.
        pace.went(16, 51, 100);
        assert_eq!(pace.ticks(), 16);
        // A piece that ended early says nothing against more.
        pace.went(3, 10, 100);
        assert_eq!(pace.ticks(), 16);
        for _ in 0..9 {
            pace.went(pace.ticks(), 101, 100);
        }
        assert_eq!(pace.ticks(), 1);
    }

    #[test]
    fn whoever_looks_at_what_others_change_goes_in_step() {
        let is_in_step = |guard: &str, action: &str| {
            let text = format!(
                "name: n\nstates: [a, b]\ninitial: a\nworld: {{price: 1, sold: 0}}\nfields: {{bid: 1}}\n\
                 transitions:\n  - {{trigger: t, source: a, target: b, guard: {guard}}}\n  \
                 - {{trigger: t, source: b, target: a, action: {action}}}\n"
            );
            matches!(Pace::new(&Chart::from_text(&text).unwrap()), Pace::InStep)
        };
        assert!(!is_in_step("world.price > draw()", "add world.sold = agent.bid"));
        assert!(!is_in_step("draw() < 0.5", "set agent.bid = world.price + world.sold"));
        assert!(is_in_step("world.sold < 3", "add world.sold = agent.bid"));
        assert!(is_in_step("world.sold > 3", "set world.sold = 1"));
        assert!(is_in_step("draw() < 0.5", "[add world.sold = 1, set agent.bid = world.sold]"));
        assert!(is_in_step("draw() < 0.5", "add world.sold = world.sold"));
    }
}
