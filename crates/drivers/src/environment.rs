//! Access to environment variables.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The variables that every child process inherits, if set. All others may be secret and are passed
/// only if a definition names them.
const INHERITED: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

type VariableLookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Looks up environment variables. Injected, so that this crate never reads the process
/// environment.
#[derive(Clone)]
pub struct EnvSource {
    lookup: Arc<VariableLookup>,
}

impl EnvSource {
    /// An environment with this lookup function.
    pub fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { lookup: Arc::new(lookup) }
    }

    /// An environment without any variables.
    pub fn empty() -> Self {
        Self::new(|_| None)
    }

    /// The trimmed value of a variable; `None` if empty.
    pub fn get(&self, variable: &str) -> Option<String> {
        let value = (self.lookup)(variable)?;
        let trimmed = value.trim();
        if trimmed.is_empty() { None } else { Some(trimmed.to_owned()) }
    }

    /// The value of a variable.
    pub(crate) fn raw(&self, variable: &str) -> Option<String> {
        (self.lookup)(variable)
    }

    /// The variables that every child process inherits.
    pub(crate) fn inherited(&self) -> BTreeMap<String, String> {
        let of = |name: &&str| Some(((*name).to_owned(), self.raw(name)?));
        INHERITED.iter().filter_map(of).collect()
    }

    /// Replaces each `${NAME}` in a text, or returns the name of an unset variable. Appends the
    /// inserted values to `filled_in`, except inherited ones: they may be secret.
    pub(crate) fn fill<'t>(
        &self,
        text: &'t str,
        filled_in: &mut Vec<String>,
    ) -> Result<String, &'t str> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            filled.push_str(before);
            let found = self.raw(name).ok_or(name)?;
            filled.push_str(&found);
            if !INHERITED.contains(&name) {
                filled_in.push(found);
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

impl fmt::Debug for EnvSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvSource")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_variables() {
        let environment = EnvSource::new(|name| match name {
            "PATH" => Some("/nowhere:/bin".to_owned()),
            "TOKEN" => Some("s3cret".to_owned()),
            _ => None,
        });
        for (text, expected) in [
            ("plain", Ok("plain")),
            ("${TOKEN}", Ok("s3cret")),
            ("${PATH}", Ok("/nowhere:/bin")),
            ("a ${TOKEN} b ${TOKEN}", Ok("a s3cret b s3cret")),
            ("$TOKEN ${TOKEN", Ok("$TOKEN ${TOKEN")),
            ("${NONE}", Err("NONE")),
        ] {
            let mut filled_in = Vec::new();
            let filled = environment.fill(text, &mut filled_in);
            assert_eq!(filled, expected.map(str::to_owned), "{text}");
            assert!(filled_in.iter().all(|secret| secret == "s3cret"), "{text}");
        }
    }
}
