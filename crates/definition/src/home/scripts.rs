//! The scripts that the workflows of a home name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::workflow::{ScriptPath, ScriptSource};

/// Reads scripts, each once.
pub(super) struct ScriptLoader<'a> {
    read: &'a mut dyn FnMut(&ScriptPath) -> Result<String, String>,
    known: BTreeMap<ScriptPath, Result<Arc<ScriptSource>, String>>,
}

impl<'a> ScriptLoader<'a> {
    pub(super) fn new(read: &'a mut dyn FnMut(&ScriptPath) -> Result<String, String>) -> Self {
        Self { read, known: BTreeMap::new() }
    }

    /// The reason why a script cannot be used, if there is one.
    pub(super) fn problem(&mut self, path: &ScriptPath) -> Option<&str> {
        let read = &mut self.read;
        let script = self.known.entry(path.clone()).or_insert_with(|| {
            read(path).and_then(|text| ScriptSource::new(path.clone(), text)).map(Arc::new)
        });
        script.as_ref().err().map(String::as_str)
    }

    /// The scripts that can be used.
    pub(super) fn into_scripts(self) -> BTreeMap<ScriptPath, Arc<ScriptSource>> {
        let usable = self.known.into_iter().filter_map(|(path, script)| Some((path, script.ok()?)));
        usable.collect()
    }
}
