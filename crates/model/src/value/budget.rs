//! The budget of a task.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::number::UsdLimit;

/// The spending limits of one task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most US dollars.
    pub max_cost_usd: Option<UsdLimit>,
    /// The most tokens, input and output together.
    pub max_tokens: Option<NonZeroU64>,
}
