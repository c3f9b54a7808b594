//! The event table: the timeout, trigger or nothing that a tick brings to an agent.
//!
//! The event follows from the agent's behaviour, state, ticks in the state and a draw. Each agent
//! of a block gets an event number, and agents are sorted by it.

use std::collections::BTreeMap;

use polity_statechart::{Chart, StateId, TimeoutThreshold, TriggerId};

use crate::kernel::BLOCK;
use crate::kernel::columns::block::AgentBlock;
use crate::kernel::draws::draw_cache::DrawInput;
use crate::kernel::draws::philox::TriggerDraw;
use crate::kernel::draws::rates::{ALL_DRAWS, RateTable};
use crate::kernel::tables::candidates::TriggerEvent;
#[cfg(test)]
use crate::kernel::tables::event_cases::CaseTables;
use crate::kernel::tables::event_cases::{
    CaseLookup, EventCase, NO_EVENT, TimeoutDue, threshold_ticks,
};
use crate::kernel::tick::batched::TickScratch;

/// The events of a population by case.
#[derive(Debug)]
pub(crate) struct EventTable {
    /// The events by number. The first is the empty event.
    fired: Vec<Option<TriggerEvent>>,
    cases: CaseLookup,
    trigger: TriggerDraw,
}

impl EventTable {
    /// Creates the table of a tick.
    pub(crate) fn new(chart: &Chart, rates: &RateTable) -> Self {
        Self::of_rates(chart, rates, CaseLookup::new)
    }

    /// Creates the table with look-up tables, even for few cases.
    #[cfg(test)]
    pub(crate) fn in_tables(chart: &Chart, rates: &RateTable) -> Self {
        Self::of_rates(chart, rates, |cases, states, _| {
            CaseLookup::Many(CaseTables::new(cases, states))
        })
    }

    fn of_rates(
        chart: &Chart,
        rates: &RateTable,
        make: impl Fn(&[EventCase], usize, usize) -> CaseLookup,
    ) -> Self {
        let mut numbering = EventNumbering::new(chart);
        let mut cases = Vec::new();
        for behaviour in 0..rates.behaviours() {
            let behaviour = u8::try_from(behaviour).unwrap_or(u8::MAX);
            for state in chart.states() {
                let (timeout, due) = numbering.timeout(state);
                let (mut at_most, mut numbers) = (Vec::new(), Vec::new());
                let mut before = 0;
                for limit in rates.limits(behaviour, state) {
                    numbers.push(numbering.number(state, limit.trigger));
                    // Limits of 0 have been removed.
                    at_most.extend(u32::try_from(limit.below.saturating_sub(1)));
                    before = limit.below;
                }
                if before < ALL_DRAWS {
                    numbers.push(NO_EVENT);
                } else {
                    at_most.pop();
                }
                cases.push(EventCase { timeout, due, at_most, numbers });
            }
        }
        Self::of(numbering, &cases, rates.behaviours() > 1, make)
    }

    /// Creates the table of a trigger fired for every agent.
    pub(crate) fn of_trigger(chart: &Chart, trigger: TriggerId) -> Self {
        let mut numbering = EventNumbering::new(chart);
        let cases = chart.states().map(|state| EventCase {
            timeout: NO_EVENT,
            due: TimeoutDue::Never,
            at_most: Vec::new(),
            numbers: vec![numbering.number(state, trigger)],
        });
        let cases: Vec<EventCase> = cases.collect();
        Self::of(numbering, &cases, false, CaseLookup::new)
    }

    fn of(
        numbering: EventNumbering<'_>,
        cases: &[EventCase],
        by_behaviour: bool,
        make: impl Fn(&[EventCase], usize, usize) -> CaseLookup,
    ) -> Self {
        let EventNumbering { chart, fired, .. } = numbering;
        let states = if by_behaviour { chart.states().len() } else { 0 };
        let cases = make(cases, states, fired.len());
        Self { fired, cases, trigger: TriggerDraw::of(chart) }
    }

    /// Returns the number of events, including the empty one.
    fn len(&self) -> usize {
        self.fired.len()
    }

    #[cfg(test)]
    pub(crate) fn has_tables(&self) -> bool {
        matches!(self.cases, CaseLookup::Many(_))
    }

    /// Returns the events with their numbers.
    pub(crate) fn fired(&self) -> impl Iterator<Item = (usize, &TriggerEvent)> {
        let fired = self.fired.iter().enumerate();
        fired.filter_map(|(number, fired)| Some((number, fired.as_ref()?)))
    }

    /// Sorts the agents of a block by event number.
    pub(crate) fn sort(
        &self,
        (block, agents): (&AgentBlock, usize),
        draw_input: &DrawInput<'_>,
        scratch: &mut TickScratch,
        order: &mut [u16; BLOCK],
    ) {
        let TickScratch { eval, sorter, lists, .. } = scratch;
        if self.cases.needs_draw() {
            eval.draw_cache.ensure_triggers(draw_input, self.trigger);
        }
        match &self.cases {
            CaseLookup::Few(few) => {
                let mut numbers = eval.bools.take();
                few.assign_events(block, &eval.draw_cache, &mut numbers[..agents]);
                sorter.sort(self.len(), &numbers[..agents], order);
                eval.bools.release(numbers);
            }
            CaseLookup::Many(tables) => {
                let mut numbers = lists.take();
                // The order is not needed yet, so its space serves as scratch.
                tables.assign_events(block, eval, &mut order[..agents], &mut numbers[..agents]);
                sorter.sort(self.len(), &numbers[..agents], order);
                lists.release(numbers);
            }
        }
    }
}

/// Numbers the events of a chart.
struct EventNumbering<'c> {
    chart: &'c Chart,
    fired: Vec<Option<TriggerEvent>>,
    known: BTreeMap<(StateId, TriggerId), u16>,
}

impl<'c> EventNumbering<'c> {
    fn new(chart: &'c Chart) -> Self {
        Self { chart, fired: vec![None], known: BTreeMap::new() }
    }

    /// Returns the number of a trigger fired in a state.
    fn number(&mut self, state: StateId, trigger: TriggerId) -> u16 {
        let Self { chart, fired, known } = self;
        if chart.candidates(state, trigger).len() == 0 {
            return NO_EVENT;
        }
        *known.entry((state, trigger)).or_insert_with(|| {
            fired.push(Some(TriggerEvent::new(chart, state, trigger)));
            // A chart has at most 255 states and 255 triggers.
            u16::try_from(fired.len() - 1).unwrap_or(NO_EVENT)
        })
    }

    /// Returns the number of a state's timeout, and its condition.
    fn timeout(&mut self, state: StateId) -> (u16, TimeoutDue) {
        let (Some(threshold), Some(timeout)) = (self.chart.threshold(state), self.chart.timeout())
        else {
            return (NO_EVENT, TimeoutDue::Never);
        };
        let due = match threshold {
            TimeoutThreshold::Ticks(ticks) => TimeoutDue::After(threshold_ticks(ticks)),
            TimeoutThreshold::Field(field) => TimeoutDue::ByField(field.index()),
        };
        (self.number(state, timeout), due)
    }
}
