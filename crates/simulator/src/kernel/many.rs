//! Many agents at once: the path of charts that have a [`Plan`].
//!
//! Everything is a loop over as many agents as there are [`LANES`], without a branch that depends
//! on an agent, so that the compiler can make vectors of it. The outermost functions are compiled
//! several times over, and the best version that the processor knows is called.

use multiversion::multiversion;
use polity_statechart::{RowId, TriggerId};

use super::block::{ACTING, Block};
use super::fields::Column;
use super::masks::{Mask, NO, Numbers, YES, compared, each, yes};
use super::philox::{DRAWS_PER_BLOCK, Draws, Philox, Purpose, unit};
use super::plan::{ACTS, ALWAYS, BLOCKS_MAX, Check, Condition, Plan, TESTS_MAX, Test};
use super::single::{Agent, Single};
use super::tree::{Sight, Workings};
use super::{BLOCK, LANES, Setting};

/// Draws of a group of agents.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn fill(
    philox: Philox,
    keys: &[u64; LANES],
    (tick, purpose): (u32, Purpose),
    trigger: Option<&mut Draws>,
    guards: &mut [Draws],
) {
    if let Some(trigger) = trigger {
        philox.fill(keys, tick, Purpose::Trigger, 0, trigger);
    }
    for (block, draws) in (0..).zip(guards) {
        philox.fill(keys, tick, purpose, block, draws);
    }
}

/// Some ticks of a block, each of which writes a column.
pub(super) fn ticks(
    plan: &Plan,
    single: &Single,
    block: &mut Block,
    setting: &Setting<'_>,
    first_slot: u32,
    ticks: &[u32],
) {
    let first = block.history.extend(ticks.len());
    if plan.effects.is_empty() && !plan.checks {
        for base in (0..block.length).step_by(LANES) {
            run(plan, setting.philox, setting.purpose, block, base, ticks, first);
        }
        return;
    }
    let mut desk = Desk::default();
    for base in (0..block.length).step_by(LANES) {
        for (number, tick) in ticks.iter().enumerate() {
            let group = Group { plan, single, setting, first_slot, base, tick: *tick };
            group.tick(block, first + number, &mut desk);
        }
    }
}

/// A tick of a group of agents of which some must be looked at more closely.
struct Group<'a> {
    plan: &'a Plan,
    single: &'a Single,
    setting: &'a Setting<'a>,
    first_slot: u32,
    base: usize,
    tick: u32,
}

/// Room to work in, which is used again and again.
#[derive(Default)]
struct Desk {
    drawn: Box<Drawn>,
    tested: Box<Tested>,
    workings: Workings,
    /// For each expression, about whom there is a doubt, if about anyone.
    doubts: Vec<Option<Mask>>,
}

/// The draws of a group of agents.
struct Drawn {
    trigger: Draws,
    guards: [Draws; BLOCKS_MAX],
}

/// The answers of a group of agents to all tests.
struct Tested([Mask; TESTS_MAX]);

impl Default for Drawn {
    fn default() -> Self {
        let draws = [[0; LANES]; DRAWS_PER_BLOCK];
        Self { trigger: draws, guards: [draws; BLOCKS_MAX] }
    }
}

impl Default for Tested {
    fn default() -> Self {
        Self([NO; TESTS_MAX])
    }
}

impl Group<'_> {
    fn tick(&self, block: &mut Block, column: usize, desk: &mut Desk) {
        let (Some(keys), Some(states)) = (
            block.keys[self.base..].first_chunk::<LANES>(),
            block.states[self.base..].first_chunk::<LANES>(),
        ) else {
            return;
        };
        let Desk { drawn, tested, workings, doubts } = desk;
        let states = *states;
        let counters = self.setting.blocks.min(BLOCKS_MAX);
        let trigger = self.plan.draws_triggers.then_some(&mut drawn.trigger);
        let guards = &mut drawn.guards[..counters];
        fill(self.setting.philox, keys, (self.tick, self.setting.purpose), trigger, guards);
        test(self.plan, &mut tested.0, &drawn.trigger, &drawn.guards, block, self.base);
        let draws = &drawn.guards[..counters];
        workings.begin();
        doubts.resize(self.plan.trees.len(), None);
        for ((test, row), doubt) in self.plan.trees.iter().zip(doubts.iter_mut()) {
            let Some(tree) = self.single.guard_tree(*row) else { continue };
            let (fields, world) = (block.fields.as_slice(), self.setting.world);
            let sight = Sight { tree, fields, base: self.base, draws, world };
            let mut doubtful = NO;
            workings.evaluate(&sight, &mut tested.0[*test], &mut doubtful);
            *doubt = (doubtful != NO).then_some(doubtful);
            if let Some(doubtful) = doubt {
                let mask = tested.0[*test].iter_mut().zip(doubtful);
                mask.for_each(|(mask, doubtful)| *mask |= *doubtful);
            }
        }
        let mut chosen = Chosen { next: states, codes: NO, effects: NO };
        let mut look = |check: Check, taken: &mut Mask, chosen: &mut Chosen| match check {
            Check::Doubt(row, tree) => {
                if let Some(doubt) = &doubts[tree] {
                    self.guard(row, taken, doubt, draws, block);
                }
            }
            Check::Guard(row) => self.guard(row, taken, &YES, draws, block),
            Check::Fire(trigger) => self.fire(trigger, &states, taken, chosen, draws, block),
        };
        choose_with(self.plan, &tested.0, &states, &mut chosen, &mut look);
        for (lane, effect) in chosen.effects.into_iter().enumerate() {
            if let Some(effect) = usize::from(effect).checked_sub(1) {
                let mut agent = self.agent(block, lane, draws);
                self.single.perform(self.plan.effects[effect], &mut agent);
            }
        }
        let counted = counted(self.setting.purpose);
        arrive(block, self.base, counted, &tested.0[ACTS], &chosen);
        block.history.column(column)[self.base..self.base + LANES].copy_from_slice(&chosen.codes);
    }

    /// Of those agents about whom there is a doubt, leaves those that a candidate's guard holds for.
    fn guard(
        &self,
        row: RowId,
        taken: &mut Mask,
        doubt: &Mask,
        draws: &[Draws],
        block: &mut Block,
    ) {
        for lane in 0..LANES {
            if taken[lane] & doubt[lane] != 0 {
                let mut agent = self.agent(block, lane, draws);
                taken[lane] = yes(self.single.guard_holds(row, &mut agent));
            }
        }
    }

    /// Fires a trigger for some agents.
    fn fire(
        &self,
        trigger: TriggerId,
        states: &Mask,
        taken: &Mask,
        chosen: &mut Chosen,
        draws: &[Draws],
        block: &mut Block,
    ) {
        for lane in (0..LANES).filter(|lane| taken[*lane] != 0) {
            let mut agent = self.agent(block, lane, draws);
            let step = self.single.fire(states[lane], trigger, &mut agent);
            if let Some(step) = step.filter(|step| step.code != 0) {
                chosen.next[lane] = step.to.get();
                chosen.codes[lane] = step.code;
            }
        }
    }

    fn agent<'b>(&'b self, block: &'b mut Block, lane: usize, draws: &'b [Draws]) -> Agent<'b> {
        Agent {
            block,
            index: self.base + lane,
            first_slot: self.first_slot,
            tick: self.tick,
            purpose: self.setting.purpose,
            philox: self.setting.philox,
            world: self.setting.world,
            ahead: draws,
            lane,
        }
    }
}

/// How many ticks in a state something counts for.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn counted(purpose: Purpose) -> u8 {
    match purpose {
        Purpose::Trigger | Purpose::Guard => 1,
        Purpose::Round => 0,
    }
}

/// Counts the ticks in states, and goes to new ones.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn arrive(block: &mut Block, base: usize, counted: u8, acts: &Mask, chosen: &Chosen) {
    let Some(held) = block.held[base..].first_chunk_mut::<LANES>() else { return };
    for lane in 0..LANES {
        let stays = u32::from(chosen.codes[lane] == 0);
        held[lane] = held[lane].saturating_add(u32::from(acts[lane] & counted)) * stays;
    }
    block.states[base..base + LANES].copy_from_slice(&chosen.next);
}

/// What a tick brings to a group of agents.
struct Chosen {
    /// The states that they are in afterwards.
    next: Mask,
    codes: Mask,
    effects: Mask,
}

/// Evaluates the tests of a plan.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn test(
    plan: &Plan,
    tested: &mut [Mask; TESTS_MAX],
    trigger: &Draws,
    draws: &[Draws; BLOCKS_MAX],
    block: &Block,
    base: usize,
) {
    let (Some(held), Some(status), Some(behaviours)) = (
        block.held[base..].first_chunk::<LANES>(),
        block.status[base..].first_chunk::<LANES>(),
        block.behaviours[base..].first_chunk::<LANES>(),
    ) else {
        return;
    };
    tested[ALWAYS] = YES;
    tested[ACTS] = status.map(|status| yes(status == ACTING));
    for (test, mask) in plan.tests.iter().zip(tested) {
        evaluate(*test, mask, &trigger[0], draws, held, behaviours, &block.fields, base);
    }
}

/// Takes the first way whose tests and checks all say yes.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn choose_with(
    plan: &Plan,
    tested: &[Mask; TESTS_MAX],
    states: &Mask,
    chosen: &mut Chosen,
    look: &mut dyn FnMut(Check, &mut Mask, &mut Chosen),
) {
    choose(plan, tested, states, chosen, look);
}

/// Some ticks of a group of agents of which none must be looked at more closely.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn run(
    plan: &Plan,
    philox: Philox,
    purpose: Purpose,
    block: &mut Block,
    base: usize,
    ticks: &[u32],
    first_column: usize,
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
    let mut tested = [NO; TESTS_MAX];
    tested[ALWAYS] = YES;
    tested[ACTS] = status.map(|status| yes(status == ACTING));
    let counted = counted(purpose);
    let mut draws = [[[0; LANES]; DRAWS_PER_BLOCK]; BLOCKS_MAX];
    let mut trigger = [[0; LANES]; DRAWS_PER_BLOCK];
    for (number, tick) in ticks.iter().enumerate() {
        if plan.draws_triggers {
            philox.fill(keys, *tick, Purpose::Trigger, 0, &mut trigger);
        }
        for (counter, draws) in (0..).zip(&mut draws[..plan.blocks]) {
            philox.fill(keys, *tick, purpose, counter, draws);
        }
        for (test, mask) in plan.tests.iter().zip(&mut tested) {
            evaluate(*test, mask, &trigger[0], &draws, held, behaviours, &block.fields, base);
        }
        let mut chosen = Chosen { next: *states, codes: NO, effects: NO };
        choose(plan, &tested, states, &mut chosen, &mut |_, _, _| {});
        *states = chosen.next;
        for lane in 0..LANES {
            let stays = u32::from(chosen.codes[lane] == 0);
            let acts = u32::from(tested[ACTS][lane] & counted);
            held[lane] = held[lane].saturating_add(acts) * stays;
        }
        let column = block.history.column(first_column + number);
        let Some(column) = column[base..].first_chunk_mut::<LANES>() else { return };
        *column = chosen.codes;
    }
}

/// Takes the first way whose tests all say yes, and which passes its check.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn choose(
    plan: &Plan,
    tested: &[Mask; TESTS_MAX],
    states: &Mask,
    chosen: &mut Chosen,
    look: &mut (impl FnMut(Check, &mut Mask, &mut Chosen) + ?Sized),
) {
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
            if let Some(check) = way.check {
                look(check, &mut taken, chosen);
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
            compared(operator, numbers(fields, field, base), &[number; LANES], mask);
        }
        Test::FieldDraw { field, operator, draw } => {
            let draws = drawn(draws, draw);
            let mut units = [0.0; LANES];
            for lane in 0..LANES {
                units[lane] = unit(draws[lane]);
            }
            compared(operator, numbers(fields, field, base), &units, mask);
        }
        Test::FieldField { left, operator, right } => {
            compared(operator, numbers(fields, left, base), numbers(fields, right, base), mask);
        }
        Test::Overdue { ticks } => each(mask, |lane| held[lane] >= ticks),
        Test::OverdueField { field } => {
            let thresholds = numbers(fields, field, base);
            each(mask, |lane| f64::from(held[lane]) + 1.0 > thresholds[lane]);
        }
        Test::Behaviour { behaviour } => each(mask, |lane| behaviours[lane] == behaviour),
        // Expressions are evaluated apart.
        Test::Tree { .. } => {}
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn drawn(draws: &[Draws; BLOCKS_MAX], draw: usize) -> &[u32; LANES] {
    &draws[draw / DRAWS_PER_BLOCK % BLOCKS_MAX][draw % DRAWS_PER_BLOCK]
}

/// Plans speak only of fields that are numbers.
#[inline(always)]
fn numbers(fields: &[Column], field: usize, base: usize) -> &Numbers {
    const NONE: &Numbers = &[0.0; LANES];
    match &fields[field] {
        Column::Numbers(numbers) => numbers[base..].first_chunk::<LANES>().unwrap_or(NONE),
        Column::Flags(_) | Column::Values(_) => NONE,
    }
}

const _: () = assert!(BLOCK.is_multiple_of(LANES), "groups of agents do not cross blocks");
