//! Many agents at once: the path of charts that have a [`Plan`].
//!
//! Everything is a loop over as many agents as there are [`LANES`], without a branch that depends
//! on an agent, so that the compiler can make vectors of it. The outermost functions are compiled
//! several times over, and the best version that the processor knows is called.

use multiversion::multiversion;
use polity_statechart::Chart;

use super::block::{ACTING, Block};
use super::cases::is_late;
use super::fields::{Column, numbers};
use super::lists::{Desk, Tick};
use super::masks::{Mask, NO, YES, compared, each, yes};
use super::philox::{DRAWS_PER_BLOCK, Draws, Philox, Purpose, unit};
use super::plan::{ACTS, ALWAYS, BLOCKS_MAX, Condition, Plan, TESTS_MAX, Test};
use super::{BLOCK, LANES, Setting};

/// Some ticks of a block, each of which writes a column.
pub(super) fn ticks(
    plan: &Plan,
    chart: &Chart,
    block: &mut Block,
    setting: &Setting<'_>,
    first_slot: u32,
    ticks: &[u32],
    desk: &mut Desk,
) {
    let first = block.history.extend(ticks.len());
    let Setting { philox, purpose, .. } = *setting;
    let Desk { room, effects, .. } = desk;
    if plan.effects.is_empty() {
        for base in (0..block.length).step_by(LANES) {
            run(plan, (philox, purpose), block, base, (ticks, first), room, effects);
        }
        return;
    }
    for (number, tick) in ticks.iter().enumerate() {
        let column = first + number;
        for base in (0..block.length).step_by(LANES) {
            let Desk { room, effects, .. } = desk;
            run(plan, (philox, purpose), block, base, (&[*tick], column), room, effects);
        }
        let mut order = desk.lists.take();
        let Desk { effects, sorter, .. } = desk;
        let lanes = block.length.next_multiple_of(LANES);
        sorter.sort(plan.effects.len() + 1, &effects[..lanes], &mut order);
        let mut tick = Tick { chart, setting, block, first_slot, now: *tick, column };
        tick.begin(desk);
        for (number, (way, first_draw)) in (1..).zip(&plan.effects) {
            let list = &order[desk.sorter.range(number)];
            if !list.is_empty() {
                tick.perform(*way, *first_draw, list, &mut desk.workings);
            }
        }
        desk.lists.give(order);
    }
}

/// Room for the draws of a group of agents, and for their answers to all tests.
#[derive(Debug)]
pub(super) struct Room {
    trigger: [[u32; LANES]; 1],
    guards: [Draws; BLOCKS_MAX],
    tested: [Mask; TESTS_MAX],
}

impl Default for Room {
    fn default() -> Self {
        let draws = [[0; LANES]; DRAWS_PER_BLOCK];
        Self { trigger: [[0; LANES]], guards: [draws; BLOCKS_MAX], tested: [NO; TESTS_MAX] }
    }
}

/// How many ticks in a state something counts for.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(super) fn counted(purpose: Purpose) -> u8 {
    match purpose {
        Purpose::Trigger | Purpose::Guard => 1,
        Purpose::Round => 0,
    }
}

/// What a tick brings to a group of agents.
struct Chosen {
    /// The states that they are in afterwards.
    next: Mask,
    codes: Mask,
    effects: Mask,
}

/// Some ticks of a group of agents. Of the last one, what else happens is written to `effects`.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn run(
    plan: &Plan,
    (philox, purpose): (Philox, Purpose),
    block: &mut Block,
    base: usize,
    (ticks, first_column): (&[u32], usize),
    room: &mut Room,
    effects: &mut [u8; BLOCK],
) {
    let (Some(keys), Some(states), Some(held), Some(status), Some(behaviours)) = (
        block.keys[base..].first_chunk::<LANES>(),
        block.states[base..].first_chunk_mut::<LANES>(),
        block.held[base..].first_chunk_mut::<LANES>(),
        block.status[base..].first_chunk::<LANES>(),
        block.behaviours[base..].first_chunk::<LANES>(),
    ) else {
        return;
    };
    let Room { trigger, guards, tested } = room;
    tested[ALWAYS] = YES;
    tested[ACTS] = status.map(|status| yes(status == ACTING));
    let counted = counted(purpose);
    for (number, tick) in ticks.iter().enumerate() {
        if plan.draws_triggers {
            philox.fill(keys, *tick, Purpose::Trigger, 0, trigger.each_mut());
        }
        for (counter, draws) in (0..).zip(&mut guards[..plan.blocks]) {
            philox.fill(keys, *tick, purpose, counter, draws.each_mut());
        }
        for (test, mask) in plan.tests.iter().zip(&mut *tested) {
            evaluate(*test, mask, &trigger[0], guards, held, behaviours, &block.fields, base);
        }
        let mut chosen = Chosen { next: *states, codes: NO, effects: NO };
        choose(plan, tested, states, &mut chosen);
        *states = chosen.next;
        for lane in 0..LANES {
            let stays = u32::from(chosen.codes[lane] == 0);
            let acts = u32::from(tested[ACTS][lane] & counted);
            held[lane] = held[lane].saturating_add(acts) * stays;
        }
        let column = block.history.column(first_column + number);
        let Some(column) = column[base..].first_chunk_mut::<LANES>() else { return };
        *column = chosen.codes;
        if !plan.effects.is_empty()
            && let Some(effects) = effects[base..].first_chunk_mut::<LANES>()
        {
            *effects = chosen.effects;
        }
    }
}

/// Takes the first way whose tests all say yes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn choose(plan: &Plan, tested: &[Mask; TESTS_MAX], states: &Mask, chosen: &mut Chosen) {
    for planned in &plan.states {
        let mut open = NO;
        for lane in 0..LANES {
            open[lane] = yes(states[lane] == planned.state) & tested[ACTS][lane];
        }
        for way in &planned.ways {
            let mut taken = open;
            narrow(&mut taken, way.first, tested);
            for condition in &way.more {
                narrow(&mut taken, *condition, tested);
            }
            for lane in 0..LANES {
                open[lane] &= !taken[lane];
                chosen.codes[lane] |= taken[lane] & way.code;
            }
            if way.code != 0 {
                for (next, taken) in chosen.next.iter_mut().zip(taken) {
                    *next = (*next & !taken) | (taken & way.to);
                }
            }
            if way.effect != 0 {
                for (effect, taken) in chosen.effects.iter_mut().zip(taken) {
                    *effect |= taken & way.effect;
                }
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn narrow(taken: &mut Mask, condition: Condition, tested: &[Mask; TESTS_MAX]) {
    let test = &tested[condition.test % TESTS_MAX];
    for lane in 0..LANES {
        taken[lane] &= test[lane] ^ condition.unless;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
#[expect(clippy::too_many_arguments, reason = "these are the columns that tests look at")]
fn evaluate(
    test: Test,
    mask: &mut Mask,
    trigger: &[u32; LANES],
    draws: &[Draws; BLOCKS_MAX],
    held: &[u32; LANES],
    behaviours: &Mask,
    fields: &[Column],
    base: usize,
) {
    match test {
        Test::Trigger { at_most } => each(mask, |lane| trigger[lane] <= at_most),
        Test::Draw { draw, at_most } => {
            let draws = drawn(draws, draw);
            each(mask, |lane| draws[lane] <= at_most);
        }
        Test::FieldNumber { field, operator, number } => {
            let numbers = numbers(fields, field, base);
            compared(operator, mask, |lane| numbers[lane], |_| number);
        }
        Test::FieldDraw { field, operator, draw } => {
            let draws = drawn(draws, draw);
            let numbers = numbers(fields, field, base);
            compared(operator, mask, |lane| numbers[lane], |lane| unit(draws[lane]));
        }
        Test::FieldField { left, operator, right } => {
            let (left, right) = (numbers(fields, left, base), numbers(fields, right, base));
            compared(operator, mask, |lane| left[lane], |lane| right[lane]);
        }
        Test::Overdue { ticks } => each(mask, |lane| held[lane] >= ticks),
        Test::OverdueField { field } => {
            let thresholds = numbers(fields, field, base);
            each(mask, |lane| is_late(held[lane], thresholds[lane]));
        }
        Test::Behaviour { behaviour } => each(mask, |lane| behaviours[lane] == behaviour),
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn drawn(draws: &[Draws; BLOCKS_MAX], draw: usize) -> &[u32; LANES] {
    &draws[draw / DRAWS_PER_BLOCK % BLOCKS_MAX][draw % DRAWS_PER_BLOCK]
}

const _: () = assert!(BLOCK.is_multiple_of(LANES), "groups of agents do not cross blocks");
