//! Runs maps: starts their items, and finishes them with the list of outputs.
//!
//! An item is a call of the workflow, so it is durable, retried and abandoned like the call of a
//! node. At most `max_parallel` calls of a map are open; each answer starts the next item in the
//! same commit. Conditions have no call, so their items end in batches.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use polity_definition::{
    ConditionExpression, EvaluationScope, ItemErrorPolicy, ItemScope, MAP_ITEMS_MAX, WorkflowNode,
    WorkflowNodeKind,
};
use polity_model::event::{Event, MapStart, NodeChange, NodeOutput};
use polity_model::failure::ErrorCode;
use polity_model::ids::ToolCallId;
use polity_model::machine::node::NodeState;
use polity_model::message::ToolCall;
use serde_json::Value;

use super::begin::{NodeError, cannot_evaluate};
use super::{FinishedNode, WorkflowDecision};
use crate::decide::call_batch::CallBatch;
use crate::decide::outcomes::ordinal;
use crate::state::{
    ItemOutput, MapProgress, MapRun, WorkflowRun, item_error_policy, item_node, render_outputs,
};

/// The most items that end without a call in one commit. Others follow in the next.
const INLINE_ITEMS_MAX: usize = 1000;

/// A map in progress, after the events so far.
pub(super) struct MapDecision {
    items: Arc<Vec<Value>>,
    progress: MapProgress,
    /// The outputs that these events have brought.
    newest: BTreeMap<u32, ItemOutput>,
}

impl<'a> WorkflowDecision<'a> {
    /// Starts a map. Its items start when the decision is concluded.
    pub(super) fn begin_map(&mut self, node: usize) -> Result<(), NodeError> {
        let started = if let Some(map) = self.run.map(node) {
            // A fork continues the items of its original.
            map.restart()
        } else {
            let items = self.listed(node)?;
            MapStart { count: ordinal(items.len()), items: Some(items), ended: 0, open: Vec::new() }
        };
        let moved = self.progress.start(node);
        if !self.moved(moved) {
            return Ok(());
        }
        if let Some(items) = &started.items {
            let map = MapDecision {
                items: Arc::new(items.clone()),
                progress: MapProgress::new(started.count),
                newest: BTreeMap::new(),
            };
            self.maps.insert(node, map);
        }
        self.changed(node, NodeChange::Start { call: None, map: Some(started) });
        Ok(())
    }

    /// Announces the maps that a retry has inherited in progress, before it makes their open calls.
    pub(crate) fn announce_maps(batch: &mut CallBatch<'_>, run: &WorkflowRun) {
        for (node, map) in run.inherited_maps() {
            let node = run.plan().nodes()[node].name().clone();
            let change = NodeChange::Start { call: None, map: Some(map) };
            batch.push(Event::NodeChanged { node, change });
        }
    }

    /// The list of a map: a list, or a text that is a JSON list.
    fn listed(&mut self, node: usize) -> Result<Vec<Value>, NodeError> {
        let run = self.run;
        let WorkflowNodeKind::Map { over, .. } = &run.plan().nodes()[node].node.kind else {
            return Ok(Vec::new());
        };
        let limit = self.batch.ctx().limits.map_items;
        let found = over.render(&run.scope(node)).map_err(|error| {
            // A list that is too long for a template is too long for the map.
            let length = error.items();
            if is_too_long(length, limit) {
                too_long(length, limit)
            } else {
                cannot_evaluate(&error)
            }
        })?;
        let found = match found {
            Value::String(text) if text.trim_start().starts_with('[') => {
                serde_json::from_str(&text).unwrap_or(Value::String(text))
            }
            other => other,
        };
        let kind = match &found {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text that is not a JSON list",
            Value::Object(_) => "a mapping",
            Value::Array(_) => "a list",
        };
        let Value::Array(items) = found else {
            let why = format!(
                "its over gives {kind}, but a list is needed: {}",
                polity_model::value::excerpt(&found.to_string())
            );
            return Err((ErrorCode::ConditionFailed, why));
        };
        if is_too_long(items.len(), limit) {
            return Err(too_long(items.len(), limit));
        }
        Ok(items)
    }

    /// The map after the events so far.
    fn map(&mut self, node: usize) -> Option<&mut MapDecision> {
        if !self.maps.contains_key(&node) {
            let run = self.run.map(node)?;
            let map = MapDecision {
                items: Arc::clone(run.items()),
                progress: run.progress().clone(),
                newest: BTreeMap::new(),
            };
            self.maps.insert(node, map);
        }
        self.maps.get_mut(&node)
    }

    /// Starts the next items of every map, and finishes the maps whose items have all ended.
    pub(super) fn advance_maps(&mut self) {
        let plan = self.run.plan();
        for (node, planned) in plan.nodes().iter().enumerate() {
            if planned.is_map() && self.failure.is_none() {
                self.advance_map(node, &planned.node);
            }
        }
    }

    fn advance_map(&mut self, node: usize, planned: &'a WorkflowNode) {
        let WorkflowNodeKind::Map { node: step, max_parallel, .. } = &planned.kind else { return };
        while self.progress.node(node) == NodeState::Running {
            // The answer to a review is decided without an owner, who performs the calls.
            let must_wait =
                self.inline_items >= INLINE_ITEMS_MAX || self.batch.state().owner().is_none();
            let Some(map) = self.map(node) else { return };
            if map.progress.is_done() {
                return self.finish_map(node);
            }
            let Some(item) = map.progress.next_item() else { return };
            if map.progress.open().len() >= max_parallel.get() as usize {
                return;
            }
            if must_wait {
                self.has_more_items = true;
                return;
            }
            match &step.kind {
                WorkflowNodeKind::Condition { expression } => {
                    self.evaluate_items(node, planned, expression, item);
                }
                WorkflowNodeKind::Agent { .. }
                | WorkflowNodeKind::Tool { .. }
                | WorkflowNodeKind::Workflow { .. }
                | WorkflowNodeKind::Script { .. }
                | WorkflowNodeKind::Human { .. }
                | WorkflowNodeKind::Parallel { .. }
                | WorkflowNodeKind::Map { .. } => self.start_item(node, planned, step, item),
            }
        }
    }

    /// Starts the call of an item.
    fn start_item(
        &mut self,
        node: usize,
        planned: &'a WorkflowNode,
        step: &'a WorkflowNode,
        item: u32,
    ) {
        let run = self.run;
        let Some(items) = self.map(node).map(|map| Arc::clone(&map.items)) else { return };
        let Some(value) = items.get(item as usize) else { return };
        let scope = item_scope(run.scope(node), planned, item, value);
        let (tool, arguments) = match self.step_call(step, &scope) {
            Ok(call) => call,
            Err((code, why)) => {
                self.inline_items += 1;
                return self.fail_item(node, item, code, &why);
            }
        };
        let id = ToolCallId::from_random_bytes(self.batch.ctx().entropy.id_bytes());
        let call = ToolCall {
            id,
            server: tool.server().to_owned(),
            tool: tool.tool().to_owned(),
            arguments,
            signature: None,
        };
        if let Some(map) = self.map(node) {
            map.progress.start(item, id);
        }
        self.changed(node, NodeChange::StartItem { item, call });
        self.batch.call_new(id, &tool, node, Some(item));
    }

    /// Evaluates the condition of the next items.
    fn evaluate_items(
        &mut self,
        node: usize,
        planned: &'a WorkflowNode,
        expression: &ConditionExpression,
        first: u32,
    ) {
        let left = INLINE_ITEMS_MAX - self.inline_items;
        let run = self.run;
        let Some(map) = self.map(node) else { return };
        let items = Arc::clone(&map.items);
        let mut outputs = Vec::new();
        let mut failed = None;
        let scope = run.scope(node);
        for (item, value) in (first..).zip(items.iter().skip(first as usize).take(left)) {
            match expression.evaluate(&item_scope(scope.clone(), planned, item, value)) {
                Ok(output) => {
                    map.progress.end(item, false);
                    map.newest.insert(item, ItemOutput::Json(output.clone()));
                    outputs.push(output);
                }
                Err(error) => {
                    failed = Some((item, cannot_evaluate(&error)));
                    break;
                }
            }
        }
        self.inline_items += outputs.len() + usize::from(failed.is_some());
        if !outputs.is_empty() {
            self.changed(node, NodeChange::FinishItems { first, outputs });
        }
        if let Some((item, (code, why))) = failed {
            self.fail_item(node, item, code, &why);
        }
    }

    /// Ends an item with the answer to its call.
    pub(super) fn end_item(&mut self, node: usize, item: u32, content: &str, is_error: bool) {
        if self.progress.node(node) != NodeState::Running {
            return;
        }
        if is_error {
            let code = self.batch.error_code().unwrap_or(ErrorCode::ToolFailed);
            let why = content.strip_prefix("error: ").unwrap_or(content);
            return self.fail_item(node, item, code, why);
        }
        let Some(step) = item_node(&self.run.plan().nodes()[node].node) else { return };
        match ItemOutput::of_answer(step, content.to_owned()) {
            Ok(output) => {
                if let Some(map) = self.map(node) {
                    map.progress.end(item, false);
                    map.newest.insert(item, output);
                }
            }
            Err(why) => self.fail_item(node, item, ErrorCode::InvalidOutput, &why),
        }
    }

    /// Fails an item, and the map with it unless failures are collected.
    fn fail_item(&mut self, node: usize, item: u32, code: ErrorCode, error: &str) {
        let error = error.to_owned();
        let change = NodeChange::FailItem { item, code, error: error.clone() };
        self.changed(node, change);
        match item_error_policy(&self.run.plan().nodes()[node].node) {
            ItemErrorPolicy::Collect => {
                if let Some(map) = self.map(node) {
                    map.progress.end(item, true);
                    map.newest.insert(item, ItemOutput::Error { code, error });
                }
            }
            ItemErrorPolicy::Fail => self.fail_node(node, code, &format!("item {item}: {error}")),
        }
    }

    /// Abandons the open items of a map that fails or is given up.
    pub(super) fn abandon_items(&mut self, node: usize, why: &str) {
        let Some(map) = self.map(node) else { return };
        for (_, call_id) in map.progress.open().to_vec() {
            self.batch.abandon(call_id, &format!("given up: {why}"));
        }
    }

    fn finish_map(&mut self, node: usize) {
        let planned = &self.run.plan().nodes()[node].node;
        let Some(map) = self.maps.remove(&node) else { return };
        let recorded = self.run.map(node).map(MapRun::outputs).unwrap_or_default();
        let output = render_outputs(planned, recorded, &map.newest);
        self.finish(FinishedNode {
            node,
            output: &output,
            stored: NodeOutput::Items,
            routing_key: None,
            answer: None,
            script: None,
        });
    }
}

fn is_too_long(items: usize, limit: NonZeroU32) -> bool {
    items > limit.get() as usize
}

/// The failure of a map whose list has too many items.
fn too_long(items: usize, limit: NonZeroU32) -> NodeError {
    let how = if limit >= MAP_ITEMS_MAX {
        "split the list; the limit is at its maximum".to_owned()
    } else if is_too_long(items, MAP_ITEMS_MAX) {
        format!("raise it there, to at most {MAP_ITEMS_MAX}, and split the list")
    } else {
        "raise it there, or split the list".to_owned()
    };
    let why = format!(
        "its list has {items} items, more than the {limit} that limits.map_items in polity.yaml \
         allows; {how}"
    );
    (ErrorCode::LimitItems, why)
}

/// The scope of an item's templates and conditions.
fn item_scope<'s>(
    scope: EvaluationScope<'s>,
    map: &'s WorkflowNode,
    item: u32,
    value: &'s Value,
) -> EvaluationScope<'s> {
    let item = match &map.kind {
        WorkflowNodeKind::Map { item_name, .. } => {
            Some(ItemScope { name: item_name.as_str(), value, index: item as usize })
        }
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Tool { .. }
        | WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Script { .. } => None,
    };
    EvaluationScope { item, ..scope }
}
