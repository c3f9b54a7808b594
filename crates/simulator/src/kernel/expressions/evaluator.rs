//! Evaluates an expression for a list of agents at once.
//!
//! An expression may have no value for an agent: division by zero, overflow or a missing value.
//! Usually all agents of a list share the reason, and are only counted. Otherwise those agents are
//! evaluated one by one on the scalar path.

use polity_statechart::{
    ArithmeticOp, CompareOp, EvalError, ExprNode, ExprOperand, ExprTree, FieldId, ScalarKind,
    ScalarValue,
};

use crate::kernel::BLOCK;
use crate::kernel::columns::fields::FieldColumn;
use crate::kernel::columns::lanes::{LanePool, LaneValues, lane_index};
use crate::kernel::columns::masks::mask_of;
use crate::kernel::draws::draw_cache::DrawCache;
use crate::kernel::expressions::arithmetic::{
    apply_each, apply_left, apply_right, compare_each, compare_same,
};
use crate::kernel::expressions::eval_errors::{ErrorCause, EvalErrors};
use crate::kernel::expressions::eval_input::{EvalInput, OperandKind, TextSource};

/// One number per agent of a list.
pub(crate) enum NumberResults {
    /// The same for all agents.
    Same(f64),
    /// One per agent.
    Each(LaneValues<f64>),
}

/// One boolean per agent of a list: all bits for true, none for false.
pub(crate) enum BoolResults {
    /// The same for all agents.
    Same(bool),
    /// One per agent.
    Each(LaneValues<u8>),
}

/// Scratch buffers for intermediate values.
#[derive(Debug, Default)]
pub(crate) struct EvalScratch {
    pub(crate) draw_cache: DrawCache,
    numbers: LanePool<f64>,
    pub(crate) bools: LanePool<u8>,
}

impl NumberResults {
    #[inline]
    pub(crate) fn get(&self, number: usize) -> f64 {
        match self {
            Self::Same(same) => *same,
            Self::Each(numbers) => numbers[number % BLOCK],
        }
    }
}

impl BoolResults {
    #[inline]
    pub(crate) fn get(&self, number: usize) -> bool {
        match self {
            Self::Same(same) => *same,
            Self::Each(bools) => bools[number % BLOCK] != 0,
        }
    }
}

impl EvalScratch {
    pub(crate) fn release_numbers(&mut self, numbers: NumberResults) {
        if let NumberResults::Each(rows) = numbers {
            self.numbers.release(rows);
        }
    }

    pub(crate) fn release_bools(&mut self, bools: BoolResults) {
        if let BoolResults::Each(rows) = bools {
            self.bools.release(rows);
        }
    }

    /// Records an error for all agents.
    fn all(&mut self, input: &EvalInput<'_>, errors: &mut EvalErrors, cause: ErrorCause) {
        errors.add(&mut self.bools, input.list.len(), |_| true, cause);
    }

    /// Evaluates a numeric expression.
    pub(crate) fn numbers(
        &mut self,
        input: &EvalInput<'_>,
        tree: ExprTree<'_>,
        errors: &mut EvalErrors,
    ) -> NumberResults {
        self.number(input, tree, tree.root, errors)
    }

    /// Evaluates a field plus an expression. The sum may be infinite.
    pub(crate) fn sums(
        &mut self,
        input: &EvalInput<'_>,
        field: FieldId,
        tree: ExprTree<'_>,
        errors: &mut EvalErrors,
    ) -> NumberResults {
        let count = input.list.len();
        let more = self.numbers(input, tree, errors);
        let mut sums = self.numbers.take();
        if let FieldColumn::Numbers(column) = &input.fields[field.index()] {
            gather_lanes(column, input.list, &mut sums);
        }
        match &more {
            NumberResults::Same(more) => apply_right(ArithmeticOp::Add, &mut sums[..count], *more),
            NumberResults::Each(more) => {
                apply_each(ArithmeticOp::Add, &mut sums[..count], &more[..count])
            }
        };
        self.release_numbers(more);
        NumberResults::Each(sums)
    }

    /// Evaluates a boolean expression.
    pub(crate) fn bools(
        &mut self,
        input: &EvalInput<'_>,
        tree: ExprTree<'_>,
        errors: &mut EvalErrors,
    ) -> BoolResults {
        self.bool_node(input, tree, tree.root, errors)
    }

    fn number(
        &mut self,
        input: &EvalInput<'_>,
        tree: ExprTree<'_>,
        node: u16,
        errors: &mut EvalErrors,
    ) -> NumberResults {
        let cause = match &tree.nodes[usize::from(node)] {
            ExprNode::Leaf(leaf) => match self.number_operand(input, leaf, tree.first_draw) {
                Ok(numbers) => return numbers,
                Err(cause) => cause,
            },
            ExprNode::Negate(inner) => {
                return match self.number(input, tree, *inner, errors) {
                    NumberResults::Same(same) => NumberResults::Same(-same),
                    NumberResults::Each(mut numbers) => {
                        numbers[..input.list.len()].iter_mut().for_each(|one| *one = -*one);
                        NumberResults::Each(numbers)
                    }
                };
            }
            ExprNode::Arithmetic(operator, left, right) => {
                let left = self.number(input, tree, *left, errors);
                let right = self.number(input, tree, *right, errors);
                return self.arithmetic(input, *operator, left, right, errors);
            }
            ExprNode::Not(_) | ExprNode::Compare(..) | ExprNode::And(..) | ExprNode::Or(..) => {
                ErrorCause::Several
            }
        };
        self.all(input, errors, cause);
        NumberResults::Same(0.0)
    }

    fn number_operand(
        &mut self,
        input: &EvalInput<'_>,
        leaf: &ExprOperand,
        first_draw: u32,
    ) -> Result<NumberResults, ErrorCause> {
        match leaf {
            ExprOperand::Number(number) => Ok(NumberResults::Same(*number)),
            ExprOperand::Draw(draw) => {
                let mut out = self.numbers.take();
                let index = first_draw + u32::from(*draw);
                self.draw_cache.numbers(&input.draws, index, input.list, &mut out);
                Ok(NumberResults::Each(out))
            }
            ExprOperand::Field(field) => match &input.fields[field.index()] {
                FieldColumn::Numbers(column) => {
                    let mut out = self.numbers.take();
                    gather_lanes(column, input.list, &mut out);
                    Ok(NumberResults::Each(out))
                }
                FieldColumn::Flags(_) | FieldColumn::Texts(_) => Err(ErrorCause::Several),
            },
            ExprOperand::World(world) => match input.world[world.index()] {
                Some(ScalarValue::Number(number)) => Ok(NumberResults::Same(number)),
                Some(ScalarValue::Bool(_) | ScalarValue::Text(_)) => Err(ErrorCause::Several),
                None => Err(ErrorCause::One(EvalError::NoWorld(*world))),
            },
            ExprOperand::Context(context) => Err(ErrorCause::One(EvalError::NoContext(*context))),
            ExprOperand::Bool(_) | ExprOperand::Text(_) => Err(ErrorCause::Several),
        }
    }

    fn arithmetic(
        &mut self,
        input: &EvalInput<'_>,
        operator: ArithmeticOp,
        left: NumberResults,
        right: NumberResults,
        errors: &mut EvalErrors,
    ) -> NumberResults {
        let count = input.list.len();
        if operator == ArithmeticOp::Divide {
            let is_zero = |number: usize| right.get(number) == 0.0;
            let cause = ErrorCause::One(EvalError::DivisionByZero);
            errors.add(&mut self.bools, count, is_zero, cause);
        }
        let (out, is_finite) = match (left, right) {
            (NumberResults::Same(left), NumberResults::Same(right)) => {
                let mut number = [left];
                let is_finite = apply_right(operator, &mut number, right);
                (NumberResults::Same(number[0]), is_finite)
            }
            (NumberResults::Each(mut left), NumberResults::Same(right)) => {
                let is_finite = apply_right(operator, &mut left[..count], right);
                (NumberResults::Each(left), is_finite)
            }
            (NumberResults::Same(left), NumberResults::Each(mut right)) => {
                let is_finite = apply_left(operator, left, &mut right[..count]);
                (NumberResults::Each(right), is_finite)
            }
            (NumberResults::Each(mut left), NumberResults::Each(right)) => {
                let is_finite = apply_each(operator, &mut left[..count], &right[..count]);
                self.numbers.release(right);
                (NumberResults::Each(left), is_finite)
            }
        };
        if !is_finite {
            let is_wrong = |number: usize| !out.get(number).is_finite();
            errors.add(&mut self.bools, count, is_wrong, ErrorCause::One(EvalError::Overflow));
        }
        out
    }

    fn bool_node(
        &mut self,
        input: &EvalInput<'_>,
        tree: ExprTree<'_>,
        node: u16,
        errors: &mut EvalErrors,
    ) -> BoolResults {
        let cause = match &tree.nodes[usize::from(node)] {
            ExprNode::Leaf(leaf) => match self.bool_operand(input, leaf) {
                Ok(bools) => return bools,
                Err(cause) => cause,
            },
            ExprNode::Not(inner) => {
                return match self.bool_node(input, tree, *inner, errors) {
                    BoolResults::Same(same) => BoolResults::Same(!same),
                    BoolResults::Each(mut bools) => {
                        bools[..input.list.len()].iter_mut().for_each(|one| *one = !*one);
                        BoolResults::Each(bools)
                    }
                };
            }
            ExprNode::And(left, right) => {
                return self.both(input, tree, [*left, *right], true, errors);
            }
            ExprNode::Or(left, right) => {
                return self.both(input, tree, [*left, *right], false, errors);
            }
            ExprNode::Compare(operator, left, right) => {
                return self.compare(input, tree, *operator, [*left, *right], errors);
            }
            ExprNode::Negate(_) | ExprNode::Arithmetic(..) => ErrorCause::Several,
        };
        self.all(input, errors, cause);
        BoolResults::Same(false)
    }

    /// Returns the booleans of an operand.
    fn bool_operand(
        &mut self,
        input: &EvalInput<'_>,
        leaf: &ExprOperand,
    ) -> Result<BoolResults, ErrorCause> {
        match leaf {
            ExprOperand::Bool(bool) => Ok(BoolResults::Same(*bool)),
            ExprOperand::Field(field) => match &input.fields[field.index()] {
                FieldColumn::Flags(column) => {
                    let mut out = self.bools.take();
                    gather_lanes(column, input.list, &mut out);
                    Ok(BoolResults::Each(out))
                }
                FieldColumn::Numbers(_) | FieldColumn::Texts(_) => Err(ErrorCause::Several),
            },
            ExprOperand::World(world) => match &input.world[world.index()] {
                Some(ScalarValue::Bool(bool)) => Ok(BoolResults::Same(*bool)),
                Some(ScalarValue::Number(_) | ScalarValue::Text(_)) => Err(ErrorCause::Several),
                None => Err(ErrorCause::One(EvalError::NoWorld(*world))),
            },
            ExprOperand::Context(context) => Err(ErrorCause::One(EvalError::NoContext(*context))),
            ExprOperand::Number(_) | ExprOperand::Text(_) | ExprOperand::Draw(_) => {
                Err(ErrorCause::Several)
            }
        }
    }

    /// Evaluates `&&` or `||`. The right side matters where the left one is `decides`: true for
    /// `&&`, false for `||`.
    fn both(
        &mut self,
        input: &EvalInput<'_>,
        tree: ExprTree<'_>,
        [left, right]: [u16; 2],
        decides: bool,
        errors: &mut EvalErrors,
    ) -> BoolResults {
        let count = input.list.len();
        let left = self.bool_node(input, tree, left, errors);
        let mut mine = EvalErrors::default();
        let right = self.bool_node(input, tree, right, &mut mine);
        if mine.mask().is_some() {
            let matters = |number: usize| left.get(number) == decides && mine.has_error(number);
            errors.add(&mut self.bools, count, matters, mine.cause().clone());
        }
        mine.end(&mut self.bools);
        match (left, right) {
            (BoolResults::Same(same), other) | (other, BoolResults::Same(same))
                if same == decides =>
            {
                other
            }
            (BoolResults::Same(same), other) | (other, BoolResults::Same(same)) => {
                self.release_bools(other);
                BoolResults::Same(same)
            }
            (BoolResults::Each(mut left), BoolResults::Each(right)) => {
                let pairs = left[..count].iter_mut().zip(&right[..count]);
                if decides {
                    pairs.for_each(|(left, right)| *left &= *right);
                } else {
                    pairs.for_each(|(left, right)| *left |= *right);
                }
                self.bools.release(right);
                BoolResults::Each(left)
            }
        }
    }

    fn compare(
        &mut self,
        input: &EvalInput<'_>,
        tree: ExprTree<'_>,
        operator: CompareOp,
        [left, right]: [u16; 2],
        errors: &mut EvalErrors,
    ) -> BoolResults {
        use OperandKind::{Known, Missing};
        match (input.kind(tree, left), input.kind(tree, right)) {
            (Known(ScalarKind::Number), Known(ScalarKind::Number)) => {
                let left = self.number(input, tree, left, errors);
                let right = self.number(input, tree, right, errors);
                self.compare_numbers(input.list.len(), operator, left, right)
            }
            (Known(ScalarKind::Bool), Known(ScalarKind::Bool)) if is_equality(operator) => {
                let left = self.bool_node(input, tree, left, errors);
                let right = self.bool_node(input, tree, right, errors);
                let mut out = self.bools.take();
                let wanted = operator == CompareOp::Equal;
                for (number, out) in out[..input.list.len()].iter_mut().enumerate() {
                    *out = mask_of((left.get(number) == right.get(number)) == wanted);
                }
                self.release_bools(left);
                self.release_bools(right);
                BoolResults::Each(out)
            }
            (Known(ScalarKind::Text), Known(ScalarKind::Text)) if is_equality(operator) => {
                let wanted = operator == CompareOp::Equal;
                let texts = [input.texts(tree, left), input.texts(tree, right)];
                self.compare_texts(input, texts, wanted)
            }
            (Missing(fault), _) => {
                self.all(input, errors, ErrorCause::One(fault));
                BoolResults::Same(false)
            }
            // An error of the left side comes first.
            (Known(kind), Missing(fault)) => {
                match kind {
                    ScalarKind::Number => {
                        let numbers = self.number(input, tree, left, errors);
                        self.release_numbers(numbers);
                    }
                    ScalarKind::Bool => {
                        let bools = self.bool_node(input, tree, left, errors);
                        self.release_bools(bools);
                    }
                    ScalarKind::Text => {}
                }
                self.all(input, errors, ErrorCause::One(fault));
                BoolResults::Same(false)
            }
            (Known(_), Known(_)) => {
                self.all(input, errors, ErrorCause::Several);
                BoolResults::Same(false)
            }
        }
    }

    fn compare_numbers(
        &mut self,
        count: usize,
        operator: CompareOp,
        left: NumberResults,
        right: NumberResults,
    ) -> BoolResults {
        let (left, operator, right) = match (left, right) {
            (NumberResults::Same(left), NumberResults::Same(right)) => {
                return BoolResults::Same(operator.holds(left, right));
            }
            (NumberResults::Same(left), right @ NumberResults::Each(_)) => {
                (right, operator.mirrored(), NumberResults::Same(left))
            }
            (left @ NumberResults::Each(_), right) => (left, operator, right),
        };
        let mut out = self.bools.take();
        if let NumberResults::Each(left) = &left {
            let out = &mut out[..count];
            match &right {
                NumberResults::Same(right) => compare_same(operator, &left[..count], *right, out),
                NumberResults::Each(right) => {
                    compare_each(operator, &left[..count], &right[..count], out);
                }
            }
        }
        self.release_numbers(left);
        self.release_numbers(right);
        BoolResults::Each(out)
    }

    fn compare_texts(
        &mut self,
        input: &EvalInput<'_>,
        texts: [Option<TextSource<'_>>; 2],
        wanted: bool,
    ) -> BoolResults {
        let (texts, other) = match texts {
            [Some(TextSource::Same(left)), Some(TextSource::Same(right))] => {
                return BoolResults::Same((left == right) == wanted);
            }
            [Some(TextSource::Each(texts)), Some(other)]
            | [Some(other), Some(TextSource::Each(texts))] => (texts, other),
            [None, _] | [_, None] => return BoolResults::Same(false),
        };
        let mut out = self.bools.take();
        let lanes = out.iter_mut().zip(input.list);
        match other {
            TextSource::Same(text) => match texts.known(text) {
                Some(text) => lanes.for_each(|(out, lane)| {
                    *out = mask_of((texts.numbers[lane_index(*lane)] == text) == wanted);
                }),
                None => lanes.for_each(|(out, _)| *out = mask_of(!wanted)),
            },
            TextSource::Each(others) => lanes.for_each(|(out, lane)| {
                let lane = lane_index(*lane);
                *out = mask_of((texts.get(lane) == others.get(lane)) == wanted);
            }),
        }
        BoolResults::Each(out)
    }
}

fn is_equality(operator: CompareOp) -> bool {
    matches!(operator, CompareOp::Equal | CompareOp::NotEqual)
}

#[inline]
fn gather_lanes<T: Copy>(column: &[T], list: &[u16], out: &mut LaneValues<T>) {
    let Some(column) = column.first_chunk::<BLOCK>() else { return };
    out.iter_mut().zip(list).for_each(|(out, lane)| *out = column[lane_index(*lane)]);
}
