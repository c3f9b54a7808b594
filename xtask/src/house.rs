//! House rules that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::root;

/// The longest file of code.
const LINES_MAX: usize = 600;

/// Marks of unfinished work.
const UNFINISHED: [&str; 4] = ["TODO", "FIXME", "XXX", concat!("#[", "ignore")];

pub(crate) fn check() -> Result<()> {
    eprintln!("── house rules");
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "examples"] {
        code_files(&root().join(folder), &mut files)?;
    }
    let mut broken = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(root()).unwrap_or(file).display();
        let lines = text.lines().count();
        if lines > LINES_MAX {
            broken.push(format!("{name}: {lines} lines; the most is {LINES_MAX}"));
        }
        let is_this_file = file.ends_with("xtask/src/house.rs");
        for (number, line) in (1..).zip(text.lines()).filter(|_| !is_this_file) {
            if let Some(mark) = UNFINISHED.iter().find(|mark| line.contains(*mark)) {
                broken.push(format!("{name}:{number}: {mark} marks unfinished work"));
            }
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    bail!("house rules are broken:\n  {}", broken.join("\n  "))
}

fn code_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            code_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
