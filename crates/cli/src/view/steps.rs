//! Trace steps as lines and as a tree.

use std::fmt::Write;

use polity_model::task::Task;
use polity_model::trace::{StepRecord, StepStatus, TraceLog, shorten};

use super::{duration, style};

/// The width of a step's name, so that messages are aligned.
const NAME_WIDTH: usize = 16;

/// The length of an answer in a step; the task's result has all of it.
const ANSWER_CHARACTERS_MAX: usize = 60;

/// The step name of a model call.
const MODEL_CALL: &str = "model_call";

/// One step on one line.
pub(crate) fn line(step: &StepRecord) -> String {
    // Node names are shown as written in the file.
    let name = match &step.node {
        Some(node) => node.to_string(),
        None => step.step_name.replace('_', " "),
    };
    let name = format!("{name:NAME_WIDTH$}");
    let message = match step.status {
        StepStatus::Info => shorten(&step.message, ANSWER_CHARACTERS_MAX),
        // Warnings and errors are not shortened.
        StepStatus::Warning | StepStatus::Error => one_line(&step.message),
    };
    let mut line = format!("{} {name} {message}", style::sign(step.status));
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

/// True for the steps that only report creation and start.
pub(crate) fn is_beginning(step: &StepRecord) -> bool {
    ["created", "started"].contains(&step.step_name.as_str())
}

/// An error message on one line.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn details(step: &StepRecord) -> String {
    let mut details = Vec::new();
    if let Some(usage) = &step.usage {
        details.push(duration(step.duration_ms));
        details.push(usage.tokens_text());
        match usage.cost_usd {
            None => details.push("cost unknown".to_owned()),
            Some(usd) if usd > 0.0 => details.push(usage.cost_text()),
            Some(_) => {}
        }
    } else if step.step_name == MODEL_CALL && step.status != StepStatus::Warning
        || step.tool_calls.iter().any(|call| call.result.is_some() || call.duration_ms > 0)
    {
        details.push(duration(step.duration_ms));
    }
    details.join(", ")
}

/// A trace as a tree, with totals.
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
