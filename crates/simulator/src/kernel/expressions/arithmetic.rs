//! Vectorized arithmetic and comparisons.

use std::ops::RangeInclusive;

use multiversion::multiversion;
use polity_statechart::{ArithmeticOp, CompareOp};

use crate::kernel::columns::masks::compare_lanes;

/// Replaces numbers. Returns true if all new ones are finite.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn replace(numbers: &mut [f64], new: impl Fn(usize, f64) -> f64) -> bool {
    let mut is_finite = true;
    for (index, number) in numbers.iter_mut().enumerate() {
        *number = new(index, *number);
        is_finite &= number.is_finite();
    }
    is_finite
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn apply_right(operator: ArithmeticOp, left: &mut [f64], right: f64) -> bool {
    match operator {
        ArithmeticOp::Add => replace(left, |_, left| left + right),
        ArithmeticOp::Subtract => replace(left, |_, left| left - right),
        ArithmeticOp::Multiply => replace(left, |_, left| left * right),
        ArithmeticOp::Divide => replace(left, |_, left| left / right),
    }
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn apply_left(operator: ArithmeticOp, left: f64, right: &mut [f64]) -> bool {
    match operator {
        ArithmeticOp::Add => replace(right, |_, right| left + right),
        ArithmeticOp::Subtract => replace(right, |_, right| left - right),
        ArithmeticOp::Multiply => replace(right, |_, right| left * right),
        ArithmeticOp::Divide => replace(right, |_, right| left / right),
    }
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn apply_each(operator: ArithmeticOp, left: &mut [f64], right: &[f64]) -> bool {
    let right = &right[..left.len()];
    match operator {
        ArithmeticOp::Add => replace(left, |index, left| left + right[index]),
        ArithmeticOp::Subtract => replace(left, |index, left| left - right[index]),
        ArithmeticOp::Multiply => replace(left, |index, left| left * right[index]),
        ArithmeticOp::Divide => replace(left, |index, left| left / right[index]),
    }
}

/// True if all numbers are in a range. NaN is in no range.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
#[expect(clippy::needless_bitwise_bool, reason = "there is no branch with them")]
pub(crate) fn are_within(numbers: &[f64], range: &RangeInclusive<f64>) -> bool {
    let (min, max) = (*range.start(), *range.end());
    let mut are_within = true;
    for number in numbers {
        are_within &= (min <= *number) & (*number <= max);
    }
    are_within
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn compare_same(operator: CompareOp, left: &[f64], right: f64, out: &mut [u8]) {
    let left = &left[..out.len()];
    compare_lanes(operator, out, |index| left[index], |_| right);
}

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn compare_each(operator: CompareOp, left: &[f64], right: &[f64], out: &mut [u8]) {
    let (left, right) = (&left[..out.len()], &right[..out.len()]);
    compare_lanes(operator, out, |index| left[index], |index| right[index]);
}
