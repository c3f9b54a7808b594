//! Files whose format belongs to another crate: charts and scenarios.
//!
//! That crate provides a type to decode and reports problems by the path to a value. This module
//! adds positions, so that problems look the same for every file of a home.

use std::collections::BTreeMap;

use polity_model::name::Name;
use serde::de::DeserializeOwned;

use crate::file::checker::FileChecker;
use crate::file::path::{FieldPath, PathSegment};
use crate::file::problem::{DefinitionProblem, FindingText};
use crate::file::{EmptyFile, read};
use crate::home::{HomeFile, definition_in, refuse_other_name};

/// One file, decoded as far as it could be.
#[derive(Debug)]
pub struct ExternalDocument<F> {
    /// The file, relative to the home folder.
    pub path: String,
    /// The name from the file name, if it is valid.
    pub name: Option<Name>,
    /// The decoded content; none if it could not be decoded.
    pub content: Option<F>,
    checker: FileChecker,
    contested: bool,
}

/// A problem of a value, reported by another crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentProblem {
    /// The path to the value, such as `transitions[3].target`; empty for the whole file.
    pub path: String,
    /// The message.
    pub message: String,
    /// The allowed values.
    pub allowed: Option<String>,
    /// The most similar allowed value.
    pub suggestion: Option<String>,
}

impl<F: DeserializeOwned> ExternalDocument<F> {
    /// Reads the files of one folder of the home and ignores others. The `name` field must match
    /// the file name, and names must be unique.
    pub fn read_all(folder: &str, files: &[HomeFile]) -> Vec<Self> {
        let mut files: Vec<&HomeFile> = files.iter().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut documents: Vec<Self> = files
            .into_iter()
            .filter_map(|file| Some(Self::read(file, definition_in(folder, &file.path)?)))
            .collect();
        refuse_shared_names(&mut documents);
        documents
    }

    fn read(file: &HomeFile, stem: &str) -> Self {
        let text = file.text.as_deref().map_err(String::as_str);
        let mut document = Self::decode(&file.path, text);
        document.name = stem.parse().ok();
        if refuse_other_name(&file.path, stem, &mut document.checker).is_none()
            && let Err(invalid) = stem.parse::<Name>()
        {
            let finding = FindingText::new(format!("the file name: {invalid}")).found(stem);
            document.checker.report(&FieldPath::root(), finding);
        }
        document
    }

    /// Reads a text that is not a file of the home, such as a saved copy. Problems call it
    /// `called`.
    pub fn from_text(called: &str, text: &str) -> Self {
        Self::decode(called, Ok(text))
    }

    fn decode(path: &str, text: Result<&str, &str>) -> Self {
        let (content, checker) = read(path, text, EmptyFile::Refused, |file: F, _| Some(file));
        Self { path: path.to_owned(), name: None, content, checker, contested: false }
    }
}

impl<F> ExternalDocument<F> {
    /// Adds a problem at its value, or at the closest value around it. Ignores problems of values
    /// that could not be decoded, which are already reported.
    pub fn report(&mut self, problem: DocumentProblem) {
        let DocumentProblem { path, message, allowed, suggestion } = problem;
        let path = parse_path(&path);
        if self.checker.is_pruned(&path) {
            return;
        }
        let found = self.checker.text(&path).map(str::to_owned);
        self.checker.report(&path, FindingText { message, found, allowed, suggestion });
    }

    /// True if the file has no problems.
    pub fn is_clean(&self) -> bool {
        self.checker.is_clean() && !self.contested
    }

    /// All problems of the file.
    pub fn into_problems(self) -> Vec<DefinitionProblem> {
        self.checker.into_problems()
    }
}

/// Refuses two files with one name: neither is valid.
fn refuse_shared_names<F>(documents: &mut [ExternalDocument<F>]) {
    let mut first: BTreeMap<Name, usize> = BTreeMap::new();
    for place in 0..documents.len() {
        let Some(name) = documents[place].name.clone() else { continue };
        if let Some(&other) = first.get(&name) {
            documents[other].contested = true;
            let message =
                format!("the name \"{name}\" is already taken by {}", documents[other].path);
            let finding = FindingText::new(message).found(name.as_str());
            documents[place].contested = true;
            documents[place].checker.report(&FieldPath::root().field("name"), finding);
        } else {
            first.insert(name, place);
        }
    }
}

/// Parses a path such as `transitions[3].target`.
fn parse_path(text: &str) -> FieldPath {
    let mut segments = Vec::new();
    for part in text.split('.').filter(|part| !part.is_empty()) {
        let mut pieces = part.split('[');
        if let Some(field) = pieces.next().filter(|field| !field.is_empty()) {
            segments.push(PathSegment::Field(field.to_owned()));
        }
        for piece in pieces {
            segments.push(match piece.trim_end_matches(']').parse() {
                Ok(index) => PathSegment::Index(index),
                Err(_) => PathSegment::Field(piece.trim_end_matches(']').to_owned()),
            });
        }
    }
    FieldPath(segments)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WalkFile {
        #[expect(dead_code, reason = "only that it can be read matters")]
        name: Option<String>,
        steps: Option<Vec<WalkStep>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WalkStep {
        to: String,
    }

    fn files(files: &[(&str, &str)]) -> Vec<HomeFile> {
        let file = |&(path, text): &(&str, &str)| HomeFile {
            path: path.to_owned(),
            text: Ok(text.to_owned()),
        };
        files.iter().map(file).collect()
    }

    fn problem(path: &str) -> DocumentProblem {
        DocumentProblem {
            path: path.to_owned(),
            message: format!("{path} is wrong"),
            allowed: Some("better".to_owned()),
            suggestion: None,
        }
    }

    #[test]
    fn problems_have_the_position_of_the_value() {
        let sources = files(&[("walks/a.yaml", "name: a\nsteps:\n  - to: b\n  - {to: c}\n")]);
        let mut read = ExternalDocument::<WalkFile>::read_all("walks", &sources);
        let document = &mut read[0];
        assert!(document.is_clean());
        assert_eq!(document.content.as_ref().unwrap().steps.as_ref().unwrap()[1].to, "c");
        document.report(problem("steps[1].to"));
        document.report(problem("steps[0].from"));
        assert!(!document.is_clean());
        let problems: Vec<String> =
            read.remove(0).into_problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "walks/a.yaml:4:10: steps[1].to is wrong; allowed: better",
                "walks/a.yaml:3:5: steps[0].from is wrong; allowed: better",
            ]
        );
    }

    #[test]
    fn undecodable_items_keep_the_indices_of_others() {
        let sources =
            files(&[("walks/a.yaml", "name: a\nsteps:\n  - {ot: b}\n  - {to: c}\n  - {to: d}\n")]);
        let mut read = ExternalDocument::<WalkFile>::read_all("walks", &sources);
        read[0].report(problem("steps[1].to"));
        let problems = read.remove(0).into_problems();
        let last = problems.last().unwrap();
        assert_eq!((last.line, last.field.as_str()), (5, "steps[2].to"));
        assert_eq!(last.message, "steps[2].to is wrong");
        assert_eq!(last.found.as_deref(), Some("d"));
    }

    #[test]
    fn names_match_files_and_are_unique() {
        let sources = files(&[
            ("walks/a.yaml", "name: b\n"),
            ("walks/c.json", "{\"name\": \"c\"}"),
            ("walks/c.yaml", "name: c\n"),
            ("walks/D.yaml", "steps: []\n"),
            ("runs/e.yaml", "name: e\n"),
            ("walks/.f.yaml", "name: f\n"),
        ]);
        let read = ExternalDocument::<WalkFile>::read_all("walks", &sources);
        assert_eq!(read.iter().filter(|document| document.is_clean()).count(), 0);
        let problems: Vec<String> = read
            .into_iter()
            .flat_map(ExternalDocument::into_problems)
            .map(|problem| format!("{}: {}", problem.file, problem.message))
            .collect();
        assert_eq!(problems.len(), 3, "{problems:#?}");
        assert!(problems[0].starts_with("walks/D.yaml: the file name: \"D\""), "{problems:#?}");
        assert!(problems[1].contains("name and file must be the same"), "{problems:#?}");
        assert!(problems[2].contains("already taken by walks/c.json"), "{problems:#?}");
    }
}
