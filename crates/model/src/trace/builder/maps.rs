//! The items of maps, for the trace: folded into a few steps and a count.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::TraceBuilder;
use crate::event::MapStart;
use crate::failure::ErrorCode;
use crate::ids::ToolCallId;
use crate::message::ToolCall;
use crate::name::Name;
use crate::trace::{
    FAILED_ITEMS_SHOWN, ITEMS_SHOWN, STEP_MESSAGE_CHARACTERS_MAX, StepStatus, ToolCallRecord,
    shorten,
};

/// The maps in progress.
#[derive(Debug, Clone, Default)]
pub(super) struct TracedMaps {
    maps: BTreeMap<Name, TracedMap>,
    /// The map and the item of each call in progress.
    calls: BTreeMap<ToolCallId, (Name, u32)>,
}

/// The progress of one map.
#[derive(Debug, Clone)]
struct TracedMap {
    began: Timestamp,
    count: u32,
    ended: u32,
    failed: u32,
    /// The number of successful items with a step.
    items_shown: u32,
    /// The number of failures with a step.
    failures_shown: u32,
    /// The error answers of items that have not failed yet.
    answers: BTreeMap<u32, ToolCallRecord>,
}

impl TracedMap {
    /// The progress in words, such as `120 of 400, 2 failed`.
    fn progress(&self) -> String {
        let Self { count, ended, failed, .. } = self;
        let failed = if *failed == 0 { String::new() } else { format!(", {failed} failed") };
        format!("{ended} of {count}{failed}")
    }

    fn shows_item(&mut self) -> bool {
        let shows = self.items_shown < ITEMS_SHOWN;
        self.items_shown += u32::from(shows);
        shows
    }

    fn shows_failure(&mut self) -> bool {
        let shows = self.failures_shown < FAILED_ITEMS_SHOWN;
        self.failures_shown += u32::from(shows);
        shows
    }
}

impl TracedMaps {
    pub(super) fn begin(&mut self, node: &Name, start: &MapStart, began: Timestamp) {
        let map = TracedMap {
            began,
            count: start.count,
            ended: start.ended,
            failed: 0,
            items_shown: 0,
            failures_shown: 0,
            answers: BTreeMap::new(),
        };
        self.maps.insert(node.clone(), map);
        // A retry continues calls of the earlier task.
        let open = start.open.iter().map(|open| (open.call_id, (node.clone(), open.item)));
        self.calls.extend(open);
    }

    /// Ends a map. Returns its progress in words.
    pub(super) fn end(&mut self, node: &Name) -> Option<String> {
        let map = self.maps.remove(node)?;
        self.calls.retain(|_, (of, _)| of != node);
        Some(map.progress())
    }

    /// The oldest map in progress, with its progress in words.
    pub(super) fn in_progress(&self) -> Option<(String, Timestamp)> {
        let (node, map) = self.maps.iter().min_by_key(|(_, map)| map.began)?;
        Some((format!("{node}: {}", map.progress()), map.began))
    }

    /// True if a call performs an item.
    pub(super) fn has_call(&self, id: ToolCallId) -> bool {
        self.calls.contains_key(&id)
    }

    /// True if a failed attempt of a call has a step. Calls that perform no item always have one.
    pub(super) fn shows_attempt(&mut self, id: ToolCallId) -> bool {
        let map = self.calls.get(&id).and_then(|(node, _)| self.maps.get_mut(node));
        map.is_none_or(TracedMap::shows_failure)
    }
}

impl TraceBuilder {
    /// Adds the call of an item.
    pub(super) fn start_item(&mut self, node: &Name, item: u32, call: &ToolCall) {
        self.maps.calls.insert(call.id, (node.clone(), item));
        self.calls.add(call);
    }

    /// Ends the call of an item. A failed item has its step with the failure, which follows.
    pub(super) fn item_answered(&mut self, at: Timestamp, id: ToolCallId, record: ToolCallRecord) {
        self.calls.remove(id);
        let Some((node, item)) = self.maps.calls.remove(&id) else { return };
        let Some(map) = self.maps.maps.get_mut(&node) else { return };
        if record.error.is_some() {
            map.answers.insert(item, record);
            return;
        }
        map.ended += 1;
        if map.shows_item() {
            let output = record.result.as_ref().and_then(|result| result["content"].as_str());
            let output = output.unwrap_or_default().to_owned();
            self.item_step(at, &node, item, StepStatus::Info, &output, Some(record));
        }
    }

    /// Adds items that ended without a call.
    pub(super) fn finish_items(
        &mut self,
        at: Timestamp,
        node: &Name,
        first: u32,
        outputs: &[Value],
    ) {
        for (item, output) in (first..).zip(outputs) {
            let Some(map) = self.maps.maps.get_mut(node) else { return };
            map.ended += 1;
            if map.shows_item() {
                self.item_step(at, node, item, StepStatus::Info, &output.to_string(), None);
            }
        }
    }

    /// Adds a failed item.
    pub(super) fn fail_item(
        &mut self,
        at: Timestamp,
        node: &Name,
        item: u32,
        code: ErrorCode,
        error: &str,
    ) {
        let Some(map) = self.maps.maps.get_mut(node) else { return };
        map.ended += 1;
        map.failed += 1;
        let record = map.answers.remove(&item);
        if map.shows_failure() {
            let message = format!("{code}: {error}");
            self.item_step(at, node, item, StepStatus::Error, &message, record);
        }
    }

    fn item_step(
        &mut self,
        at: Timestamp,
        node: &Name,
        item: u32,
        status: StepStatus,
        message: &str,
        record: Option<ToolCallRecord>,
    ) {
        let message = format!("item {item}: {message}");
        self.step(at, node.as_str(), status, shorten(&message, STEP_MESSAGE_CHARACTERS_MAX));
        let Some(step) = self.trace.steps.last_mut() else { return };
        step.node = Some(node.clone());
        if let Some(record) = record {
            step.duration_ms = record.duration_ms;
            step.name_agent(&record);
            step.tool_calls.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::event::{
        Event, JournalPosition, NodeChange, NodeOutput, RecordedEvent, StreamId, StreamSequence,
        ToolChange,
    };
    use crate::ids::TaskId;
    use crate::state::StateUpdates;

    fn recorded(event: Event) -> RecordedEvent {
        RecordedEvent {
            position: JournalPosition(1),
            stream: StreamId::Task(TaskId::from_random_bytes([1; 16])),
            sequence: StreamSequence(1),
            at: Timestamp::UNIX_EPOCH,
            event,
        }
    }

    fn created() -> Event {
        let created = json!({
            "type": "task_created", "description": "x", "assigned_agent": "flow", "pins": [],
        });
        serde_json::from_value(created).unwrap()
    }

    fn changed(change: NodeChange) -> RecordedEvent {
        recorded(Event::NodeChanged { node: "each".parse().unwrap(), change })
    }

    /// A map of 400 items, of which every tenth fails.
    fn builder(ended: u32) -> TraceBuilder {
        let task = TaskId::from_random_bytes([1; 16]);
        let mut builder = TraceBuilder::begin(task, &recorded(created())).unwrap();
        let map =
            Some(MapStart { count: 400, items: Some(Vec::new()), ended: 0, open: Vec::new() });
        builder.apply(&changed(NodeChange::Start { call: None, map }));
        for item in 0..ended {
            let id = ToolCallId::from_random_bytes([u8::try_from(item % 251).unwrap(); 16]);
            let call = ToolCall {
                id,
                server: "kit".into(),
                tool: "echo".into(),
                arguments: Map::new(),
                signature: None,
            };
            builder.apply(&changed(NodeChange::StartItem { item, call }));
            let is_error = item % 10 == 9;
            let answer = ToolChange::Answer {
                ordinal: None,
                content: format!("said {item}"),
                structured: None,
                is_error,
                duration_ms: 1,
                unsettled: None,
                item: Some(item),
            };
            builder.apply(&recorded(Event::ToolChanged { call_id: id, change: answer }));
            if is_error {
                let (code, error) = (ErrorCode::ToolFailed, "no".to_owned());
                builder.apply(&changed(NodeChange::FailItem { item, code, error }));
            }
        }
        builder
    }

    #[test]
    fn items_are_folded_into_the_first_the_failed_and_a_count() {
        let mut builder = builder(400);
        builder.apply(&changed(NodeChange::Finish {
            output: NodeOutput::Items,
            routing_key: None,
            to: Vec::new(),
            edge: None,
            state_updates: StateUpdates::default(),
        }));
        let steps = builder.finish().steps;
        let messages: Vec<&str> = steps[1..].iter().map(|step| step.message.as_str()).collect();
        assert_eq!(messages[..3], ["item 0: said 0", "item 1: said 1", "item 2: said 2"]);
        assert_eq!(messages[3], "item 9: tool_failed: no");
        assert_eq!(messages.len(), 3 + 20 + 1);
        assert_eq!(messages.last(), Some(&"400 of 400, 40 failed"));
    }

    #[test]
    fn progress_counts_ended_and_failed_items() {
        let (progress, _) = builder(120).in_progress().unwrap();
        assert_eq!(progress, "each: 120 of 400, 12 failed");
        let last = builder(5).finish().steps.pop().unwrap();
        assert_eq!(last.message, "each: 5 of 400");
    }
}
