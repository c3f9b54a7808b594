//! Reading one definition file: parsing, decoding, checking, and its problems.

pub(crate) mod canonical;
pub(crate) mod checker;
pub(crate) mod decode;
pub(crate) mod document;
pub(crate) mod ordered;
pub(crate) mod path;
pub(crate) mod problem;
pub(crate) mod schema;
pub(crate) mod source;

use serde::de::DeserializeOwned;

use self::checker::FileChecker;
use self::problem::{DefinitionProblem, FindingText, SourcePosition};
use self::source::{DEFINITION_BYTES_MAX, SourceNode, SourceNodeKind};

/// The file name in problems of a pinned definition.
const PINNED_FILE: &str = "(pinned definition)";

/// The rule for an empty file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyFile {
    /// An empty file means the defaults.
    Allowed,
    /// An empty file is a problem.
    Refused,
}

/// Reads one file as far as possible. The checker has every problem.
pub(crate) fn read<F: DeserializeOwned, T>(
    file: &str,
    text: Result<&str, &str>,
    empty: EmptyFile,
    check: impl FnOnce(F, &mut FileChecker) -> Option<T>,
) -> (Option<T>, FileChecker) {
    let refuse = |finding: FindingText| {
        (None, unreadable(file, vec![finding.at(file, &SourcePosition::start())]))
    };
    match text {
        Err(reason) => refuse(FindingText::new(reason)),
        Ok(text) if text.len() > DEFINITION_BYTES_MAX => refuse(FindingText::new(format!(
            "the file has more than {DEFINITION_BYTES_MAX} bytes, the most a definition may have"
        ))),
        Ok(text) => read_text(file, text, empty, check),
    }
}

fn read_text<F: DeserializeOwned, T>(
    file: &str,
    text: &str,
    empty: EmptyFile,
    check: impl FnOnce(F, &mut FileChecker) -> Option<T>,
) -> (Option<T>, FileChecker) {
    let source::ParsedSource { tree, mut problems } = source::parse(file, text);
    let Some(mut tree) = tree else {
        return (None, unreadable(file, problems));
    };
    if tree.kind == SourceNodeKind::Null {
        match empty {
            EmptyFile::Allowed => tree.kind = SourceNodeKind::Mapping(Vec::new()),
            EmptyFile::Refused => {
                problems
                    .push(FindingText::new("the file is empty").at(file, &SourcePosition::start()));
                return (None, unreadable(file, problems));
            }
        }
    }
    let decoded = decode::decode::<F>(file, &mut tree, &mut problems);
    let mut checker = FileChecker::new(file, tree, problems);
    let value = decoded.and_then(|decoded| check(decoded, &mut checker));
    (value, checker)
}

/// The checker of a file that cannot be read.
fn unreadable(file: &str, problems: Vec<DefinitionProblem>) -> FileChecker {
    FileChecker::new(
        file,
        SourceNode { kind: SourceNodeKind::Pruned, line: 1, column: 1 },
        problems,
    )
}

/// Reads a definition outside a home, such as a pinned one.
///
/// Its size is not limited: its file was already checked, and canonical JSON may be longer.
pub(crate) fn from_text<F: DeserializeOwned, T>(
    text: &str,
    check: impl FnOnce(F, &mut FileChecker) -> Option<T>,
) -> Result<T, Vec<DefinitionProblem>> {
    let (value, checker) = read_text(PINNED_FILE, text, EmptyFile::Refused, check);
    match value {
        Some(value) if checker.is_clean() => Ok(value),
        Some(_) | None => Err(checker.into_problems()),
    }
}
