//! Agents in lists: the path that every chart can go.
//!
//! In a tick the agents of a block are put in order by what happens to them. Those to whom the same
//! happens are divided by which candidate's guard holds for them, and so on: whatever is
//! looked at is looked at for a list of agents, and only for those that it matters to.

use polity_statechart::{CandidateId, Chart, CompareOp, EntryRule, ErrorSite, GuardKind, PathId};

use super::block::Block;
use super::candidates::{Candidate, Fired, Question};
use super::doubts::{Cause, Doubts};
use super::drawn::Moment;
use super::fields::Column;
use super::happenings::Happenings;
use super::many::{Room, counted};
use super::masks::yes;
use super::moves::Moves;
use super::pool::{Divided, List, Pool, Rows, place};
use super::sight::Sight;
use super::single::Agent;
use super::sorter::Sorter;
use super::tree::{Truths, Workings};
use super::{BLOCK, LANES, Setting};

/// Room to work in, which is used again and again.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) lists: Pool<u16>,
    pub(super) workings: Workings,
    pub(super) sorter: Sorter,
    pub(super) room: Box<Room>,
    /// What else happens on the way that each agent takes, by the number in the plan.
    pub(super) effects: Rows<u8>,
    choices: Rows<Choice>,
    moves: Moves,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            lists: Pool::default(),
            workings: Workings::default(),
            sorter: Sorter::default(),
            room: Box::default(),
            effects: Box::new([0; BLOCK]),
            choices: Box::new([NONE; BLOCK]),
            moves: Moves::default(),
        }
    }
}

/// A tick of a block of agents.
pub(super) struct Tick<'a> {
    pub(super) chart: &'a Chart,
    pub(super) setting: &'a Setting<'a>,
    pub(super) block: &'a mut Block,
    pub(super) first_slot: u32,
    pub(super) now: u32,
    /// Where it is written which ways were taken.
    pub(super) column: usize,
}

/// Some ticks of a block, each of which writes a column.
pub(super) fn ticks(
    happenings: &Happenings,
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
        Tick { chart, setting, block, first_slot, now: *tick, column }.run(happenings, desk);
    }
}

/// For whom a guard holds.
enum Holds {
    All,
    Nobody,
    Some(Rows<u8>),
}

/// Which candidate an agent goes the way of so far, where the oracle has a say.
type Choice = u16;

/// None yet.
const NONE: Choice = u16::MAX;
/// One that is not the oracle's, which is gone already.
const TAKEN: Choice = u16::MAX - 1;

impl Tick<'_> {
    /// Has happen what happens to each agent.
    fn run(&mut self, happenings: &Happenings, desk: &mut Desk) {
        self.begin(desk);
        desk.moves.begin(&self.block.states[..self.lanes()]);
        let mut order = desk.lists.take();
        let lanes = self.lanes();
        happenings.sort((self.block, lanes), &self.moment(), desk, &mut order);
        for (number, fired) in happenings.fired() {
            let list = &order[desk.sorter.range(number)];
            if !list.is_empty() {
                self.fire(fired, list, desk);
            }
        }
        desk.lists.give(order);
        desk.moves.settle(self.block, lanes, self.column, counted(self.setting.purpose));
    }

    /// How many places of the block are looked at, so that all agents are among them.
    fn lanes(&self) -> usize {
        self.block.length.next_multiple_of(LANES)
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
            keys: &self.block.keys[..self.lanes()],
            tick: self.now,
            purpose: self.setting.purpose,
        }
    }

    pub(super) fn agent(&mut self, index: usize) -> Agent<'_> {
        Agent {
            index,
            first_slot: self.first_slot,
            tick: self.now,
            column: self.column,
            purpose: self.setting.purpose,
            philox: self.setting.philox,
            world: self.setting.world,
            block: self.block,
        }
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

    /// Fires a trigger for agents in one state.
    fn fire(&mut self, fired: &Fired, list: &[u16], desk: &mut Desk) {
        if fired.has_oracle {
            return self.fire_with_oracle(fired, list, desk);
        }
        let mut open: Option<List> = None;
        let mut left = fired.candidates.len();
        for candidate in &fired.candidates {
            left -= 1;
            let agents = open.as_deref().unwrap_or(list);
            let (taken, others) = match self.divide(candidate, agents, left == 0, desk) {
                Divided::Nobody => continue,
                Divided::All => {
                    self.take(candidate.row, agents, desk);
                    break;
                }
                Divided::Some(taken, others) => (taken, others),
            };
            self.take(candidate.row, &taken, desk);
            desk.lists.give_list(taken);
            let Some(others) = others else { break };
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

    /// Divides agents into those who take a candidate and, unless it is the last one, the others.
    fn divide(
        &mut self,
        candidate: &Candidate,
        list: &[u16],
        is_last: bool,
        desk: &mut Desk,
    ) -> Divided {
        let Desk { lists, workings, .. } = desk;
        match candidate.question {
            Question::Always => return Divided::All,
            Question::Never => return Divided::Nobody,
            Question::Draw { index, at_most, unless } => {
                if let Some(draws) = workings.drawn.known(&self.moment(), index, list.len()) {
                    return lists.part(list, is_last, |_, lane| (draws[lane] <= at_most) != unless);
                }
            }
            Question::Field { field, operator, number } => {
                if let Column::Numbers(column) = &self.block.fields[field]
                    && let Some(column) = column.first_chunk::<BLOCK>()
                {
                    return part_by(lists, list, is_last, column, operator, number);
                }
            }
            Question::Guard => {}
        }
        match self.guard(candidate.row, list, workings) {
            Holds::All => Divided::All,
            Holds::Nobody => Divided::Nobody,
            Holds::Some(holds) => {
                let divided = lists.part(list, is_last, |number, _| holds[number % BLOCK] != 0);
                workings.truths.give(holds);
                divided
            }
        }
    }

    /// Fires a trigger where the oracle may have a say. There is none, so where it would have to be
    /// asked, the default is gone to if it is one of the choices, and else the first of them.
    fn fire_with_oracle(&mut self, fired: &Fired, list: &[u16], desk: &mut Desk) {
        let chart = self.chart;
        for lane in list {
            desk.choices[place(*lane)] = NONE;
        }
        let is_default = |choice: Choice| {
            let candidate = fired.candidates.get(usize::from(choice));
            candidate.is_some_and(|candidate| chart.is_default(candidate.row))
        };
        for (choice, Candidate { row, .. }) in (0..).zip(&fired.candidates) {
            let is_oracle = chart.is_oracle(*row);
            let Desk { lists, choices, workings, .. } = &mut *desk;
            // Once the oracle is to be asked, only what is left to it can still be chosen.
            let open = lists.select(list, |_, lane| {
                choices[lane] == NONE || (is_oracle && choices[lane] != TAKEN)
            });
            let holds = self.guard(*row, &open, workings);
            let chosen = lists.select(&open, |number, _| match &holds {
                Holds::All => true,
                Holds::Nobody => false,
                Holds::Some(holds) => holds[number % BLOCK] != 0,
            });
            if let Holds::Some(holds) = holds {
                workings.truths.give(holds);
            }
            for lane in chosen.iter().map(|lane| place(*lane)) {
                if !is_oracle {
                    choices[lane] = TAKEN;
                } else if choices[lane] == NONE
                    || (is_default(choice) && !is_default(choices[lane]))
                {
                    choices[lane] = choice;
                }
            }
            if !is_oracle {
                self.take(*row, &chosen, desk);
            }
            desk.lists.give_list(open);
            desk.lists.give_list(chosen);
        }
        for (choice, Candidate { row, .. }) in (0..).zip(&fired.candidates) {
            if chart.is_oracle(*row) {
                let Desk { lists, choices, .. } = &mut *desk;
                let chosen = lists.select(list, |_, lane| choices[lane] == choice);
                self.take(*row, &chosen, desk);
                desk.lists.give_list(chosen);
            }
        }
    }

    /// For whom a candidate's guard holds. Where it has no value it does not, and that is noted.
    fn guard(&mut self, row: CandidateId, list: &[u16], workings: &mut Workings) -> Holds {
        let chart = self.chart;
        match chart.guard_kind(row) {
            GuardKind::Always => return Holds::All,
            GuardKind::Comparisons { .. } | GuardKind::Expression | GuardKind::Rust => {}
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
        self.fail(ErrorSite::Guard(row), list, &doubts);
        workings.give_truths(truths);
        doubts.end(&mut workings.truths);
        Holds::Some(holds)
    }

    /// Goes the way of a candidate.
    fn take(&mut self, row: CandidateId, list: &[u16], desk: &mut Desk) {
        if !list.is_empty() {
            self.enter(self.chart.entry(row), self.chart.first_action_draw(row), list, desk);
        }
    }

    fn enter(&mut self, entry: EntryRule, first_draw: u32, list: &[u16], desk: &mut Desk) {
        match entry {
            EntryRule::Path(way) => self.go(way, first_draw, list, desk),
            EntryRule::History { history_state: memory, first } => self.by_value(
                list,
                |tick, lane| tick.block.memories[usize::from(memory)][lane],
                desk,
                |tick, child, list, desk| {
                    tick.enter(tick.chart.entry_for_child(first, child), first_draw, list, desk);
                },
            ),
        }
    }

    fn go(&mut self, way: PathId, first_draw: u32, list: &[u16], desk: &mut Desk) {
        let destination = self.chart.path_outcome(way);
        if destination.has_effects {
            self.perform(way, first_draw, list, &mut desk.workings);
        }
        if destination.code != 0 {
            desk.moves.put(list, destination);
        }
    }

    /// Performs what happens on a way.
    pub(super) fn perform(
        &mut self,
        way: PathId,
        first_draw: u32,
        list: &[u16],
        workings: &mut Workings,
    ) {
        let chart = self.chart;
        for act in chart.actions(way, first_draw) {
            self.act(&act, list, workings);
        }
        for (memory, child) in chart.history_updates(way) {
            let memory = &mut self.block.memories[usize::from(*memory)];
            for lane in list {
                memory[place(*lane)] = *child;
            }
        }
    }
}

/// Divides agents by how a field of theirs compares with a number. Each operator has a loop of its own.
fn part_by(
    lists: &mut Pool<u16>,
    list: &[u16],
    is_last: bool,
    column: &[f64; BLOCK],
    operator: CompareOp,
    number: f64,
) -> Divided {
    match operator {
        CompareOp::Less => lists.part(list, is_last, |_, lane| column[lane] < number),
        CompareOp::LessOrEqual => lists.part(list, is_last, |_, lane| column[lane] <= number),
        CompareOp::Greater => lists.part(list, is_last, |_, lane| column[lane] > number),
        CompareOp::GreaterOrEqual => lists.part(list, is_last, |_, lane| column[lane] >= number),
        CompareOp::Equal | CompareOp::NotEqual => {
            lists.part(list, is_last, |_, lane| operator.holds(column[lane], number))
        }
    }
}
