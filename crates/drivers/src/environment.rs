//! The environment that drivers see.

use std::fmt;
use std::sync::Arc;

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Looks up environment variables. It is handed in, so that this crate does not read the
/// environment of the process itself.
#[derive(Clone)]
pub struct Environment {
    lookup: Arc<Lookup>,
}

impl Environment {
    /// An environment in which `lookup` knows the variables.
    pub fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { lookup: Arc::new(lookup) }
    }

    /// An environment without any variables.
    pub fn empty() -> Self {
        Self::new(|_| None)
    }

    /// The variable's value without the white space around it; nothing if nothing is left.
    pub fn get(&self, variable: &str) -> Option<String> {
        let value = (self.lookup)(variable)?;
        let trimmed = value.trim();
        if trimmed.is_empty() { None } else { Some(trimmed.to_owned()) }
    }

    /// The variable's value as it is.
    pub(crate) fn raw(&self, variable: &str) -> Option<String> {
        (self.lookup)(variable)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
