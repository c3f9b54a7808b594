//! The comparison of two runs as text.

use polity_engine::comparison::{
    ComparedRun, HumanIntervention, RunComparison, RunDifference, RunStep, StepDifference,
};
use polity_model::digest::Digest;
use polity_model::event::PinKind;
use polity_model::task::ForkedFrom;
use polity_model::trace::shorten;
use serde_json::Value;

use super::task::{origin_text, short};
use super::{count, style, table};

/// The length of each side of a difference.
const SIDE_CHARACTERS_MAX: usize = 300;

/// The length of a step in the side-by-side table.
const CELL_CHARACTERS_MAX: usize = 48;

/// The common parts, the first difference and the steps after it.
pub(crate) fn comparison_text(
    a: &ComparedRun,
    b: &ComparedRun,
    comparison: &RunComparison,
) -> String {
    let mut lines = vec![heading("a", a), heading("b", b)];
    if let Some(ForkedFrom { task_id, checkpoint }) = comparison.shared {
        let from = short(task_id);
        let until = checkpoint.map(|number| format!(" up to checkpoint {number}"));
        let until = until.unwrap_or_default();
        lines.push(format!("both share the history of {from}{until}"));
    }
    lines.push(String::new());
    if comparison.same {
        lines.push(format!("the runs are the same: {}", same(a, b, comparison)));
        return lines.join("\n");
    }
    lines.push(format!("the same: {}", same(a, b, comparison)));
    for difference in &comparison.differences {
        match difference {
            RunDifference::Definition { kind, name, a, b } => {
                let what = format!("the {} {name} differs:", kind_in_words(*kind));
                lines.extend(both_sides(&what, &digest(a.as_ref()), &digest(b.as_ref())));
            }
            RunDifference::Field { field, a, b } => {
                lines.extend(both_sides(
                    &format!("{} differs:", in_words(field)),
                    &text(a),
                    &text(b),
                ));
            }
            RunDifference::Step(difference) => {
                let first = comparison.first_difference.as_ref();
                if first == Some(difference) {
                    let StepDifference { step, a: one, b: other } = difference;
                    let what = format!("they diverge at step {step}:");
                    lines.extend(both_sides(&what, &side(one.as_ref()), &side(other.as_ref())));
                    lines.extend(rest(a, b, *step));
                }
            }
        }
    }
    lines.join("\n")
}

fn heading(side: &str, run: &ComparedRun) -> String {
    let task = &run.task;
    let origin = origin_text(task).map(|origin| format!(", {origin}"));
    format!(
        "{} {} {} {}, {}{}",
        style::dim(side),
        style::label(&short(task.id)),
        task.assigned_agent,
        style::status(task.status, &task.status.to_string()),
        count(run.steps.len(), "step"),
        origin.unwrap_or_default()
    )
}

/// The common definitions, steps and fields, counted.
fn same(a: &ComparedRun, b: &ComparedRun, comparison: &RunComparison) -> String {
    let differs = |name: &str| {
        let mut differences = comparison.differences.iter();
        differences.any(|difference| match difference {
            RunDifference::Field { field, .. } => *field == name,
            RunDifference::Definition { .. } | RunDifference::Step(_) => false,
        })
    };
    let definitions = a.pins.iter().filter(|pin| b.pins.contains(pin)).count();
    let mut same = vec![count(definitions, "definition")];
    for (field, is_there) in [
        ("input", true),
        ("parameters", !a.task.parameters.is_empty()),
        ("steps", true),
        ("status", true),
        ("result", a.task.result.is_some()),
        ("error", a.task.error.is_some()),
    ] {
        if field == "steps" {
            same.push(count(comparison.common_steps, "step"));
        } else if is_there && !differs(field) {
            same.push(field.to_owned());
        }
    }
    same.join(", ")
}

/// Both sides of one difference, one per line.
fn both_sides(what: &str, a: &str, b: &str) -> [String; 3] {
    let side = |name: &str, text: &str| {
        format!("  {} {}", style::dim(name), shorten(text, SIDE_CHARACTERS_MAX))
    };
    [what.to_owned(), side("a", a), side("b", b)]
}

/// The steps after the first difference, side by side.
fn rest(a: &ComparedRun, b: &ComparedRun, after: usize) -> Option<String> {
    let most = a.steps.len().max(b.steps.len());
    let rows = (after..most).map(|index| {
        let (one, other) = (a.steps.get(index), b.steps.get(index));
        let cell = |step: Option<&RunStep>| shorten(&side(step), CELL_CHARACTERS_MAX);
        let sign = if one == other { "=" } else { "≠" };
        [format!("  {}", index + 1), sign.to_owned(), cell(one), cell(other)]
    });
    (after < most).then(|| table(["  STEP", "", "A", "B"], rows))
}

/// One step on one line.
fn side(step: Option<&RunStep>) -> String {
    match step {
        None => "(nothing)".to_owned(),
        Some(RunStep::Node { node, output, routing_key, failure, interventions }) => {
            let mut parts = vec![node.to_string()];
            parts.extend(interventions.iter().map(|done| format!("[{}]", intervention(done))));
            parts.extend(routing_key.as_ref().map(|key| format!("-> {key}")));
            let failure = failure.as_ref();
            parts.extend(failure.map(|why| format!("failed: {}: {}", why.code, why.error)));
            let output = output.as_ref().map(|output| format!(": {output}"));
            parts.join(" ") + &output.unwrap_or_default()
        }
        Some(RunStep::Message { role, content, tool_calls }) => {
            let asked = tool_calls
                .iter()
                .map(|call| format!(" [{} {}]", call.tool, Value::Object(call.arguments.clone())));
            format!("{}: {content}{}", role.label(), asked.collect::<String>())
        }
        Some(RunStep::Intervention(done)) => format!("[{}]", intervention(done)),
    }
}

fn intervention(done: &HumanIntervention) -> String {
    let set = done.set.iter().map(|(path, value)| format!("set {path}={value}"));
    let decided = done.action.iter().chain(&done.message).cloned();
    decided.chain(set).collect::<Vec<_>>().join(", ")
}

/// The kind of a definition in words.
pub(crate) fn kind_in_words(kind: PinKind) -> &'static str {
    match kind {
        PinKind::Agent => "agent",
        PinKind::Workflow => "workflow",
        PinKind::Script => "script",
        PinKind::Step => "step",
    }
}

fn digest(digest: Option<&Digest>) -> String {
    digest.map_or_else(|| "(not there)".to_owned(), |digest| digest.to_string()[..12].to_owned())
}

fn in_words(field: &str) -> &str {
    match field {
        "assigned_agent" => "the agent",
        "input" => "the input",
        "parameters" => "the parameters",
        "metadata" => "the metadata",
        other => other,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "(none)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
