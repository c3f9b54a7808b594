//! Starting programs.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// The folder of build output.
pub(crate) fn target_folder() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Cargo with these arguments, in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs a step and prints its duration.
pub(crate) fn step(name: &str, mut command: Command) -> Result<()> {
    eprintln!("── {name}");
    let began = Instant::now();
    let status = command.status().with_context(|| format!("{name}: cannot start {command:?}"))?;
    if !status.success() {
        bail!("{name}: failed ({status})");
    }
    eprintln!("── {name}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a program and returns its stdout.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
