//! A program that tells someone.

use polity_definition::CommandLine;
use tokio::io::AsyncWriteExt;

use super::{NotTold, Notice, NotifyOptions, quoted};
use crate::environment::Environment;
use crate::process::{ProcessCommand, StartedProcess, StderrTail, find_executable};
use crate::secrets::Secrets;

/// What it takes to reach whoever sits before this machine.
const DESKTOP: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];

/// The longest variable, in bytes. Systems refuse to start a program with a much longer one.
const VARIABLE_BYTES_MAX: usize = 16 * 1024;

/// Runs the program to its end.
pub(super) async fn run(
    command: &CommandLine,
    notice: &Notice,
    options: &NotifyOptions,
) -> Result<(), NotTold> {
    let (program, secrets) = program(command, notice, options)?;
    let name = || command.program.clone();
    let StartedProcess { child, mut stdin, stdout } =
        options.launcher.start(&program).map_err(|error| NotTold::NotStarted {
            program: name(),
            reason: secrets.removed_from(&error.to_string()),
        })?;
    let said = StderrTail::read(stdout);
    let feed = async move {
        // Who does not read it to the end has no need of it.
        let _ = stdin.write_all(&notice.json).await;
    };
    let limit = options.command_timeout;
    let work = async { tokio::join!(feed, child.wait()).1 };
    let status = match tokio::time::timeout(limit, work).await {
        Ok(Some(status)) if status.success() => return Ok(()),
        // The program is torn down; there is no one left to tell.
        Ok(None) => return Ok(()),
        Ok(Some(status)) => Some(status),
        Err(_) => {
            child.stop().await;
            None
        }
    };
    let words = [child.stderr_tail().final_lines().await, said.final_lines().await].join("\n");
    let words = quoted(&secrets.removed_from_piece(words.trim()));
    Err(match status {
        Some(status) => NotTold::Failed { program: name(), status, words },
        None => NotTold::TookTooLong { program: name(), limit, words },
    })
}

/// What is run, and what it must not repeat.
fn program(
    command: &CommandLine,
    notice: &Notice,
    options: &NotifyOptions,
) -> Result<(ProcessCommand, Secrets), NotTold> {
    let own: Vec<_> = notice
        .variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), variable(value)))
        .collect();
    let environment = with(own.clone(), &options.environment);
    let mut filled_in = Vec::new();
    let mut fill = |word: &str| {
        environment
            .fill(word, &mut filled_in)
            .map_err(|name| NotTold::Unset { field: "command", name: name.to_owned() })
    };
    let path = fill(&command.program)?;
    let args = command.args.iter().map(|arg| fill(arg)).collect::<Result<_, _>>()?;
    // What the notice says is no secret.
    filled_in.retain(|value| !own.iter().any(|(_, told)| told == value));
    let mut env = environment.inherited();
    env.extend(
        DESKTOP.iter().filter_map(|name| Some(((*name).to_owned(), environment.raw(name)?))),
    );
    env.extend(own);
    let folders = env.get("PATH").map_or("", String::as_str);
    let path = find_executable(&path, &options.home, folders)
        .ok_or_else(|| NotTold::NoProgram { program: command.program.clone() })?;
    let folder = options.home.clone();
    let program = ProcessCommand { path, args, env: env.into_iter().collect(), folder };
    Ok((program, Secrets::new(filled_in.iter().map(String::as_str))))
}

/// The environment with these variables before its own.
fn with(own: Vec<(String, String)>, environment: &Environment) -> Environment {
    let environment = environment.clone();
    Environment::new(move |name| {
        let told = own.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
        told.or_else(|| environment.raw(name))
    })
}

/// A text as a variable can hold it; all of it is in the JSON.
fn variable(text: &str) -> String {
    let end = text.floor_char_boundary(VARIABLE_BYTES_MAX);
    let cut = if end < text.len() { "…" } else { "" };
    text[..end].replace('\0', "\u{fffd}") + cut
}
