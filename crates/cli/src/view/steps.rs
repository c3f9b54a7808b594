//! Steps, as lines: live while they happen, and as a tree afterwards.

use std::fmt::Write;

use polity_model::task::Task;
use polity_model::trace::{StepRecord, StepStatus, TraceLog, shorten};

use super::{duration, style};

/// The widest name of a step, so that messages stand in a column.
const NAME_WIDTH: usize = 16;

/// How much of an answer a step shows; the whole of it is the result.
const ANSWER_CHARACTERS_MAX: usize = 60;

/// The step that asks a model.
const MODEL_CALL: &str = "model_call";

/// One step on one line.
pub(crate) fn line(step: &StepRecord) -> String {
    // A node's name is shown as its file has it.
    let name = match &step.node {
        Some(node) => node.to_string(),
        None => step.step_name.replace('_', " "),
    };
    let name = format!("{name:NAME_WIDTH$}");
    let message = match step.status {
        StepStatus::Info => shorten(&step.message, ANSWER_CHARACTERS_MAX),
        // What went wrong is told whole.
        StepStatus::Warning | StepStatus::Error => one_line(&step.message),
    };
    let mut line = format!("{} {name} {}", style::sign(step.status), super::harmless(&message));
    let details = details(step);
    if !details.is_empty() {
        if !step.message.is_empty() {
            line.push_str("  ");
        }
        line.push_str(&style::dim(&details));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Whether the step only tells that a task is there and at work.
pub(crate) fn is_beginning(step: &StepRecord) -> bool {
    ["created", "started"].contains(&step.step_name.as_str())
}

/// What went wrong may have many lines, and a step has one.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn details(step: &StepRecord) -> String {
    let mut details = Vec::new();
    if let Some(usage) = &step.usage {
        details.push(duration(step.duration_ms));
        details.push(format!("{}+{} tokens", usage.input_tokens, usage.output_tokens));
        if usage.cost_usd > 0.0 {
            details.push(format!("${:.4}", usage.cost_usd));
        }
    } else if step.step_name == MODEL_CALL && step.status != StepStatus::Warning
        || step.tool_calls.iter().any(|call| call.result.is_some() || call.duration_ms > 0)
    {
        details.push(duration(step.duration_ms));
    }
    details.join(", ")
}

/// The whole trace as a tree, with its sums.
pub(crate) fn tree(task: &Task, trace: &TraceLog) -> String {
    let took = super::task::took(task).map(|took| format!("in {took}")).unwrap_or_default();
    let state = if task.interrupted { "interrupted".to_owned() } else { task.status.to_string() };
    let mut text = format!(
        "{} {} {} {}\n",
        style::label(&task.id.to_string()),
        task.assigned_agent,
        style::status(task.status, &state),
        style::dim(&took)
    );
    text.truncate(text.trim_end().len());
    text.push('\n');
    for (index, step) in trace.steps.iter().enumerate() {
        let branch = if index + 1 == trace.steps.len() { "└─" } else { "├─" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{branch} {}", line(step));
    }
    let calls = trace.steps.iter().filter(|step| step.step_name == MODEL_CALL).count();
    let (calls, used) = (super::count(calls, "model call"), super::task::used(task));
    let _ = write!(text, "{calls}, {used}");
    text
}
