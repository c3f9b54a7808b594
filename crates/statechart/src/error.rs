//! Errors in charts.

use std::fmt;

/// One error in a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartError {
    /// The path into the document, such as `transitions[3].target`; empty for the whole document.
    pub location: String,
    /// The message.
    pub message: String,
    /// The allowed values.
    pub allowed: Option<String>,
    /// The closest allowed value.
    pub suggestion: Option<String>,
}

impl ChartError {
    pub(crate) fn new(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self { location: location.into(), message: message.into(), allowed: None, suggestion: None }
    }

    pub(crate) fn at(mut self, location: impl Into<String>) -> Self {
        self.location = location.into();
        self
    }

    /// Sets the allowed values.
    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// Lists the allowed values and suggests the one closest to `found`.
    pub(crate) fn suggest_from<'a>(
        mut self,
        found: &str,
        allowed: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        // A missing name is reported at its own location.
        let allowed = allowed.into_iter().filter(|name| !name.trim().is_empty());
        let allowed: Vec<&str> = allowed.collect();
        self.suggestion = nearest(found, &allowed).map(str::to_owned);
        if !allowed.is_empty() {
            self.allowed = Some(allowed.join(", "));
        }
        self
    }
}

impl fmt::Display for ChartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.location.is_empty() {
            write!(f, "{}: ", self.location)?;
        }
        f.write_str(&self.message)?;
        match (&self.suggestion, &self.allowed) {
            (Some(suggestion), _) => write!(f, ", did you mean \"{suggestion}\"?"),
            (None, Some(allowed)) => write!(f, "; allowed: {allowed}"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for ChartError {}

/// Creates an error without a location.
impl From<String> for ChartError {
    fn from(message: String) -> Self {
        Self::new("", message)
    }
}

/// All errors of a chart, in document order; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartErrors(pub Vec<ChartError>);

impl fmt::Display for ChartErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ChartErrors {}

/// Returns the candidate closest to `word`, if at most a third of its letters differ.
fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace(['-', ' '], "_");
    candidates
        .iter()
        .map(|candidate| (strsim::osa_distance(&word, candidate), *candidate))
        .filter(|(distance, candidate)| {
            let letters = word.chars().count().max(candidate.chars().count());
            *distance < letters && *distance <= letters.div_ceil(3)
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
