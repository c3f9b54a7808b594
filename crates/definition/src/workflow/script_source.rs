//! The text of a script, as a task pins it.

use serde::{Deserialize, Serialize};

use super::ScriptPath;

/// The most bytes of a script.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// A script of the home, frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptSource {
    /// Its path in the home.
    pub file: ScriptPath,
    /// Its text.
    pub content: String,
}

impl ScriptSource {
    /// A script with this text, or the reason that it cannot be used.
    pub fn new(file: ScriptPath, content: String) -> Result<Self, String> {
        if content.len() > SCRIPT_BYTES_MAX {
            return Err(format!(
                "it has more than {SCRIPT_BYTES_MAX} bytes, the most of a script \
                 (SCRIPT_BYTES_MAX); put data into files that it reads"
            ));
        }
        if content.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(Self { file, content })
    }

    /// The pinned form.
    pub fn canonical_json(&self) -> String {
        serde_json::json!({ "content": self.content, "file": self.file }).to_string()
    }

    /// Reads a script back from its pinned form.
    pub fn from_canonical(json: &str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_form_is_read_back() {
        let script = ScriptSource::new("steps/a.py".parse().unwrap(), "print(1)\n".into()).unwrap();
        let json = script.canonical_json();
        assert_eq!(json, r#"{"content":"print(1)\n","file":"steps/a.py"}"#);
        assert_eq!(ScriptSource::from_canonical(&json).unwrap(), script);
        assert!(ScriptSource::from_canonical(r#"{"file":"../a.py","content":"x"}"#).is_err());
    }

    #[test]
    fn empty_and_oversized_scripts_are_refused() {
        let new = |text: String| ScriptSource::new("a.sh".parse().unwrap(), text);
        assert!(new("x".repeat(SCRIPT_BYTES_MAX)).is_ok());
        let error = new("x".repeat(SCRIPT_BYTES_MAX + 1)).unwrap_err();
        assert!(error.contains("SCRIPT_BYTES_MAX"), "{error}");
        assert_eq!(new(" \n".into()).unwrap_err(), "it is empty");
    }
}
