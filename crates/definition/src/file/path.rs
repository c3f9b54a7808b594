//! Paths from the top of a file to a value, such as `servers[0].name`.

use std::fmt;

/// One step of a [`FieldPath`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathSegment {
    Field(String),
    Index(usize),
}

/// The path to a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(pub(crate) Vec<PathSegment>);

impl FieldPath {
    /// The whole file.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    pub(crate) fn field(&self, name: &str) -> Self {
        self.then(PathSegment::Field(name.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.then(PathSegment::Index(index))
    }

    fn then(&self, segment: PathSegment) -> Self {
        let mut segments = Vec::with_capacity(self.0.len() + 1);
        segments.extend_from_slice(&self.0);
        segments.push(segment);
        Self(segments)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                PathSegment::Field(name) if place == 0 => f.write_str(name)?,
                PathSegment::Field(name) => write!(f, ".{name}")?,
                PathSegment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
