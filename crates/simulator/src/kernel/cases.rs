//! What happens in each case, told for all agents of a block.
//!
//! Where there are few cases, one after the other is looked at for all agents, which is made of
//! vectors. Where there are many, each agent looks into tables.

use std::collections::BTreeSet;
use std::hint::select_unpredictable;

use multiversion::multiversion;

use super::block::{ACTING, Block};
use super::drawn::Drawn;
use super::fields::{Column, numbers};
use super::masks::{Mask, NO, each, yes};
use super::tree::Workings;
use super::{BLOCK, LANES};

/// The number of nothing.
pub(super) const NOTHING: u16 = 0;

/// So many cases are few. Looking into tables takes as long as to look at so many.
const FEW: usize = 24;

/// What can happen to agents of one behaviour in one state.
#[derive(Debug)]
pub(super) struct Case {
    /// The number of the timeout.
    pub(super) timeout: u16,
    pub(super) due: Due,
    /// The greatest draws that are not beyond each limit, in their order.
    pub(super) at_most: Vec<u32>,
    /// What happens to those whose draw is beyond none of the limits, beyond the first, and so on.
    pub(super) numbers: Vec<u16>,
}

/// When a timeout is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Never,
    /// After so many ticks.
    After(u32),
    /// After as many ticks as a field says.
    ByField(usize),
}

/// What can happen, by case.
#[derive(Debug)]
pub(super) enum Cases {
    Few(Few),
    Many(Tables),
}

/// A few cases, in which a few things happen. Whatever several of them ask is asked once.
#[derive(Debug)]
pub(super) struct Few {
    /// How many states there are, if behaviours make a difference.
    states: u8,
    asked: Vec<Query>,
    /// By case, what happens at first, and what instead to those for whom something asked is so; the
    /// last of these counts.
    cases: Vec<(u8, Vec<(usize, u8)>)>,
}

/// What is asked of each agent, whatever its case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Query {
    /// Whether its draw is beyond a limit.
    Beyond(u32),
    /// Whether it has been in its state for so many ticks.
    After(u32),
    /// Whether it has been there for longer than a field says.
    Late(usize),
}

/// The same in tables, with one more case in which nothing happens.
#[derive(Debug)]
pub(super) struct Tables {
    /// How many states there are, if behaviours make a difference.
    states: u16,
    count: usize,
    /// For every limit, by case, the greatest draw that is not beyond it.
    at_most: Vec<u32>,
    /// For how many limits a draw is beyond, by case, what happens.
    numbers: Vec<u16>,
    /// By case, after how many ticks the timeout is due.
    due: Vec<u32>,
    /// By case, the number of the timeout.
    timeouts: Vec<u16>,
    /// For every field that is a threshold, by case, whether it is.
    by_field: Vec<(usize, Vec<u8>)>,
}

impl Cases {
    /// The cases, behaviour by behaviour with so many states each, or those of the states alone if that
    /// is 0. So many different things happen in them.
    pub(super) fn new(cases: &[Case], states: usize, happenings: usize) -> Self {
        let few = if cases.len() <= FEW && happenings <= 1 << u8::BITS {
            Few::new(cases, states)
        } else {
            None
        };
        few.map_or_else(|| Self::Many(Tables::new(cases, states)), Self::Few)
    }

    /// Whether it takes a draw to tell what happens.
    pub(super) fn draw(&self) -> bool {
        match self {
            Self::Few(few) => few.asked.iter().any(|asked| matches!(asked, Query::Beyond(_))),
            Self::Many(tables) => !tables.at_most.is_empty(),
        }
    }
}

impl Few {
    /// None if a number is too large.
    fn new(cases: &[Case], states: usize) -> Option<Self> {
        let states = u8::try_from(states).ok()?;
        let mut few = Self { states, asked: Vec::new(), cases: Vec::new() };
        for Case { timeout, due, at_most, numbers } in cases {
            let (first, beyond) = numbers.split_first()?;
            let beyond = at_most.iter().map(|at_most| Query::Beyond(*at_most)).zip(beyond);
            let due = match *due {
                Due::Never => None,
                Due::After(ticks) => Some(Query::After(ticks)),
                Due::ByField(field) => Some(Query::Late(field)),
            };
            let mut instead = Vec::new();
            for (asked, number) in beyond.chain(due.map(|due| (due, timeout))) {
                instead.push((few.ask(asked), u8::try_from(*number).ok()?));
            }
            few.cases.push((u8::try_from(*first).ok()?, instead));
        }
        Some(few)
    }

    /// The place of something that is asked.
    fn ask(&mut self, asked: Query) -> usize {
        let known = self.asked.iter().position(|known| *known == asked);
        known.unwrap_or_else(|| {
            self.asked.push(asked);
            self.asked.len() - 1
        })
    }

    /// The number of what happens to each of the first agents of a block.
    pub(super) fn tell(&self, block: &Block, drawn: &Drawn, out: &mut [u8]) {
        let mut answers = vec![NO; self.asked.len()];
        let groups = out.as_chunks_mut::<LANES>().0.iter_mut();
        for (group, out) in groups.enumerate() {
            ask(&self.asked, block, drawn.triggers(), group, &mut answers);
            tell(self, block, group, &answers, out);
        }
    }
}

/// Asks a group of agents.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn ask(asked: &[Query], block: &Block, draws: &[u32; BLOCK], group: usize, answers: &mut [Mask]) {
    let (draws, held) =
        (&draws.as_chunks::<LANES>().0[group], &block.held.as_chunks::<LANES>().0[group]);
    for (asked, answers) in asked.iter().zip(answers) {
        match *asked {
            Query::Beyond(at_most) => each(answers, |lane| draws[lane] > at_most),
            Query::After(ticks) => each(answers, |lane| held[lane] >= ticks),
            Query::Late(field) => {
                let ticks = numbers(&block.fields, field, group * LANES);
                each(answers, |lane| is_late(held[lane], ticks[lane]));
            }
        }
    }
}

/// Tells what happens to a group of agents.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn tell(few: &Few, block: &Block, group: usize, answers: &[Mask], out: &mut Mask) {
    let mut cases = block.states.as_chunks::<LANES>().0[group];
    if few.states > 0 {
        let behaviours = &block.behaviours.as_chunks::<LANES>().0[group];
        for (case, behaviour) in cases.iter_mut().zip(behaviours) {
            *case = case.wrapping_add(behaviour.wrapping_mul(few.states));
        }
    }
    *out = NO;
    for (number, (first, instead)) in (0..).zip(&few.cases) {
        let mut told = [*first; LANES];
        for (asked, instead) in instead {
            for (told, mask) in told.iter_mut().zip(&answers[*asked]) {
                *told = (*instead & mask) | (*told & !mask);
            }
        }
        for lane in 0..LANES {
            out[lane] |= told[lane] & yes(cases[lane] == number);
        }
    }
    // To those who do not act, nothing happens.
    for (out, status) in out.iter_mut().zip(&block.status.as_chunks::<LANES>().0[group]) {
        *out &= yes(*status == ACTING);
    }
}

impl Due {
    fn field(self) -> Option<usize> {
        match self {
            Self::Never | Self::After(_) => None,
            Self::ByField(field) => Some(field),
        }
    }
}

impl Tables {
    pub(super) fn new(cases: &[Case], states: usize) -> Self {
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
            Some(Due::After(ticks)) => ticks,
            // More ticks than can be counted.
            Some(Due::Never | Due::ByField(_)) | None => u32::MAX,
        });
        let by_field = fields.into_iter().map(|field| {
            let is_it = |case: &Case| case.due == Due::ByField(field);
            (field, by_case().map(|case| yes(case.is_some_and(is_it))).collect())
        });
        Self {
            states: small(states),
            count: cases.len() + 1,
            at_most: at_most.map(|at_most| at_most.copied().unwrap_or(u32::MAX)).collect(),
            numbers: numbers.map(|number| number.copied().unwrap_or(NOTHING)).collect(),
            due: due.collect(),
            timeouts: by_case().map(|case| case.map_or(NOTHING, |case| case.timeout)).collect(),
            by_field: by_field.collect(),
        }
    }

    /// The number of what happens to each of the first agents of a block. There is room for their cases.
    pub(super) fn tell(
        &self,
        block: &Block,
        workings: &mut Workings,
        cases: &mut [u16],
        out: &mut [u16],
    ) {
        self.tell_cases(block, cases);
        self.tell_drawn(cases, &block.held, &workings.drawn, out);
        for (field, matters) in &self.by_field {
            let Column::Numbers(ticks) = &block.fields[*field] else { continue };
            let mut late = workings.truths.take();
            are_late(&block.held, ticks, &mut late[..out.len()]);
            self.put_timeouts(cases, &late, matters, out);
            workings.truths.give(late);
        }
    }

    /// The last case is that of agents who do not act.
    fn tell_cases(&self, block: &Block, out: &mut [u16]) {
        let none = small(self.count - 1);
        let agents = block.states.iter().zip(&block.status).zip(&block.behaviours);
        for (out, ((state, status), behaviour)) in out.iter_mut().zip(agents) {
            let case = u16::from(*behaviour) * self.states + u16::from(*state);
            *out = if *status == ACTING { case } else { none };
        }
    }

    /// Tells what happens, but for timeouts by field.
    fn tell_drawn(&self, cases: &[u16], held: &[u32], drawn: &Drawn, out: &mut [u16]) {
        let triggers = drawn.triggers();
        let beyond = |at_most: &[u32], lane: usize, case: usize| {
            usize::from(triggers[lane % BLOCK] > at_most[case])
        };
        // Few limits are what most charts have, and are looked at without a loop.
        match *self.at_most.chunks_exact(self.count).collect::<Vec<_>>() {
            [] => self.tell_by(cases, held, |_, _| 0, out),
            [only] => self.tell_by(cases, held, |lane, case| beyond(only, lane, case), out),
            ref limits => self.tell_by(
                cases,
                held,
                |lane, case| limits.iter().map(|limit| beyond(limit, lane, case)).sum(),
                out,
            ),
        }
    }

    /// Tells what happens, by how many limits an agent's draw is beyond. What is so for an agent
    /// cannot be foreseen, so there are no branches that depend on it.
    #[inline(never)]
    fn tell_by(
        &self,
        cases: &[u16],
        held: &[u32],
        beyond: impl Fn(usize, usize) -> usize,
        out: &mut [u16],
    ) {
        let Self { count, numbers, due, timeouts, .. } = self;
        for (lane, ((out, case), held)) in out.iter_mut().zip(cases).zip(held).enumerate() {
            let case = usize::from(*case);
            let number = numbers[beyond(lane, case) * count + case];
            *out = select_unpredictable(*held >= due[case], timeouts[case], number);
        }
    }

    /// Puts timeouts in the place of what else would happen, for those who are late in cases in which
    /// that matters.
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

/// Who has been in a state for longer than a field says.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn are_late(held: &[u32], ticks: &[f64], out: &mut [u8]) {
    for ((out, held), ticks) in out.iter_mut().zip(held).zip(ticks) {
        *out = yes(is_late(*held, *ticks));
    }
}

/// With the tick that begins, the ticks in a state are one more than were counted so far.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(super) fn is_late(held: u32, ticks: f64) -> bool {
    f64::from(held) + 1.0 > ticks
}

/// For how many ticks an agent must have been in a state by a threshold in ticks. With the tick that
/// begins, they are one more than were counted so far, which must be more than the threshold.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is above 0, and what is too large is the largest"
)]
pub(super) fn whole_ticks(threshold: f64) -> u32 {
    threshold.floor() as u32
}

/// A chart has at most 255 states, and a population at most 255 behaviours.
fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
