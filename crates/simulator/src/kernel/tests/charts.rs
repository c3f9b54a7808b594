//! Random charts, from plain ones to those with every feature.

use std::fmt::Write;

use polity_statechart::Chart;

use crate::kernel::draws::rates::{BehaviourRates, RateTable, TriggerRate};

/// A deterministic sequence of pseudo-random numbers.
struct LcgNumbers(u64);

impl LcgNumbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// Rates by trigger name, with an override for the first state.
pub(super) struct RandomRates {
    rates: Vec<(String, f64)>,
    of_first_state: Option<Vec<(String, f64)>>,
    /// The number of behaviours. Each has lower rates in another order.
    behaviours: u8,
}

impl RandomRates {
    pub(super) fn table(&self, chart: &Chart) -> RateTable {
        let of = |rates: &[(String, f64)]| {
            let known = rates.iter().filter_map(|(name, rate)| {
                Some(TriggerRate { trigger: chart.trigger(name)?, rate: *rate })
            });
            known.collect::<Vec<_>>()
        };
        let behaviours: Vec<BehaviourRates> = (0..self.behaviours)
            .map(|number| {
                let less = |mut rates: Vec<TriggerRate>| {
                    for rate in &mut rates {
                        rate.rate *= 1.0 - f64::from(number) * 0.3;
                    }
                    let first = usize::from(number) % rates.len().max(1);
                    rates.rotate_left(first);
                    rates
                };
                let first = self.of_first_state.iter();
                BehaviourRates {
                    rates: less(of(&self.rates)),
                    by_state: first.map(|rates| (chart.initial(), less(of(rates)))).collect(),
                }
            })
            .collect();
        RateTable::new(chart, &behaviours).unwrap()
    }
}

/// Guards that a SIMD plan supports.
const SIMPLE: [&str; 9] = [
    "draw() < 0.5",
    "chance(0.9)",
    "0.25 <= draw()",
    "draw() > 0.8 && draw() < 0.7",
    "agent.energy > 3",
    "agent.energy < agent.limit",
    "agent.share < draw()",
    "draw() >= agent.share && agent.energy != 4",
    "1 < 2",
];

/// Guards that it does not support.
const OTHER: [&str; 15] = [
    "draw() < 0.2 || agent.energy > 5",
    "agent.mood == 'glad'",
    "1 / (agent.energy - 3) > 0.1",
    "context.score > 1",
    "!agent.flag",
    "agent.energy * draw() > 2",
    "world.count < 20",
    "agent.energy != 3 && 1 / (agent.energy - 3) > 0.1",
    "agent.energy == 3 || 1 / (agent.energy - 3) > 0.1 || context.score > 1",
    "agent.flag == (agent.energy > 2) && agent.mood != world.word",
    "agent.mood == agent.wish || -agent.energy < 0 - 5",
    "agent.energy / (agent.energy - 3) > context.score",
    "1 / (agent.energy - 3) > 1 / (agent.energy - 4)",
    "(agent.energy > 5) == context.yes",
    "agent.energy * 1e308 > 1 || world.count / (world.count - 3) > draw()",
];

const ACTIONS: [&str; 7] = [
    "add agent.energy = 1",
    "set agent.energy = draw() * 6",
    "set agent.share = draw()",
    "add agent.patience = draw() * 4 - 2",
    "add agent.energy = 0 - agent.energy",
    "pause 2",
    "copy 'twin'",
];

const OTHER_ACTIONS: [&str; 14] = [
    "set agent.mood = 'glad'",
    "set agent.flag = agent.energy > 2",
    "add world.count = 1",
    "add world.tally = agent.share / 3 + draw()",
    "set world.tally = agent.energy / 7",
    "set world.count = 0",
    "set agent.mood = agent.wish",
    "set agent.wish = world.word",
    "set world.word = agent.mood",
    "set agent.energy = 6 / (agent.energy - 3)",
    "add world.count = agent.share / (agent.energy - 4)",
    "set agent.flag = context.yes",
    "add world.tally = 1e308",
    "add world.tally = -1.5e308",
];

/// A composite state with history, whose exit action writes the world in charts that have one.
fn nested_state(has_world: bool) -> String {
    let exit = if has_world {
        "[set agent.energy = draw(), add world.tally = agent.energy / 3 + draw(), \
         set world.word = agent.mood, add world.count = 1 / (agent.share - 0.3)]"
    } else {
        "set agent.energy = 1"
    };
    format!(
        "{{name: s1, initial: inner, history: shallow, states: [inner, second, \
         {{name: deep, initial: third, history: shallow, states: [third, fourth]}}], \
         entry: add agent.energy = 1, exit: {exit}}}"
    )
}

pub(super) fn random_chart(shape: u64) -> (String, RandomRates) {
    let mut numbers = LcgNumbers(shape);
    let (other, acts, nested) = (numbers.chance(40), numbers.chance(40), numbers.chance(25));
    let states = 2 + numbers.below(6);
    let mut text = String::from("name: any\ninitial: s0\n");
    let declared: Vec<String> = (0..states)
        .map(|state| if nested && state == 1 { nested_state(other) } else { format!("s{state}") })
        .collect();
    let _ = writeln!(text, "states: [{}]", declared.join(", "));
    text.push_str("fields: {energy: {default: 4, max: 9}, limit: 5, share: 0.3, mood: sad, wish: fun, flag: false, patience: 3}\n");
    if other {
        text.push_str("world: {count: 0, word: fun, tally: 0}\n");
    }
    let _ = writeln!(
        text,
        "max_history_depth: {}",
        [1, 3, 50, 50, 200][usize::try_from(numbers.below(5)).unwrap()]
    );
    text.push_str("oracle_default: s0\ntransitions:\n");
    // Every state is reachable.
    for state in 0..states {
        let _ = writeln!(
            text,
            "  - {{trigger: next, source: s{state}, target: s{}}}",
            (state + 1) % states
        );
    }
    if nested {
        for (source, target) in [("inner", "second"), ("second", "deep"), ("third", "fourth")] {
            let _ = writeln!(text, "  - {{trigger: swap, source: {source}, target: {target}}}");
        }
    }
    let mut requested = Vec::new();
    for _ in 0..numbers.below(14) {
        let guard =
            if other && numbers.chance(50) { numbers.pick(&OTHER) } else { numbers.pick(&SIMPLE) };
        let (trigger, source, target) =
            (numbers.pick(&["go", "swap", "jump"]), numbers.below(states), numbers.below(states));
        let _ = write!(
            text,
            "  - {{trigger: {trigger}, source: s{source}, target: s{target}, guard: \"{guard}\""
        );
        if other && numbers.chance(40) {
            text.push_str(", oracle: true");
            requested.push((trigger, source, target));
        }
        if acts && numbers.chance(50) {
            let action = if other && numbers.chance(50) {
                numbers.pick(&OTHER_ACTIONS)
            } else {
                numbers.pick(&ACTIONS)
            };
            let _ = write!(text, ", action: \"{action}\"");
        }
        text.push_str("}\n");
    }
    // The default is a candidate of every oracle choice.
    for trigger in ["go", "swap", "jump"] {
        for state in 0..states {
            let here = requested.iter().filter(|(its, from, _)| (*its, *from) == (trigger, state));
            if here.count() > 1 {
                let _ = writeln!(
                    text,
                    "  - {{trigger: {trigger}, source: s{state}, target: s0, guard: \"draw() < 0.4\", \
                     oracle: true}}"
                );
            }
        }
    }
    text.push_str("timeouts:\n");
    for state in 0..states {
        if numbers.chance(60) {
            let threshold = numbers.pick(&["1", "2.5", "5", "agent.patience"]);
            let _ = writeln!(
                text,
                "  - {{state: s{state}, threshold: {threshold}, target: s{}}}",
                numbers.below(states)
            );
        }
    }
    if text.ends_with("timeouts:\n") {
        text.push_str("  []\n");
    }
    let rates = |numbers: &mut LcgNumbers| match numbers.below(3) {
        0 => vec![("go".to_owned(), 1.0)],
        1 => vec![("go".to_owned(), 0.5), ("swap".to_owned(), 0.2), ("next".to_owned(), 0.1)],
        _ => vec![("next".to_owned(), 0.02), ("jump".to_owned(), 0.0), ("swap".to_owned(), 0.98)],
    };
    let general = rates(&mut numbers);
    let of_first_state = numbers.chance(30).then(|| rates(&mut numbers));
    let behaviours = [1, 1, 2, 3][usize::try_from(numbers.below(4)).unwrap()];
    (text, RandomRates { rates: general, of_first_state, behaviours })
}
