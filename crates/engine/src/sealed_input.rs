//! The raw input of a task with its secrets. The store keeps it outside the journal until the task
//! ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::driver::RunOverrides;

/// The unmasked input of a task. It is never shown.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SealedInput {
    /// The input.
    pub(crate) description: String,
    /// Named values.
    pub(crate) parameters: Map<String, Value>,
    /// Environment variables for the CLI agent.
    pub(crate) envs: BTreeMap<String, String>,
}

impl SealedInput {
    /// The run overrides, with the unmasked environment variables.
    pub(crate) fn overrides(&self, working_directory: Option<&String>) -> RunOverrides {
        RunOverrides { working_directory: working_directory.cloned(), envs: self.envs.clone() }
    }
}
