//! Changes of a workflow's nodes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::ErrorCode;
use crate::ids::ToolCallId;
use crate::message::ToolCall;
use crate::name::Name;
use crate::state::StateUpdates;

/// A change of a workflow node; each is one transition of its state machine. Reviews have events of
/// their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum NodeChange {
    /// It began.
    Start {
        /// The call that does its work, with its input; none for a parallel node and a map.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<ToolCall>,
        /// The items of a map.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        map: Option<MapStart>,
    },
    /// An item of the map began.
    StartItem {
        /// The index of the item, from 0.
        item: u32,
        /// The call that does its work. Its answer is the output of the item.
        call: ToolCall,
    },
    /// Consecutive items of the map are done, without a call.
    FinishItems {
        /// The index of the first of them.
        first: u32,
        /// The output of each.
        outputs: Vec<Value>,
    },
    /// An item of the map failed.
    FailItem {
        /// The index of the item, from 0.
        item: u32,
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        error: String,
    },
    /// It is done.
    Finish {
        /// The output.
        output: NodeOutput,
        /// The routing key, if the node sets one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        routing_key: Option<String>,
        /// The nodes that its edges lead to.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        to: Vec<Name>,
        /// The edge back, by its index in the file, if several lead to the same node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edge: Option<u32>,
        /// The changes to the State that the node's script asked for: the new value for each path.
        #[serde(default, skip_serializing_if = "StateUpdates::is_empty")]
        state_updates: StateUpdates,
    },
    /// It failed.
    Fail {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        error: String,
        /// The node that its error edge leads to; none if the failure is not caught.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Name>,
        /// The edge whose `on_error` was taken, by its index in the file; none for the node's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edge: Option<u32>,
        /// The output, if the node did its work and the failure came afterwards.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<NodeOutput>,
    },
    /// It was dropped because another branch finished first.
    Drop,
}

/// The failure that makes a workflow run its compensations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompensationCause {
    /// Why, for programs.
    pub code: ErrorCode,
    /// Why, for people.
    pub error: String,
    /// The node that failed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
}

/// The items of a map, as it starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapStart {
    /// The number of items.
    pub count: u32,
    /// The items. None if a fork or retry continues the items of its original.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<Value>>,
    /// The number of items that the original of a fork or retry has ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended: u32,
    /// The items that a retry continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenItem>,
}

/// An item of a map that is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenItem {
    /// The index of the item, from 0.
    pub item: u32,
    /// The call that does its work.
    pub call_id: ToolCallId,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The location of a node's output. Texts are stored once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutput {
    /// It is the answer to the node's call.
    Answer,
    /// It is this text.
    Text(String),
    /// It is the JSON list of the outputs of a map's items, in order.
    Items,
    /// It is this part of what a script printed.
    Json(Value),
}
