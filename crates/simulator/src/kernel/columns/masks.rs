//! Masks over a group of agents.

use polity_statechart::CompareOp;

use crate::kernel::LANES;

/// One byte per agent: all bits for true, none for false.
pub(crate) type LaneMask = [u8; LANES];

/// One number per agent.
pub(crate) type LaneNumbers = [f64; LANES];

/// False for all agents.
pub(crate) const NO: LaneMask = [0; LANES];
pub(crate) const YES: LaneMask = [0xFF; LANES];

/// Compares the numbers of all lanes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(crate) fn compare_lanes(
    operator: CompareOp,
    mask: &mut [u8],
    left: impl Fn(usize) -> f64,
    right: impl Fn(usize) -> f64,
) {
    // Each operator has its own loop, because a loop with a choice inside does not vectorize.
    match operator {
        CompareOp::Less => fill_mask(mask, |lane| left(lane) < right(lane)),
        CompareOp::LessOrEqual => fill_mask(mask, |lane| left(lane) <= right(lane)),
        CompareOp::Greater => fill_mask(mask, |lane| left(lane) > right(lane)),
        CompareOp::GreaterOrEqual => fill_mask(mask, |lane| left(lane) >= right(lane)),
        CompareOp::Equal => fill_mask(mask, |lane| CompareOp::Equal.holds(left(lane), right(lane))),
        CompareOp::NotEqual => {
            fill_mask(mask, |lane| CompareOp::NotEqual.holds(left(lane), right(lane)));
        }
    }
}

/// Fills a mask by a predicate over lanes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(crate) fn fill_mask(mask: &mut [u8], holds: impl Fn(usize) -> bool) {
    for (lane, mask) in mask.iter_mut().enumerate() {
        *mask = mask_of(holds(lane));
    }
}

/// Returns all bits for true, none for false.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(crate) fn mask_of(holds: bool) -> u8 {
    u8::from(holds).wrapping_neg()
}
