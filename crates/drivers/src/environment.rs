//! The environment that drivers see.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What every program that is started gets of Polity's own environment, as far as it is set.
/// Everything else may be a secret of someone else, and is passed only where a definition names it.
const INHERITED: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

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

    /// What every program that is started gets of it.
    pub(crate) fn inherited(&self) -> BTreeMap<String, String> {
        let of = |name: &&str| Some(((*name).to_owned(), self.raw(name)?));
        INHERITED.iter().filter_map(of).collect()
    }

    /// The text with each `${NAME}` replaced; or the name of a variable that is not set. Whatever
    /// is filled in may be secret, but for what every program gets.
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

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let environment = Environment::new(|name| match name {
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
