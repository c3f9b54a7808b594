//! A trigger that is fired in a state, and what can be known of its candidates before anyone is looked
//! at.

use polity_statechart::{CandidateId, Chart, CompareOp, FastGuard, StateId, TriggerId};

use super::plan::Draws;

/// A trigger that is fired in a state.
#[derive(Debug)]
pub(super) struct Fired {
    pub(super) candidates: Vec<Candidate>,
    /// Whether some of them are left to the oracle.
    pub(super) has_oracle: bool,
}

/// One of the candidates, in their order.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) row: CandidateId,
    pub(super) question: Question,
}

/// What is asked to tell whether a candidate is taken. Most guards compare one thing with a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Question {
    /// Nothing: it is.
    Always,
    /// Nothing: it is not.
    Never,
    /// Whether a draw is at most this; unless it is taken just by the others.
    Draw { index: u32, at_most: u32, unless: bool },
    /// How a field compares with a number.
    Field { field: usize, operator: CompareOp, number: f64 },
    /// The guard.
    Guard,
}

impl Fired {
    pub(super) fn new(chart: &Chart, state: StateId, trigger: TriggerId) -> Self {
        let rows = chart.candidates(state, trigger);
        let has_oracle = rows.clone().any(|row| chart.is_oracle(row));
        let candidates = rows.map(|row| Candidate { row, question: Question::of(chart, row) });
        Self { candidates: candidates.collect(), has_oracle }
    }
}

impl Question {
    fn of(chart: &Chart, row: CandidateId) -> Self {
        match chart.fast_guard(row) {
            FastGuard::Always => Self::Always,
            FastGuard::Field(field, operator, number) => {
                Self::Field { field: field.index(), operator, number }
            }
            FastGuard::Draw(index, operator, number) => Self::about_draw(index, operator, number),
            FastGuard::Other => Self::Guard,
        }
    }

    fn about_draw(index: u32, operator: CompareOp, number: f64) -> Self {
        match Draws::that(operator, number) {
            Some(Draws::All) => Self::Always,
            Some(Draws::None) => Self::Never,
            Some(Draws::Some { at_most, unless }) => Self::Draw { index, at_most, unless },
            None => Self::Guard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compares_one_thing_with_a_number_needs_no_expression() {
        let asked = |guard: &str| {
            let text = format!(
                "name: n\nstates: [a, b]\ninitial: a\nfields: {{n: 1}}\ntransitions:\n  \
                 - {{trigger: t, source: a, target: b, guard: {guard}}}\n  \
                 - {{trigger: t, source: b, target: a}}\n"
            );
            let chart = Chart::from_text(&text).unwrap();
            let trigger = chart.trigger("t").unwrap();
            let fired = Fired::new(&chart, chart.initial(), trigger);
            assert!(!fired.has_oracle);
            fired.candidates[0].question
        };
        let half = Question::Draw { index: 0, at_most: u32::MAX / 2, unless: false };
        assert_eq!(asked("draw() < 0.5"), half);
        assert_eq!(asked("0.5 > draw()"), half);
        assert_eq!(
            asked("draw() >= 0.5"),
            Question::Draw { index: 0, at_most: u32::MAX / 2, unless: true }
        );
        assert_eq!(asked("draw() < 0"), Question::Never);
        assert_eq!(asked("draw() < 1"), Question::Always);
        let less = Question::Field { field: 0, operator: CompareOp::Less, number: 2.0 };
        assert_eq!(asked("agent.n < 2"), less);
        assert_eq!(asked("agent.n < 2 && draw() < 0.5"), Question::Guard);
        assert_eq!(asked("agent.n * 2 < 2"), Question::Guard);
    }
}
