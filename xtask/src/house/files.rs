//! Files are short and finished.

use super::SourceFile;

/// The largest number of lines in a source file.
const LINES_MAX: usize = 600;

/// Marks of unfinished work.
const UNFINISHED: [&str; 4] = ["TODO", "FIXME", "XXX", concat!("#[", "ignore")];

/// Returns one message per violation.
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    let mut violations = Vec::new();
    for SourceFile { path, text } in sources {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            violations.push(format!("{path}: {lines} lines; the limit is {LINES_MAX}"));
        }
        if path == "xtask/src/house/files.rs" {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(mark) = UNFINISHED.iter().find(|mark| line.contains(*mark)) {
                violations.push(format!("{path}:{number}: {mark} marks unfinished work"));
            }
        }
    }
    violations
}
