//! The batched path, which every chart can take.
//!
//! The agents of a block are sorted by event. Those with the same event are split by the candidate
//! whose guard holds. Guards and actions are evaluated for lists of agents.

use polity_statechart::{CandidateId, Chart, CompareOp, EntryRule, ErrorSite, GuardKind, PathId};

use crate::kernel::columns::block::AgentBlock;
use crate::kernel::columns::fields::FieldColumn;
use crate::kernel::columns::lanes::{LaneList, LanePool, LaneSplit, LaneValues, lane_index};
use crate::kernel::columns::masks::mask_of;
use crate::kernel::columns::sorter::LaneSorter;
use crate::kernel::draws::draw_cache::DrawInput;
use crate::kernel::expressions::eval_errors::{ErrorCause, EvalErrors};
use crate::kernel::expressions::eval_input::EvalInput;
use crate::kernel::expressions::evaluator::{BoolResults, EvalScratch};
use crate::kernel::tables::candidates::{CandidateCheck, GuardCheck, TriggerEvent};
use crate::kernel::tables::event_table::EventTable;
use crate::kernel::tick::pending_states::PendingStates;
use crate::kernel::tick::scalar::ScalarAgent;
use crate::kernel::tick::simd::{SimdScratch, counted_ticks};
use crate::kernel::{BLOCK, LANES, TickInput};

/// The scratch buffers of a thread, reused across ticks.
#[derive(Debug)]
pub(crate) struct TickScratch {
    pub(crate) lists: LanePool<u16>,
    pub(crate) eval: EvalScratch,
    pub(crate) sorter: LaneSorter,
    pub(crate) simd: Box<SimdScratch>,
    /// The effect of each agent's transition, by its index in the plan.
    pub(crate) effects: LaneValues<u8>,
    choices: LaneValues<OracleChoice>,
    pending_states: PendingStates,
}

impl Default for TickScratch {
    fn default() -> Self {
        Self {
            lists: LanePool::default(),
            eval: EvalScratch::default(),
            sorter: LaneSorter::default(),
            simd: Box::default(),
            effects: Box::new([0; BLOCK]),
            choices: Box::new([NONE; BLOCK]),
            pending_states: PendingStates::default(),
        }
    }
}

pub(crate) struct BlockTick<'a> {
    pub(crate) chart: &'a Chart,
    pub(crate) input: &'a TickInput<'a>,
    pub(crate) block: &'a mut AgentBlock,
    pub(crate) first_slot: u32,
    pub(crate) now: u32,
    /// The history column that the tick writes.
    pub(crate) column: usize,
}

/// Runs ticks of a block, one column each.
pub(crate) fn ticks(
    event_table: &EventTable,
    chart: &Chart,
    block: &mut AgentBlock,
    input: &TickInput<'_>,
    first_slot: u32,
    ticks: &[u32],
    scratch: &mut TickScratch,
) {
    let first = block.history.extend(ticks.len());
    for (number, tick) in ticks.iter().enumerate() {
        let column = first + number;
        BlockTick { chart, input, block, first_slot, now: *tick, column }.run(event_table, scratch);
    }
}

/// The result of a guard for a list of agents.
enum GuardResult {
    All,
    Nobody,
    Some(LaneValues<u8>),
}

/// The index of the candidate chosen so far, where the oracle may choose.
type OracleChoice = u16;

/// None yet.
const NONE: OracleChoice = u16::MAX;
/// A candidate outside the oracle's choice has been taken.
const TAKEN: OracleChoice = u16::MAX - 1;

impl BlockTick<'_> {
    fn run(&mut self, event_table: &EventTable, scratch: &mut TickScratch) {
        self.begin(scratch);
        scratch.pending_states.begin(&self.block.states[..self.lanes()]);
        let mut order = scratch.lists.take();
        let lanes = self.lanes();
        event_table.sort((self.block, lanes), &self.draw_input(), scratch, &mut order);
        for (number, fired) in event_table.fired() {
            let list = &order[scratch.sorter.range(number)];
            if !list.is_empty() {
                self.fire(fired, list, scratch);
            }
        }
        scratch.lists.release(order);
        scratch.pending_states.settle(
            self.block,
            lanes,
            self.column,
            counted_ticks(self.input.purpose),
        );
    }

    /// Returns the number of lanes that covers all agents.
    fn lanes(&self) -> usize {
        self.block.length.next_multiple_of(LANES)
    }

    /// Clears the draw cache for a new tick.
    pub(crate) fn begin(&self, scratch: &mut TickScratch) {
        scratch.eval.draw_cache.begin();
    }

    pub(crate) fn eval_input<'s>(&'s self, list: &'s [u16]) -> EvalInput<'s> {
        EvalInput {
            fields: &self.block.fields,
            world: self.input.world,
            list,
            draws: self.draw_input(),
        }
    }

    fn draw_input(&self) -> DrawInput<'_> {
        DrawInput {
            philox: self.input.philox,
            keys: &self.block.keys[..self.lanes()],
            tick: self.now,
            purpose: self.input.purpose,
        }
    }

    pub(crate) fn agent(&mut self, index: usize) -> ScalarAgent<'_> {
        ScalarAgent {
            index,
            first_slot: self.first_slot,
            tick: self.now,
            column: self.column,
            purpose: self.input.purpose,
            philox: self.input.philox,
            world: self.input.world,
            block: self.block,
        }
    }

    /// Groups agents by a value and calls `each` for every group.
    fn by_value(
        &mut self,
        list: &[u16],
        value: impl Fn(&Self, usize) -> u8,
        scratch: &mut TickScratch,
        mut each: impl FnMut(&mut Self, u8, &[u16], &mut TickScratch),
    ) {
        let mut open: Option<LaneList> = None;
        loop {
            let left = open.as_deref().unwrap_or(list);
            let Some(first) = left.first().map(|lane| value(self, lane_index(*lane))) else {
                break;
            };
            let (same, others) =
                scratch.lists.partition(left, |_, lane| value(self, lane) == first);
            each(self, first, &same, scratch);
            scratch.lists.release_list(same);
            if let Some(before) = open.replace(others) {
                scratch.lists.release_list(before);
            }
        }
        if let Some(open) = open {
            scratch.lists.release_list(open);
        }
    }

    /// Fires a trigger for agents in one state.
    fn fire(&mut self, fired: &TriggerEvent, list: &[u16], scratch: &mut TickScratch) {
        if fired.has_oracle {
            return self.fire_with_oracle(fired, list, scratch);
        }
        let mut open: Option<LaneList> = None;
        let mut left = fired.candidates.len();
        for candidate in &fired.candidates {
            left -= 1;
            let agents = open.as_deref().unwrap_or(list);
            let (taken, others) = match self.partition(candidate, agents, left == 0, scratch) {
                LaneSplit::Nobody => continue,
                LaneSplit::All => {
                    self.take(candidate.id, agents, scratch);
                    break;
                }
                LaneSplit::Some(taken, others) => (taken, others),
            };
            self.take(candidate.id, &taken, scratch);
            scratch.lists.release_list(taken);
            let Some(others) = others else { break };
            let is_over = others.is_empty();
            if let Some(before) = open.replace(others) {
                scratch.lists.release_list(before);
            }
            if is_over {
                break;
            }
        }
        if let Some(open) = open {
            scratch.lists.release_list(open);
        }
    }

    /// Splits off the agents that take a candidate.
    fn partition(
        &mut self,
        candidate: &CandidateCheck,
        list: &[u16],
        is_last: bool,
        scratch: &mut TickScratch,
    ) -> LaneSplit {
        let TickScratch { lists, eval, .. } = scratch;
        match candidate.check {
            GuardCheck::Always => return LaneSplit::All,
            GuardCheck::Never => return LaneSplit::Nobody,
            GuardCheck::Draw { index, at_most, inverted } => {
                if let Some(draws) = eval.draw_cache.known(&self.draw_input(), index, list.len()) {
                    return lists
                        .split(list, is_last, |_, lane| (draws[lane] <= at_most) != inverted);
                }
            }
            GuardCheck::Field { field, operator, number } => {
                if let FieldColumn::Numbers(column) = &self.block.fields[field]
                    && let Some(column) = column.first_chunk::<BLOCK>()
                {
                    return part_by(lists, list, is_last, column, operator, number);
                }
            }
            GuardCheck::Guard => {}
        }
        match self.guard(candidate.id, list, eval) {
            GuardResult::All => LaneSplit::All,
            GuardResult::Nobody => LaneSplit::Nobody,
            GuardResult::Some(holds) => {
                let divided = lists.split(list, is_last, |number, _| holds[number % BLOCK] != 0);
                eval.bools.release(holds);
                divided
            }
        }
    }

    /// Fires a trigger with oracle candidates. The oracle is not asked: the default is taken if it
    /// is eligible, else the first choice.
    fn fire_with_oracle(&mut self, fired: &TriggerEvent, list: &[u16], scratch: &mut TickScratch) {
        let chart = self.chart;
        for lane in list {
            scratch.choices[lane_index(*lane)] = NONE;
        }
        let is_default = |choice: OracleChoice| {
            let candidate = fired.candidates.get(usize::from(choice));
            candidate.is_some_and(|candidate| chart.is_default(candidate.id))
        };
        for (choice, CandidateCheck { id, .. }) in (0..).zip(&fired.candidates) {
            let is_oracle = chart.is_oracle(*id);
            let TickScratch { lists, choices, eval, .. } = &mut *scratch;
            // Once the oracle has a choice, only its own candidates remain eligible.
            let open = lists.select(list, |_, lane| {
                choices[lane] == NONE || (is_oracle && choices[lane] != TAKEN)
            });
            let holds = self.guard(*id, &open, eval);
            let chosen = lists.select(&open, |number, _| match &holds {
                GuardResult::All => true,
                GuardResult::Nobody => false,
                GuardResult::Some(holds) => holds[number % BLOCK] != 0,
            });
            if let GuardResult::Some(holds) = holds {
                eval.bools.release(holds);
            }
            for lane in chosen.iter().map(|lane| lane_index(*lane)) {
                if !is_oracle {
                    choices[lane] = TAKEN;
                } else if choices[lane] == NONE
                    || (is_default(choice) && !is_default(choices[lane]))
                {
                    choices[lane] = choice;
                }
            }
            if !is_oracle {
                self.take(*id, &chosen, scratch);
            }
            scratch.lists.release_list(open);
            scratch.lists.release_list(chosen);
        }
        for (choice, CandidateCheck { id, .. }) in (0..).zip(&fired.candidates) {
            if chart.is_oracle(*id) {
                let TickScratch { lists, choices, .. } = &mut *scratch;
                let chosen = lists.select(list, |_, lane| choices[lane] == choice);
                self.take(*id, &chosen, scratch);
                scratch.lists.release_list(chosen);
            }
        }
    }

    /// Evaluates a candidate's guard. A guard without a value counts as false and is recorded.
    fn guard(
        &mut self,
        candidate: CandidateId,
        list: &[u16],
        eval: &mut EvalScratch,
    ) -> GuardResult {
        let chart = self.chart;
        if matches!(chart.guard_kind(candidate), GuardKind::Always) {
            return GuardResult::All;
        }
        let Some(tree) = chart.guard_tree(candidate) else {
            let mut holds = eval.bools.take();
            for (holds, lane) in holds.iter_mut().zip(list) {
                *holds = mask_of(chart.guard_holds(candidate, &mut self.agent(lane_index(*lane))));
            }
            return GuardResult::Some(holds);
        };
        let mut errors = EvalErrors::default();
        let bools = eval.bools(&self.eval_input(list), tree, &mut errors);
        let Some(failed) = errors.mask() else {
            return match bools {
                BoolResults::Same(true) => GuardResult::All,
                BoolResults::Same(false) => GuardResult::Nobody,
                BoolResults::Each(holds) => GuardResult::Some(holds),
            };
        };
        let mut holds = eval.bools.take();
        for (number, holds) in holds[..list.len()].iter_mut().enumerate() {
            *holds = mask_of(bools.get(number)) & !failed[number];
        }
        if *errors.cause() == ErrorCause::Several {
            for (number, lane) in list.iter().enumerate().filter(|(number, _)| failed[*number] != 0)
            {
                holds[number] =
                    mask_of(chart.guard_holds(candidate, &mut self.agent(lane_index(*lane))));
            }
        }
        self.add_error(ErrorSite::Guard(candidate), list, &errors);
        eval.release_bools(bools);
        errors.end(&mut eval.bools);
        GuardResult::Some(holds)
    }

    /// Takes a candidate.
    fn take(&mut self, candidate: CandidateId, list: &[u16], scratch: &mut TickScratch) {
        if !list.is_empty() {
            self.enter(
                self.chart.entry(candidate),
                self.chart.first_action_draw(candidate),
                list,
                scratch,
            );
        }
    }

    fn enter(
        &mut self,
        entry: EntryRule,
        first_draw: u32,
        list: &[u16],
        scratch: &mut TickScratch,
    ) {
        match entry {
            EntryRule::Path(path) => self.take_path(path, first_draw, list, scratch),
            EntryRule::History { history_state: memory, first } => self.by_value(
                list,
                |tick, lane| tick.block.last_active[usize::from(memory)][lane],
                scratch,
                |tick, child, list, scratch| {
                    tick.enter(tick.chart.entry_for_child(first, child), first_draw, list, scratch);
                },
            ),
        }
    }

    fn take_path(
        &mut self,
        path: PathId,
        first_draw: u32,
        list: &[u16],
        scratch: &mut TickScratch,
    ) {
        let outcome = self.chart.path_outcome(path);
        if outcome.has_effects {
            self.perform(path, first_draw, list, &mut scratch.eval);
        }
        if outcome.code != 0 {
            scratch.pending_states.put(list, outcome);
        }
    }

    /// Performs the actions and history updates of a path.
    pub(crate) fn perform(
        &mut self,
        path: PathId,
        first_draw: u32,
        list: &[u16],
        eval: &mut EvalScratch,
    ) {
        let chart = self.chart;
        for act in chart.actions(path, first_draw) {
            self.act(&act, list, eval);
        }
        for (memory, child) in chart.history_updates(path) {
            let memory = &mut self.block.last_active[usize::from(*memory)];
            for lane in list {
                memory[lane_index(*lane)] = *child;
            }
        }
    }
}

/// Splits agents by a comparison of a field with a number. Each operator has its own loop.
fn part_by(
    lists: &mut LanePool<u16>,
    list: &[u16],
    is_last: bool,
    column: &[f64; BLOCK],
    operator: CompareOp,
    number: f64,
) -> LaneSplit {
    match operator {
        CompareOp::Less => lists.split(list, is_last, |_, lane| column[lane] < number),
        CompareOp::LessOrEqual => lists.split(list, is_last, |_, lane| column[lane] <= number),
        CompareOp::Greater => lists.split(list, is_last, |_, lane| column[lane] > number),
        CompareOp::GreaterOrEqual => lists.split(list, is_last, |_, lane| column[lane] >= number),
        CompareOp::Equal | CompareOp::NotEqual => {
            lists.split(list, is_last, |_, lane| operator.holds(column[lane], number))
        }
    }
}
