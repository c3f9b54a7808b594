//! API keys, read from environment variables or from files that variables name.

use std::fmt;
use std::path::Path;

use polity_files::read_named_file;

use crate::environment::EnvSource;

/// The maximum size of a file with a key.
const KEY_FILE_BYTES_MAX: u64 = 64 << 10;

/// Loads the key in a variable, or in the file that `{variable}_FILE` names. Returns `None` if
/// neither is set.
pub(crate) fn load_key(
    environment: &EnvSource,
    variable: &str,
) -> Result<Option<ApiKey>, UnusableKey> {
    if let Some(key) = environment.get(variable) {
        return ApiKey::new(key, variable).map(Some);
    }
    let variable = file_variable(variable);
    let Some(path) = environment.get(&variable) else { return Ok(None) };
    let unusable = |reason: &dyn fmt::Display| UnusableKey {
        message: format!("{variable} names the file {path}, which {reason}"),
    };
    let text = read_named_file(Path::new(&path), KEY_FILE_BYTES_MAX)
        .map_err(|error| unusable(&format_args!("cannot be read: {error}")))?;
    let text = String::from_utf8(text).map_err(|_| unusable(&"is not UTF-8 text"))?;
    match text.trim() {
        "" => Err(unusable(&"is empty")),
        key => ApiKey::new(key.to_owned(), &variable).map(Some),
    }
}

/// The variable that may name a key file.
pub(crate) fn file_variable(variable: &str) -> String {
    format!("{variable}_FILE")
}

/// A key is set but unusable. The message does not contain it.
#[derive(Debug)]
pub(crate) struct UnusableKey {
    pub(crate) message: String,
}

/// An API key. Its `Debug` form is redacted.
pub(crate) struct ApiKey(String);

impl ApiKey {
    fn new(key: String, variable: &str) -> Result<Self, UnusableKey> {
        if key.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(key))
        } else {
            let message =
                format!("the key in {variable} has spaces, line breaks or other odd characters");
            Err(UnusableKey { message })
        }
    }

    /// The key in plain text, only for sending.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// True if the text contains the key.
    pub(crate) fn is_contained_in(&self, text: &str) -> bool {
        text.contains(&self.0)
    }

    /// Redacts the key in a text; providers echo it in errors.
    pub(crate) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &'static [(&str, &str)]) -> EnvSource {
        EnvSource::new(move |wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variable_wins_over_file_and_empty_counts_as_unset() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let both = environment(&[("K", " sk-1 \n"), ("K_FILE", "/nowhere")]);
        assert_eq!(load_key(&both, "K").unwrap().unwrap().expose(), "sk-1");
        let empty = environment(&[("K", " ")]);
        assert!(load_key(&empty, "K").unwrap().is_none());
        let missing = environment(&[("K", ""), ("K_FILE", "/nowhere/key")]);
        let message = load_key(&missing, "K").unwrap_err().message;
        assert!(message.starts_with("K_FILE names the file /nowhere/key, which cannot be read"));
        let not_a_key = EnvSource::new(move |name| (name == "K_FILE").then(|| manifest.into()));
        let message = load_key(&not_a_key, "K").unwrap_err().message;
        assert_eq!(message, "the key in K_FILE has spaces, line breaks or other odd characters");
    }

    #[test]
    fn loads_key_from_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let named = path.to_str().unwrap().to_owned();
        let environment = EnvSource::new(move |name| (name == "K_FILE").then(|| named.clone()));
        std::fs::write(&path, "sk-1\n").unwrap();
        assert_eq!(load_key(&environment, "K").unwrap().unwrap().expose(), "sk-1");
        std::fs::write(&path, "\n").unwrap();
        assert!(load_key(&environment, "K").unwrap_err().message.ends_with(", which is empty"));
    }

    #[test]
    fn key_is_redacted_in_debug_output_and_texts() {
        let key = load_key(&environment(&[("K", "sk-1")]), "K").unwrap().unwrap();
        assert_eq!(format!("{key:?}"), "***");
        assert_eq!(key.redact("wrong key sk-1, sk-1!"), "wrong key ***, ***!");
        assert_eq!(format!("{:?}", environment(&[("K", "sk-1")])), "EnvSource");
    }
}
