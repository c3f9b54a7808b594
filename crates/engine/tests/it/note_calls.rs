//! Calls and scripts of a journal whose effect is to record a text.

use polity_model::ids::ToolCallId;

use crate::prelude::*;
use crate::workflow_harness::WorkflowHarness;
use crate::workflow_programs::text_of_script;

/// A call or a script in the journal that records a text.
pub(crate) struct NoteCall {
    pub(crate) text: String,
    pub(crate) is_answered: bool,
    /// The allowed number of effects; none if repeatable.
    pub(crate) allowed: Option<usize>,
}

/// Every call and every script that records a text.
pub(crate) fn calls(harness: &WorkflowHarness) -> Vec<NoteCall> {
    let mut found: BTreeMap<ToolCallId, NoteCall> = BTreeMap::new();
    let mut scripts = Vec::new();
    // The oldest first: a retry answers reviews of calls that the task before it has made.
    let mut tasks = harness.base.all_tasks();
    tasks.sort_by_key(|row| row.created_position);
    for row in tasks {
        if let Some(script) = script_run(&harness.base.events(row.id)) {
            scripts.push(script);
            continue;
        }
        let mut in_doubt = None;
        for event in harness.base.events(row.id) {
            match event {
                Event::NodeChanged {
                    change:
                        NodeChange::Start { call: Some(call), .. } | NodeChange::StartItem { call, .. },
                    ..
                } => {
                    found.extend(noting(&call.arguments).map(|noting| (call.id, noting)));
                }
                Event::ModelAnswered { message, .. } => {
                    for call in message.tool_calls() {
                        found.extend(noting(&call.arguments).map(|noting| (call.id, noting)));
                    }
                }
                Event::ToolChanged { call_id, change } => {
                    let Some(noting) = found.get_mut(&call_id) else { continue };
                    match change {
                        ToolChange::Call { repeatable: true, .. } => noting.allowed = None,
                        ToolChange::Answer { is_error: false, .. } => noting.is_answered = true,
                        _ => {}
                    }
                }
                Event::ReviewOpened { subject, .. } => in_doubt = subject.call_id(),
                Event::ReviewAnswered { verdict: ReviewVerdict::Retry, .. } => {
                    let noting = in_doubt.and_then(|call| found.get_mut(&call)).unwrap();
                    noting.allowed = noting.allowed.map(|allowed| allowed + 1);
                }
                _ => {}
            }
        }
    }
    found.into_values().chain(scripts).collect()
}

/// The script of a task that runs one.
fn script_run(events: &[Event]) -> Option<NoteCall> {
    let Some(Event::TaskCreated(created)) = events.first() else { return None };
    let text = text_of_script(&created.description)?;
    let input: Value = serde_json::from_str(&created.description).ok()?;
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
    let retries =
        count(|event| matches!(event, Event::ReviewAnswered { verdict: ReviewVerdict::Retry, .. }));
    let may_repeat = input["arguments"]["again"] == true;
    let is_answered = count(|event| matches!(event, Event::TaskCompleted { .. })) > 0;
    // A retry asks first if the run of the earlier task was cut off.
    let unasked = usize::from(created.doubted_run.is_none());
    Some(NoteCall { text, is_answered, allowed: (!may_repeat).then_some(unasked + retries) })
}

fn noting(arguments: &serde_json::Map<String, Value>) -> Option<NoteCall> {
    let text = arguments.get("text")?.as_str()?.to_owned();
    Some(NoteCall { text, is_answered: false, allowed: Some(1) })
}
