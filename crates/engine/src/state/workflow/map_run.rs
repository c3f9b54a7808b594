//! The run of a map: its items, their calls and their outputs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use polity_definition::{ItemErrorPolicy, OutputType, WorkflowNode, WorkflowNodeKind};
use polity_model::event::{MapStart, OpenItem};
use polity_model::failure::ErrorCode;
use polity_model::ids::ToolCallId;
use serde_json::{Value, json};

use super::CorruptJournal;
use crate::script_output::ScriptOutput;

/// The run of a map.
#[derive(Debug, Clone)]
pub struct MapRun {
    items: Arc<Vec<Value>>,
    /// The output of each item that has ended.
    outputs: Vec<Option<ItemOutput>>,
    progress: MapProgress,
}

/// The output of an item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemOutput {
    /// The text of a call's answer.
    Text(String),
    /// A JSON value.
    Json(Value),
    /// The failure of the item.
    Error {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        error: String,
    },
}

/// The items of a map that have started and ended. It is cheap to clone, to preview a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapProgress {
    /// The number of items.
    count: u32,
    /// The first item that has never started.
    next: u32,
    /// Items that start again because a fork has abandoned their calls, the last one first.
    again: Vec<u32>,
    /// The items in progress, with their calls.
    open: Vec<(u32, ToolCallId)>,
    ended: u32,
    failed: u32,
}

impl MapProgress {
    /// The progress of a map that has not started.
    pub(crate) fn new(count: u32) -> Self {
        Self { count, ..Self::default() }
    }

    /// The number of items.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of items that have ended.
    pub fn ended(&self) -> u32 {
        self.ended
    }

    /// The number of items that have failed.
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// The items in progress, with their calls.
    pub fn open(&self) -> &[(u32, ToolCallId)] {
        &self.open
    }

    /// True if every item has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.ended == self.count
    }

    /// The next item to start.
    pub(crate) fn next_item(&self) -> Option<u32> {
        self.again.last().copied().or((self.next < self.count).then_some(self.next))
    }

    /// The item that a call performs.
    pub(crate) fn item_of(&self, call: ToolCallId) -> Option<u32> {
        self.open.iter().find(|(_, id)| *id == call).map(|(item, _)| *item)
    }

    /// Starts the next item. Returns false if this is not the next.
    fn take(&mut self, item: u32) -> bool {
        let is_next = self.next_item() == Some(item);
        if is_next && self.again.pop().is_none() {
            self.next += 1;
        }
        is_next
    }

    /// Starts an item with its call. Returns false if this is not the next item.
    pub(crate) fn start(&mut self, item: u32, call: ToolCallId) -> bool {
        let is_next = self.take(item);
        if is_next {
            self.open.push((item, call));
        }
        is_next
    }

    /// Ends an item in progress, or the next one without a call. Returns false for any other.
    pub(crate) fn end(&mut self, item: u32, is_failed: bool) -> bool {
        let open = self.open.iter().position(|(open, _)| *open == item);
        if let Some(open) = open {
            self.open.swap_remove(open);
        } else if !self.take(item) {
            return false;
        }
        self.ended += 1;
        self.failed += u32::from(is_failed);
        true
    }

    /// Abandons the items in progress whose calls are not kept, so that they start again.
    fn begin_again(&mut self, is_kept: impl Fn(ToolCallId) -> bool) {
        let abandoned = self.open.extract_if(.., |(_, call)| !is_kept(*call));
        self.again.extend(abandoned.map(|(item, _)| item));
        self.again.sort_unstable_by(|one, other| other.cmp(one));
    }
}

impl MapRun {
    /// The run of a map that starts, or that continues in a fork.
    pub(super) fn start(earlier: Option<Self>, start: MapStart) -> Result<Self, CorruptJournal> {
        let MapStart { count, items, .. } = start;
        match (items, earlier) {
            (Some(items), _) if u32::try_from(items.len()) == Ok(count) => Ok(Self {
                outputs: vec![None; items.len()],
                items: Arc::new(items),
                progress: MapProgress::new(count),
            }),
            (None, Some(earlier)) if earlier.progress.count == count => Ok(earlier),
            (Some(_) | None, _) => Err(CorruptJournal::NoItem(count)),
        }
    }

    /// The items.
    pub(crate) fn items(&self) -> &Arc<Vec<Value>> {
        &self.items
    }

    /// The items that have started and ended.
    pub fn progress(&self) -> &MapProgress {
        &self.progress
    }

    pub(super) fn start_item(&mut self, item: u32, call: ToolCallId) -> Result<(), CorruptJournal> {
        if self.progress.start(item, call) { Ok(()) } else { Err(CorruptJournal::NoItem(item)) }
    }

    pub(super) fn end_item(&mut self, item: u32, output: ItemOutput) -> Result<(), CorruptJournal> {
        let is_failed = matches!(output, ItemOutput::Error { .. });
        let place = self.outputs.get_mut(item as usize).filter(|place| place.is_none());
        let place = place.ok_or(CorruptJournal::NoItem(item))?;
        if !self.progress.end(item, is_failed) {
            return Err(CorruptJournal::NoItem(item));
        }
        *place = Some(output);
        Ok(())
    }

    /// The run of a fork: items in progress start again, and those that have ended are kept.
    pub(super) fn forked(&self) -> Self {
        self.continued(|_| false)
    }

    /// The run of a retry: items whose calls it has inherited continue, and others in progress start
    /// again.
    pub(super) fn continued(&self, is_kept: impl Fn(ToolCallId) -> bool) -> Self {
        let mut run = self.clone();
        run.progress.begin_again(is_kept);
        run
    }

    /// The start of the same map in a fork or retry, which continues from here.
    pub(crate) fn restart(&self) -> MapStart {
        let MapProgress { count, ended, open, .. } = &self.progress;
        let open = open.iter().map(|(item, call_id)| OpenItem { item: *item, call_id: *call_id });
        MapStart { count: *count, items: None, ended: *ended, open: open.collect() }
    }

    /// The output of each item that has ended.
    pub(crate) fn outputs(&self) -> &[Option<ItemOutput>] {
        &self.outputs
    }
}

/// The JSON list of the outputs of a map's items. `newest` has outputs that are not recorded yet.
pub(crate) fn render_outputs(
    node: &WorkflowNode,
    recorded: &[Option<ItemOutput>],
    newest: &BTreeMap<u32, ItemOutput>,
) -> String {
    let parses = node.outputs.iter().any(|output| output.output_type == OutputType::Json);
    let count = recorded.len().max(newest.len());
    let mut list = String::from("[");
    for index in 0..count {
        if index > 0 {
            list.push(',');
        }
        let new = u32::try_from(index).ok().and_then(|index| newest.get(&index));
        let output = new.or(recorded.get(index).and_then(Option::as_ref));
        // Writing to a text cannot fail.
        let _ = match output {
            Some(ItemOutput::Json(value)) => write!(list, "{value}"),
            Some(ItemOutput::Text(text)) => write!(list, "{}", text_value(text, parses)),
            Some(ItemOutput::Error { code, error }) => {
                let category = code.category();
                let error = json!({ "code": code, "category": category, "message": error });
                write!(list, "{{\"error\":{error}}}")
            }
            None => write!(list, "null"),
        };
    }
    list.push(']');
    list
}

/// A text, or the JSON object or list that it is, if the map declares JSON.
fn text_value(text: &str, parses: bool) -> Value {
    let is_json = parses && text.trim_start().starts_with(['{', '[']);
    let value = is_json.then(|| serde_json::from_str(text).ok()).flatten();
    value.unwrap_or_else(|| text.into())
}

impl ItemOutput {
    /// The output of an item whose call has this answer.
    pub(crate) fn of_answer(step: &WorkflowNode, content: String) -> Result<Self, String> {
        if matches!(step.kind, WorkflowNodeKind::Script { .. }) {
            return ScriptOutput::parse(&content).map(|script| Self::Json(script.value));
        }
        Ok(Self::Text(content))
    }
}

/// The consequence of a failed item of a map.
pub(crate) fn item_error_policy(node: &WorkflowNode) -> ItemErrorPolicy {
    match &node.kind {
        WorkflowNodeKind::Map { on_item_error, .. } => *on_item_error,
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Tool { .. }
        | WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Script { .. } => ItemErrorPolicy::default(),
    }
}

/// The step of a map that runs for each item; none for other nodes.
pub(crate) fn item_node(node: &WorkflowNode) -> Option<&WorkflowNode> {
    match &node.kind {
        WorkflowNodeKind::Map { node, .. } => Some(node),
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Tool { .. }
        | WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Script { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(byte: u8) -> ToolCallId {
        ToolCallId::from_random_bytes([byte; 16])
    }

    #[test]
    fn items_start_in_order_and_end_in_any() {
        let mut progress = MapProgress::new(3);
        assert!(!progress.start(1, call(1)), "0 is the next");
        assert!(progress.start(0, call(0)) && progress.start(1, call(1)));
        assert_eq!((progress.item_of(call(1)), progress.next_item()), (Some(1), Some(2)));
        assert!(progress.end(1, true) && !progress.end(1, false));
        assert!(progress.end(2, false), "the next item may end without a call");
        assert_eq!((progress.ended(), progress.failed(), progress.is_done()), (2, 1, false));
        assert!(progress.end(0, false) && progress.is_done());
        assert_eq!(progress.next_item(), None);
    }

    #[test]
    fn abandoned_items_start_again_before_new_ones() {
        let mut progress = MapProgress::new(4);
        for item in 0..3 {
            assert!(progress.start(item, call(u8::try_from(item).unwrap())));
        }
        assert!(progress.end(1, false));
        progress.begin_again(|_| false);
        assert_eq!((progress.open(), progress.ended()), (&[][..], 1));
        let order: Vec<u32> = std::iter::from_fn(|| {
            let item = progress.next_item()?;
            progress.end(item, false).then_some(item)
        })
        .collect();
        assert_eq!(order, [0, 2, 3]);
        assert!(progress.is_done());
    }

    #[test]
    fn wrong_starts_and_items_are_corrupt() {
        let items = || Some(vec![Value::Null, Value::Null]);
        let start = |count, items| {
            MapRun::start(None, MapStart { count, items, ended: 0, open: Vec::new() })
        };
        assert!(start(3, items()).is_err() && start(2, None).is_err());
        let mut run = start(2, items()).unwrap();
        assert!(run.end_item(7, ItemOutput::Json(Value::Null)).is_err());
        assert!(run.end_item(1, ItemOutput::Json(Value::Null)).is_err(), "0 is the next");
        run.end_item(0, ItemOutput::Json(Value::Null)).unwrap();
        assert!(run.end_item(0, ItemOutput::Json(Value::Null)).is_err());
        assert!(run.start_item(0, call(1)).is_err());
    }
}
