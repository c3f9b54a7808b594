//! Expressions for many agents at once.
//!
//! Where an agent has no such field, something is divided by zero, or a value is of the wrong kind,
//! there is a doubt about that agent, and it is asked alone. A doubt too many costs only time.

use multiversion::multiversion;
use polity_statechart::{Arithmetic, Compare, Node, Scalar, Tree, Value};

use super::LANES;
use super::fields::Column;
use super::masks::{Mask, NO, Numbers, YES, compared, yes};
use super::philox::{DRAWS_PER_BLOCK, Draws, unit};

/// What an expression sees of a group of agents.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) tree: Tree<'a>,
    pub(super) fields: &'a [Column],
    /// Where the group begins.
    pub(super) base: usize,
    pub(super) draws: &'a [Draws],
    pub(super) world: &'a [Option<Value>],
}

/// Room for values on the way.
#[derive(Default)]
pub(super) struct Workings {
    /// Numbers that were computed, by the depth in the expression.
    #[expect(clippy::vec_box, reason = "they change places with the spare one")]
    numbers: Vec<Box<Lanes>>,
    /// What is true, by the depth in the expression.
    truths: Vec<Mask>,
    /// Draws as numbers, and which of them are there already.
    units: Vec<(bool, Box<Lanes>)>,
    spare: Option<Box<Lanes>>,
}

/// A number for each agent, which can be moved about cheaply.
struct Lanes(Numbers);

impl Default for Lanes {
    fn default() -> Self {
        Self([0.0; LANES])
    }
}

/// Where numbers are to be found.
#[derive(Clone, Copy)]
enum Source {
    Same(f64),
    Field(usize),
    Unit(usize),
    Computed(usize),
}

/// Numbers, where they are.
#[derive(Clone, Copy)]
enum Side<'a> {
    Same(f64),
    Each(&'a Numbers),
}

impl Workings {
    /// Forgets the draws of the group that was looked at before.
    pub(super) fn begin(&mut self) {
        self.units.iter_mut().for_each(|(known, _)| *known = false);
    }

    /// For whom the expression holds, and for whom that is in doubt.
    pub(super) fn evaluate(&mut self, sight: &Sight<'_>, holds: &mut Mask, doubt: &mut Mask) {
        *doubt = NO;
        self.truth(sight, sight.tree.root, 0, doubt);
        *holds = self.truths[0];
    }

    /// Finds out what is true at a depth.
    fn truth(&mut self, sight: &Sight<'_>, node: u16, depth: usize, doubt: &mut Mask) {
        if self.truths.len() == depth {
            self.truths.push(NO);
        }
        match &sight.tree.nodes[usize::from(node)] {
            Node::Bool(bool) => self.truths[depth] = if *bool { YES } else { NO },
            Node::Not(inner) => {
                self.truth(sight, *inner, depth, doubt);
                self.truths[depth].iter_mut().for_each(|truth| *truth = !*truth);
            }
            Node::And(left, right) => {
                self.both(sight, [*left, *right], depth, doubt, |left, right| *left &= right);
            }
            Node::Or(left, right) => {
                self.both(sight, [*left, *right], depth, doubt, |left, right| *left |= right);
            }
            Node::Compare(operator, left, right) => {
                if sight.may_be_other(*left) || sight.may_be_other(*right) {
                    let truths = &mut self.truths[depth];
                    return sight.equality(*operator, *left, *right, truths, doubt);
                }
                let left = self.source(sight, *left, 0, doubt);
                let right = self.source(sight, *right, 1, doubt);
                let mut truths = NO;
                compare(*operator, self.side(sight, left), self.side(sight, right), &mut truths);
                self.truths[depth] = truths;
            }
            Node::Field(_) | Node::World(_) => sight.flags(node, &mut self.truths[depth], doubt),
            Node::Number(_)
            | Node::Text(_)
            | Node::Context(_)
            | Node::Draw(_)
            | Node::Negate(_)
            | Node::Arithmetic(..) => *doubt = YES,
        }
    }

    fn both(
        &mut self,
        sight: &Sight<'_>,
        [left, right]: [u16; 2],
        depth: usize,
        doubt: &mut Mask,
        join: impl Fn(&mut u8, u8),
    ) {
        self.truth(sight, left, depth, doubt);
        self.truth(sight, right, depth + 1, doubt);
        if let [left, right, ..] = &mut self.truths[depth..] {
            left.iter_mut().zip(right).for_each(|(left, right)| join(left, *right));
        }
    }

    /// Finds numbers, or computes them at a depth.
    fn source(&mut self, sight: &Sight<'_>, node: u16, depth: usize, doubt: &mut Mask) -> Source {
        let found = match &sight.tree.nodes[usize::from(node)] {
            Node::Number(number) => Some(Source::Same(*number)),
            Node::Draw(draw) => self.unit(sight, *draw),
            Node::Field(field) => match &sight.fields[field.index()] {
                Column::Numbers(_) => Some(Source::Field(field.index())),
                Column::Flags(_) | Column::Values(_) => None,
            },
            Node::World(world) => match sight.world[world.index()] {
                Some(Value::Number(number)) => Some(Source::Same(number)),
                Some(Value::Bool(_) | Value::Text(_)) | None => None,
            },
            Node::Negate(inner) => {
                let inner = self.source(sight, *inner, depth, doubt);
                let minus = Source::Same(-1.0);
                Some(self.compute(sight, Arithmetic::Multiply, [inner, minus], depth, doubt))
            }
            Node::Arithmetic(operator, left, right) => {
                let left = self.source(sight, *left, depth, doubt);
                let right = self.source(sight, *right, depth + 1, doubt);
                Some(self.compute(sight, *operator, [left, right], depth, doubt))
            }
            Node::Bool(_)
            | Node::Text(_)
            | Node::Context(_)
            | Node::Not(_)
            | Node::Compare(..)
            | Node::And(..)
            | Node::Or(..) => None,
        };
        found.unwrap_or_else(|| {
            *doubt = YES;
            Source::Same(0.0)
        })
    }

    /// A draw as a number; nothing if it was not drawn ahead.
    fn unit(&mut self, sight: &Sight<'_>, draw: u16) -> Option<Source> {
        let draw = sight.tree.first_draw as usize + usize::from(draw);
        let draws = sight.draws.get(draw / DRAWS_PER_BLOCK)?;
        if self.units.len() <= draw {
            self.units.resize_with(draw + 1, Default::default);
        }
        let (known, numbers) = &mut self.units[draw];
        if !std::mem::replace(known, true) {
            units(&draws[draw % DRAWS_PER_BLOCK], &mut numbers.0);
        }
        Some(Source::Unit(draw))
    }

    fn side<'s>(&'s self, sight: &Sight<'s>, source: Source) -> Side<'s> {
        match source {
            Source::Same(number) => Side::Same(number),
            Source::Unit(draw) => Side::Each(&self.units[draw].1.0),
            Source::Computed(depth) => Side::Each(&self.numbers[depth].0),
            Source::Field(field) => match &sight.fields[field] {
                Column::Numbers(numbers) => {
                    numbers[sight.base..].first_chunk::<LANES>().map_or(Side::Same(0.0), Side::Each)
                }
                // No other column is a source of numbers.
                Column::Flags(_) | Column::Values(_) => Side::Same(0.0),
            },
        }
    }

    fn compute(
        &mut self,
        sight: &Sight<'_>,
        operator: Arithmetic,
        [left, right]: [Source; 2],
        depth: usize,
        doubt: &mut Mask,
    ) -> Source {
        let mut out = self.spare.take().unwrap_or_default();
        arithmetic(operator, self.side(sight, left), self.side(sight, right), &mut out.0, doubt);
        if self.numbers.len() <= depth {
            self.numbers.resize_with(depth + 1, Default::default);
        }
        self.spare = Some(std::mem::replace(&mut self.numbers[depth], out));
        Source::Computed(depth)
    }
}

impl<'a> Sight<'a> {
    /// Whether a value may be something else than a number.
    fn may_be_other(&self, node: u16) -> bool {
        match &self.tree.nodes[usize::from(node)] {
            Node::Field(field) => match &self.fields[field.index()] {
                Column::Numbers(_) => false,
                Column::Flags(_) | Column::Values(_) => true,
            },
            Node::World(world) => !matches!(self.world[world.index()], Some(Value::Number(_))),
            Node::Number(_) | Node::Draw(_) | Node::Negate(_) | Node::Arithmetic(..) => false,
            Node::Bool(_)
            | Node::Text(_)
            | Node::Context(_)
            | Node::Not(_)
            | Node::Compare(..)
            | Node::And(..)
            | Node::Or(..) => true,
        }
    }

    /// A value of one agent that stands for itself; nothing if it takes more to know it.
    fn value(&self, node: u16, lane: usize) -> Option<Scalar<'a>> {
        match &self.tree.nodes[usize::from(node)] {
            Node::Number(number) => Some(Scalar::Number(*number)),
            Node::Bool(bool) => Some(Scalar::Bool(*bool)),
            Node::Text(text) => Some(Scalar::Text(text)),
            Node::Field(field) => self.fields[field.index()].get(self.base + lane),
            Node::World(world) => self.world[world.index()].as_ref().map(Value::as_scalar),
            Node::Context(_)
            | Node::Draw(_)
            | Node::Not(_)
            | Node::Negate(_)
            | Node::Arithmetic(..)
            | Node::Compare(..)
            | Node::And(..)
            | Node::Or(..) => None,
        }
    }

    /// Compares values that may be texts, or true or false.
    fn equality(&self, operator: Compare, left: u16, right: u16, out: &mut Mask, doubt: &mut Mask) {
        for lane in 0..LANES {
            let equal = match (self.value(left, lane), self.value(right, lane)) {
                (Some(Scalar::Text(a)), Some(Scalar::Text(b))) => Some(a == b),
                (Some(Scalar::Bool(a)), Some(Scalar::Bool(b))) => Some(a == b),
                (Some(Scalar::Number(a)), Some(Scalar::Number(b))) => {
                    out[lane] = yes(operator.holds(a, b));
                    continue;
                }
                (Some(_) | None, _) => None,
            };
            let truth = match operator {
                Compare::Equal => equal,
                Compare::NotEqual => equal.map(|equal| !equal),
                Compare::Less
                | Compare::LessOrEqual
                | Compare::Greater
                | Compare::GreaterOrEqual => None,
            };
            out[lane] = yes(truth == Some(true));
            doubt[lane] |= yes(truth.is_none());
        }
    }

    /// Values that are true or false themselves.
    fn flags(&self, node: u16, out: &mut Mask, doubt: &mut Mask) {
        if let Node::Field(field) = &self.tree.nodes[usize::from(node)]
            && let Column::Flags(flags) = &self.fields[field.index()]
        {
            out.copy_from_slice(&flags[self.base..self.base + LANES]);
            return;
        }
        for lane in 0..LANES {
            match self.value(node, lane) {
                Some(Scalar::Bool(bool)) => out[lane] = yes(bool),
                Some(Scalar::Number(_) | Scalar::Text(_)) | None => doubt[lane] = 0xFF,
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn units(draws: &[u32; LANES], out: &mut Numbers) {
    for lane in 0..LANES {
        out[lane] = unit(draws[lane]);
    }
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn arithmetic(
    operator: Arithmetic,
    left: Side<'_>,
    right: Side<'_>,
    out: &mut Numbers,
    doubt: &mut Mask,
) {
    match operator {
        Arithmetic::Add => join(left, right, out, |a, b| a + b),
        Arithmetic::Subtract => join(left, right, out, |a, b| a - b),
        Arithmetic::Multiply => join(left, right, out, |a, b| a * b),
        Arithmetic::Divide => join(left, right, out, |a, b| a / b),
    }
    for lane in 0..LANES {
        doubt[lane] |= yes(!out[lane].is_finite());
    }
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn compare(operator: Compare, left: Side<'_>, right: Side<'_>, out: &mut Mask) {
    match (left, right) {
        (Side::Each(left), Side::Each(right)) => compared(operator, left, right, out),
        (Side::Each(left), Side::Same(right)) => compared(operator, left, &[right; LANES], out),
        (Side::Same(left), Side::Each(right)) => {
            compared(operator.mirrored(), right, &[left; LANES], out);
        }
        (Side::Same(left), Side::Same(right)) => *out = [yes(operator.holds(left, right)); LANES],
    }
}

/// Each combination has a loop of its own, so that what is the same for all is read once.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn join(left: Side<'_>, right: Side<'_>, out: &mut Numbers, join: impl Fn(f64, f64) -> f64) {
    let lanes = out.iter_mut();
    match (left, right) {
        (Side::Each(left), Side::Each(right)) => {
            lanes.zip(left.iter().zip(right)).for_each(|(out, (a, b))| *out = join(*a, *b));
        }
        (Side::Each(left), Side::Same(b)) => {
            lanes.zip(left).for_each(|(out, a)| *out = join(*a, b));
        }
        (Side::Same(a), Side::Each(right)) => {
            lanes.zip(right).for_each(|(out, b)| *out = join(a, *b));
        }
        (Side::Same(a), Side::Same(b)) => *out = [join(a, b); LANES],
    }
}
