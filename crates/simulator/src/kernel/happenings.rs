//! What can happen to an agent in a tick: its timeout, a trigger, or nothing.
//!
//! Which it is follows from the agent's behaviour and state, its ticks in the state and a draw. All
//! agents of a block get the number of what happens to them, and are put in order by that.

use polity_statechart::{Chart, StateId, Threshold, TriggerId};

use super::BLOCK;
use super::block::Block;
use super::candidates::Fired;
use super::cases::{Case, Cases, Due, NOTHING};
use super::drawn::Moment;
use super::lists::Desk;
use super::philox::TriggerDraw;
use super::rates::{ALL_DRAWS, Rates};

/// What can happen to the agents of a population. A case is a behaviour in a state; one more, which
/// is none of these, is that of agents who do not act.
#[derive(Debug)]
pub(super) struct Happenings {
    /// By number, what is fired. The first stands for nothing.
    fired: Vec<Option<Fired>>,
    cases: Cases,
    trigger: TriggerDraw,
}

impl Happenings {
    /// What a tick can bring.
    pub(super) fn new(chart: &Chart, rates: &Rates) -> Self {
        let mut fired = vec![None];
        let mut cases = Vec::new();
        for behaviour in 0..rates.behaviours() {
            let behaviour = u8::try_from(behaviour).unwrap_or(u8::MAX);
            for state in chart.states() {
                let (timeout, due) = timeout(chart, state, &mut fired);
                let (mut at_most, mut numbers) = (Vec::new(), Vec::new());
                let mut before = 0;
                for limit in rates.limits(behaviour, state) {
                    numbers.push(number(chart, state, limit.trigger, &mut fired));
                    // A limit of nothing has been left out.
                    at_most.extend(u32::try_from(limit.below.saturating_sub(1)));
                    before = limit.below;
                }
                if before < ALL_DRAWS {
                    numbers.push(NOTHING);
                } else {
                    at_most.pop();
                }
                cases.push(Case { timeout, due, at_most, numbers });
            }
        }
        Self::of(chart, fired, &cases, rates.behaviours() > 1)
    }

    /// What it can bring to fire one trigger for everyone.
    pub(super) fn of_trigger(chart: &Chart, trigger: TriggerId) -> Self {
        let mut fired = vec![None];
        let mut cases = Vec::new();
        for state in chart.states() {
            let numbers = vec![number(chart, state, trigger, &mut fired)];
            cases.push(Case { timeout: NOTHING, due: Due::Never, at_most: Vec::new(), numbers });
        }
        Self::of(chart, fired, &cases, false)
    }

    fn of(chart: &Chart, fired: Vec<Option<Fired>>, cases: &[Case], by_behaviour: bool) -> Self {
        let states = if by_behaviour { chart.states().len() } else { 0 };
        let cases = Cases::new(cases, states, fired.len());
        Self { fired, cases, trigger: TriggerDraw::of(chart) }
    }

    /// How many different things can happen, with nothing.
    fn len(&self) -> usize {
        self.fired.len()
    }

    #[cfg(test)]
    pub(super) fn has_tables(&self) -> bool {
        match self.cases {
            Cases::Few(_) => false,
            Cases::Many(_) => true,
        }
    }

    /// What is fired, each with its number.
    pub(super) fn fired(&self) -> impl Iterator<Item = (usize, &Fired)> {
        let fired = self.fired.iter().enumerate();
        fired.filter_map(|(number, fired)| Some((number, fired.as_ref()?)))
    }

    /// Puts the first agents of a block in order, by the number of what happens to them.
    pub(super) fn sort(
        &self,
        (block, agents): (&Block, usize),
        moment: &Moment<'_>,
        desk: &mut Desk,
        order: &mut [u16; BLOCK],
    ) {
        let Desk { workings, sorter, lists, .. } = desk;
        if self.cases.draw() {
            workings.drawn.know_triggers(moment, self.trigger);
        }
        match &self.cases {
            Cases::Few(few) => {
                let mut numbers = workings.truths.take();
                few.tell(block, &workings.drawn, &mut numbers[..agents]);
                sorter.sort(self.len(), &numbers[..agents], order);
                workings.truths.give(numbers);
            }
            Cases::Many(tables) => {
                let mut numbers = lists.take();
                // The order is not known yet, so there is room for what leads to it.
                tables.tell(block, workings, &mut order[..agents], &mut numbers[..agents]);
                sorter.sort(self.len(), &numbers[..agents], order);
                lists.give(numbers);
            }
        }
    }
}

/// The number of a trigger that is fired in a state.
fn number(
    chart: &Chart,
    state: StateId,
    trigger: TriggerId,
    fired: &mut Vec<Option<Fired>>,
) -> u16 {
    if chart.candidates(state, trigger).len() == 0 {
        return NOTHING;
    }
    let is_it = |fired: &Fired| fired.state == state && fired.trigger == trigger;
    let known = fired.iter().position(|fired| fired.as_ref().is_some_and(is_it));
    let number = known.unwrap_or_else(|| {
        fired.push(Some(Fired::new(chart, state, trigger)));
        fired.len() - 1
    });
    // A chart has at most 255 states and 255 triggers.
    u16::try_from(number).unwrap_or(NOTHING)
}

/// The number of a state's timeout, and when it is due.
fn timeout(chart: &Chart, state: StateId, fired: &mut Vec<Option<Fired>>) -> (u16, Due) {
    let (Some(threshold), Some(timeout)) = (chart.threshold(state), chart.timeout()) else {
        return (NOTHING, Due::Never);
    };
    let due = match threshold {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is above 0, and what is too large is the largest"
        )]
        Threshold::Ticks(ticks) => Due::After(ticks.floor() as u32),
        Threshold::Field(field) => Due::ByField(field.index()),
    };
    (number(chart, state, timeout, fired), due)
}
