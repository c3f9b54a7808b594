//! `config/retention_policy.yaml`: the retention of ended tasks.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::ordered::OrderedMap;
use crate::value::Text;

const DAYS_DEFAULT: u32 = 7;

/// The retention of ended tasks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "retention_policy")]
pub(crate) struct RetentionPolicyFile {
    /// The default retention, in days.
    #[schemars(extend("default" = DAYS_DEFAULT))]
    default_days: Option<u32>,
    /// Days by the class of a task, such as `critical`.
    by_task: Option<BTreeMap<Text, u32>>,
    /// Days by final status; the class of a task takes precedence.
    #[schemars(with = "Option<OrderedMap<RetentionStatus, u32>>")]
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

/// The retention of ended tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// The default retention, in days.
    pub default_days: u32,
    /// Days by the class of a task.
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
    /// The rule for a task of a class and status: the class decides, then the status.
    pub fn rule(&self, class: Option<&str>, status: RetentionStatus) -> RetentionRule {
        let by_class = class.and_then(|class| {
            self.by_task
                .iter()
                .find(|(known, _)| known.as_str() == class)
                .map(|(_, days)| RetentionRule::Class { class: class.to_owned(), days: *days })
        });
        let by_status = || {
            self.by_status.get(&status).map(|days| RetentionRule::Status { status, days: *days })
        };
        by_class.or_else(by_status).unwrap_or(RetentionRule::Default { days: self.default_days })
    }
}

/// The part of a policy that decides about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetentionRule {
    /// Its class.
    Class {
        /// The class.
        class: String,
        /// The retention of the class, in days.
        days: u32,
    },
    /// The status that it ended with.
    Status {
        /// The status.
        status: RetentionStatus,
        /// The retention of the status, in days.
        days: u32,
    },
    /// Nothing in particular.
    Default {
        /// The retention, in days.
        days: u32,
    },
}

impl RetentionRule {
    /// The retention after the end of a task, in days.
    pub fn days(&self) -> u32 {
        match self {
            Self::Class { days, .. } | Self::Status { days, .. } | Self::Default { days } => *days,
        }
    }
}

impl fmt::Display for RetentionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class { class, days } => write!(f, "class {class}: {days}"),
            Self::Status { status, days } => write!(f, "status {}: {days}", status.label()),
            Self::Default { days } => write!(f, "default: {days}"),
        }
    }
}

impl RetentionStatus {
    /// The status as policies write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::AwaitingHuman => "awaiting_human",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
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
