//! The file to which a program writes its answer.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use polity_files::{RegularFileError, open_beneath, open_regular_file, remove_beneath};

use super::OUTPUT_FILE;
use crate::cli::run::files::ignore_missing;

/// The file to read the answer from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerPath {
    /// The absolute path, as the program gets it.
    pub(crate) path: PathBuf,
    /// A folder to which the program can write, and the path in it. No link below it is followed.
    beneath: Option<(PathBuf, PathBuf)>,
}

impl AnswerPath {
    /// The file that a template names. A path out of the working directory is the user's decision.
    pub(super) fn new(folder: &Path, rendered: &Path) -> Self {
        let path = folder.join(rendered);
        let inside = path.strip_prefix(folder).ok().and_then(without_parents);
        let beneath = inside.map(|inside| (folder.to_owned(), inside));
        Self { path, beneath }
    }

    /// The file in the private folder of a run.
    pub(super) fn private(folder: &Path) -> Self {
        let path = folder.join(OUTPUT_FILE);
        // The program could replace the folder itself.
        let beneath = folder.parent().and_then(|root| {
            let inside = path.strip_prefix(root).ok()?.to_owned();
            Some((root.to_owned(), inside))
        });
        Self { path, beneath }
    }

    /// Opens the file. Never blocks.
    pub(crate) fn open(&self) -> Result<File, RegularFileError> {
        match &self.beneath {
            Some((root, inside)) => open_beneath(root, inside),
            None => open_regular_file(&self.path),
        }
    }

    /// Removes the file, if there is one.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match &self.beneath {
            Some((root, inside)) => Ok(remove_beneath(root, inside)?),
            None => ignore_missing(fs::remove_file(&self.path)),
        }
    }
}

/// The path with every `..` resolved by name; none if it leads out of its folder.
fn without_parents(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir if inside.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_out_of_the_working_directory_follows_links() {
        let inside = |template: &str| AnswerPath::new(Path::new("/w"), Path::new(template)).beneath;
        let beneath = |path: &str| Some(("/w".into(), path.into()));
        assert_eq!(inside("a/b"), beneath("a/b"));
        assert_eq!(inside("./a/../b"), beneath("b"));
        assert_eq!(inside("/w/a"), beneath("a"));
        for outside in ["../a", "a/../../b", "/tmp/a"] {
            assert_eq!(inside(outside), None, "{outside}");
        }
    }
}
