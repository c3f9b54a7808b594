//! The plan of the SIMD path.
//!
//! A plan is a list of tests, each with a boolean for every agent, and the transitions of each
//! state with the tests that must hold. Charts with other guards have no plan and take the batched
//! path, which gives the same result.

use polity_statechart::{
    CandidateId, Chart, CompareOp, EntryRule, ExprOperand, FieldId, GuardKind, OperandComparison,
    PathId, ScalarKind, ScalarValue, StateId, TimeoutThreshold, TriggerId,
};

use crate::kernel::columns::masks::mask_of;
use crate::kernel::draws::philox::{DRAWS_PER_BLOCK, TriggerDraw};
use crate::kernel::draws::rates::{ALL_DRAWS, DrawLimit, RateTable, below};
use crate::kernel::tables::event_cases::threshold_ticks;

/// The maximum number of tests, including the two that every plan has.
pub(crate) const TESTS_MAX: usize = 64;
pub(crate) const ALWAYS: usize = TESTS_MAX - 1;
/// The test that an agent is active.
pub(crate) const ACTS: usize = TESTS_MAX - 2;
/// The maximum number of transitions of a plan; a byte identifies them.
const TRANSITIONS_MAX: usize = 254;
/// The maximum number of counters for the draws of a state and trigger.
pub(crate) const BLOCKS_MAX: usize = 4;

/// A test with a boolean for each agent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SimdTest {
    /// The trigger's draw is at most this.
    Trigger { at_most: u32 },
    /// A draw of guards, or their spare draw, is at most this.
    Draw { draw: usize, at_most: u32 },
    /// Compares a field with a number.
    FieldNumber { field: usize, operator: CompareOp, number: f64 },
    /// Compares a field with a draw.
    FieldDraw { field: usize, operator: CompareOp, draw: usize },
    /// Compares two fields.
    FieldField { left: usize, operator: CompareOp, right: usize },
    /// The agent has been in its state for at least this many ticks.
    TimedOut { ticks: u32 },
    /// The agent has been in its state for longer than a field says.
    TimedOutField { field: usize },
    /// The agent has this behaviour.
    Behaviour { behaviour: u8 },
}

/// A test with its expected result: 0 for true, 0xFF for false.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestCondition {
    pub(crate) test: usize,
    pub(crate) inverted: u8,
}

/// A transition of a state.
#[derive(Debug, Clone)]
pub(crate) struct PlannedTransition {
    /// Nearly every transition has one.
    pub(crate) first: TestCondition,
    pub(crate) more: Vec<TestCondition>,
    pub(crate) to: u8,
    pub(crate) code: u8,
    /// The index of its path in `effects`, from 1; 0 without effects.
    pub(crate) effect: u8,
}

/// A state with its transitions, in evaluation order.
#[derive(Debug, Clone)]
pub(crate) struct PlannedState {
    pub(crate) state: u8,
    pub(crate) transitions: Vec<PlannedTransition>,
}

/// The compiled plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimdPlan {
    pub(crate) states: Vec<PlannedState>,
    pub(crate) tests: Vec<SimdTest>,
    /// The paths with effects and the index of their first draw; see [`PlannedTransition::effect`].
    pub(crate) effects: Vec<(PathId, u32)>,
    /// The number of counters that the tests need.
    pub(crate) blocks: usize,
    /// True if triggers have draws of their own.
    pub(crate) draws_triggers: bool,
}

impl SimdPlan {
    /// Compiles the ticks of a chart, if its guards are simple and it is small enough.
    pub(crate) fn new(chart: &Chart, rates: &RateTable) -> Option<Self> {
        let mut builder = PlanBuilder::new(chart);
        for state in chart.states() {
            builder.state(state, rates)?;
        }
        Some(builder.plan)
    }

    /// Compiles a trigger fired for every agent.
    pub(crate) fn of_trigger(chart: &Chart, trigger: TriggerId) -> Option<Self> {
        let mut builder = PlanBuilder::new(chart);
        for state in chart.states() {
            let mut transitions = Vec::new();
            builder.candidates(state, trigger, &[], &mut transitions)?;
            builder.add_state(state, transitions);
        }
        Some(builder.plan)
    }
}

struct PlanBuilder<'c> {
    chart: &'c Chart,
    plan: SimdPlan,
    transitions: usize,
}

impl<'c> PlanBuilder<'c> {
    fn new(chart: &'c Chart) -> Self {
        Self { chart, plan: SimdPlan::default(), transitions: 0 }
    }

    fn add_state(&mut self, state: StateId, transitions: Vec<PlannedTransition>) {
        if !transitions.is_empty() {
            self.plan.states.push(PlannedState { state: state.get(), transitions });
        }
    }

    fn state(&mut self, state: StateId, rates: &RateTable) -> Option<()> {
        let mut transitions = Vec::new();
        if let (Some(threshold), Some(timeout)) =
            (self.chart.threshold(state), self.chart.timeout())
        {
            let timed_out = self.timed_out(threshold)?;
            let timed_out = TestCondition { test: self.test(timed_out)?, inverted: 0 };
            self.candidates(state, timeout, &[timed_out], &mut transitions)?;
        }
        for behaviour in 0..rates.behaviours() {
            let behaviour = u8::try_from(behaviour).ok()?;
            let mut preconditions = Vec::new();
            if rates.behaviours() > 1 {
                let test = self.test(SimdTest::Behaviour { behaviour })?;
                preconditions.push(TestCondition { test, inverted: 0 });
            }
            self.triggers(state, rates.limits(behaviour, state), &preconditions, &mut transitions)?;
        }
        self.add_state(state, transitions);
        Some(())
    }

    /// Adds the transitions of all triggers that can be drawn.
    fn triggers(
        &mut self,
        state: StateId,
        limits: &[DrawLimit],
        preconditions: &[TestCondition],
        transitions: &mut Vec<PlannedTransition>,
    ) -> Option<()> {
        let mut before = 0;
        for DrawLimit { trigger, below } in limits {
            if self.chart.candidates(state, *trigger).len() > 0 {
                let mut conditions = preconditions.to_vec();
                if before > 0 {
                    conditions.push(self.drawn_trigger(before, 0xFF)?);
                }
                if *below < ALL_DRAWS {
                    conditions.push(self.drawn_trigger(*below, 0)?);
                }
                self.candidates(state, *trigger, &conditions, transitions)?;
            }
            before = *below;
        }
        Some(())
    }

    /// Returns the condition that the trigger's draw is below a limit, or not.
    fn drawn_trigger(&mut self, below: u64, inverted: u8) -> Option<TestCondition> {
        let at_most = u32::try_from(below.checked_sub(1)?).ok()?;
        let test = match TriggerDraw::of(self.chart) {
            TriggerDraw::Own => {
                self.plan.draws_triggers = true;
                SimdTest::Trigger { at_most }
            }
            TriggerDraw::Spare => {
                self.plan.blocks = self.plan.blocks.max(1);
                SimdTest::Draw { draw: TriggerDraw::LAST, at_most }
            }
        };
        Some(TestCondition { test: self.test(test)?, inverted })
    }

    fn candidates(
        &mut self,
        state: StateId,
        trigger: TriggerId,
        preconditions: &[TestCondition],
        transitions: &mut Vec<PlannedTransition>,
    ) -> Option<()> {
        for candidate in self.chart.candidates(state, trigger) {
            let transition = match self.chart.entry(candidate) {
                EntryRule::Path(transition) if !self.chart.is_oracle(candidate) => transition,
                EntryRule::Path(_) | EntryRule::History { .. } => return None,
            };
            let mut conditions = preconditions.to_vec();
            match self.guard(candidate)? {
                PlannedGuard::Never => continue,
                PlannedGuard::If(more) => conditions.extend(more),
            }
            let first_draw = self.chart.first_action_draw(candidate);
            transitions.push(self.transition(conditions, transition, first_draw)?);
        }
        Some(())
    }

    /// Compiles a candidate's guard, if tests can express it.
    fn guard(&mut self, candidate: CandidateId) -> Option<PlannedGuard> {
        match self.chart.guard_kind(candidate) {
            GuardKind::Always => Some(PlannedGuard::If(Vec::new())),
            GuardKind::Comparisons { comparisons, first_draw } => {
                let mut conditions = Vec::new();
                for comparison in comparisons {
                    match self.comparison(comparison, first_draw)? {
                        ComparisonResult::Always => {}
                        ComparisonResult::Never => return Some(PlannedGuard::Never),
                        ComparisonResult::If(condition) => conditions.push(condition),
                    }
                }
                Some(PlannedGuard::If(conditions))
            }
            GuardKind::Expression | GuardKind::Rust => None,
        }
    }

    fn transition(
        &mut self,
        conditions: Vec<TestCondition>,
        transition: PathId,
        first_draw: u32,
    ) -> Option<PlannedTransition> {
        self.transitions += 1;
        if self.transitions > TRANSITIONS_MAX {
            return None;
        }
        let outcome = self.chart.path_outcome(transition);
        let mut effect = 0;
        if outcome.has_effects {
            self.plan.effects.push((transition, first_draw));
            effect = u8::try_from(self.plan.effects.len()).ok()?;
        }
        let mut conditions = conditions.into_iter();
        Some(PlannedTransition {
            first: conditions.next().unwrap_or(TestCondition { test: ALWAYS, inverted: 0 }),
            more: conditions.collect(),
            to: outcome.to.get(),
            code: outcome.code,
            effect,
        })
    }

    fn timed_out(&self, threshold: TimeoutThreshold) -> Option<SimdTest> {
        Some(match threshold {
            TimeoutThreshold::Ticks(ticks) => SimdTest::TimedOut { ticks: threshold_ticks(ticks) },
            TimeoutThreshold::Field(field) => {
                SimdTest::TimedOutField { field: self.number(field)? }
            }
        })
    }

    /// Returns the index of a numeric field.
    fn number(&self, field: FieldId) -> Option<usize> {
        let default = self.chart.fields()[field.index()].default.as_ref();
        (default.map(ScalarValue::kind) == Some(ScalarKind::Number)).then_some(field.index())
    }

    fn comparison(
        &mut self,
        comparison: &OperandComparison,
        first_draw: u32,
    ) -> Option<ComparisonResult> {
        use ComparisonSide::{Draw, Field, Number};
        let OperandComparison { left, operator, right } = comparison;
        let (left, right) = (self.side(left, first_draw)?, self.side(right, first_draw)?);
        // A field comes before a draw, and both come before a number.
        let (left, operator, right) = match (&left, &right) {
            (Number(_), Draw(_) | Field(_)) | (Draw(_), Field(_)) => {
                (right, operator.mirrored(), left)
            }
            _ => (left, *operator, right),
        };
        let test = match (left, right) {
            (Number(left), Number(right)) => {
                let holds = operator.holds(left, right);
                return Some(if holds {
                    ComparisonResult::Always
                } else {
                    ComparisonResult::Never
                });
            }
            (Draw(draw), Number(number)) => return self.draw(draw, operator, number),
            (Field(field), Number(number)) => SimdTest::FieldNumber { field, operator, number },
            (Field(field), Draw(draw)) => SimdTest::FieldDraw { field, operator, draw },
            (Field(left), Field(right)) => SimdTest::FieldField { left, operator, right },
            // Comparisons of two draws are too rare for a test of their own.
            _ => return None,
        };
        Some(ComparisonResult::If(TestCondition { test: self.test(test)?, inverted: 0 }))
    }

    /// Compiles a comparison of a draw with a number: an upper or lower limit of draws.
    fn draw(&mut self, draw: usize, operator: CompareOp, number: f64) -> Option<ComparisonResult> {
        match DrawRange::matching(operator, number)? {
            DrawRange::All => Some(ComparisonResult::Always),
            DrawRange::None => Some(ComparisonResult::Never),
            DrawRange::Some { at_most, inverted } => {
                let test = SimdTest::Draw { draw, at_most };
                Some(ComparisonResult::If(TestCondition {
                    test: self.test(test)?,
                    inverted: mask_of(inverted),
                }))
            }
        }
    }

    fn side(&mut self, operand: &ExprOperand, first_draw: u32) -> Option<ComparisonSide> {
        match operand {
            ExprOperand::Number(number) => Some(ComparisonSide::Number(*number)),
            ExprOperand::Field(field) => self.number(*field).map(ComparisonSide::Field),
            ExprOperand::Draw(draw) => {
                let draw = first_draw as usize + usize::from(*draw);
                let blocks = draw / DRAWS_PER_BLOCK + 1;
                if blocks > BLOCKS_MAX {
                    return None;
                }
                self.plan.blocks = self.plan.blocks.max(blocks);
                Some(ComparisonSide::Draw(draw))
            }
            _ => None,
        }
    }

    /// Returns the index of a test, adding it if it is new.
    fn test(&mut self, test: SimdTest) -> Option<usize> {
        let tests = &mut self.plan.tests;
        if let Some(known) = tests.iter().position(|known| *known == test) {
            return Some(known);
        }
        // The fixed tests come last.
        if tests.len() == ACTS {
            return None;
        }
        tests.push(test);
        Some(tests.len() - 1)
    }
}

/// The draws for which a comparison with a number holds.
pub(crate) enum DrawRange {
    All,
    None,
    /// Draws up to a limit; inverted, those above it.
    Some {
        at_most: u32,
        inverted: bool,
    },
}

impl DrawRange {
    /// Returns the draws that compare like this with a number, or `None` for equality.
    pub(crate) fn matching(operator: CompareOp, number: f64) -> Option<Self> {
        let (count, inverted) = match operator {
            CompareOp::Less => (below(number), false),
            CompareOp::LessOrEqual => (below(number.next_up()), false),
            CompareOp::Greater => (below(number.next_up()), true),
            CompareOp::GreaterOrEqual => (below(number), true),
            CompareOp::Equal | CompareOp::NotEqual => return None,
        };
        Some(match count {
            0 if inverted => Self::All,
            0 => Self::None,
            ALL_DRAWS if inverted => Self::None,
            ALL_DRAWS => Self::All,
            _ => Self::Some { at_most: u32::try_from(count - 1).ok()?, inverted },
        })
    }
}

/// A compiled guard.
enum PlannedGuard {
    Never,
    If(Vec<TestCondition>),
}

enum ComparisonSide {
    Number(f64),
    Field(usize),
    Draw(usize),
}

enum ComparisonResult {
    Always,
    Never,
    If(TestCondition),
}
