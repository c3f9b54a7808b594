//! `cargo xtask peers`: installs the third-party programs of the tests under the target folder.
//! Installed ones stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{root, step, target_folder};

/// The file that holds the manifests of a finished installation.
const STAMP: &str = "installed";

/// Peers of every run of the tests, from npm and from `PyPI`.
const NPM: &[&str] = &["npm", "npm-agents", "npm-a2a", "npm-charts", "npm-http", "npm-typescript"];
const PYTHON: &[&str] = &["python", "python-a2a", "python-a2a-03", "python-http"];

/// Peers of the long run only: large downloads.
const NPM_LONG: &[&str] = &["npm-agents-long"];
const PYTHON_LONG: &[&str] = &["python-llm", "python-aider"];

pub(crate) fn install(long: bool) -> Result<()> {
    let manifests = root().join("tests/peers");
    let peers = target_folder().join("peers");
    let (npm_long, python_long) = if long { (NPM_LONG, PYTHON_LONG) } else { (&[][..], &[][..]) };
    for name in NPM.iter().chain(npm_long) {
        npm(&manifests.join(name), &peers.join(name))?;
    }
    for name in PYTHON.iter().chain(python_long) {
        python(&manifests.join(name), &peers.join(name))?;
    }
    Ok(())
}

/// Installs the peers of the benches and returns their Python.
pub(crate) fn install_for_bench() -> Result<PathBuf> {
    let folder = target_folder().join("peers/python-bench");
    python(&root().join("tests/peers/python-bench"), &folder)?;
    Ok(folder.join("bin/python"))
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn npm(manifests: &Path, folder: &Path) -> Result<()> {
    let files = [manifests.join("package.json"), manifests.join("package-lock.json")];
    unless_installed(&files, folder, || {
        for file in &files {
            let name = file.file_name().context("a manifest has a name")?;
            fs::copy(file, folder.join(name)).with_context(|| file.display().to_string())?;
        }
        let mut command = Command::new("npm");
        command.current_dir(folder).args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
        // The packages are complete: their install scripts need not run or download anything.
        command.arg("--ignore-scripts");
        step(&format!("peers from npm: {}", name_of(manifests)), command)
    })
}

fn python(manifests: &Path, folder: &Path) -> Result<()> {
    let requirements = manifests.join("requirements.txt");
    unless_installed(std::slice::from_ref(&requirements), folder, || {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(folder);
        step("a Python environment", venv)?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.arg("--requirement").arg(&requirements);
        step(&format!("peers from PyPI: {}", name_of(manifests)), pip)
    })
}

/// Installs into an empty folder, unless it holds an installation of the same manifests.
fn unless_installed(
    manifests: &[PathBuf],
    folder: &Path,
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut wanted = String::new();
    for file in manifests {
        wanted += &fs::read_to_string(file).with_context(|| file.display().to_string())?;
    }
    let stamp = folder.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    install()?;
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}
