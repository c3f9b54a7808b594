//! The first event of a task.

use std::num::NonZeroU64;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DefinitionPin, StreamSequence};
use crate::budget::Budget;
use crate::digest::Digest;
use crate::ids::{ExecutionId, TaskId};
use crate::name::Name;
use crate::number::UsdLimit;

/// The first event of every task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskCreated {
    /// The input.
    pub description: String,
    /// The agent that does it.
    pub assigned_agent: Name,
    /// Every definition that the task may need, as it was when the task was created.
    pub pins: Vec<DefinitionPin>,
    /// The parameters of the task.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// A class of the retention policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The task's own retention period after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
    /// The task that this one is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<TaskId>,
    /// The index of the item of its parent's map that it performs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_item: Option<u32>,
    /// The node of its parent's workflow that it performs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_node: Option<Name>,
    /// The budget from the request, besides the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The point in another task's history from which the task continues, if it is a fork or retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkPoint>,
    /// The failed or cancelled task that this one continues, if it is a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    /// The run of a CLI agent that the retry repeats, if that run was cut off and may have had its
    /// effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted_run: Option<ExecutionId>,
    /// The limits that the retry raises.
    #[serde(default, skip_serializing_if = "RaisedLimits::is_empty")]
    pub raised: RaisedLimits,
    /// The working directory from the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// True if the raw input contains secrets, which the journal does not hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_private: bool,
    /// The deduplication key of the request, if duplicates share a run. It reveals nothing of the
    /// input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
    /// The digest of the request whose idempotency key the task's id follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Digest>,
    /// The schedule and due time that started the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Box<ScheduledFor>>,
}

/// The schedule and due time that started a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduledFor {
    /// The schedule.
    pub schedule: Name,
    /// The due time.
    pub due: Timestamp,
}

/// A point in another task's history. The fork or retry shares the history up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The other task.
    pub task_id: TaskId,
    /// The last of its events that the fork shares.
    pub sequence: StreamSequence,
    /// The checkpoint that this is, counted from 0; none if a retry continues between checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u32>,
}

/// Limits that a retry sets in place of those of its definitions and of the task that it continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RaisedLimits {
    /// The most US dollars, including those that the earlier tasks have spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<UsdLimit>,
    /// The most tokens, including those that the earlier tasks have used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<NonZeroU64>,
    /// The time limit of each model call, of each run of a CLI agent, and of each node that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<NonZeroU64>,
}

impl RaisedLimits {
    /// True if no limit is raised.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These limits, and those of the earlier task where none is set.
    pub fn or(self, earlier: Self) -> Self {
        Self {
            max_cost_usd: self.max_cost_usd.or(earlier.max_cost_usd),
            max_tokens: self.max_tokens.or(earlier.max_tokens),
            timeout_seconds: self.timeout_seconds.or(earlier.timeout_seconds),
        }
    }

    /// A budget with the raised limits in place of its own.
    pub fn raise(self, budget: Option<Budget>) -> Option<Budget> {
        let own = budget.unwrap_or(Budget { max_cost_usd: None, max_tokens: None });
        let raised = Budget {
            max_cost_usd: self.max_cost_usd.or(own.max_cost_usd),
            max_tokens: self.max_tokens.or(own.max_tokens),
        };
        (raised.max_cost_usd.is_some() || raised.max_tokens.is_some()).then_some(raised)
    }
}
