//! Trigger rates: the share of ticks on which agents draw each trigger.

use polity_statechart::{Chart, StateId, TriggerId};
use thiserror::Error;

/// The index of a behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BehaviourId(pub u8);

/// The rate of a trigger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriggerRate {
    /// The trigger.
    pub trigger: TriggerId,
    /// The share of an agent's ticks on which it draws the trigger, from 0 to 1.
    pub rate: f64,
}

/// The rates of one behaviour.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BehaviourRates {
    /// The rates in states without rates of their own.
    pub rates: Vec<TriggerRate>,
    /// The rates in these states.
    pub by_state: Vec<(StateId, Vec<TriggerRate>)>,
}

/// The rates of all behaviours of a population.
///
/// An agent draws at most one trigger per tick, so the rates of a state may add up to at most 1.
/// The rest is the share of ticks without a trigger.
#[derive(Debug, Clone)]
pub struct RateTable {
    /// The draw limits by behaviour and state.
    table: Vec<Vec<Vec<DrawLimit>>>,
}

/// A trigger and the exclusive upper bound of its draws, above those of earlier triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrawLimit {
    pub(crate) trigger: TriggerId,
    pub(crate) below: u64,
}

/// One more than the greatest draw, which has 32 bits.
pub(crate) const ALL_DRAWS: u64 = 1 << 32;

/// The maximum number of behaviours of a population.
pub const BEHAVIOURS_MAX: usize = 255;

/// The tolerance for rounding when rates add up to 1.
const SUM_TOLERANCE: f64 = 1e-9;

/// An error in rates.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RatesError {
    /// A rate is not from 0 to 1.
    #[error("the rate of \"{trigger}\" must be from 0 to 1, found {rate}")]
    NotAShare {
        /// The trigger's name.
        trigger: String,
        /// The rate.
        rate: f64,
    },
    /// The rates of a state add up to more than 1.
    #[error("the rates in state \"{state}\" add up to {sum}; the maximum is 1")]
    TooMany {
        /// The state's name.
        state: String,
        /// The sum.
        sum: f64,
    },
    /// Too many behaviours.
    #[error("there are {count} behaviours, and the limit behaviours is {BEHAVIOURS_MAX}")]
    TooManyBehaviours {
        /// The number of behaviours.
        count: usize,
    },
}

impl RateTable {
    /// Checks rates and compiles them. A [`BehaviourId`] is the index in the list.
    pub fn new(chart: &Chart, behaviours: &[BehaviourRates]) -> Result<Self, RatesError> {
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

    /// Creates the same rates for every agent and state.
    pub fn uniform(chart: &Chart, rates: &[TriggerRate]) -> Result<Self, RatesError> {
        let behaviour = BehaviourRates { rates: rates.to_vec(), by_state: Vec::new() };
        Self::new(chart, &[behaviour])
    }

    /// Returns the number of behaviours.
    pub fn behaviours(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn limits(&self, behaviour: u8, state: StateId) -> &[DrawLimit] {
        let states = self.table.get(usize::from(behaviour));
        states.map_or(&[], |states| &states[state.index()])
    }
}

fn limits(
    chart: &Chart,
    state: StateId,
    rates: &[TriggerRate],
) -> Result<Vec<DrawLimit>, RatesError> {
    let mut sum = 0.0;
    let mut limits = Vec::new();
    for TriggerRate { trigger, rate } in rates {
        if !(0.0..=1.0).contains(rate) {
            let trigger = chart.trigger_name(*trigger).to_owned();
            return Err(RatesError::NotAShare { trigger, rate: *rate });
        }
        sum += rate;
        limits.push(DrawLimit { trigger: *trigger, below: below(sum) });
    }
    if sum > 1.0 + SUM_TOLERANCE {
        return Err(RatesError::TooMany { state: chart.state_name(state).to_owned(), sum });
    }
    // A trigger that is never drawn must not make a certain one look uncertain.
    let mut before = 0;
    limits.retain(|limit| std::mem::replace(&mut before, limit.below) < limit.below);
    Ok(limits)
}

/// Returns the number of draws below a number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped first")]
#[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
pub(crate) fn below(number: f64) -> u64 {
    (number * ALL_DRAWS as f64).ceil().clamp(0.0, ALL_DRAWS as f64) as u64
}
