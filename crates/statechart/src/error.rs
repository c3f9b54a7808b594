//! What is wrong with a chart, told so that a person can put it right.

use std::fmt;

/// One thing that is wrong with a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartError {
    /// Where, as a path into the document, such as `transitions[3].target`. Empty where the whole
    /// document is meant.
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// What may stand there.
    pub allowed: Option<String>,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl ChartError {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into(), allowed: None, suggestion: None }
    }

    /// The same, said of another place.
    pub(crate) fn at(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// Says what may stand there.
    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// Lists what may stand there and looks among it for what `found` was meant to be.
    pub(crate) fn one_of<'a>(
        mut self,
        found: &str,
        allowed: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        // A name that is missing is complained about where it should be.
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
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
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

/// A message whose place is not known yet.
impl From<String> for ChartError {
    fn from(message: String) -> Self {
        Self::new("", message)
    }
}

/// Everything that is wrong with a chart, in the order of the document; at least one thing.
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

/// The candidate closest to `word`, if no more than a third of its letters are wrong.
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
