//! Which triggers agents draw, and how often.

use polity_statechart::{Chart, StateId, TriggerId};
use thiserror::Error;

/// One of the ways in which agents of a population behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BehaviourId(pub u8);

/// How often a trigger is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// The trigger.
    pub trigger: TriggerId,
    /// The share of an agent's ticks that bring it, from 0 to 1.
    pub rate: f64,
}

/// The rates of one behaviour.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Behaviour {
    /// The rates in every state that has none of its own.
    pub rates: Vec<Rate>,
    /// The rates in these states.
    pub by_state: Vec<(StateId, Vec<Rate>)>,
}

/// The rates of all behaviours of a population.
///
/// In each tick an agent draws at most one trigger, so the rates of a state may add up to 1; what
/// is left to 1 is the share of ticks that bring nothing.
#[derive(Debug, Clone)]
pub struct Rates {
    /// By behaviour and state, the triggers and up to which draw each is meant.
    table: Vec<Vec<Vec<Limit>>>,
}

/// A trigger is meant by draws below this, if no earlier one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) trigger: TriggerId,
    pub(super) below: u64,
}

/// Draws are 32 bits, so this is above every one of them.
pub(super) const ALL_DRAWS: u64 = 1 << 32;

/// The most behaviours of one population.
pub const BEHAVIOURS_MAX: usize = 255;

/// Rounding may take a sum of rates this far beyond 1.
const SUM_TOLERANCE: f64 = 1e-9;

/// Rates that cannot be.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RatesError {
    /// A rate is not a share.
    #[error("the rate of \"{trigger}\" must be from 0 to 1, found {rate}")]
    NotAShare {
        /// The trigger's name.
        trigger: String,
        /// The rate.
        rate: f64,
    },
    /// The rates of a state add up to more than one trigger in a tick.
    #[error("the rates in state \"{state}\" add up to {sum}, and 1 is the most")]
    TooMany {
        /// The state's name.
        state: String,
        /// The sum.
        sum: f64,
    },
    /// There are more behaviours than can be told apart.
    #[error("there are {count} behaviours, and the limit behaviours is {BEHAVIOURS_MAX}")]
    TooManyBehaviours {
        /// How many.
        count: usize,
    },
}

impl Rates {
    /// Checks rates and makes a table of them. [`BehaviourId`] is the place in the list.
    pub fn new(chart: &Chart, behaviours: &[Behaviour]) -> Result<Self, RatesError> {
        if behaviours.len() > BEHAVIOURS_MAX {
            return Err(RatesError::TooManyBehaviours { count: behaviours.len() });
        }
        let mut table = Vec::new();
        for behaviour in behaviours {
            let mut states = Vec::new();
            for state in chart.states() {
                let own = behaviour.by_state.iter().find(|(its, _)| *its == state);
                let rates = own.map_or(&behaviour.rates, |(_, rates)| rates);
                states.push(limits(chart, state, rates)?);
            }
            table.push(states);
        }
        Ok(Self { table })
    }

    /// The same rates for every agent in every state.
    pub fn uniform(chart: &Chart, rates: &[Rate]) -> Result<Self, RatesError> {
        let behaviour = Behaviour { rates: rates.to_vec(), by_state: Vec::new() };
        Self::new(chart, &[behaviour])
    }

    /// How many behaviours there are.
    pub fn behaviours(&self) -> usize {
        self.table.len()
    }

    pub(super) fn limits(&self, behaviour: u8, state: StateId) -> &[Limit] {
        let states = self.table.get(usize::from(behaviour));
        states.map_or(&[], |states| &states[state.index()])
    }
}

fn limits(chart: &Chart, state: StateId, rates: &[Rate]) -> Result<Vec<Limit>, RatesError> {
    let mut sum = 0.0;
    let mut limits = Vec::new();
    for Rate { trigger, rate } in rates {
        if !(0.0..=1.0).contains(rate) {
            let trigger = chart.trigger_name(*trigger).to_owned();
            return Err(RatesError::NotAShare { trigger, rate: *rate });
        }
        sum += rate;
        limits.push(Limit { trigger: *trigger, below: below(sum) });
    }
    if sum > 1.0 + SUM_TOLERANCE {
        return Err(RatesError::TooMany { state: chart.state_name(state).to_owned(), sum });
    }
    // What is never drawn must not make a certain trigger look uncertain.
    let mut before = 0;
    limits.retain(|limit| std::mem::replace(&mut before, limit.below) < limit.below);
    Ok(limits)
}

/// How many of all draws are below a number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped first")]
#[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
pub(super) fn below(number: f64) -> u64 {
    (number * ALL_DRAWS as f64).ceil().clamp(0.0, ALL_DRAWS as f64) as u64
}
