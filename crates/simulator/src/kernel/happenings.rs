//! What can happen to an agent in a tick: its timeout, a trigger, or nothing.
//!
//! Which it is follows from the agent's behaviour and state, its ticks in the state and a draw. All
//! agents of a block get the number of what happens to them, and are put in order by that.

use std::collections::BTreeSet;
use std::hint::select_unpredictable;

use multiversion::multiversion;
use polity_statechart::{Chart, StateId, Threshold, TriggerId};

use super::block::{ACTING, Block};
use super::drawn::Moment;
use super::fields::Column;
use super::masks::yes;
use super::rates::{ALL_DRAWS, Rates};
use super::tree::Workings;

/// The number of nothing.
const NOTHING: u16 = 0;

/// More ticks than can be counted.
const NEVER: u32 = u32::MAX;

/// What can happen to the agents of a population. A case is a behaviour in a state; the last one is
/// that of agents who do not act.
#[derive(Debug)]
pub(super) struct Happenings {
    /// By number, which trigger is fired in which state. The first stands for nothing.
    fired: Vec<Option<(StateId, TriggerId)>>,
    cases: usize,
    states: usize,
    /// Whether behaviours make a difference.
    by_behaviour: bool,
    /// For every limit, by case, the greatest draw that is not beyond it.
    limits: Vec<u32>,
    /// What happens to those whose draw is beyond none of the limits, beyond the first, and so on;
    /// each by case.
    numbers: Vec<u16>,
    /// By case, after how many ticks the timeout is due.
    due: Vec<u32>,
    /// By case, the number of the timeout.
    timeouts: Vec<u16>,
    /// Fields that are thresholds and, by case, whether they are.
    fields: Vec<(usize, Vec<u8>)>,
}

/// What can happen to agents of one behaviour in one state.
#[derive(Debug, Clone, Copy)]
struct Case {
    timeout: u16,
    /// After so many ticks the timeout is due, or after as many as the field says.
    due: u32,
    due_field: Option<usize>,
}

/// A case and what is drawn in it, while the table is made.
type Draft = (Case, Vec<u32>, Vec<u16>);

impl Happenings {
    /// What a tick can bring.
    pub(super) fn new(chart: &Chart, rates: &Rates) -> Self {
        let mut fired = vec![None];
        let mut drafts = Vec::new();
        for behaviour in 0..rates.behaviours() {
            let behaviour = u8::try_from(behaviour).unwrap_or(u8::MAX);
            for state in chart.states() {
                let case = timeout(chart, state, &mut fired);
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
                drafts.push((case, at_most, numbers));
            }
        }
        Self::of(chart, fired, drafts, rates.behaviours() > 1)
    }

    /// What it can bring to fire one trigger for everyone.
    pub(super) fn of_trigger(chart: &Chart, trigger: TriggerId) -> Self {
        let mut fired = vec![None];
        let mut drafts = Vec::new();
        for state in chart.states() {
            let number = number(chart, state, trigger, &mut fired);
            let case = Case { timeout: NOTHING, due: NEVER, due_field: None };
            drafts.push((case, Vec::new(), vec![number]));
        }
        Self::of(chart, fired, drafts, false)
    }

    fn of(
        chart: &Chart,
        fired: Vec<Option<(StateId, TriggerId)>>,
        mut drafts: Vec<Draft>,
        by_behaviour: bool,
    ) -> Self {
        let none = Case { timeout: NOTHING, due: NEVER, due_field: None };
        drafts.push((none, Vec::new(), Vec::new()));
        let count = drafts.iter().map(|(_, at_most, _)| at_most.len()).max().unwrap_or(0);
        let limits = (0..count).flat_map(|limit| {
            let at_most = drafts.iter().map(move |(_, at_most, _)| at_most.get(limit));
            at_most.map(|at_most| at_most.copied().unwrap_or(u32::MAX))
        });
        let numbers = (0..=count).flat_map(|beyond| {
            let numbers = drafts.iter().map(move |(_, _, numbers)| numbers.get(beyond));
            numbers.map(|number| number.copied().unwrap_or(NOTHING))
        });
        let fields: BTreeSet<usize> =
            drafts.iter().filter_map(|(case, ..)| case.due_field).collect();
        let fields = fields.into_iter().map(|field| {
            let is_it = drafts.iter().map(|(case, ..)| yes(case.due_field == Some(field)));
            (field, is_it.collect())
        });
        Self {
            fired,
            cases: drafts.len(),
            states: chart.states().len(),
            by_behaviour,
            limits: limits.collect(),
            numbers: numbers.collect(),
            due: drafts.iter().map(|(case, ..)| case.due).collect(),
            timeouts: drafts.iter().map(|(case, ..)| case.timeout).collect(),
            fields: fields.collect(),
        }
    }

    /// How many different things can happen, with nothing.
    pub(super) fn len(&self) -> usize {
        self.fired.len()
    }

    /// Which triggers are fired in which states, each with its number.
    pub(super) fn fired(&self) -> impl Iterator<Item = (usize, StateId, TriggerId)> {
        let fired = self.fired.iter().enumerate();
        fired.filter_map(|(number, fired)| fired.map(|(state, trigger)| (number, state, trigger)))
    }

    /// The number of what happens to each of the first agents of a block.
    pub(super) fn tell(
        &self,
        block: &Block,
        moment: &Moment<'_>,
        workings: &mut Workings,
        cases: &mut [u16],
        out: &mut [u16],
    ) {
        self.tell_cases(block, cases);
        let table = Table {
            count: self.cases,
            numbers: &self.numbers,
            due: &self.due,
            timeouts: &self.timeouts,
        };
        if !self.limits.is_empty() {
            workings.drawn.know_triggers(moment);
        }
        let drawn = &workings.drawn;
        // Few limits are what most charts have, and are looked at without a loop.
        match *self.limits.chunks_exact(self.cases).collect::<Vec<_>>() {
            [] => table.tell(cases, &block.held, |_, _| 0, out),
            [only] => table.tell(
                cases,
                &block.held,
                |lane, case| usize::from(drawn.trigger(lane) > only[case]),
                out,
            ),
            [first, second] => table.tell(
                cases,
                &block.held,
                |lane, case| {
                    let draw = drawn.trigger(lane);
                    usize::from(draw > first[case]) + usize::from(draw > second[case])
                },
                out,
            ),
            ref limits => table.tell(
                cases,
                &block.held,
                |lane, case| {
                    let draw = drawn.trigger(lane);
                    limits.iter().map(|limit| usize::from(draw > limit[case])).sum()
                },
                out,
            ),
        }
        for (field, is_it) in &self.fields {
            // A threshold is a number.
            let Column::Numbers(ticks) = &block.fields[*field] else { continue };
            let mut late = workings.truths.take();
            are_late(&block.held, ticks, &mut late[..out.len()]);
            table.put_timeouts(cases, &late[..out.len()], is_it, out);
            workings.truths.give(late);
        }
    }

    fn tell_cases(&self, block: &Block, out: &mut [u16]) {
        let none = small(self.cases - 1);
        let states = small(self.states) * u16::from(self.by_behaviour);
        let agents = block.states.iter().zip(&block.status).zip(&block.behaviours);
        for (out, ((state, status), behaviour)) in out.iter_mut().zip(agents) {
            let case = u16::from(*behaviour) * states + u16::from(*state);
            *out = if *status == ACTING { case } else { none };
        }
    }
}

/// What a loop over many agents needs at hand. What is so for an agent cannot be foreseen, so there
/// are no branches that depend on it.
struct Table<'a> {
    count: usize,
    numbers: &'a [u16],
    due: &'a [u32],
    timeouts: &'a [u16],
}

impl Table<'_> {
    /// Tells what happens, by how many limits an agent's draw is beyond.
    #[inline(never)]
    fn tell(
        &self,
        cases: &[u16],
        held: &[u32],
        beyond: impl Fn(usize, usize) -> usize,
        out: &mut [u16],
    ) {
        let Self { count, numbers, due, timeouts } = *self;
        for (lane, ((out, case), held)) in out.iter_mut().zip(cases).zip(held).enumerate() {
            let case = usize::from(*case);
            let number = numbers[beyond(lane, case) * count + case];
            *out = select_unpredictable(*held >= due[case], timeouts[case], number);
        }
    }

    /// Puts timeouts in the place of what else would happen, for those who are late in cases in which
    /// that matters.
    #[inline(never)]
    fn put_timeouts(&self, cases: &[u16], late: &[u8], matters: &[u8], out: &mut [u16]) {
        for ((out, case), late) in out.iter_mut().zip(cases).zip(late) {
            let case = usize::from(*case);
            let bits = late & matters[case];
            let mask = u16::from_ne_bytes([bits, bits]);
            *out = (self.timeouts[case] & mask) | (*out & !mask);
        }
    }
}

/// Who has been in a state for longer than a field says.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn are_late(held: &[u32], ticks: &[f64], out: &mut [u8]) {
    for ((out, held), ticks) in out.iter_mut().zip(held).zip(ticks) {
        // With the tick that begins, the ticks are one more than were counted so far.
        *out = yes(f64::from(*held) + 1.0 > *ticks);
    }
}

/// A chart has at most 255 states, and a population at most 255 behaviours.
fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// The number of a trigger that is fired in a state.
fn number(
    chart: &Chart,
    state: StateId,
    trigger: TriggerId,
    fired: &mut Vec<Option<(StateId, TriggerId)>>,
) -> u16 {
    if chart.candidates(state, trigger).len() == 0 {
        return NOTHING;
    }
    let known = fired.iter().position(|fired| *fired == Some((state, trigger)));
    let number = known.unwrap_or_else(|| {
        fired.push(Some((state, trigger)));
        fired.len() - 1
    });
    // A chart has at most 255 states and 255 triggers.
    u16::try_from(number).unwrap_or(NOTHING)
}

fn timeout(chart: &Chart, state: StateId, fired: &mut Vec<Option<(StateId, TriggerId)>>) -> Case {
    let mut case = Case { timeout: NOTHING, due: NEVER, due_field: None };
    if let (Some(threshold), Some(timeout)) = (chart.threshold(state), chart.timeout()) {
        case.timeout = number(chart, state, timeout, fired);
        match threshold {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is above 0, and what is too large is the largest"
            )]
            Threshold::Ticks(ticks) => case.due = ticks.floor() as u32,
            Threshold::Field(field) => case.due_field = Some(field.index()),
        }
    }
    case
}
