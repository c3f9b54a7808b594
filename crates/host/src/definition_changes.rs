//! The difference between the definitions that a task pinned and those of the home now.

use std::collections::BTreeMap;

use polity_engine::pinned::Assignee;
use polity_engine::runtime::pins_of;
use polity_model::event::PinKind;
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_store::Store;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use crate::error::HostError;

/// The number of unchanged lines around a change.
const CONTEXT_LINES: usize = 2;

/// A definition that differs from the pinned one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefinitionChange {
    /// The kind of definition.
    pub kind: PinKind,
    /// Its name.
    pub name: Name,
    /// The change as a unified diff of the canonical JSON.
    pub diff: String,
}

/// The definitions of `current` that differ from those that a task pinned, in order of kind and name.
pub async fn definition_changes(
    store: &dyn Store,
    task: TaskId,
    current: &Assignee,
) -> Result<Vec<DefinitionChange>, HostError> {
    let mut sides: BTreeMap<(PinKind, Name), (String, String)> = BTreeMap::new();
    for pin in pins_of(store, task).await? {
        let lost = || HostError::LostDefinition { task, name: pin.name.to_string() };
        let json = store.definition(&pin.digest).await?.ok_or_else(lost)?;
        sides.entry((pin.kind, pin.name)).or_default().0 = in_lines(&json);
    }
    let pin_set = current.pin_set();
    for (pin, definition) in pin_set.pins.iter().zip(&pin_set.definitions) {
        sides.entry((pin.kind, pin.name.clone())).or_default().1 = in_lines(&definition.json);
    }
    let differing = sides.into_iter().filter(|(_, (before, now))| before != now);
    let changes = differing.map(|((kind, name), (before, now))| {
        let diff = TextDiff::from_lines(&before, &now);
        let mut unified = diff.unified_diff();
        let diff = unified.context_radius(CONTEXT_LINES).header("pinned", "current").to_string();
        DefinitionChange { kind, name, diff }
    });
    Ok(changes.collect())
}

/// A canonical definition with one value per line.
fn in_lines(json: &str) -> String {
    let value: Result<Value, _> = serde_json::from_str(json);
    let text = value.and_then(|value| serde_json::to_string_pretty(&value));
    text.unwrap_or_else(|_| json.to_owned()) + "\n"
}
