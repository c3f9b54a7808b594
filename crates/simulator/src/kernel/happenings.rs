//! What can happen to an agent in a tick: its timeout, a trigger, or nothing.
//!
//! Which it is follows from the agent's behaviour and state, its ticks in the state and a draw. All
//! agents of a block get the number of what happens to them, and are put in order by that.

use std::collections::BTreeMap;

use polity_statechart::{Chart, StateId, TimeoutThreshold, TriggerId};

use super::BLOCK;
use super::block::Block;
use super::candidates::Fired;
#[cfg(test)]
use super::cases::Tables;
use super::cases::{Case, Cases, Due, NOTHING, whole_ticks};
use super::drawn::Moment;
use super::lists::Desk;
use super::philox::TriggerDraw;
use super::rates::{ALL_DRAWS, Rates};

/// What can happen to the agents of a population. A case is a behaviour in a state.
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
        Self::of_rates(chart, rates, Cases::new)
    }

    /// The same with tables, however few cases there are.
    #[cfg(test)]
    pub(super) fn in_tables(chart: &Chart, rates: &Rates) -> Self {
        Self::of_rates(chart, rates, |cases, states, _| Cases::Many(Tables::new(cases, states)))
    }

    fn of_rates(
        chart: &Chart,
        rates: &Rates,
        make: impl Fn(&[Case], usize, usize) -> Cases,
    ) -> Self {
        let mut numbered = Numbered::new(chart);
        let mut cases = Vec::new();
        for behaviour in 0..rates.behaviours() {
            let behaviour = u8::try_from(behaviour).unwrap_or(u8::MAX);
            for state in chart.states() {
                let (timeout, due) = numbered.timeout(state);
                let (mut at_most, mut numbers) = (Vec::new(), Vec::new());
                let mut before = 0;
                for limit in rates.limits(behaviour, state) {
                    numbers.push(numbered.number(state, limit.trigger));
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
        Self::of(numbered, &cases, rates.behaviours() > 1, make)
    }

    /// What it can bring to fire one trigger for everyone.
    pub(super) fn of_trigger(chart: &Chart, trigger: TriggerId) -> Self {
        let mut numbered = Numbered::new(chart);
        let mut cases = Vec::new();
        for state in chart.states() {
            let numbers = vec![numbered.number(state, trigger)];
            cases.push(Case { timeout: NOTHING, due: Due::Never, at_most: Vec::new(), numbers });
        }
        Self::of(numbered, &cases, false, Cases::new)
    }

    fn of(
        numbered: Numbered<'_>,
        cases: &[Case],
        by_behaviour: bool,
        make: impl Fn(&[Case], usize, usize) -> Cases,
    ) -> Self {
        let Numbered { chart, fired, .. } = numbered;
        let states = if by_behaviour { chart.states().len() } else { 0 };
        let cases = make(cases, states, fired.len());
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

/// What is fired, as far as it has a number.
struct Numbered<'c> {
    chart: &'c Chart,
    fired: Vec<Option<Fired>>,
    known: BTreeMap<(StateId, TriggerId), u16>,
}

impl<'c> Numbered<'c> {
    fn new(chart: &'c Chart) -> Self {
        Self { chart, fired: vec![None], known: BTreeMap::new() }
    }

    /// The number of a trigger that is fired in a state.
    fn number(&mut self, state: StateId, trigger: TriggerId) -> u16 {
        let Self { chart, fired, known } = self;
        if chart.candidates(state, trigger).len() == 0 {
            return NOTHING;
        }
        *known.entry((state, trigger)).or_insert_with(|| {
            fired.push(Some(Fired::new(chart, state, trigger)));
            // A chart has at most 255 states and 255 triggers.
            u16::try_from(fired.len() - 1).unwrap_or(NOTHING)
        })
    }

    /// The number of a state's timeout, and when it is due.
    fn timeout(&mut self, state: StateId) -> (u16, Due) {
        let (Some(threshold), Some(timeout)) = (self.chart.threshold(state), self.chart.timeout())
        else {
            return (NOTHING, Due::Never);
        };
        let due = match threshold {
            TimeoutThreshold::Ticks(ticks) => Due::After(whole_ticks(ticks)),
            TimeoutThreshold::Field(field) => Due::ByField(field.index()),
        };
        (self.number(state, timeout), due)
    }
}
