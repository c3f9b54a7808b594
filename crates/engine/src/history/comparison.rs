//! Comparison of two runs: their common steps and their differences.

mod run;

use std::collections::BTreeMap;

use polity_model::digest::Digest;
use polity_model::event::{DefinitionPin, PinKind};
use polity_model::name::Name;
use polity_model::task::ForkedFrom;
use serde::Serialize;
use serde_json::{Value, json};

pub use run::{ComparedRun, ComparedToolCall, HumanIntervention, NodeFailure, RunStep};

/// The comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    /// True if nothing differs.
    pub same: bool,
    /// The last common checkpoint, if both are forks of one task.
    pub shared: Option<ForkedFrom>,
    /// The number of common steps from the start.
    pub common_steps: usize,
    /// The first differing step.
    pub first_difference: Option<StepDifference>,
    /// All differences.
    pub differences: Vec<RunDifference>,
}

/// A step that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepDifference {
    /// The number of the step, from 1.
    pub step: usize,
    /// The step of the first run; none if it had ended.
    pub a: Option<RunStep>,
    /// The step of the second run.
    pub b: Option<RunStep>,
}

/// A difference between two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum RunDifference {
    /// A definition.
    Definition {
        /// The kind of definition.
        kind: PinKind,
        /// Its name.
        name: Name,
        /// The digest in the first run.
        a: Option<Digest>,
        /// The digest in the second run.
        b: Option<Digest>,
    },
    /// A step.
    Step(StepDifference),
    /// A field of the task.
    Field {
        /// Its name.
        field: &'static str,
        /// The value in the first run.
        a: Value,
        /// The value in the second run.
        b: Value,
    },
}

impl RunComparison {
    /// Compares two runs.
    pub fn of(a: &ComparedRun, b: &ComparedRun) -> Self {
        let mut differences = definitions(&a.pins, &b.pins);
        let field = |field, a: Value, b: Value| {
            if a == b { None } else { Some(RunDifference::Field { field, a, b }) }
        };
        let (one, other) = (&a.task, &b.task);
        let before = [
            field("assigned_agent", json!(one.assigned_agent), json!(other.assigned_agent)),
            field("input", json!(one.description), json!(other.description)),
            field("parameters", json!(one.parameters), json!(other.parameters)),
        ];
        let after = [
            field("metadata", json!(a.metadata), json!(b.metadata)),
            field("status", json!(one.status), json!(other.status)),
            field("result", json!(one.result), json!(other.result)),
            field("error", json!(one.error), json!(other.error)),
        ];
        differences.extend(before.into_iter().flatten());
        let steps = steps(&a.steps, &b.steps);
        let longest = a.steps.len().max(b.steps.len());
        let common_steps = steps.first().map_or(longest, |first| first.step - 1);
        let first_difference = steps.first().cloned();
        differences.extend(steps.into_iter().map(RunDifference::Step));
        differences.extend(after.into_iter().flatten());
        let (same, shared) = (differences.is_empty(), a.shared_with(b));
        Self { same, shared, common_steps, first_difference, differences }
    }
}

/// The differing steps, with their numbers.
fn steps(a: &[RunStep], b: &[RunStep]) -> Vec<StepDifference> {
    let pairs = (0..a.len().max(b.len())).map(|index| (index, a.get(index), b.get(index)));
    pairs
        .filter(|(_, a, b)| a != b)
        .map(|(index, a, b)| StepDifference { step: index + 1, a: a.cloned(), b: b.cloned() })
        .collect()
}

/// The digests of one definition in both runs.
type PinnedPair<'a> = (Option<&'a Digest>, Option<&'a Digest>);

fn definitions(a: &[DefinitionPin], b: &[DefinitionPin]) -> Vec<RunDifference> {
    let mut pins: BTreeMap<(PinKind, &Name), PinnedPair<'_>> = BTreeMap::new();
    for pin in a {
        pins.entry((pin.kind, &pin.name)).or_default().0 = Some(&pin.digest);
    }
    for pin in b {
        pins.entry((pin.kind, &pin.name)).or_default().1 = Some(&pin.digest);
    }
    pins.into_iter()
        .filter(|(_, (a, b))| a != b)
        .map(|((kind, name), (a, b))| {
            let (a, b) = (a.copied(), b.copied());
            RunDifference::Definition { kind, name: name.clone(), a, b }
        })
        .collect()
}
