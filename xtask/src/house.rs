//! House rules that no compiler checks: the length of files, unfinished work, wording.

mod files;
mod wording;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::root;

/// A Rust file of the repository.
struct SourceFile {
    /// The path from the root of the repository.
    path: String,
    text: String,
}

pub(crate) fn check() -> Result<()> {
    eprintln!("── house rules");
    let mut sources = Vec::new();
    for folder in ["crates", "xtask", "examples"] {
        read_sources(&root().join(folder), &mut sources)?;
    }
    let mut violations = files::check(&sources);
    violations.extend(wording::check(&sources));
    if violations.is_empty() {
        return Ok(());
    }
    bail!("house rules are broken:\n  {}", violations.join("\n  "))
}

fn read_sources(folder: &Path, sources: &mut Vec<SourceFile>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read_sources(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let path = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            sources.push(SourceFile { path, text });
        }
    }
    Ok(())
}
