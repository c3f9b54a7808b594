//! Assigns an event to each agent of a block, by case: a behaviour in a state.
//!
//! Few cases are evaluated one after the other for all agents, with vector loops. With many cases,
//! each agent looks up tables.

use std::collections::BTreeSet;
use std::hint::select_unpredictable;

use multiversion::multiversion;

use crate::kernel::columns::block::{ACTIVE, AgentBlock};
use crate::kernel::columns::fields::{FieldColumn, numbers};
use crate::kernel::columns::masks::{LaneMask, NO, fill_mask, mask_of};
use crate::kernel::draws::draw_cache::DrawCache;
use crate::kernel::expressions::evaluator::EvalScratch;
use crate::kernel::{BLOCK, LANES};

/// The number of the empty event.
pub(crate) const NO_EVENT: u16 = 0;

/// The maximum number of cases for vector loops. Table look-ups cost as much as this many cases.
const FEW_MAX: usize = 24;

/// The possible events of one behaviour in one state.
#[derive(Debug)]
pub(crate) struct EventCase {
    /// The event number of the timeout.
    pub(crate) timeout: u16,
    pub(crate) due: TimeoutDue,
    /// The greatest draw within each limit, in order.
    pub(crate) at_most: Vec<u32>,
    /// The event numbers by the number of limits that the draw exceeds.
    pub(crate) numbers: Vec<u16>,
}

/// The condition of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeoutDue {
    Never,
    /// After a number of ticks.
    After(u32),
    /// After the number of ticks in a field.
    ByField(usize),
}

/// The event of each case.
#[derive(Debug)]
pub(crate) enum CaseLookup {
    Few(FewCases),
    Many(CaseTables),
}

/// A few cases with few events. Queries shared by several cases are evaluated once.
#[derive(Debug)]
pub(crate) struct FewCases {
    /// The number of states, if there are several behaviours; otherwise 0.
    states: u8,
    queries: Vec<CaseQuery>,
    /// For each case: the default event, and replacements by query. The last match wins.
    cases: Vec<(u8, Vec<(usize, u8)>)>,
}

/// A query about an agent, independent of its case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaseQuery {
    /// True if its draw exceeds a limit.
    Beyond(u32),
    /// True if it has been in its state for this many ticks.
    After(u32),
    /// True if it has been in its state for longer than a field says.
    Late(usize),
}

/// Look-up tables for many cases, plus one case without events.
#[derive(Debug)]
pub(crate) struct CaseTables {
    /// The number of states, if there are several behaviours; otherwise 0.
    states: u16,
    count: usize,
    /// The greatest draw within each limit, by limit and case.
    at_most: Vec<u32>,
    /// The event, by number of exceeded limits and case.
    numbers: Vec<u16>,
    /// The number of ticks before the timeout, by case.
    due: Vec<u32>,
    /// The event number of the timeout, by case.
    timeouts: Vec<u16>,
    /// For each threshold field, a mask of the cases that use it.
    by_field: Vec<(usize, Vec<u8>)>,
}

impl CaseLookup {
    /// Creates the look-up of cases, ordered by behaviour and state, or by state alone if `states`
    /// is 0.
    pub(crate) fn new(cases: &[EventCase], states: usize, event_table: usize) -> Self {
        let few = if cases.len() <= FEW_MAX && event_table <= 1 << u8::BITS {
            FewCases::new(cases, states)
        } else {
            None
        };
        few.map_or_else(|| Self::Many(CaseTables::new(cases, states)), Self::Few)
    }

    /// True if assigning events needs a draw.
    pub(crate) fn needs_draw(&self) -> bool {
        match self {
            Self::Few(few) => few.queries.iter().any(|query| matches!(query, CaseQuery::Beyond(_))),
            Self::Many(tables) => !tables.at_most.is_empty(),
        }
    }
}

impl FewCases {
    /// Returns `None` if a number does not fit.
    fn new(cases: &[EventCase], states: usize) -> Option<Self> {
        let states = u8::try_from(states).ok()?;
        let mut few = Self { states, queries: Vec::new(), cases: Vec::new() };
        for EventCase { timeout, due, at_most, numbers } in cases {
            let (first, beyond) = numbers.split_first()?;
            let beyond = at_most.iter().map(|at_most| CaseQuery::Beyond(*at_most)).zip(beyond);
            let due = match *due {
                TimeoutDue::Never => None,
                TimeoutDue::After(ticks) => Some(CaseQuery::After(ticks)),
                TimeoutDue::ByField(field) => Some(CaseQuery::Late(field)),
            };
            let mut instead = Vec::new();
            for (query, number) in beyond.chain(due.map(|due| (due, timeout))) {
                instead.push((few.query_index(query), u8::try_from(*number).ok()?));
            }
            few.cases.push((u8::try_from(*first).ok()?, instead));
        }
        Some(few)
    }

    /// Returns the index of a query, adding it if it is new.
    fn query_index(&mut self, query: CaseQuery) -> usize {
        let known = self.queries.iter().position(|known| *known == query);
        known.unwrap_or_else(|| {
            self.queries.push(query);
            self.queries.len() - 1
        })
    }

    /// Assigns an event number to each agent.
    pub(crate) fn assign_events(&self, block: &AgentBlock, draw_cache: &DrawCache, out: &mut [u8]) {
        let mut answers = vec![NO; self.queries.len()];
        let groups = out.as_chunks_mut::<LANES>().0.iter_mut();
        for (group, out) in groups.enumerate() {
            evaluate_queries(&self.queries, block, draw_cache.triggers(), group, &mut answers);
            assign_events(self, block, group, &answers, out);
        }
    }
}

/// Evaluates all queries for a group of agents.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn evaluate_queries(
    query: &[CaseQuery],
    block: &AgentBlock,
    draws: &[u32; BLOCK],
    group: usize,
    answers: &mut [LaneMask],
) {
    let (draws, ticks_in_state) =
        (&draws.as_chunks::<LANES>().0[group], &block.ticks_in_state.as_chunks::<LANES>().0[group]);
    for (query, answers) in query.iter().zip(answers) {
        match *query {
            CaseQuery::Beyond(at_most) => fill_mask(answers, |lane| draws[lane] > at_most),
            CaseQuery::After(ticks) => fill_mask(answers, |lane| ticks_in_state[lane] >= ticks),
            CaseQuery::Late(field) => {
                let ticks = numbers(&block.fields, field, group * LANES);
                fill_mask(answers, |lane| is_timed_out(ticks_in_state[lane], ticks[lane]));
            }
        }
    }
}

/// Assigns events to a group of agents.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn assign_events(
    few: &FewCases,
    block: &AgentBlock,
    group: usize,
    answers: &[LaneMask],
    out: &mut LaneMask,
) {
    let mut cases = block.states.as_chunks::<LANES>().0[group];
    if few.states > 0 {
        let behaviours = &block.behaviours.as_chunks::<LANES>().0[group];
        for (case, behaviour) in cases.iter_mut().zip(behaviours) {
            *case = case.wrapping_add(behaviour.wrapping_mul(few.states));
        }
    }
    *out = NO;
    for (number, (first, instead)) in (0..).zip(&few.cases) {
        let mut event = [*first; LANES];
        for (query, instead) in instead {
            for (event, mask) in event.iter_mut().zip(&answers[*query]) {
                *event = (*instead & mask) | (*event & !mask);
            }
        }
        for lane in 0..LANES {
            out[lane] |= event[lane] & mask_of(cases[lane] == number);
        }
    }
    // Agents that are not active have no event.
    for (out, status) in out.iter_mut().zip(&block.status.as_chunks::<LANES>().0[group]) {
        *out &= mask_of(*status == ACTIVE);
    }
}

impl TimeoutDue {
    fn field(self) -> Option<usize> {
        match self {
            Self::Never | Self::After(_) => None,
            Self::ByField(field) => Some(field),
        }
    }
}

impl CaseTables {
    pub(crate) fn new(cases: &[EventCase], states: usize) -> Self {
        let fields: BTreeSet<usize> = cases.iter().filter_map(|case| case.due.field()).collect();
        let limits = cases.iter().map(|case| case.at_most.len()).max().unwrap_or(0);
        let by_case = || cases.iter().map(Some).chain([None]);
        let at_most = (0..limits).flat_map(|limit| {
            by_case().map(move |case| case.and_then(|case| case.at_most.get(limit)))
        });
        let numbers = (0..=limits).flat_map(|beyond| {
            by_case().map(move |case| case.and_then(|case| case.numbers.get(beyond)))
        });
        let due = by_case().map(|case| match case.map(|case| case.due) {
            Some(TimeoutDue::After(ticks)) => ticks,
            // Never reached.
            Some(TimeoutDue::Never | TimeoutDue::ByField(_)) | None => u32::MAX,
        });
        let by_field = fields.into_iter().map(|field| {
            let is_it = |case: &EventCase| case.due == TimeoutDue::ByField(field);
            (field, by_case().map(|case| mask_of(case.is_some_and(is_it))).collect())
        });
        Self {
            states: small(states),
            count: cases.len() + 1,
            at_most: at_most.map(|at_most| at_most.copied().unwrap_or(u32::MAX)).collect(),
            numbers: numbers.map(|number| number.copied().unwrap_or(NO_EVENT)).collect(),
            due: due.collect(),
            timeouts: by_case().map(|case| case.map_or(NO_EVENT, |case| case.timeout)).collect(),
            by_field: by_field.collect(),
        }
    }

    /// Assigns an event number to each agent. `cases` is scratch space.
    pub(crate) fn assign_events(
        &self,
        block: &AgentBlock,
        eval: &mut EvalScratch,
        cases: &mut [u16],
        out: &mut [u16],
    ) {
        self.assign_cases(block, cases);
        self.assign_drawn(cases, &block.ticks_in_state, &eval.draw_cache, out);
        for (field, matters) in &self.by_field {
            let FieldColumn::Numbers(ticks) = &block.fields[*field] else { continue };
            let mut late = eval.bools.take();
            are_timed_out(&block.ticks_in_state, ticks, &mut late[..out.len()]);
            self.put_timeouts(cases, &late, matters, out);
            eval.bools.release(late);
        }
    }

    /// Assigns the case of each agent. The last case is that of inactive agents.
    fn assign_cases(&self, block: &AgentBlock, out: &mut [u16]) {
        let none = small(self.count - 1);
        let agents = block.states.iter().zip(&block.status).zip(&block.behaviours);
        for (out, ((state, status), behaviour)) in out.iter_mut().zip(agents) {
            let case = u16::from(*behaviour) * self.states + u16::from(*state);
            *out = if *status == ACTIVE { case } else { none };
        }
    }

    /// Assigns events, except timeouts by field.
    fn assign_drawn(
        &self,
        cases: &[u16],
        ticks_in_state: &[u32],
        draw_cache: &DrawCache,
        out: &mut [u16],
    ) {
        let triggers = draw_cache.triggers();
        let beyond = |at_most: &[u32], lane: usize, case: usize| {
            usize::from(triggers[lane % BLOCK] > at_most[case])
        };
        // Most charts have few limits, which need no loop.
        match *self.at_most.chunks_exact(self.count).collect::<Vec<_>>() {
            [] => self.assign_by(cases, ticks_in_state, |_, _| 0, out),
            [only] => {
                self.assign_by(cases, ticks_in_state, |lane, case| beyond(only, lane, case), out);
            }
            ref limits => self.assign_by(
                cases,
                ticks_in_state,
                |lane, case| limits.iter().map(|limit| beyond(limit, lane, case)).sum(),
                out,
            ),
        }
    }

    /// Assigns events by the number of limits that an agent's draw exceeds. Branch-free, because
    /// this is hard to predict.
    #[inline(never)]
    fn assign_by(
        &self,
        cases: &[u16],
        ticks_in_state: &[u32],
        beyond: impl Fn(usize, usize) -> usize,
        out: &mut [u16],
    ) {
        let Self { count, numbers, due, timeouts, .. } = self;
        for (lane, ((out, case), ticks_in_state)) in
            out.iter_mut().zip(cases).zip(ticks_in_state).enumerate()
        {
            let case = usize::from(*case);
            let number = numbers[beyond(lane, case) * count + case];
            *out = select_unpredictable(*ticks_in_state >= due[case], timeouts[case], number);
        }
    }

    /// Replaces events by timeouts for agents that have timed out, in cases that use the field.
    #[inline(never)]
    fn put_timeouts(&self, cases: &[u16], late: &[u8; BLOCK], matters: &[u8], out: &mut [u16]) {
        for ((out, case), late) in out.iter_mut().zip(cases).zip(late) {
            let case = usize::from(*case);
            let bits = late & matters[case];
            let mask = u16::from_ne_bytes([bits, bits]);
            *out = (self.timeouts[case] & mask) | (*out & !mask);
        }
    }
}

/// Determines the agents that have been in a state for longer than a field says.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn are_timed_out(ticks_in_state: &[u32], ticks: &[f64], out: &mut [u8]) {
    for ((out, ticks_in_state), ticks) in out.iter_mut().zip(ticks_in_state).zip(ticks) {
        *out = mask_of(is_timed_out(*ticks_in_state, *ticks));
    }
}

/// True if the ticks in a state, including the current one, exceed the threshold.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(crate) fn is_timed_out(ticks_in_state: u32, ticks: f64) -> bool {
    f64::from(ticks_in_state) + 1.0 > ticks
}

/// Returns the number of past ticks in a state from which a timeout fires. The current tick adds
/// one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is above 0, and what is too large is the largest"
)]
pub(crate) fn threshold_ticks(threshold: f64) -> u32 {
    threshold.floor() as u32
}

/// A chart has at most 255 states, and a population at most 255 behaviours.
fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
