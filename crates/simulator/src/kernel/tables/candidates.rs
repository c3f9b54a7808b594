//! The candidates of a trigger in a state, with precompiled guard checks.

use polity_statechart::{CandidateId, Chart, CompareOp, FastGuard, StateId, TriggerId};

use crate::kernel::tables::simd_plan::DrawRange;

/// The event of a trigger fired in a state.
#[derive(Debug)]
pub(crate) struct TriggerEvent {
    pub(crate) candidates: Vec<CandidateCheck>,
    /// True if the oracle may choose some of them.
    pub(crate) has_oracle: bool,
}

/// A candidate with its guard check.
#[derive(Debug)]
pub(crate) struct CandidateCheck {
    pub(crate) id: CandidateId,
    pub(crate) check: GuardCheck,
}

/// The check of a guard. Most guards compare one operand with a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GuardCheck {
    /// Always holds.
    Always,
    /// Never holds.
    Never,
    /// Holds if a draw is at most this; inverted, if it is above.
    Draw { index: u32, at_most: u32, inverted: bool },
    /// Compares a field with a number.
    Field { field: usize, operator: CompareOp, number: f64 },
    /// Evaluates the guard expression.
    Guard,
}

impl TriggerEvent {
    pub(crate) fn new(chart: &Chart, state: StateId, trigger: TriggerId) -> Self {
        let ids = chart.candidates(state, trigger);
        let has_oracle = ids.clone().any(|id| chart.is_oracle(id));
        let candidates = ids.map(|id| CandidateCheck { id, check: GuardCheck::of(chart, id) });
        Self { candidates: candidates.collect(), has_oracle }
    }
}

impl GuardCheck {
    fn of(chart: &Chart, candidate: CandidateId) -> Self {
        match chart.fast_guard(candidate) {
            FastGuard::Always => Self::Always,
            FastGuard::Field(field, operator, number) => {
                Self::Field { field: field.index(), operator, number }
            }
            FastGuard::Draw(index, operator, number) => Self::for_draw(index, operator, number),
            FastGuard::Other => Self::Guard,
        }
    }

    fn for_draw(index: u32, operator: CompareOp, number: f64) -> Self {
        match DrawRange::matching(operator, number) {
            Some(DrawRange::All) => Self::Always,
            Some(DrawRange::None) => Self::Never,
            Some(DrawRange::Some { at_most, inverted }) => Self::Draw { index, at_most, inverted },
            None => Self::Guard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_with_a_number_need_no_expression() {
        let requested = |guard: &str| {
            let text = format!(
                "name: n\nstates: [a, b]\ninitial: a\nfields: {{n: 1}}\ntransitions:\n  \
                 - {{trigger: t, source: a, target: b, guard: {guard}}}\n  \
                 - {{trigger: t, source: b, target: a}}\n"
            );
            let chart = Chart::from_text(&text).unwrap();
            let trigger = chart.trigger("t").unwrap();
            let fired = TriggerEvent::new(&chart, chart.initial(), trigger);
            assert!(!fired.has_oracle);
            fired.candidates[0].check
        };
        let half = GuardCheck::Draw { index: 0, at_most: u32::MAX / 2, inverted: false };
        assert_eq!(requested("draw() < 0.5"), half);
        assert_eq!(requested("0.5 > draw()"), half);
        assert_eq!(
            requested("draw() >= 0.5"),
            GuardCheck::Draw { index: 0, at_most: u32::MAX / 2, inverted: true }
        );
        assert_eq!(requested("draw() < 0"), GuardCheck::Never);
        assert_eq!(requested("draw() < 1"), GuardCheck::Always);
        let less = GuardCheck::Field { field: 0, operator: CompareOp::Less, number: 2.0 };
        assert_eq!(requested("agent.n < 2"), less);
        assert_eq!(requested("agent.n < 2 && draw() < 0.5"), GuardCheck::Guard);
        assert_eq!(requested("agent.n * 2 < 2"), GuardCheck::Guard);
    }
}
