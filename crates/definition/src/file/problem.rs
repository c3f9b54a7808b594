//! Problems of definition files, with positions and suggestions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::value::suggest::did_you_mean;

/// One problem in one definition file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionProblem {
    /// The file, relative to the home folder.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The field as a path such as `llm_config.provider`; empty for the whole file.
    pub field: String,
    /// The message.
    pub message: String,
    /// The value in the file, shortened.
    pub found: Option<String>,
    /// The allowed values.
    pub allowed: Option<String>,
    /// The most similar allowed value.
    pub suggestion: Option<String>,
}

impl fmt::Display for DefinitionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        match (&self.suggestion, &self.allowed) {
            (Some(suggestion), _) => f.write_str(&did_you_mean(suggestion)),
            (None, Some(allowed)) => write!(f, "; allowed: {allowed}"),
            (None, None) => Ok(()),
        }
    }
}

/// The text of a problem, which becomes a [`DefinitionProblem`] with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FindingText {
    pub(crate) message: String,
    pub(crate) found: Option<String>,
    pub(crate) allowed: Option<String>,
    pub(crate) suggestion: Option<String>,
}

impl FindingText {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), found: None, allowed: None, suggestion: None }
    }

    pub(crate) fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// Lists the allowed values and suggests the one most similar to `found`.
    pub(crate) fn one_of<S: AsRef<str>>(
        mut self,
        found: &str,
        allowed: impl IntoIterator<Item = S>,
    ) -> Self {
        let allowed: Vec<S> = allowed.into_iter().collect();
        self.suggestion = crate::value::suggest::nearest(found, allowed.iter().map(AsRef::as_ref))
            .map(str::to_owned);
        self.found = Some(found.to_owned());
        if !allowed.is_empty() {
            let allowed: Vec<&str> = allowed.iter().map(AsRef::as_ref).collect();
            self.allowed = Some(allowed.join(", "));
        }
        self
    }

    pub(crate) fn at(self, file: &str, place: &SourcePosition) -> DefinitionProblem {
        DefinitionProblem {
            file: file.to_owned(),
            line: place.line,
            column: place.column,
            field: place.field.clone(),
            message: self.message,
            found: self.found,
            allowed: self.allowed,
            suggestion: self.suggestion,
        }
    }
}

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) field: String,
}

impl SourcePosition {
    /// The first character: the position of problems of the whole file.
    pub(crate) const fn start() -> Self {
        Self { line: 1, column: 1, field: String::new() }
    }
}
