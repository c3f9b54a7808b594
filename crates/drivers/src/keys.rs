//! Keys: where they come from, and how they stay out of sight. They are in environment variables,
//! or in files that such variables name.

use std::fmt;

use crate::environment::Environment;

/// The key in a variable, or in the file that the variable with `_FILE` at its end names.
/// Nothing if neither is set.
pub(crate) fn key(environment: &Environment, variable: &str) -> Result<Option<Key>, UnusableKey> {
    if let Some(key) = environment.get(variable) {
        return Key::new(key, variable).map(Some);
    }
    let variable = file_variable(variable);
    let Some(path) = environment.get(&variable) else { return Ok(None) };
    let unusable = |reason: &dyn fmt::Display| UnusableKey {
        message: format!("{variable} names the file {path}, which {reason}"),
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| unusable(&format_args!("cannot be read: {error}")))?;
    match text.trim() {
        "" => Err(unusable(&"is empty")),
        key => Key::new(key.to_owned(), &variable).map(Some),
    }
}

/// The variable that may name a file instead.
pub(crate) fn file_variable(variable: &str) -> String {
    format!("{variable}_FILE")
}

/// A key is there, and cannot be used. The message does not repeat it.
#[derive(Debug)]
pub(crate) struct UnusableKey {
    pub(crate) message: String,
}

/// An API key. It is never shown.
pub(crate) struct Key(String);

impl Key {
    fn new(key: String, variable: &str) -> Result<Self, UnusableKey> {
        if key.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(key))
        } else {
            let message =
                format!("the key in {variable} has spaces, line breaks or other odd characters");
            Err(UnusableKey { message })
        }
    }

    /// The key itself, to be sent and for nothing else.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the text shows the key.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        text.contains(&self.0)
    }

    /// The text without the key: providers like to repeat it in their errors.
    pub(crate) fn removed_from(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &'static [(&str, &str)]) -> Environment {
        Environment::new(move |wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_variable_goes_before_a_file_and_an_empty_one_counts_as_unset() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let both = environment(&[("K", " sk-1 \n"), ("K_FILE", "/nowhere")]);
        assert_eq!(key(&both, "K").unwrap().unwrap().expose(), "sk-1");
        let empty = environment(&[("K", " ")]);
        assert!(key(&empty, "K").unwrap().is_none());
        let missing = environment(&[("K", ""), ("K_FILE", "/nowhere/key")]);
        let message = key(&missing, "K").unwrap_err().message;
        assert!(message.starts_with("K_FILE names the file /nowhere/key, which cannot be read"));
        let not_a_key = Environment::new(move |name| (name == "K_FILE").then(|| manifest.into()));
        let message = key(&not_a_key, "K").unwrap_err().message;
        assert_eq!(message, "the key in K_FILE has spaces, line breaks or other odd characters");
    }

    #[test]
    fn a_file_may_hold_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let named = path.to_str().unwrap().to_owned();
        let environment = Environment::new(move |name| (name == "K_FILE").then(|| named.clone()));
        std::fs::write(&path, "sk-1\n").unwrap();
        assert_eq!(key(&environment, "K").unwrap().unwrap().expose(), "sk-1");
        std::fs::write(&path, "\n").unwrap();
        assert!(key(&environment, "K").unwrap_err().message.ends_with(", which is empty"));
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = key(&environment(&[("K", "sk-1")]), "K").unwrap().unwrap();
        assert_eq!(format!("{key:?}"), "***");
        assert_eq!(key.removed_from("wrong key sk-1, sk-1!"), "wrong key ***, ***!");
        assert_eq!(format!("{:?}", environment(&[("K", "sk-1")])), "Environment");
    }
}
