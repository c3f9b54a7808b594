//! The notification command.

use polity_definition::ProgramCommand;
use tokio::io::AsyncWriteExt;

use super::{NotificationPayload, NotifyError, NotifyOptions, append_text};
use crate::environment::EnvSource;
use crate::process::{ProcessCommand, StartedProcess, StderrTail, find_executable};
use crate::secrets::SecretSet;

/// The variables that desktop notifications need.
const DESKTOP_VARIABLES: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];

/// The longest value of a variable, in bytes. Systems reject much longer ones.
const VARIABLE_BYTES_MAX: usize = 16 * 1024;

/// Runs the command and waits for its exit.
pub(super) async fn run(
    command: &ProgramCommand,
    payload: &NotificationPayload,
    options: &NotifyOptions,
) -> Result<(), NotifyError> {
    let (program, secrets) = program(command, payload, options)?;
    let name = || command.program.clone();
    let StartedProcess { child, mut stdin, stdout } =
        options.launcher.start_service(&program, &options.data).map_err(|error| {
            NotifyError::NotStarted { program: name(), reason: secrets.redact(&error.to_string()) }
        })?;
    let said = StderrTail::read(stdout);
    let feed = async move {
        // The command need not read its input.
        let _ = stdin.write_all(&payload.json).await;
    };
    let limit = options.command_timeout;
    let work = async { tokio::join!(feed, child.wait()).1 };
    let status = match tokio::time::timeout(limit, work).await {
        Ok(Some(status)) if status.success() => return Ok(()),
        // The runtime is shutting down.
        Ok(None) => return Ok(()),
        Ok(Some(status)) => Some(status),
        Err(_) => {
            child.stop().await;
            None
        }
    };
    let words = [child.stderr_tail().final_lines().await, said.final_lines().await].join("\n");
    let words = append_text(&secrets.redact_fragment(words.trim()));
    Err(match status {
        Some(status) => NotifyError::Failed { program: name(), status, words },
        None => NotifyError::TookTooLong { program: name(), limit, words },
    })
}

/// Builds the command's program and collects its secrets.
fn program(
    command: &ProgramCommand,
    payload: &NotificationPayload,
    options: &NotifyOptions,
) -> Result<(ProcessCommand, SecretSet), NotifyError> {
    let own: Vec<_> = payload
        .variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), truncate_variable(value)))
        .collect();
    let environment = overlay(own.clone(), &options.environment);
    let mut filled_in = Vec::new();
    let mut fill = |word: &str| {
        environment
            .fill(word, &mut filled_in)
            .map_err(|name| NotifyError::Unset { field: "command", name: name.to_owned() })
    };
    let path = fill(&command.program)?;
    let args = command.args.iter().map(|arg| fill(arg)).collect::<Result<_, _>>()?;
    // The content of the notification is not secret.
    filled_in.retain(|value| !own.iter().any(|(_, told)| told == value));
    let mut env = environment.inherited();
    env.extend(
        DESKTOP_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), environment.raw(name)?))),
    );
    env.extend(own);
    let folders = env.get("PATH").map_or("", String::as_str);
    let name = path;
    let path = find_executable(&name, &options.home, folders)
        .ok_or_else(|| NotifyError::NoProgram { program: command.program.clone() })?;
    options
        .program_check
        .check(&name, &path, &options.home)
        .map_err(|reason| NotifyError::NotTrusted { program: command.program.clone(), reason })?;
    let folder = options.home.clone();
    let program = ProcessCommand { path, args, env: env.into_iter().collect(), folder };
    Ok((program, SecretSet::new(filled_in.iter().map(String::as_str))))
}

/// The environment with these variables taking precedence.
fn overlay(own: Vec<(String, String)>, environment: &EnvSource) -> EnvSource {
    let environment = environment.clone();
    EnvSource::new(move |name| {
        let told = own.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
        told.or_else(|| environment.raw(name))
    })
}

/// The value without NUL bytes, truncated to the limit; the JSON has all of it.
fn truncate_variable(text: &str) -> String {
    let end = text.floor_char_boundary(VARIABLE_BYTES_MAX);
    let cut = if end < text.len() { "…" } else { "" };
    text[..end].replace('\0', "\u{fffd}") + cut
}
