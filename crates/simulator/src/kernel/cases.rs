//! What happens in each case, told for all agents of a block.
//!
//! Where there are few cases, one after the other is looked at for all agents, which is made of
//! vectors. Where there are many, each agent looks into tables.

use std::collections::BTreeSet;
use std::hint::select_unpredictable;

use multiversion::multiversion;

use super::block::Block;
use super::drawn::Drawn;
use super::fields::Column;
use super::masks::{Mask, yes};
use super::pool::Rows;
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
pub(super) struct Cases {
    all: Vec<Case>,
    /// The fields that are thresholds.
    fields: Vec<usize>,
    tables: Tables,
}

/// The same in tables, with one more case in which nothing happens.
#[derive(Debug)]
struct Tables {
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
    by_field: Vec<Vec<u8>>,
}

impl Cases {
    pub(super) fn new(cases: Vec<Case>) -> Self {
        let fields: BTreeSet<usize> = cases.iter().filter_map(|case| case.due.field()).collect();
        let fields: Vec<usize> = fields.into_iter().collect();
        Self { tables: Tables::new(&cases, &fields), fields, all: cases }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether it takes a draw to tell what happens.
    pub(super) fn draw(&self) -> bool {
        !self.tables.at_most.is_empty()
    }

    /// The number of what happens to each of the first agents of a block. Their cases are given; the
    /// one after the last is that of agents who do not act.
    pub(super) fn tell(
        &self,
        block: &Block,
        cases: &[u16],
        workings: &mut Workings,
        out: &mut [u16],
    ) {
        let mut late: Vec<Rows<u8>> = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let mut is_late = workings.truths.take();
            match &block.fields[*field] {
                Column::Numbers(ticks) => are_late(&block.held, ticks, &mut is_late[..out.len()]),
                // A threshold is a number.
                Column::Flags(_) | Column::Texts(_) => is_late.fill(0),
            }
            late.push(is_late);
        }
        if self.all.len() <= FEW {
            self.tell_few(block, cases, &workings.drawn, &late, out);
        } else {
            self.tables.tell(cases, &block.held, &workings.drawn, out);
            for (late, is_it) in late.iter().zip(&self.tables.by_field) {
                self.tables.put_timeouts(cases, late, is_it, out);
            }
        }
        for late in late {
            workings.truths.give(late);
        }
    }

    fn tell_few(
        &self,
        block: &Block,
        cases: &[u16],
        drawn: &Drawn,
        late: &[Rows<u8>],
        out: &mut [u16],
    ) {
        let held = block.held.as_chunks::<LANES>().0;
        let triggers = drawn.triggers().as_chunks::<LANES>().0;
        let agents = out.as_chunks_mut::<LANES>().0.iter_mut().zip(cases.as_chunks::<LANES>().0);
        for (chunk, (((out, cases), held), draws)) in agents.zip(held).zip(triggers).enumerate() {
            out.fill(NOTHING);
            for (number, case) in (0..).zip(&self.all) {
                let late = match case.due {
                    Due::Never => Late::Nobody,
                    Due::After(ticks) => Late::After(held, ticks),
                    Due::ByField(field) => {
                        let field = self.fields.iter().position(|known| *known == field);
                        let late = field.and_then(|field| late[field].as_chunks().0.get(chunk));
                        late.map_or(Late::Nobody, Late::These)
                    }
                };
                tell_case(case, number, cases, draws, late, out);
            }
        }
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

/// For whom the timeout is due.
#[derive(Clone, Copy)]
enum Late<'a> {
    Nobody,
    After(&'a [u32; LANES], u32),
    These(&'a Mask),
}

/// Tells what happens to those agents of a group who are in a case.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn tell_case(
    case: &Case,
    number: u16,
    cases: &[u16; LANES],
    draws: &[u32; LANES],
    late: Late<'_>,
    out: &mut [u16; LANES],
) {
    let [first, beyond @ ..] = &*case.numbers else { return };
    let mut told = [*first; LANES];
    for (at_most, beyond) in case.at_most.iter().zip(beyond) {
        put(&mut told, |_| *beyond, |lane| draws[lane] > *at_most);
    }
    match late {
        Late::Nobody => {}
        Late::After(held, ticks) => put(&mut told, |_| case.timeout, |lane| held[lane] >= ticks),
        Late::These(late) => put(&mut told, |_| case.timeout, |lane| late[lane] != 0),
    }
    put(out, |lane| told[lane], |lane| cases[lane] == number);
}

/// Puts other numbers in their places, for some. It is done with bits, because a choice between
/// values that stand in memory is made a choice between their addresses, which is no vector.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn put(numbers: &mut [u16; LANES], other: impl Fn(usize) -> u16, is_so: impl Fn(usize) -> bool) {
    for (lane, number) in numbers.iter_mut().enumerate() {
        let mask = u16::from(is_so(lane)).wrapping_neg();
        *number = (other(lane) & mask) | (*number & !mask);
    }
}

impl Tables {
    fn new(cases: &[Case], fields: &[usize]) -> Self {
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
        let by_field = fields.iter().map(|field| {
            let is_it = |case: &Case| case.due == Due::ByField(*field);
            by_case().map(|case| yes(case.is_some_and(is_it))).collect()
        });
        Self {
            count: cases.len() + 1,
            at_most: at_most.map(|at_most| at_most.copied().unwrap_or(u32::MAX)).collect(),
            numbers: numbers.map(|number| number.copied().unwrap_or(NOTHING)).collect(),
            due: due.collect(),
            timeouts: by_case().map(|case| case.map_or(NOTHING, |case| case.timeout)).collect(),
            by_field: by_field.collect(),
        }
    }

    /// Tells what happens, but for timeouts by field.
    fn tell(&self, cases: &[u16], held: &[u32], drawn: &Drawn, out: &mut [u16]) {
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
        // With the tick that begins, the ticks are one more than were counted so far.
        *out = yes(f64::from(*held) + 1.0 > *ticks);
    }
}
