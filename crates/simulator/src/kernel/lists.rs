//! Agents in lists: the path that every chart can go.
//!
//! In a tick the agents of a block are put in order by their states. Those in one state are divided
//! by what happens to them, then by which candidate's guard holds for them, and so on: whatever is
//! looked at is looked at for a list of agents, and only for those that it matters to.

use polity_statechart::{
    Chart, Entry, GuardShape, RowId, Site, StateId, Threshold, TriggerId, WayId,
};

use super::block::{ACTING, Block};
use super::doubts::{Cause, Doubts};
use super::drawn::Moment;
use super::fields::Column;
use super::many::Room;
use super::masks::yes;
use super::philox::Purpose;
use super::pool::{List, Pool, Rows, place};
use super::rates::{Limit, Rates};
use super::single::Agent;
use super::sorter::Sorter;
use super::tree::{Sight, Truths, Workings};
use super::{BLOCK, Setting};

/// Room to work in, which is used again and again.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) lists: Pool<u16>,
    pub(super) workings: Workings,
    pub(super) sorter: Sorter,
    pub(super) room: Box<Room>,
    /// What else happens on the way that each agent takes, by the number in the plan.
    pub(super) effects: Rows<u8>,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            lists: Pool::default(),
            workings: Workings::default(),
            sorter: Sorter::default(),
            room: Box::default(),
            effects: Box::new([0; BLOCK]),
        }
    }
}

/// A tick of a block of agents.
pub(super) struct Tick<'a> {
    pub(super) chart: &'a Chart,
    pub(super) setting: &'a Setting<'a>,
    pub(super) block: &'a mut Block,
    pub(super) first_slot: u32,
    pub(super) tick: u32,
    /// Where it is written which ways were taken.
    pub(super) column: usize,
}

/// Some ticks of a block, each of which writes a column.
pub(super) fn ticks(
    chart: &Chart,
    block: &mut Block,
    setting: &Setting<'_>,
    first_slot: u32,
    ticks: &[u32],
    desk: &mut Desk,
) {
    let first = block.history.extend(ticks.len());
    for (number, tick) in ticks.iter().enumerate() {
        let column = first + number;
        let mut tick = Tick { chart, setting, block, first_slot, tick: *tick, column };
        tick.run(desk, Tick::state);
    }
}

/// Fires one trigger for every agent that acts, and writes a column.
pub(super) fn fire_all(
    chart: &Chart,
    block: &mut Block,
    setting: &Setting<'_>,
    first_slot: u32,
    (tick, trigger): (u32, TriggerId),
    desk: &mut Desk,
) {
    let column = block.history.extend(1);
    let mut tick = Tick { chart, setting, block, first_slot, tick, column };
    tick.run(desk, |tick, state, list, desk| tick.fire(state, trigger, list, desk));
}

/// For whom a guard holds.
enum Holds {
    All,
    Nobody,
    Some(Rows<u8>),
}

/// What the oracle has been asked about an agent so far.
#[derive(Clone, Copy)]
struct Asked {
    /// How many candidates it may choose from, or [`TAKEN`].
    count: u8,
    first: u16,
    /// The candidate that leads to the default, or [`NONE`].
    default: u16,
}

/// The agent has gone another way already.
const TAKEN: u8 = u8::MAX;
/// There is no such candidate.
const NONE: u16 = u16::MAX;

impl Tick<'_> {
    /// Does something for the agents of each state.
    fn run(
        &mut self,
        desk: &mut Desk,
        mut each: impl FnMut(&mut Self, StateId, &[u16], &mut Desk),
    ) {
        self.begin(desk);
        let Block { states, status, length, .. } = &*self.block;
        let mut order = desk.lists.take();
        let key = |index: usize| if status[index] == ACTING { states[index] } else { u8::MAX };
        desk.sorter.sort(*length, key, &mut order);
        let counted = match self.setting.purpose {
            Purpose::Trigger | Purpose::Guard => 1,
            Purpose::Round => 0,
        };
        for (held, status) in self.block.held.iter_mut().zip(&self.block.status) {
            *held = held.saturating_add(counted * u32::from(*status == ACTING));
        }
        for state in self.chart.states() {
            let list = desk.sorter.range(state.get());
            if !list.is_empty() {
                each(self, state, &order[list], desk);
            }
        }
        desk.lists.give(order);
    }

    /// Nothing is known of this tick yet.
    pub(super) fn begin(&self, desk: &mut Desk) {
        desk.workings.drawn.begin();
    }

    pub(super) fn sight<'s>(&'s self, list: &'s [u16]) -> Sight<'s> {
        Sight { fields: &self.block.fields, world: self.setting.world, list, moment: self.moment() }
    }

    fn moment(&self) -> Moment<'_> {
        Moment {
            philox: self.setting.philox,
            keys: &self.block.keys,
            tick: self.tick,
            purpose: self.setting.purpose,
        }
    }

    pub(super) fn agent(&mut self, index: usize) -> Agent<'_> {
        Agent {
            index,
            first_slot: self.first_slot,
            tick: self.tick,
            purpose: self.setting.purpose,
            philox: self.setting.philox,
            world: self.setting.world,
            block: self.block,
        }
    }

    /// The timeout for those for whom it is due, and for the others what they draw.
    fn state(&mut self, state: StateId, list: &[u16], desk: &mut Desk) {
        let (Some(threshold), Some(timeout)) = (self.chart.threshold(state), self.chart.timeout())
        else {
            return self.behaviours(state, list, desk);
        };
        let held = &self.block.held;
        let (overdue, others) = match threshold {
            Threshold::Ticks(ticks) => {
                desk.lists.divide(list, |_, lane| f64::from(held[lane]) > ticks)
            }
            Threshold::Field(field) => match &self.block.fields[field.index()] {
                Column::Numbers(ticks) => {
                    desk.lists.divide(list, |_, lane| f64::from(held[lane]) > ticks[lane])
                }
                // A threshold is a number.
                Column::Flags(_) | Column::Texts(_) => desk.lists.divide(list, |_, _| false),
            },
        };
        self.fire(state, timeout, &overdue, desk);
        self.behaviours(state, &others, desk);
        desk.lists.give_list(overdue);
        desk.lists.give_list(others);
    }

    /// What agents draw that may behave in different ways.
    fn behaviours(&mut self, state: StateId, list: &[u16], desk: &mut Desk) {
        let rates = self.setting.rates;
        if rates.behaviours() <= 1 {
            return self.triggers(state, rates.limits(0, state), list, desk);
        }
        self.by_value(
            list,
            |tick, lane| tick.block.behaviours[lane],
            desk,
            |tick, behaviour, list, desk| {
                tick.triggers(state, rates.limits(behaviour, state), list, desk);
            },
        );
    }

    /// Divides agents by a value of each, and does something with those that have the same.
    fn by_value(
        &mut self,
        list: &[u16],
        value: impl Fn(&Self, usize) -> u8,
        desk: &mut Desk,
        mut each: impl FnMut(&mut Self, u8, &[u16], &mut Desk),
    ) {
        let mut open: Option<List> = None;
        loop {
            let left = open.as_deref().unwrap_or(list);
            let Some(first) = left.first().map(|lane| value(self, place(*lane))) else { break };
            let (same, others) = desk.lists.divide(left, |_, lane| value(self, lane) == first);
            each(self, first, &same, desk);
            desk.lists.give_list(same);
            if let Some(before) = open.replace(others) {
                desk.lists.give_list(before);
            }
        }
        if let Some(open) = open {
            desk.lists.give_list(open);
        }
    }

    fn triggers(&mut self, state: StateId, limits: &[Limit], list: &[u16], desk: &mut Desk) {
        if Rates::certain(limits) {
            if let Some(limit) = limits.first() {
                self.fire(state, limit.trigger, list, desk);
            }
            return;
        }
        desk.workings.drawn.know_triggers(&self.moment());
        let mut open: Option<List> = None;
        for Limit { trigger, below } in limits {
            let left = open.as_deref().unwrap_or(list);
            let drawn = &desk.workings.drawn;
            let (taken, others) =
                desk.lists.divide(left, |_, lane| u64::from(drawn.trigger(lane)) < *below);
            self.fire(state, *trigger, &taken, desk);
            desk.lists.give_list(taken);
            if let Some(before) = open.replace(others) {
                desk.lists.give_list(before);
            }
        }
        if let Some(open) = open {
            desk.lists.give_list(open);
        }
    }

    /// Fires a trigger for agents in one state.
    fn fire(&mut self, state: StateId, trigger: TriggerId, list: &[u16], desk: &mut Desk) {
        let chart = self.chart;
        let rows = chart.candidates(state, trigger);
        if list.is_empty() {
            return;
        }
        if rows.clone().any(|row| chart.is_oracle(row)) {
            return self.fire_with_oracle(state, trigger, list, desk);
        }
        let mut open: Option<List> = None;
        for row in rows {
            let left = open.as_deref().unwrap_or(list);
            let holds = match self.guard(row, left, &mut desk.workings) {
                Holds::Nobody => continue,
                Holds::All => {
                    self.take(row, left, desk);
                    break;
                }
                Holds::Some(holds) => holds,
            };
            let (taken, others) = desk.lists.divide(left, |number, _| holds[number % BLOCK] != 0);
            desk.workings.truths.give(holds);
            self.take(row, &taken, desk);
            desk.lists.give_list(taken);
            let is_over = others.is_empty();
            if let Some(before) = open.replace(others) {
                desk.lists.give_list(before);
            }
            if is_over {
                break;
            }
        }
        if let Some(open) = open {
            desk.lists.give_list(open);
        }
    }

    /// Fires a trigger where the oracle may have a say. There is none, so where it would have to be
    /// asked, the default is gone to.
    fn fire_with_oracle(
        &mut self,
        state: StateId,
        trigger: TriggerId,
        list: &[u16],
        desk: &mut Desk,
    ) {
        let chart = self.chart;
        let rows: Vec<RowId> = chart.candidates(state, trigger).collect();
        let mut asked = vec![Asked { count: 0, first: 0, default: NONE }; BLOCK];
        for (candidate, row) in (0..).zip(&rows) {
            let is_oracle = chart.is_oracle(*row);
            // Once the oracle is to be asked, only what is left to it can still be chosen.
            let (open, others) = desk.lists.divide(list, |_, lane| {
                asked[lane].count == 0 || (is_oracle && asked[lane].count != TAKEN)
            });
            desk.lists.give_list(others);
            let holds = self.guard(*row, &open, &mut desk.workings);
            let (yes, no) = desk.lists.divide(&open, |number, _| match &holds {
                Holds::All => true,
                Holds::Nobody => false,
                Holds::Some(holds) => holds[number % BLOCK] != 0,
            });
            if let Holds::Some(holds) = holds {
                desk.workings.truths.give(holds);
            }
            for lane in yes.iter().map(|lane| place(*lane)) {
                let Asked { count, first, default } = &mut asked[lane];
                if !is_oracle {
                    *count = TAKEN;
                    continue;
                }
                *first = if *count == 0 { candidate } else { *first };
                *count = (*count + 1).min(TAKEN - 1);
                if *default == NONE && chart.is_default(*row) {
                    *default = candidate;
                }
            }
            if !is_oracle {
                self.take(*row, &yes, desk);
            }
            [open, yes, no].into_iter().for_each(|list| desk.lists.give_list(list));
        }
        self.choose(&rows, list, &asked, desk);
        let (open, others) = desk.lists.divide(list, |_, lane| {
            let Asked { count, default, .. } = asked[lane];
            count > 1 && count != TAKEN && default == NONE
        });
        if let (Some(entry), Some(row), false) =
            (chart.default_entry(state, trigger), rows.first(), open.is_empty())
        {
            self.enter(entry, chart.first_act_draw(*row), &open, desk);
        }
        desk.lists.give_list(open);
        desk.lists.give_list(others);
    }

    /// Takes the only candidate that the oracle could choose, or the one that is the default.
    fn choose(&mut self, rows: &[RowId], list: &[u16], asked: &[Asked], desk: &mut Desk) {
        for (candidate, row) in (0..).zip(rows).filter(|(_, row)| self.chart.is_oracle(**row)) {
            let (taken, others) = desk.lists.divide(list, |_, lane| {
                let Asked { count, first, default } = asked[lane];
                match count {
                    0 | TAKEN => false,
                    1 => first == candidate,
                    2.. => default == candidate,
                }
            });
            self.take(*row, &taken, desk);
            desk.lists.give_list(taken);
            desk.lists.give_list(others);
        }
    }

    /// For whom a candidate's guard holds. Where it has no value it does not, and that is noted.
    fn guard(&mut self, row: RowId, list: &[u16], workings: &mut Workings) -> Holds {
        let chart = self.chart;
        match chart.guard_shape(row) {
            GuardShape::Always => return Holds::All,
            GuardShape::All { .. } | GuardShape::Expression | GuardShape::Rust => {}
        }
        let Some(tree) = chart.guard_tree(row) else {
            let mut holds = workings.truths.take();
            for (holds, lane) in holds.iter_mut().zip(list) {
                *holds = yes(chart.guard_holds(row, &mut self.agent(place(*lane))));
            }
            return Holds::Some(holds);
        };
        let mut doubts = Doubts::default();
        let truths = workings.truths(&self.sight(list), tree, &mut doubts);
        let Some(doubtful) = doubts.mask() else {
            return match truths {
                Truths::Same(true) => Holds::All,
                Truths::Same(false) => Holds::Nobody,
                Truths::Each(holds) => Holds::Some(holds),
            };
        };
        let mut holds = workings.truths.take();
        for (number, holds) in holds[..list.len()].iter_mut().enumerate() {
            *holds = yes(truths.get(number)) & !doubtful[number];
        }
        if *doubts.cause() == Cause::Several {
            for (number, lane) in
                list.iter().enumerate().filter(|(number, _)| doubtful[*number] != 0)
            {
                holds[number] = yes(chart.guard_holds(row, &mut self.agent(place(*lane))));
            }
        }
        self.fail(Site::Guard(row), list, &doubts);
        workings.give_truths(truths);
        doubts.end(&mut workings.truths);
        Holds::Some(holds)
    }

    /// Goes the way of a candidate.
    fn take(&mut self, row: RowId, list: &[u16], desk: &mut Desk) {
        if !list.is_empty() {
            self.enter(self.chart.entry(row), self.chart.first_act_draw(row), list, desk);
        }
    }

    fn enter(&mut self, entry: Entry, first_draw: u32, list: &[u16], desk: &mut Desk) {
        match entry {
            Entry::Way(way) => self.go(way, first_draw, list, desk),
            Entry::Recall { memory, first } => self.by_value(
                list,
                |tick, lane| tick.block.memories[usize::from(memory)][lane],
                desk,
                |tick, child, list, desk| {
                    tick.enter(tick.chart.entry_inside(first, child), first_draw, list, desk);
                },
            ),
        }
    }

    fn go(&mut self, way: WayId, first_draw: u32, list: &[u16], desk: &mut Desk) {
        let destination = self.chart.destination_of(way);
        if destination.has_effects {
            self.perform(way, first_draw, list, &mut desk.workings);
        }
        if destination.code != 0 {
            let Block { states, held, history, .. } = &mut *self.block;
            let column = history.column(self.column);
            for lane in list.iter().map(|lane| place(*lane)) {
                states[lane] = destination.to.get();
                held[lane] = 0;
                column[lane] = destination.code;
            }
        }
    }

    /// Performs what happens on a way.
    pub(super) fn perform(
        &mut self,
        way: WayId,
        first_draw: u32,
        list: &[u16],
        workings: &mut Workings,
    ) {
        let chart = self.chart;
        for act in chart.acts(way, first_draw) {
            self.act(&act, list, workings);
        }
        for (memory, child) in chart.remembered(way) {
            let memory = &mut self.block.memories[usize::from(*memory)];
            list.iter().for_each(|lane| memory[place(*lane)] = *child);
        }
    }
}
