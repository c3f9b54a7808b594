//! Expressions for a list of agents at once.
//!
//! Where something is divided by zero, a sum is too large or a value is missing, the expression has
//! no value for an agent. Nearly always there is one reason for all agents of a list; then they are
//! only counted. Where there are several, or a value is of a kind that only a closer look explains,
//! those agents are asked one by one.

use polity_statechart::{
    ArithmeticOp, CompareOp, EvalError, ExpressionNode, ExpressionOperand, ExpressionTree, FieldId,
    ScalarKind, ScalarValue,
};

use super::BLOCK;
use super::doubts::{Cause, Doubts};
use super::drawn::Drawn;
use super::fields::Column;
use super::masks::yes;
use super::pool::{Pool, Rows, place};
use super::sight::{Found, Sight, Source};
use super::sums::{compare_each, compare_same, with_each, with_left, with_right};

/// A number for each agent of a list.
pub(super) enum Numbers {
    /// The same for all.
    Same(f64),
    /// One for each.
    Each(Rows<f64>),
}

/// What is true for each agent of a list: all bits for yes, none for no.
pub(super) enum Truths {
    /// The same for all.
    Same(bool),
    /// One for each.
    Each(Rows<u8>),
}

/// Room for values on the way.
#[derive(Debug, Default)]
pub(super) struct Workings {
    pub(super) drawn: Drawn,
    numbers: Pool<f64>,
    pub(super) truths: Pool<u8>,
}

impl Numbers {
    #[inline]
    pub(super) fn get(&self, number: usize) -> f64 {
        match self {
            Self::Same(same) => *same,
            Self::Each(each) => each[number % BLOCK],
        }
    }
}

impl Truths {
    #[inline]
    pub(super) fn get(&self, number: usize) -> bool {
        match self {
            Self::Same(same) => *same,
            Self::Each(each) => each[number % BLOCK] != 0,
        }
    }
}

impl Workings {
    pub(super) fn give_numbers(&mut self, numbers: Numbers) {
        match numbers {
            Numbers::Same(_) => {}
            Numbers::Each(rows) => self.numbers.give(rows),
        }
    }

    pub(super) fn give_truths(&mut self, truths: Truths) {
        match truths {
            Truths::Same(_) => {}
            Truths::Each(rows) => self.truths.give(rows),
        }
    }

    /// Doubts about all that are left.
    fn all(&mut self, sight: &Sight<'_>, doubts: &mut Doubts, cause: Cause) {
        doubts.add(&mut self.truths, sight.list.len(), |_| true, cause);
    }

    /// The numbers that an expression comes to.
    pub(super) fn numbers(
        &mut self,
        sight: &Sight<'_>,
        tree: ExpressionTree<'_>,
        doubts: &mut Doubts,
    ) -> Numbers {
        self.number(sight, tree, tree.root, doubts)
    }

    /// What a field comes to with an expression added. It may be too large.
    pub(super) fn sums(
        &mut self,
        sight: &Sight<'_>,
        field: FieldId,
        tree: ExpressionTree<'_>,
        doubts: &mut Doubts,
    ) -> Numbers {
        let count = sight.list.len();
        let more = self.numbers(sight, tree, doubts);
        let mut sums = self.numbers.take();
        if let Column::Numbers(column) = &sight.fields[field.index()] {
            gather(column, sight.list, &mut sums);
        }
        match &more {
            Numbers::Same(more) => with_right(ArithmeticOp::Add, &mut sums[..count], *more),
            Numbers::Each(more) => with_each(ArithmeticOp::Add, &mut sums[..count], &more[..count]),
        };
        self.give_numbers(more);
        Numbers::Each(sums)
    }

    /// For whom an expression holds.
    pub(super) fn truths(
        &mut self,
        sight: &Sight<'_>,
        tree: ExpressionTree<'_>,
        doubts: &mut Doubts,
    ) -> Truths {
        self.truth(sight, tree, tree.root, doubts)
    }

    fn number(
        &mut self,
        sight: &Sight<'_>,
        tree: ExpressionTree<'_>,
        node: u16,
        doubts: &mut Doubts,
    ) -> Numbers {
        let cause = match &tree.nodes[usize::from(node)] {
            ExpressionNode::Leaf(leaf) => match self.leaf_number(sight, leaf, tree.first_draw) {
                Ok(numbers) => return numbers,
                Err(cause) => cause,
            },
            ExpressionNode::Negate(inner) => {
                return match self.number(sight, tree, *inner, doubts) {
                    Numbers::Same(same) => Numbers::Same(-same),
                    Numbers::Each(mut each) => {
                        each[..sight.list.len()].iter_mut().for_each(|number| *number = -*number);
                        Numbers::Each(each)
                    }
                };
            }
            ExpressionNode::Arithmetic(operator, left, right) => {
                let left = self.number(sight, tree, *left, doubts);
                let right = self.number(sight, tree, *right, doubts);
                return self.arithmetic(sight, *operator, left, right, doubts);
            }
            ExpressionNode::Not(_)
            | ExpressionNode::Compare(..)
            | ExpressionNode::And(..)
            | ExpressionNode::Or(..) => Cause::Several,
        };
        self.all(sight, doubts, cause);
        Numbers::Same(0.0)
    }

    /// The numbers that stand somewhere, or why there are none.
    fn leaf_number(
        &mut self,
        sight: &Sight<'_>,
        leaf: &ExpressionOperand,
        first_draw: u32,
    ) -> Result<Numbers, Cause> {
        match leaf {
            ExpressionOperand::Number(number) => Ok(Numbers::Same(*number)),
            ExpressionOperand::Draw(draw) => {
                let mut out = self.numbers.take();
                let index = first_draw + u32::from(*draw);
                self.drawn.numbers(&sight.moment, index, sight.list, &mut out);
                Ok(Numbers::Each(out))
            }
            ExpressionOperand::Field(field) => match &sight.fields[field.index()] {
                Column::Numbers(column) => {
                    let mut out = self.numbers.take();
                    gather(column, sight.list, &mut out);
                    Ok(Numbers::Each(out))
                }
                Column::Flags(_) | Column::Texts(_) => Err(Cause::Several),
            },
            ExpressionOperand::World(world) => match sight.world[world.index()] {
                Some(ScalarValue::Number(number)) => Ok(Numbers::Same(number)),
                Some(ScalarValue::Bool(_) | ScalarValue::Text(_)) => Err(Cause::Several),
                None => Err(Cause::One(EvalError::NoWorld(*world))),
            },
            ExpressionOperand::Context(context) => Err(Cause::One(EvalError::NoContext(*context))),
            ExpressionOperand::Bool(_) | ExpressionOperand::Text(_) => Err(Cause::Several),
        }
    }

    fn arithmetic(
        &mut self,
        sight: &Sight<'_>,
        operator: ArithmeticOp,
        left: Numbers,
        right: Numbers,
        doubts: &mut Doubts,
    ) -> Numbers {
        let count = sight.list.len();
        match operator {
            ArithmeticOp::Divide => {
                let is_zero = |number: usize| right.get(number) == 0.0;
                doubts.add(&mut self.truths, count, is_zero, Cause::One(EvalError::DivisionByZero));
            }
            ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Multiply => {}
        }
        let (out, is_finite) = match (left, right) {
            (Numbers::Same(left), Numbers::Same(right)) => {
                let mut number = [left];
                let is_finite = with_right(operator, &mut number, right);
                (Numbers::Same(number[0]), is_finite)
            }
            (Numbers::Each(mut left), Numbers::Same(right)) => {
                let is_finite = with_right(operator, &mut left[..count], right);
                (Numbers::Each(left), is_finite)
            }
            (Numbers::Same(left), Numbers::Each(mut right)) => {
                let is_finite = with_left(operator, left, &mut right[..count]);
                (Numbers::Each(right), is_finite)
            }
            (Numbers::Each(mut left), Numbers::Each(right)) => {
                let is_finite = with_each(operator, &mut left[..count], &right[..count]);
                self.numbers.give(right);
                (Numbers::Each(left), is_finite)
            }
        };
        if !is_finite {
            let is_wrong = |number: usize| !out.get(number).is_finite();
            doubts.add(&mut self.truths, count, is_wrong, Cause::One(EvalError::Overflow));
        }
        out
    }

    fn truth(
        &mut self,
        sight: &Sight<'_>,
        tree: ExpressionTree<'_>,
        node: u16,
        doubts: &mut Doubts,
    ) -> Truths {
        let cause = match &tree.nodes[usize::from(node)] {
            ExpressionNode::Leaf(leaf) => match self.leaf_truth(sight, leaf) {
                Ok(truths) => return truths,
                Err(cause) => cause,
            },
            ExpressionNode::Not(inner) => {
                return match self.truth(sight, tree, *inner, doubts) {
                    Truths::Same(same) => Truths::Same(!same),
                    Truths::Each(mut each) => {
                        each[..sight.list.len()].iter_mut().for_each(|truth| *truth = !*truth);
                        Truths::Each(each)
                    }
                };
            }
            ExpressionNode::And(left, right) => {
                return self.both(sight, tree, [*left, *right], true, doubts);
            }
            ExpressionNode::Or(left, right) => {
                return self.both(sight, tree, [*left, *right], false, doubts);
            }
            ExpressionNode::Compare(operator, left, right) => {
                return self.compare(sight, tree, *operator, [*left, *right], doubts);
            }
            ExpressionNode::Negate(_) | ExpressionNode::Arithmetic(..) => Cause::Several,
        };
        self.all(sight, doubts, cause);
        Truths::Same(false)
    }

    /// For whom something holds that stands somewhere, or why no one can tell.
    fn leaf_truth(&mut self, sight: &Sight<'_>, leaf: &ExpressionOperand) -> Result<Truths, Cause> {
        match leaf {
            ExpressionOperand::Bool(bool) => Ok(Truths::Same(*bool)),
            ExpressionOperand::Field(field) => match &sight.fields[field.index()] {
                Column::Flags(column) => {
                    let mut out = self.truths.take();
                    gather(column, sight.list, &mut out);
                    Ok(Truths::Each(out))
                }
                Column::Numbers(_) | Column::Texts(_) => Err(Cause::Several),
            },
            ExpressionOperand::World(world) => match &sight.world[world.index()] {
                Some(ScalarValue::Bool(bool)) => Ok(Truths::Same(*bool)),
                Some(ScalarValue::Number(_) | ScalarValue::Text(_)) => Err(Cause::Several),
                None => Err(Cause::One(EvalError::NoWorld(*world))),
            },
            ExpressionOperand::Context(context) => Err(Cause::One(EvalError::NoContext(*context))),
            ExpressionOperand::Number(_)
            | ExpressionOperand::Text(_)
            | ExpressionOperand::Draw(_) => Err(Cause::Several),
        }
    }

    /// The right side matters where the left one is `decides`: true for `&&`, false for `||`.
    fn both(
        &mut self,
        sight: &Sight<'_>,
        tree: ExpressionTree<'_>,
        [left, right]: [u16; 2],
        decides: bool,
        doubts: &mut Doubts,
    ) -> Truths {
        let count = sight.list.len();
        let left = self.truth(sight, tree, left, doubts);
        let mut mine = Doubts::default();
        let right = self.truth(sight, tree, right, &mut mine);
        if mine.mask().is_some() {
            let matters = |number: usize| left.get(number) == decides && mine.is_about(number);
            doubts.add(&mut self.truths, count, matters, mine.cause().clone());
        }
        mine.end(&mut self.truths);
        match (left, right) {
            (Truths::Same(same), other) | (other, Truths::Same(same)) if same == decides => other,
            (Truths::Same(same), other) | (other, Truths::Same(same)) => {
                self.give_truths(other);
                Truths::Same(same)
            }
            (Truths::Each(mut left), Truths::Each(right)) => {
                let pairs = left[..count].iter_mut().zip(&right[..count]);
                if decides {
                    pairs.for_each(|(left, right)| *left &= *right);
                } else {
                    pairs.for_each(|(left, right)| *left |= *right);
                }
                self.truths.give(right);
                Truths::Each(left)
            }
        }
    }

    fn compare(
        &mut self,
        sight: &Sight<'_>,
        tree: ExpressionTree<'_>,
        operator: CompareOp,
        [left, right]: [u16; 2],
        doubts: &mut Doubts,
    ) -> Truths {
        match (sight.kind(tree, left), sight.kind(tree, right)) {
            (Found::ScalarKind(ScalarKind::Number), Found::ScalarKind(ScalarKind::Number)) => {
                let left = self.number(sight, tree, left, doubts);
                let right = self.number(sight, tree, right, doubts);
                self.compare_numbers(sight.list.len(), operator, left, right)
            }
            (Found::ScalarKind(ScalarKind::Bool), Found::ScalarKind(ScalarKind::Bool))
                if is_equality(operator) =>
            {
                let left = self.truth(sight, tree, left, doubts);
                let right = self.truth(sight, tree, right, doubts);
                let mut out = self.truths.take();
                let wanted = operator == CompareOp::Equal;
                for (number, out) in out[..sight.list.len()].iter_mut().enumerate() {
                    *out = yes((left.get(number) == right.get(number)) == wanted);
                }
                self.give_truths(left);
                self.give_truths(right);
                Truths::Each(out)
            }
            (Found::ScalarKind(ScalarKind::Text), Found::ScalarKind(ScalarKind::Text))
                if is_equality(operator) =>
            {
                let wanted = operator == CompareOp::Equal;
                let texts = [sight.texts(tree, left), sight.texts(tree, right)];
                self.compare_texts(sight, texts, wanted)
            }
            (Found::Missing(fault), _) => {
                self.all(sight, doubts, Cause::One(fault));
                Truths::Same(false)
            }
            // What comes first is what is wrong.
            (Found::ScalarKind(kind), Found::Missing(fault)) => {
                match kind {
                    ScalarKind::Number => {
                        let numbers = self.number(sight, tree, left, doubts);
                        self.give_numbers(numbers);
                    }
                    ScalarKind::Bool => {
                        let truths = self.truth(sight, tree, left, doubts);
                        self.give_truths(truths);
                    }
                    ScalarKind::Text => {}
                }
                self.all(sight, doubts, Cause::One(fault));
                Truths::Same(false)
            }
            (Found::ScalarKind(_), Found::ScalarKind(_)) => {
                self.all(sight, doubts, Cause::Several);
                Truths::Same(false)
            }
        }
    }

    fn compare_numbers(
        &mut self,
        count: usize,
        operator: CompareOp,
        left: Numbers,
        right: Numbers,
    ) -> Truths {
        let (left, operator, right) = match (left, right) {
            (Numbers::Same(left), Numbers::Same(right)) => {
                return Truths::Same(operator.holds(left, right));
            }
            (Numbers::Same(left), right @ Numbers::Each(_)) => {
                (right, operator.mirrored(), Numbers::Same(left))
            }
            (left @ Numbers::Each(_), right) => (left, operator, right),
        };
        let mut out = self.truths.take();
        if let Numbers::Each(left) = &left {
            let out = &mut out[..count];
            match &right {
                Numbers::Same(right) => compare_same(operator, &left[..count], *right, out),
                Numbers::Each(right) => {
                    compare_each(operator, &left[..count], &right[..count], out);
                }
            }
        }
        self.give_numbers(left);
        self.give_numbers(right);
        Truths::Each(out)
    }

    fn compare_texts(
        &mut self,
        sight: &Sight<'_>,
        texts: [Option<Source<'_>>; 2],
        wanted: bool,
    ) -> Truths {
        let (texts, other) = match texts {
            [Some(Source::Same(left)), Some(Source::Same(right))] => {
                return Truths::Same((left == right) == wanted);
            }
            [Some(Source::Each(texts)), Some(other)] | [Some(other), Some(Source::Each(texts))] => {
                (texts, other)
            }
            [None, _] | [_, None] => return Truths::Same(false),
        };
        let mut out = self.truths.take();
        let lanes = out.iter_mut().zip(sight.list);
        match other {
            Source::Same(text) => match texts.known(text) {
                Some(text) => lanes.for_each(|(out, lane)| {
                    *out = yes((texts.numbers[place(*lane)] == text) == wanted);
                }),
                None => lanes.for_each(|(out, _)| *out = yes(!wanted)),
            },
            Source::Each(others) => lanes.for_each(|(out, lane)| {
                let lane = place(*lane);
                *out = yes((texts.get(lane) == others.get(lane)) == wanted);
            }),
        }
        Truths::Each(out)
    }
}

fn is_equality(operator: CompareOp) -> bool {
    match operator {
        CompareOp::Equal | CompareOp::NotEqual => true,
        CompareOp::Less
        | CompareOp::LessOrEqual
        | CompareOp::Greater
        | CompareOp::GreaterOrEqual => false,
    }
}

/// Takes what the agents of a list have out of a column.
#[inline]
fn gather<T: Copy>(column: &[T], list: &[u16], out: &mut Rows<T>) {
    let Some(column) = column.first_chunk::<BLOCK>() else { return };
    out.iter_mut().zip(list).for_each(|(out, lane)| *out = column[place(*lane)]);
}
