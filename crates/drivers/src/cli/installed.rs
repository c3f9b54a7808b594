//! The known CLI agents of this machine, with their versions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use polity_definition::CliPreset;

use super::presets::preset_spec;
use crate::environment::EnvSource;
use crate::process::{BlockingRunLimits, ProcessCommand, ProcessLauncher, find_executable};

/// The folder in which programs are tried out: files of a project could change what they do.
const NEUTRAL_FOLDER: &str = "/";

/// A known CLI agent that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstalledAgent {
    /// It is not in the PATH.
    Missing {
        /// The name of its executable.
        executable: &'static str,
        /// The command that installs it.
        install: &'static str,
    },
    /// It prints a version.
    Works {
        /// Its executable.
        path: PathBuf,
        /// The version, or nothing if its output has none.
        version: Option<String>,
    },
    /// It is there, but does not print its version.
    Broken {
        /// Its executable.
        path: PathBuf,
        /// The reason, without any output of the program.
        reason: String,
    },
}

/// Looks for the program of a preset and asks it for its version. The program gets no variables that
/// may be secret. Blocks up to the timeout.
pub fn find_installed(
    preset: CliPreset,
    launcher: &ProcessLauncher,
    environment: &EnvSource,
    timeout: Duration,
) -> InstalledAgent {
    let spec = preset_spec(preset);
    let (executable, install) = (spec.executable, spec.install);
    let folders = environment.get("PATH").unwrap_or_default();
    let Some(path) = find_executable(executable, Path::new(NEUTRAL_FOLDER), &folders) else {
        return InstalledAgent::Missing { executable, install };
    };
    match output_of(&path, &["--version"], launcher, environment, timeout) {
        Ok(text) => InstalledAgent::Works { path, version: version_in(&text) },
        Err(reason) => InstalledAgent::Broken { path, reason },
    }
}

/// True if a program of the PATH exits with 0; `None` if there is no such program.
pub fn program_answers(
    executable: &str,
    args: &[&str],
    launcher: &ProcessLauncher,
    environment: &EnvSource,
    timeout: Duration,
) -> Option<bool> {
    let folders = environment.get("PATH").unwrap_or_default();
    let path = find_executable(executable, Path::new(NEUTRAL_FOLDER), &folders)?;
    Some(output_of(&path, args, launcher, environment, timeout).is_ok())
}

/// The output of a program that exits with 0, or the reason why there is none.
fn output_of(
    path: &Path,
    args: &[&str],
    launcher: &ProcessLauncher,
    environment: &EnvSource,
    timeout: Duration,
) -> Result<String, String> {
    let command = ProcessCommand {
        path: path.to_owned(),
        args: args.iter().map(ToString::to_string).collect(),
        env: environment.inherited().into_iter().collect(),
        folder: NEUTRAL_FOLDER.into(),
    };
    let limits = BlockingRunLimits { timeout, is_stopped: &|| false };
    let output = launcher.run_to_end(&command, &[], &limits).map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("it failed ({})", output.status));
    }
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The longest version that is believed.
const VERSION_CHARACTERS_MAX: usize = 40;

/// The first word that looks like a version: digits, a dot, and what follows.
fn version_in(text: &str) -> Option<String> {
    let is_part = |character: char| {
        character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '+' | '_')
    };
    text.split(|character| !is_part(character))
        .map(|word| word.strip_prefix('v').unwrap_or(word).trim_end_matches('.'))
        .find(|word| {
            let digits = word.chars().take_while(char::is_ascii_digit).count();
            let after = word.get(digits..).unwrap_or_default();
            let mut after = after.chars();
            digits > 0
                && word.len() <= VERSION_CHARACTERS_MAX
                && after.next() == Some('.')
                && after.next().is_some_and(|character| character.is_ascii_digit())
        })
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_versions_in_the_words_of_known_programs() {
        for (text, version) in [
            ("2.0.14 (Claude Code)\n", Some("2.0.14")),
            ("codex-cli 0.50.0", Some("0.50.0")),
            ("llm, version 0.36", Some("0.36")),
            ("v1.2.3-beta.1+x.", Some("1.2.3-beta.1+x")),
            ("aider 0.86.1", Some("0.86.1")),
            ("no version here. 7", None),
            ("", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
        assert_eq!(version_in(&format!("1.{}", "2".repeat(100))), None);
    }

    #[test]
    fn program_gets_no_secrets_and_a_time_limit() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, script: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("claude", "test -z \"$SECRET_TOKEN\" && echo 2.0.1");
        write("codex", "exec sleep 60");
        write("gemini", "exit 3");
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let environment = EnvSource::new(move |name| match name {
            "PATH" => Some(path.clone()),
            "SECRET_TOKEN" => Some("hunter2".into()),
            _ => None,
        });
        let find = |preset, timeout| {
            find_installed(preset, &ProcessLauncher::Direct, &environment, timeout)
        };
        let long = Duration::from_mins(2);
        let InstalledAgent::Works { version, .. } = find(CliPreset::Claude, long) else {
            panic!("claude does not work");
        };
        assert_eq!(version.as_deref(), Some("2.0.1"));
        for (preset, timeout, expected) in [
            (CliPreset::Codex, Duration::from_millis(50), "did not exit"),
            (CliPreset::Gemini, long, "exit status: 3"),
        ] {
            let InstalledAgent::Broken { reason, .. } = find(preset, timeout) else {
                panic!("{preset} works");
            };
            assert!(reason.contains(expected), "{reason}");
        }
        let missing = find(CliPreset::Copilot, long);
        assert!(matches!(missing, InstalledAgent::Missing { executable: "copilot", .. }));
    }
}
