//! What is started for a task: program, arguments, variables, files. Nothing is started or written
//! here.

mod arguments;
mod variables;

#[cfg(test)]
#[path = "invocation/invocation_tests.rs"]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use polity_definition::Placeholder;
use polity_engine::driver::{NotReady, RunOverrides};
use serde_json::{Map, Value, json};

use self::arguments::Values;
use super::presets::{Input, Output, Settled};
use crate::environment::Environment;
use crate::process::{Program, find};

/// The names of the files in the private folder of a run.
const INPUT_FILE: &str = "input";
const OUTPUT_FILE: &str = "output";

/// The id of the one request that a program is sent over JSON-RPC.
pub(crate) const RPC_ID: u64 = 1;

/// What a task brings to a run.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// The name of the agent, for messages.
    pub(crate) agent: &'a str,
    /// What the program is given.
    pub(crate) input: &'a str,
    /// Named values that came with the task.
    pub(crate) parameters: &'a Map<String, Value>,
    /// What the task says otherwise than the agent's file.
    pub(crate) overrides: &'a RunOverrides,
    /// The program's own name for the conversation that goes on, if one does.
    pub(crate) session_id: Option<&'a str>,
    /// The environment of this process.
    pub(crate) environment: &'a Environment,
    /// The home folder, which paths in definitions are relative to.
    pub(crate) home: &'a Path,
    /// The folder in which the program runs if nothing says otherwise.
    pub(crate) current_folder: &'a Path,
    /// A folder for the files of this run alone.
    pub(crate) private_folder: &'a Path,
}

/// What is started.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// The program with its arguments, its whole environment and its folder.
    pub(crate) program: Program,
    /// What it finds on stdin.
    pub(crate) stdin: Stdin,
    /// Files that are written before it starts, readable by the owner alone.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// The file that its output is read from. What an earlier run left there is removed before.
    pub(crate) output_file: Option<PathBuf>,
    /// What must not be seen of all that it writes.
    pub(crate) secrets: Vec<String>,
}

/// What a program finds on stdin.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// Its end at once.
    Nothing,
    /// A text, and the end.
    Text(String),
    /// A request of JSON-RPC on a line of its own. The end comes after the response.
    Request(String),
}

impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest is secret, or may hold what is.
        f.debug_struct("Invocation").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Puts together what is started, or says what is missing.
pub(crate) fn build(settled: &Settled, parts: Parts<'_>) -> Result<Invocation, NotReady> {
    let folder = working_directory(settled, parts)?;
    let variables = variables::gathered(settled, parts)?;
    let path = executable(settled, parts, variables.path())?;
    let mut values = Values::new(settled, parts, &folder);
    let output_file = match &settled.output {
        Output::File(Some(template)) => Some(folder.join(values.path(template)?)),
        Output::File(None) => Some(parts.private_folder.join(OUTPUT_FILE)),
        Output::Stdout | Output::JsonRpc => None,
    };
    values.output_file.clone_from(&output_file);
    let (mut files, mut last_argument) = (Vec::new(), None);
    let stdin = match &settled.input {
        Input::Stdin => Stdin::Text(parts.input.to_owned()),
        Input::Args => {
            last_argument = Some(Placeholder::Input);
            Stdin::Nothing
        }
        Input::File(template) => {
            let path = parts.private_folder.join(INPUT_FILE);
            values.input_file = Some(path.clone());
            files.push((path, values.text(template)?));
            last_argument = Some(Placeholder::InputFile);
            Stdin::Nothing
        }
        Input::JsonRpc => Stdin::Request(request(parts)),
    };
    let args = match (&settled.resumed_args, parts.session_id) {
        (Some(resumed), Some(_)) => resumed,
        (Some(_) | None, _) => &settled.args,
    };
    let args = arguments::rendered(args, last_argument.as_ref(), &values)?;
    let program = Program { path, args, env: variables.all.into_iter().collect(), folder };
    Ok(Invocation { program, stdin, files, output_file, secrets: variables.secrets })
}

/// Whether a program could be started: its folder, its variables and itself are there. What a task
/// brings is not known yet.
pub(crate) fn check(settled: &Settled, parts: Parts<'_>) -> Result<(), NotReady> {
    working_directory(settled, parts)?;
    let variables = variables::gathered(settled, parts)?;
    executable(settled, parts, variables.path()).map(|_| ())
}

/// The values that must not be seen in what is said of a run. It is told also of programs that
/// could not be started, so a variable that is missing is none.
pub(crate) fn secrets(
    settled: &Settled,
    overrides: &RunOverrides,
    environment: &Environment,
) -> Vec<String> {
    variables::secrets(settled, overrides, environment)
}

fn request(parts: Parts<'_>) -> String {
    let params = json!({ "input": parts.input, "parameters": parts.parameters });
    let request = json!({ "jsonrpc": "2.0", "id": RPC_ID, "method": "execute", "params": params });
    format!("{request}\n")
}

/// Where the program runs. A relative path begins at the home.
pub(crate) fn working_directory(settled: &Settled, parts: Parts<'_>) -> Result<PathBuf, NotReady> {
    let by_task = parts.overrides.working_directory.as_ref();
    let Some(given) = by_task.or(settled.working_directory.as_ref()) else {
        return Ok(parts.current_folder.to_owned());
    };
    let folder = parts.home.join(given);
    let (agent, shown) = (parts.agent, folder.display());
    let wrong = match folder.metadata() {
        Ok(data) if data.is_dir() => return Ok(folder),
        Ok(_) => format!("{shown} is not a folder"),
        Err(error) => format!("{shown}: {error}"),
    };
    let whose = if by_task.is_some() { "of the task" } else { "of the agent's file" };
    Err(NotReady {
        message: format!("the working directory of agent \"{agent}\" cannot be used: {wrong}"),
        hint: format!("make the folder, or change the working_directory {whose}"),
    })
}

fn executable(settled: &Settled, parts: Parts<'_>, folders: &str) -> Result<PathBuf, NotReady> {
    let command = settled.executable.as_str();
    if let Some(path) = find(command, parts.home, folders) {
        return Ok(path);
    }
    let wrong = if command.contains('/') {
        let path = parts.home.join(command);
        let shown = path.display();
        match path.metadata() {
            Ok(data) if data.is_dir() => format!("{shown} is a folder"),
            Ok(_) => format!("{shown} is not executable"),
            Err(error) => format!("{shown}: {error}"),
        }
    } else {
        "no folder of the PATH has such an executable".to_owned()
    };
    let hint = match settled.install {
        Some(install) => format!("install it ({install}), or set executable_path"),
        None => "install it, or change executable_path in the agent's file".to_owned(),
    };
    let agent = parts.agent;
    Err(NotReady {
        message: format!("the program \"{command}\" of agent \"{agent}\" cannot be run: {wrong}"),
        hint,
    })
}
