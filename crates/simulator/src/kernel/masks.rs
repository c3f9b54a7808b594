//! A yes or no for each agent of a group, and how they are asked.

use polity_statechart::CompareOp;

use super::LANES;

/// A yes (all bits) or no (none) for each agent.
pub(super) type Mask = [u8; LANES];

/// A number for each agent.
pub(super) type Numbers = [f64; LANES];

/// No to all.
pub(super) const NO: Mask = [0; LANES];
/// Yes to all.
pub(super) const YES: Mask = [0xFF; LANES];

/// Compares many numbers.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(super) fn compared(
    operator: CompareOp,
    mask: &mut [u8],
    left: impl Fn(usize) -> f64,
    right: impl Fn(usize) -> f64,
) {
    // Each operator has a loop of its own, because a loop with a choice inside is no vector.
    match operator {
        CompareOp::Less => each(mask, |lane| left(lane) < right(lane)),
        CompareOp::LessOrEqual => each(mask, |lane| left(lane) <= right(lane)),
        CompareOp::Greater => each(mask, |lane| left(lane) > right(lane)),
        CompareOp::GreaterOrEqual => each(mask, |lane| left(lane) >= right(lane)),
        CompareOp::Equal => each(mask, |lane| CompareOp::Equal.holds(left(lane), right(lane))),
        CompareOp::NotEqual => {
            each(mask, |lane| CompareOp::NotEqual.holds(left(lane), right(lane)))
        }
    }
}

/// Asks something of each agent.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(super) fn each(mask: &mut [u8], holds: impl Fn(usize) -> bool) {
    for (lane, mask) in mask.iter_mut().enumerate() {
        *mask = yes(holds(lane));
    }
}

/// All bits for yes, none for no.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(super) fn yes(holds: bool) -> u8 {
    u8::from(holds).wrapping_neg()
}
