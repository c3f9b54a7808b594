//! Glob patterns of paths: `*` matches any part of a name, `?` one character, and `**` any number
//! of folders. Hidden files match only a pattern that starts with a dot.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::value::compiled_text;

/// A glob pattern of relative paths.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathGlob(Arc<CompiledGlob>);

struct CompiledGlob {
    text: Box<str>,
    parts: Box<[GlobPart]>,
}

enum GlobPart {
    /// Any number of folders.
    Folders,
    /// One name.
    Name(Box<[char]>),
}

compiled_text!(PathGlob, { "type": "string", "minLength": 1 });

fn compile(text: &str) -> Result<CompiledGlob, String> {
    if text.is_empty() {
        return Err("must not be empty".to_owned());
    }
    if text.starts_with('/') {
        return Err(format!("\"{text}\" must begin in the working directory, not at the root"));
    }
    if let Some(sign) = text.chars().find(|c| "[]{}\\".contains(*c)) {
        return Err(format!(
            "\"{text}\": {sign} has no meaning here; write *, ? and **, and a pattern for each"
        ));
    }
    let part = |name: &str| match name {
        "" | "." | ".." => Err(format!("\"{text}\" must be names with / between them, without ..")),
        "**" => Ok(GlobPart::Folders),
        name => Ok(GlobPart::Name(name.chars().collect())),
    };
    let parts = text.split('/').map(part).collect::<Result<_, _>>()?;
    Ok(CompiledGlob { text: text.into(), parts })
}

/// Matches glob patterns while a folder tree is walked.
#[derive(Clone, Default)]
pub struct GlobMatcher<'a> {
    rests: Vec<&'a [GlobPart]>,
}

impl<'a> GlobMatcher<'a> {
    /// Starts at the root folder of the patterns.
    pub fn new(globs: &'a [PathGlob]) -> Self {
        Self { rests: globs.iter().map(|glob| &*glob.0.parts).collect() }
    }

    /// True if nothing below this folder can match.
    pub fn is_empty(&self) -> bool {
        self.rests.is_empty()
    }

    /// True if a file of this name in this folder matches.
    pub fn matches_file(&self, name: &str) -> bool {
        self.each().any(|rest| match rest {
            [GlobPart::Folders] => !is_hidden(name),
            [GlobPart::Name(pattern)] => fits(pattern, name),
            [] | [_, ..] => false,
        })
    }

    /// Returns the matcher for a subfolder.
    pub fn enter(&self, name: &str) -> Self {
        let rests = self.each().filter_map(|rest| match rest {
            [GlobPart::Folders, ..] => (!is_hidden(name)).then_some(rest),
            [GlobPart::Name(pattern), below @ ..] if !below.is_empty() => {
                fits(pattern, name).then_some(below)
            }
            [] | [GlobPart::Name(_), ..] => None,
        });
        Self { rests: rests.collect() }
    }

    /// Each remaining pattern, and its variants in which leading `**` match no folder.
    fn each(&self) -> impl Iterator<Item = &'a [GlobPart]> {
        self.rests.iter().flat_map(|rest| {
            let none = rest.iter().take_while(|part| matches!(part, GlobPart::Folders)).count();
            (0..=none).filter_map(|skipped| rest.get(skipped..)).filter(|rest| !rest.is_empty())
        })
    }
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// True if a name matches a pattern.
fn fits(pattern: &[char], name: &str) -> bool {
    if is_hidden(name) && pattern.first() != Some(&'.') {
        return false;
    }
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    // The index of the last star, and the characters that it matched.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(c) if *c == '?' || *c == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            Some(_) | None => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                (at, in_name) = (place + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(pattern: &str, path: &str) -> bool {
        let globs = [pattern.parse::<PathGlob>().unwrap()];
        let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
        let mut here = GlobMatcher::new(&globs);
        for folder in folders.split('/').filter(|folder| !folder.is_empty()) {
            here = here.enter(folder);
        }
        here.matches_file(file)
    }

    #[test]
    fn globs_match_paths() {
        for (pattern, path, expected) in [
            ("*.md", "a.md", true),
            ("*.md", "a.txt", false),
            ("*.md", "docs/a.md", false),
            ("docs/*.md", "docs/a.md", true),
            ("docs/*.md", "docs/b/a.md", false),
            ("**/*.md", "a.md", true),
            ("**/*.md", "docs/b/a.md", true),
            ("docs/**", "docs/a", true),
            ("docs/**", "docs/b/c/a", true),
            ("docs/**", "doc", false),
            ("**/b/**/a", "x/b/y/z/a", true),
            ("**/b/**/a", "b/a", true),
            ("a?c*e", "abcdde", true),
            ("a?c*e", "ace", false),
            ("*ab*ab", "aabab", true),
            ("*", ".env", false),
            ("**/*", ".git/config", false),
            (".git/*", ".git/config", true),
            (".*", ".env", true),
            ("**", "any/where", true),
        ] {
            assert_eq!(means(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn rejects_globs_outside_the_folder() {
        for pattern in ["", "/etc/*", "../*", "a/../b", "a//b", "a/", "[ab]", "{a,b}", "a\\b"] {
            assert!(pattern.parse::<PathGlob>().is_err(), "{pattern}");
        }
    }
}
