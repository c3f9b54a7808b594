//! `config/retention_policy.yaml`: for how long ended tasks are kept.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ordered::Ordered;
use super::value::Text;

const DAYS_DEFAULT: u32 = 7;

/// For how long ended tasks are kept.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "retention_policy")]
pub(crate) struct RetentionPolicyFile {
    /// Days, where nothing below says otherwise.
    #[schemars(extend("default" = DAYS_DEFAULT))]
    default_days: Option<u32>,
    /// Days by the class a task was given, such as `critical`.
    by_task: Option<BTreeMap<Text, u32>>,
    /// Days by the status a task ended with; its class comes first.
    #[schemars(with = "Option<Ordered<RetentionStatus, u32>>")]
    by_status: Option<BTreeMap<RetentionStatus, u32>>,
}

/// The status of a task, as retention policies name it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RetentionStatus {
    /// Not started.
    Pending,
    /// Being worked on.
    Running,
    /// Waiting for a person.
    AwaitingHuman,
    /// Done.
    Completed,
    /// Failed.
    Failed,
    /// Cancelled.
    Cancelled,
}

/// For how long ended tasks are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Days, where neither class nor status says otherwise.
    pub default_days: u32,
    /// Days by the class a task was given.
    pub by_task: BTreeMap<Text, u32>,
    /// Days by the status a task ended with.
    pub by_status: BTreeMap<RetentionStatus, u32>,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        RetentionPolicyFile::default().into_valid()
    }
}

impl RetentionPolicy {
    /// The days that a task of a class and status is kept: the class decides, then the status.
    pub fn days(&self, class: Option<&str>, status: RetentionStatus) -> u32 {
        let by_class = class.and_then(|class| {
            self.by_task.iter().find(|(known, _)| known.as_str() == class).map(|(_, days)| *days)
        });
        by_class.or_else(|| self.by_status.get(&status).copied()).unwrap_or(self.default_days)
    }
}

impl RetentionPolicyFile {
    /// Every rule is in the types, so a file that decodes is valid.
    pub(crate) fn into_valid(self) -> RetentionPolicy {
        RetentionPolicy {
            default_days: self.default_days.unwrap_or(DAYS_DEFAULT),
            by_task: self.by_task.unwrap_or_default(),
            by_status: self.by_status.unwrap_or_default(),
        }
    }
}
