//! The SIMD path, for charts with a [`SimdPlan`].
//!
//! Every loop runs over [`LANES`] agents without a branch that depends on an agent, so that the
//! compiler vectorizes it. The outermost functions are compiled for several instruction sets, and
//! the best one is selected at run time.

use multiversion::multiversion;
use polity_statechart::Chart;

use crate::kernel::columns::block::{ACTIVE, AgentBlock};
use crate::kernel::columns::fields::{FieldColumn, numbers};
use crate::kernel::columns::masks::{LaneMask, NO, YES, compare_lanes, fill_mask, mask_of};
use crate::kernel::draws::philox::{DRAWS_PER_BLOCK, DrawBlock, DrawPurpose, PhiloxRng, unit};
use crate::kernel::tables::event_cases::is_timed_out;
use crate::kernel::tables::simd_plan::{
    ACTS, ALWAYS, BLOCKS_MAX, SimdPlan, SimdTest, TESTS_MAX, TestCondition,
};
use crate::kernel::tick::batched::{BlockTick, TickScratch};
use crate::kernel::{BLOCK, LANES, TickInput};

/// Runs ticks of a block, one column each.
pub(crate) fn ticks(
    plan: &SimdPlan,
    chart: &Chart,
    block: &mut AgentBlock,
    input: &TickInput<'_>,
    first_slot: u32,
    ticks: &[u32],
    scratch: &mut TickScratch,
) {
    let first = block.history.extend(ticks.len());
    let TickInput { philox, purpose, .. } = *input;
    let TickScratch { simd, effects, .. } = scratch;
    if plan.effects.is_empty() {
        for base in (0..block.length).step_by(LANES) {
            run(plan, (philox, purpose), block, base, (ticks, first), simd, effects);
        }
        return;
    }
    for (number, tick) in ticks.iter().enumerate() {
        let column = first + number;
        for base in (0..block.length).step_by(LANES) {
            let TickScratch { simd, effects, .. } = scratch;
            run(plan, (philox, purpose), block, base, (&[*tick], column), simd, effects);
        }
        let mut order = scratch.lists.take();
        let TickScratch { effects, sorter, .. } = scratch;
        let lanes = block.length.next_multiple_of(LANES);
        sorter.sort(plan.effects.len() + 1, &effects[..lanes], &mut order);
        let mut tick = BlockTick { chart, input, block, first_slot, now: *tick, column };
        tick.begin(scratch);
        for (number, (transition, first_draw)) in (1..).zip(&plan.effects) {
            let list = &order[scratch.sorter.range(number)];
            if !list.is_empty() {
                tick.perform(*transition, *first_draw, list, &mut scratch.eval);
            }
        }
        scratch.lists.release(order);
    }
}

/// Scratch buffers for the draws and test results of a group of agents.
#[derive(Debug)]
pub(crate) struct SimdScratch {
    trigger: [[u32; LANES]; 1],
    guards: [DrawBlock; BLOCKS_MAX],
    tested: [LaneMask; TESTS_MAX],
}

impl Default for SimdScratch {
    fn default() -> Self {
        let draws = [[0; LANES]; DRAWS_PER_BLOCK];
        Self { trigger: [[0; LANES]], guards: [draws; BLOCKS_MAX], tested: [NO; TESTS_MAX] }
    }
}

/// Returns the number of ticks in a state that an event counts as.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(crate) fn counted_ticks(purpose: DrawPurpose) -> u8 {
    match purpose {
        DrawPurpose::Trigger | DrawPurpose::Guard => 1,
        DrawPurpose::Round | DrawPurpose::Exit => 0,
    }
}

/// The transitions of a group of agents.
struct ChosenTransitions {
    /// The states afterwards.
    next: LaneMask,
    codes: LaneMask,
    effects: LaneMask,
}

/// Runs ticks of a group of agents. Writes the effects of the last tick to `effects`.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn run(
    plan: &SimdPlan,
    (philox, purpose): (PhiloxRng, DrawPurpose),
    block: &mut AgentBlock,
    base: usize,
    (ticks, first_column): (&[u32], usize),
    simd: &mut SimdScratch,
    effects: &mut [u8; BLOCK],
) {
    let (Some(keys), Some(states), Some(ticks_in_state), Some(status), Some(behaviours)) = (
        block.keys[base..].first_chunk::<LANES>(),
        block.states[base..].first_chunk_mut::<LANES>(),
        block.ticks_in_state[base..].first_chunk_mut::<LANES>(),
        block.status[base..].first_chunk::<LANES>(),
        block.behaviours[base..].first_chunk::<LANES>(),
    ) else {
        return;
    };
    let SimdScratch { trigger, guards, tested } = simd;
    tested[ALWAYS] = YES;
    tested[ACTS] = status.map(|status| mask_of(status == ACTIVE));
    let counted_ticks = counted_ticks(purpose);
    for (number, tick) in ticks.iter().enumerate() {
        if plan.draws_triggers {
            philox.fill(keys, *tick, DrawPurpose::Trigger, 0, trigger.each_mut());
        }
        for (counter, draws) in (0..).zip(&mut guards[..plan.blocks]) {
            philox.fill(keys, *tick, purpose, counter, draws.each_mut());
        }
        for (test, mask) in plan.tests.iter().zip(&mut *tested) {
            evaluate_test(
                *test,
                mask,
                &trigger[0],
                guards,
                ticks_in_state,
                behaviours,
                &block.fields,
                base,
            );
        }
        let mut chosen = ChosenTransitions { next: *states, codes: NO, effects: NO };
        choose_transitions(plan, tested, states, &mut chosen);
        *states = chosen.next;
        for lane in 0..LANES {
            let stays = u32::from(chosen.codes[lane] == 0);
            let acts = u32::from(tested[ACTS][lane] & counted_ticks);
            ticks_in_state[lane] = ticks_in_state[lane].saturating_add(acts) * stays;
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

/// Takes the first transition whose tests all hold.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn choose_transitions(
    plan: &SimdPlan,
    tested: &[LaneMask; TESTS_MAX],
    states: &LaneMask,
    chosen: &mut ChosenTransitions,
) {
    for planned in &plan.states {
        let mut open = NO;
        for lane in 0..LANES {
            open[lane] = mask_of(states[lane] == planned.state) & tested[ACTS][lane];
        }
        for transition in &planned.transitions {
            let mut taken = open;
            apply_condition(&mut taken, transition.first, tested);
            for condition in &transition.more {
                apply_condition(&mut taken, *condition, tested);
            }
            for lane in 0..LANES {
                open[lane] &= !taken[lane];
                chosen.codes[lane] |= taken[lane] & transition.code;
            }
            if transition.code != 0 {
                for (next, taken) in chosen.next.iter_mut().zip(taken) {
                    *next = (*next & !taken) | (taken & transition.to);
                }
            }
            if transition.effect != 0 {
                for (effect, taken) in chosen.effects.iter_mut().zip(taken) {
                    *effect |= taken & transition.effect;
                }
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn apply_condition(taken: &mut LaneMask, condition: TestCondition, tested: &[LaneMask; TESTS_MAX]) {
    let test = &tested[condition.test % TESTS_MAX];
    for lane in 0..LANES {
        taken[lane] &= test[lane] ^ condition.inverted;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
#[expect(clippy::too_many_arguments, reason = "these are the columns that tests look at")]
fn evaluate_test(
    test: SimdTest,
    mask: &mut LaneMask,
    trigger: &[u32; LANES],
    draws: &[DrawBlock; BLOCKS_MAX],
    ticks_in_state: &[u32; LANES],
    behaviours: &LaneMask,
    fields: &[FieldColumn],
    base: usize,
) {
    match test {
        SimdTest::Trigger { at_most } => fill_mask(mask, |lane| trigger[lane] <= at_most),
        SimdTest::Draw { draw, at_most } => {
            let draws = draw_cache(draws, draw);
            fill_mask(mask, |lane| draws[lane] <= at_most);
        }
        SimdTest::FieldNumber { field, operator, number } => {
            let numbers = numbers(fields, field, base);
            compare_lanes(operator, mask, |lane| numbers[lane], |_| number);
        }
        SimdTest::FieldDraw { field, operator, draw } => {
            let draws = draw_cache(draws, draw);
            let numbers = numbers(fields, field, base);
            compare_lanes(operator, mask, |lane| numbers[lane], |lane| unit(draws[lane]));
        }
        SimdTest::FieldField { left, operator, right } => {
            let (left, right) = (numbers(fields, left, base), numbers(fields, right, base));
            compare_lanes(operator, mask, |lane| left[lane], |lane| right[lane]);
        }
        SimdTest::TimedOut { ticks } => fill_mask(mask, |lane| ticks_in_state[lane] >= ticks),
        SimdTest::TimedOutField { field } => {
            let thresholds = numbers(fields, field, base);
            fill_mask(mask, |lane| is_timed_out(ticks_in_state[lane], thresholds[lane]));
        }
        SimdTest::Behaviour { behaviour } => fill_mask(mask, |lane| behaviours[lane] == behaviour),
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn draw_cache(draws: &[DrawBlock; BLOCKS_MAX], draw: usize) -> &[u32; LANES] {
    &draws[draw / DRAWS_PER_BLOCK % BLOCKS_MAX][draw % DRAWS_PER_BLOCK]
}

const _: () = assert!(BLOCK.is_multiple_of(LANES), "groups of agents do not cross blocks");
