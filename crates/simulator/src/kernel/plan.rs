//! How charts are gone through for many agents at once.
//!
//! A plan is a list of tests, each of which gives a yes or no for every agent of a group, and for
//! every state the ways out of it with the tests that must hold. A chart that cannot be told so has
//! none. Whatever a plan says, going through the chart in lists of agents says the same.

use polity_statechart::{
    CandidateId, Chart, CompareOp, EntryRule, ExpressionOperand, FieldId, GuardKind,
    OperandComparison, PathId, ScalarKind, ScalarValue, StateId, TimeoutThreshold, TriggerId,
};

use super::cases::whole_ticks;
use super::masks::yes;
use super::philox::{DRAWS_PER_BLOCK, TriggerDraw};
use super::rates::{ALL_DRAWS, Limit, Rates, below};

/// The most tests of a plan, with two that every plan has.
pub(super) const TESTS_MAX: usize = 64;
/// The test that always says yes.
pub(super) const ALWAYS: usize = TESTS_MAX - 1;
/// The test whether an agent acts at all.
pub(super) const ACTS: usize = TESTS_MAX - 2;
/// The most ways of a plan; one byte tells them apart.
const WAYS_MAX: usize = 254;
/// The most counters that the draws of a state and trigger may come from.
pub(super) const BLOCKS_MAX: usize = 4;

/// A yes or no for each agent of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Test {
    /// The draw that was made for the trigger is at most this.
    Trigger { at_most: u32 },
    /// A draw of the guards, or one that they leave, is at most this.
    Draw { draw: usize, at_most: u32 },
    /// A field compares so with a number.
    FieldNumber { field: usize, operator: CompareOp, number: f64 },
    /// A field compares so with a draw.
    FieldDraw { field: usize, operator: CompareOp, draw: usize },
    /// A field compares so with another one.
    FieldField { left: usize, operator: CompareOp, right: usize },
    /// The agent has been in its state for at least so many ticks.
    Overdue { ticks: u32 },
    /// The agent has been in its state for longer than a field says.
    OverdueField { field: usize },
    /// The agent behaves so.
    Behaviour { behaviour: u8 },
}

/// A test, and what its answer must be: 0 for yes, 0xFF for no.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub(super) test: usize,
    pub(super) unless: u8,
}

/// One way out of a state.
#[derive(Debug, Clone)]
pub(super) struct PlannedWay {
    /// Nearly every way has one.
    pub(super) first: Condition,
    pub(super) more: Vec<Condition>,
    pub(super) to: u8,
    pub(super) code: u8,
    /// Which of the effects it has, from 1; 0 for none.
    pub(super) effect: u8,
}

/// A state and its ways out, in the order in which they are tried.
#[derive(Debug, Clone)]
pub(super) struct PlannedState {
    pub(super) state: u8,
    pub(super) ways: Vec<PlannedWay>,
}

/// What to do with many agents at once.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) states: Vec<PlannedState>,
    pub(super) tests: Vec<Test>,
    /// The ways that have effects, with the first draw of those; see [`PlannedWay::effect`].
    pub(super) effects: Vec<(PathId, u32)>,
    /// How many counters the draws of tests need.
    pub(super) blocks: usize,
    /// Whether triggers have draws of their own.
    pub(super) draws_triggers: bool,
}

impl Plan {
    /// A plan for the ticks of a chart, if its guards are simple and it is not too large.
    pub(super) fn new(chart: &Chart, rates: &Rates) -> Option<Self> {
        let mut planner = Planner::new(chart);
        for state in chart.states() {
            planner.state(state, rates)?;
        }
        Some(planner.plan)
    }

    /// A plan for one trigger that is fired for everyone.
    pub(super) fn of_trigger(chart: &Chart, trigger: TriggerId) -> Option<Self> {
        let mut planner = Planner::new(chart);
        for state in chart.states() {
            let mut ways = Vec::new();
            planner.candidates(state, trigger, &[], &mut ways)?;
            planner.leave(state, ways);
        }
        Some(planner.plan)
    }
}

struct Planner<'c> {
    chart: &'c Chart,
    plan: Plan,
    ways: usize,
}

impl<'c> Planner<'c> {
    fn new(chart: &'c Chart) -> Self {
        let plan = Plan {
            states: Vec::new(),
            tests: Vec::new(),
            effects: Vec::new(),
            blocks: 0,
            draws_triggers: false,
        };
        Self { chart, plan, ways: 0 }
    }

    /// The ways that leave a state.
    fn leave(&mut self, state: StateId, ways: Vec<PlannedWay>) {
        if !ways.is_empty() {
            self.plan.states.push(PlannedState { state: state.get(), ways });
        }
    }

    fn state(&mut self, state: StateId, rates: &Rates) -> Option<()> {
        let mut ways = Vec::new();
        if let (Some(threshold), Some(timeout)) =
            (self.chart.threshold(state), self.chart.timeout())
        {
            let overdue = self.overdue(threshold)?;
            let overdue = Condition { test: self.test(overdue)?, unless: 0 };
            self.candidates(state, timeout, &[overdue], &mut ways)?;
        }
        for behaviour in 0..rates.behaviours() {
            let behaviour = u8::try_from(behaviour).ok()?;
            let mut given = Vec::new();
            if rates.behaviours() > 1 {
                let test = self.test(Test::Behaviour { behaviour })?;
                given.push(Condition { test, unless: 0 });
            }
            self.triggers(state, rates.limits(behaviour, state), &given, &mut ways)?;
        }
        self.leave(state, ways);
        Some(())
    }

    /// The ways of all triggers that can be drawn.
    fn triggers(
        &mut self,
        state: StateId,
        limits: &[Limit],
        given: &[Condition],
        ways: &mut Vec<PlannedWay>,
    ) -> Option<()> {
        let mut before = 0;
        for Limit { trigger, below } in limits {
            if self.chart.candidates(state, *trigger).len() > 0 {
                let mut conditions = given.to_vec();
                if before > 0 {
                    conditions.push(self.drawn_trigger(before, 0xFF)?);
                }
                if *below < ALL_DRAWS {
                    conditions.push(self.drawn_trigger(*below, 0)?);
                }
                self.candidates(state, *trigger, &conditions, ways)?;
            }
            before = *below;
        }
        Some(())
    }

    /// The draw of a trigger is below a limit, or is not.
    fn drawn_trigger(&mut self, below: u64, unless: u8) -> Option<Condition> {
        let at_most = u32::try_from(below.checked_sub(1)?).ok()?;
        let test = match TriggerDraw::of(self.chart) {
            TriggerDraw::Own => {
                self.plan.draws_triggers = true;
                Test::Trigger { at_most }
            }
            TriggerDraw::Left => {
                self.plan.blocks = self.plan.blocks.max(1);
                Test::Draw { draw: TriggerDraw::LAST, at_most }
            }
        };
        Some(Condition { test: self.test(test)?, unless })
    }

    fn candidates(
        &mut self,
        state: StateId,
        trigger: TriggerId,
        given: &[Condition],
        ways: &mut Vec<PlannedWay>,
    ) -> Option<()> {
        for row in self.chart.candidates(state, trigger) {
            let way = match self.chart.entry(row) {
                EntryRule::Path(way) if !self.chart.is_oracle(row) => way,
                EntryRule::Path(_) | EntryRule::History { .. } => return None,
            };
            let mut conditions = given.to_vec();
            match self.guard(row)? {
                Guarded::Never => continue,
                Guarded::By(more) => conditions.extend(more),
            }
            ways.push(self.way(conditions, way, self.chart.first_action_draw(row))?);
        }
        Some(())
    }

    /// What a candidate's guard comes to, if that can be told by tests.
    fn guard(&mut self, row: CandidateId) -> Option<Guarded> {
        match self.chart.guard_kind(row) {
            GuardKind::Always => Some(Guarded::By(Vec::new())),
            GuardKind::Comparisons { comparisons, first_draw } => {
                let mut conditions = Vec::new();
                for comparison in comparisons {
                    match self.comparison(comparison, first_draw)? {
                        Known::Always => {}
                        Known::Never => return Some(Guarded::Never),
                        Known::If(condition) => conditions.push(condition),
                    }
                }
                Some(Guarded::By(conditions))
            }
            GuardKind::Expression | GuardKind::Rust => None,
        }
    }

    fn way(
        &mut self,
        conditions: Vec<Condition>,
        way: PathId,
        first_draw: u32,
    ) -> Option<PlannedWay> {
        self.ways += 1;
        if self.ways > WAYS_MAX {
            return None;
        }
        let destination = self.chart.path_outcome(way);
        let mut effect = 0;
        if destination.has_effects {
            self.plan.effects.push((way, first_draw));
            effect = u8::try_from(self.plan.effects.len()).ok()?;
        }
        let mut conditions = conditions.into_iter();
        Some(PlannedWay {
            first: conditions.next().unwrap_or(Condition { test: ALWAYS, unless: 0 }),
            more: conditions.collect(),
            to: destination.to.get(),
            code: destination.code,
            effect,
        })
    }

    fn overdue(&self, threshold: TimeoutThreshold) -> Option<Test> {
        match threshold {
            TimeoutThreshold::Ticks(ticks) => Some(Test::Overdue { ticks: whole_ticks(ticks) }),
            TimeoutThreshold::Field(field) => {
                Some(Test::OverdueField { field: self.number(field)? })
            }
        }
    }

    /// A field that the chart declares to be a number.
    fn number(&self, field: FieldId) -> Option<usize> {
        let default = self.chart.fields()[field.index()].default.as_ref();
        (default.map(ScalarValue::kind) == Some(ScalarKind::Number)).then_some(field.index())
    }

    fn comparison(&mut self, comparison: &OperandComparison, first_draw: u32) -> Option<Known> {
        let OperandComparison { left, operator, right } = comparison;
        let (left, right) = (self.side(left, first_draw)?, self.side(right, first_draw)?);
        let test = match (left, right) {
            (Side::Number(left), Side::Number(right)) => {
                return Some(Known::of(operator.holds(left, right)));
            }
            (Side::Draw(draw), Side::Number(number)) => {
                return self.draw(draw, *operator, number);
            }
            (Side::Number(number), Side::Draw(draw)) => {
                return self.draw(draw, operator.mirrored(), number);
            }
            // Two draws in one comparison are too rare to have a test of their own.
            (Side::Draw(_), Side::Draw(_)) => return None,
            (Side::Field(field), Side::Number(number)) => {
                Test::FieldNumber { field, operator: *operator, number }
            }
            (Side::Number(number), Side::Field(field)) => {
                Test::FieldNumber { field, operator: operator.mirrored(), number }
            }
            (Side::Field(field), Side::Draw(draw)) => {
                Test::FieldDraw { field, operator: *operator, draw }
            }
            (Side::Draw(draw), Side::Field(field)) => {
                Test::FieldDraw { field, operator: operator.mirrored(), draw }
            }
            (Side::Field(left), Side::Field(right)) => {
                Test::FieldField { left, operator: *operator, right }
            }
        };
        Some(Known::If(Condition { test: self.test(test)?, unless: 0 }))
    }

    /// A draw against a number: of all draws, those up to some limit pass, or those beyond it.
    fn draw(&mut self, draw: usize, operator: CompareOp, number: f64) -> Option<Known> {
        match Draws::that(operator, number)? {
            Draws::All => Some(Known::Always),
            Draws::None => Some(Known::Never),
            Draws::Some { at_most, unless } => {
                let test = Test::Draw { draw, at_most };
                Some(Known::If(Condition { test: self.test(test)?, unless: yes(unless) }))
            }
        }
    }

    fn side(&mut self, operand: &ExpressionOperand, first_draw: u32) -> Option<Side> {
        match operand {
            ExpressionOperand::Number(number) => Some(Side::Number(*number)),
            ExpressionOperand::Field(field) => self.number(*field).map(Side::Field),
            ExpressionOperand::Draw(draw) => {
                let draw = first_draw as usize + usize::from(*draw);
                let blocks = draw / DRAWS_PER_BLOCK + 1;
                if blocks > BLOCKS_MAX {
                    return None;
                }
                self.plan.blocks = self.plan.blocks.max(blocks);
                Some(Side::Draw(draw))
            }
            ExpressionOperand::Bool(_)
            | ExpressionOperand::Text(_)
            | ExpressionOperand::Context(_)
            | ExpressionOperand::World(_) => None,
        }
    }

    /// The number of a test, which is the same for the same test.
    fn test(&mut self, test: Test) -> Option<usize> {
        let tests = &mut self.plan.tests;
        if let Some(known) = tests.iter().position(|known| *known == test) {
            return Some(known);
        }
        // What every plan has stands behind the others.
        if tests.len() == ACTS {
            return None;
        }
        tests.push(test);
        Some(tests.len() - 1)
    }
}

/// The draws for which a comparison with a number holds.
pub(super) enum Draws {
    All,
    None,
    /// Those up to a limit; unless it is just those for which it does not hold.
    Some {
        at_most: u32,
        unless: bool,
    },
}

impl Draws {
    /// The draws that compare so with a number. Those that are equal to one are too few to have a
    /// test.
    pub(super) fn that(operator: CompareOp, number: f64) -> Option<Self> {
        let (count, unless) = match operator {
            CompareOp::Less => (below(number), false),
            CompareOp::LessOrEqual => (below(number.next_up()), false),
            CompareOp::Greater => (below(number.next_up()), true),
            CompareOp::GreaterOrEqual => (below(number), true),
            CompareOp::Equal | CompareOp::NotEqual => return None,
        };
        Some(match count {
            0 if unless => Self::All,
            0 => Self::None,
            ALL_DRAWS if unless => Self::None,
            ALL_DRAWS => Self::All,
            _ => Self::Some { at_most: u32::try_from(count - 1).ok()?, unless },
        })
    }
}

/// What a guard comes to in a plan.
enum Guarded {
    Never,
    By(Vec<Condition>),
}

enum Side {
    Number(f64),
    Field(usize),
    Draw(usize),
}

enum Known {
    Always,
    Never,
    If(Condition),
}

impl Known {
    fn of(holds: bool) -> Self {
        if holds { Self::Always } else { Self::Never }
    }
}
