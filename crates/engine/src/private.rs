//! What a task was given and must not be seen: the store keeps it beside the journal until the task
//! ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::driver::RunOverrides;

/// What a task was given, with its secrets. It is never shown.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Private {
    /// The input.
    pub(crate) description: String,
    /// Named values that came with it.
    pub(crate) parameters: Map<String, Value>,
    /// Variables for the program.
    pub(crate) envs: BTreeMap<String, String>,
}

impl Private {
    /// What is not in the agent's file.
    pub(crate) fn overrides(&self, working_directory: Option<&String>) -> RunOverrides {
        RunOverrides { working_directory: working_directory.cloned(), envs: self.envs.clone() }
    }
}
