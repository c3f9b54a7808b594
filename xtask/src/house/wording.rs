//! Doc comments open with a noun phrase or a verb, and a type name has one meaning.
//!
//! Both counts may fall and never rise: lower the limits here when they do.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::SourceFile;

/// The largest number of doc-comment lines that open with a question word, in a thousand.
const QUESTION_LINES_PER_MILLE_MAX: usize = 5;

/// The largest number of type names with more than one definition.
const DUPLICATE_TYPES_MAX: usize = 0;

/// Types with one definition per build configuration.
const CONFIGURED_TYPES: [&str; 1] = ["Telemetry"];

/// Words that make a doc comment read as an indirect question.
const QUESTION_WORDS: [&str; 13] = [
    "What", "Who", "Whom", "Whose", "Whether", "Which", "How", "Where", "Wherever", "Whoever",
    "Whatever", "Whenever", "When",
];

/// Keywords that define a type.
const TYPE_KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

/// Prints both counts and returns one message per count over its limit.
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    let (lines, questions) = count_doc_lines(sources);
    let duplicates = duplicate_types(sources);
    let share = (questions.len() * 1000).checked_div(lines).unwrap_or(0);
    eprintln!(
        "   {} of {lines} doc lines open with a question word ({}.{} %), {} type names are defined \
         twice",
        questions.len(),
        share / 10,
        share % 10,
        duplicates.len(),
    );
    let mut violations = Vec::new();
    if share > QUESTION_LINES_PER_MILLE_MAX {
        let mut message = format!(
            "doc comments open with a noun phrase or a verb; {} open with a question word:",
            questions.len()
        );
        for place in questions.iter().take(20) {
            // Writing to a String cannot fail.
            let _ = write!(message, "\n    {place}");
        }
        violations.push(message);
    }
    if duplicates.len() > DUPLICATE_TYPES_MAX {
        for (name, paths) in &duplicates {
            violations.push(format!("the type {name} is defined in {}", paths.join(" and ")));
        }
    }
    violations
}

/// Returns the number of doc-comment lines with text, and those that open with a question word.
fn count_doc_lines(sources: &[SourceFile]) -> (usize, Vec<String>) {
    let mut lines = 0;
    let mut questions = Vec::new();
    for SourceFile { path, text } in sources {
        for (number, line) in (1..).zip(text.lines()) {
            let Some(prose) = doc_text(line) else { continue };
            lines += 1;
            let word = prose.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if QUESTION_WORDS.contains(&word) {
                questions.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    (lines, questions)
}

/// Returns the prose of a doc-comment line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?.trim_start();
    text.starts_with(|c: char| c.is_alphabetic() || c == '`' || c == '[').then_some(text)
}

/// Returns the type names with more than one definition, each with its files.
fn duplicate_types(sources: &[SourceFile]) -> BTreeMap<&str, Vec<&str>> {
    let mut types: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for SourceFile { path, text } in sources {
        for name in text.lines().filter_map(defined_type) {
            types.entry(name).or_default().push(path);
        }
    }
    types.retain(|name, paths| paths.len() > 1 && !CONFIGURED_TYPES.contains(name));
    types
}

/// Returns the name of the type that a line begins to define. An associated type is not one.
fn defined_type(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let indented = code.len() < line.len();
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let (keyword, rest) = code.split_once(' ')?;
    if !TYPE_KEYWORDS.contains(&keyword) || (keyword == "type" && indented) {
        return None;
    }
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<SourceFile> {
        let source = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        files.iter().map(source).collect()
    }

    #[test]
    fn counts_doc_lines_that_open_with_a_question_word() {
        let text =
            "//! The scheduler.\n/// Whether it runs.\n/// Whatsoever.\n// What of it.\n///\n";
        let (lines, questions) = count_doc_lines(&sources(&[("a.rs", text)]));
        assert_eq!(lines, 3);
        assert_eq!(questions, ["a.rs:2: /// Whether it runs."]);
    }

    #[test]
    fn finds_types_with_two_definitions() {
        let one = "pub struct Line;\npub(crate) enum Place {}\nimpl X {\n    type Item = u8;\n}\n";
        let two = "struct Line(u8);\ntrait Place2 {}\nimpl Y {\n    type Item = u8;\n}\n";
        let sources = sources(&[("a.rs", one), ("b.rs", two)]);
        let found: Vec<_> = duplicate_types(&sources).into_iter().collect();
        assert_eq!(found, [("Line", vec!["a.rs", "b.rs"])]);
    }
}
