//! Builds the invocation of a CLI agent: executable, arguments, environment, stdin and files.
//!
//! Nothing is started or written here. `presets` resolves the agent's preset, `arguments` renders
//! templates, `variables` collects the environment, and `request_digest` makes the dedup key.

pub(crate) mod answer_path;
mod arguments;
pub(crate) mod presets;
pub(crate) mod request_digest;
mod scripts;
mod variables;

#[cfg(test)]
#[path = "invocation/invocation_tests.rs"]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use polity_definition::{CliPlaceholder, ScriptProgram, ScriptSource};
use polity_engine::driver::{NotReady, RunOverrides};
use serde_json::{Map, Value, json};

use self::answer_path::AnswerPath;
use self::arguments::TemplateValues;
use self::scripts::ScriptInvocation;
use self::variables::EnvVariables;
pub(crate) use self::variables::secrets;
use crate::cli::invocation::presets::{InputMode, OutputMode, ResolvedAgent};
use crate::environment::EnvSource;
use crate::process::{HomeProgramCheck, ProcessCommand, find_executable};

/// File names in the private folder of a run.
const INPUT_FILE: &str = "input";
const OUTPUT_FILE: &str = "output";

/// The id of the single JSON-RPC request.
pub(crate) const RPC_ID: u64 = 1;

/// The inputs of an invocation: the task's values and the paths of this process.
#[derive(Clone, Copy)]
pub(crate) struct RunInputs<'a> {
    /// The agent's name, for messages.
    pub(crate) agent: &'a str,
    pub(crate) input: &'a str,
    pub(crate) parameters: &'a Map<String, Value>,
    /// The task's overrides of the agent's definition.
    pub(crate) overrides: &'a RunOverrides,
    /// The pinned script, if the agent runs one.
    pub(crate) script: Option<&'a ScriptSource>,
    /// The agent's own id of the session to resume.
    pub(crate) session_id: Option<&'a str>,
    pub(crate) environment: &'a EnvSource,
    /// The home folder; relative paths in definitions start here.
    pub(crate) home: &'a Path,
    /// The check of an executable in the home.
    pub(crate) program_check: &'a HomeProgramCheck,
    /// The default working directory.
    pub(crate) current_folder: &'a Path,
    /// The folder for files of this run only.
    pub(crate) private_folder: &'a Path,
}

/// A process to start, with its stdin and files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CliInvocation {
    /// Executable, arguments, environment and working directory.
    pub(crate) program: ProcessCommand,
    pub(crate) stdin: StdinContent,
    /// Files to write before the start, readable only by the owner.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// The script to write before the start, which nobody may change.
    pub(crate) script: Option<(PathBuf, String)>,
    /// The file to read the answer from. A file left by an earlier run is removed first.
    pub(crate) output_file: Option<AnswerPath>,
    /// Values to mask in everything the process writes.
    pub(crate) secrets: Vec<String>,
}

/// The content of a process's stdin.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StdinContent {
    /// Closed at once.
    Nothing,
    /// A text, then closed.
    Text(String),
    /// One JSON-RPC request on a line of its own. Stdin closes after the response.
    Request(String),
}

impl fmt::Debug for CliInvocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The other fields may hold secrets.
        f.debug_struct("CliInvocation").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Builds the invocation, or reports what is missing.
pub(crate) fn build(
    resolved: &ResolvedAgent,
    inputs: RunInputs<'_>,
) -> Result<CliInvocation, NotReady> {
    let (folder, variables, path) = prepare(resolved, inputs)?;
    let mut values = TemplateValues::new(resolved, inputs, &folder);
    let output_file = match &resolved.output {
        OutputMode::File(Some(template)) => Some(AnswerPath::new(&folder, &values.path(template)?)),
        OutputMode::File(None) => Some(AnswerPath::private(inputs.private_folder)),
        OutputMode::Stdout | OutputMode::JsonRpc => None,
    };
    values.output_file = output_file.as_ref().map(|file| file.path.clone());
    let (mut files, mut last_argument) = (Vec::new(), None);
    let stdin = match &resolved.input {
        InputMode::Stdin => StdinContent::Text(inputs.input.to_owned()),
        InputMode::Args => {
            last_argument = Some(CliPlaceholder::Input);
            StdinContent::Nothing
        }
        InputMode::File(template) => {
            let path = inputs.private_folder.join(INPUT_FILE);
            values.input_file = Some(path.clone());
            files.push((path, values.text(template)?));
            last_argument = Some(CliPlaceholder::InputFile);
            StdinContent::Nothing
        }
        InputMode::JsonRpc => StdinContent::Request(request(inputs)),
    };
    let args = match (&resolved.resumed_args, inputs.session_id) {
        (Some(resumed), Some(_)) => resumed,
        (Some(_) | None, _) => &resolved.args,
    };
    let (args, script) = match &resolved.script {
        Some(script) => {
            let ScriptInvocation { args, copy } = scripts::build(script, inputs)?;
            (args, copy)
        }
        None => (arguments::render_arguments(args, last_argument.as_ref(), &values)?, None),
    };
    let program = ProcessCommand { path, args, env: variables.all.into_iter().collect(), folder };
    Ok(CliInvocation { program, stdin, files, script, output_file, secrets: variables.secrets })
}

/// Checks that folder, variables and executable exist. The task's values are not known yet.
pub(crate) fn check(resolved: &ResolvedAgent, inputs: RunInputs<'_>) -> Result<(), NotReady> {
    prepare(resolved, inputs).map(|_| ())
}

/// The folder, the variables and the executable of a run that the agent's policy permits.
fn prepare(
    resolved: &ResolvedAgent,
    inputs: RunInputs<'_>,
) -> Result<(PathBuf, EnvVariables, PathBuf), NotReady> {
    if let Some(problem) = &resolved.policy_problem {
        return Err(NotReady {
            message: format!("agent \"{}\": {problem}", inputs.agent),
            hint: "change permission_policy in the agent's file".to_owned(),
        });
    }
    let folder = working_directory(resolved, inputs)?;
    let mut variables = variables::collect_variables(resolved, inputs)?;
    if let Some(ScriptProgram::File(path)) = &resolved.script {
        scripts::add_import_folder(path, inputs.home, &mut variables.all);
    }
    let user_home = variables.all.get("HOME").map(Path::new);
    if let Some(code) = find_folder_code(&folder, resolved.folder_code, user_home) {
        return Err(NotReady {
            message: format!(
                "agent \"{}\": the program \"{}\" would run code of {}, whatever its \
                 permission_policy",
                inputs.agent,
                resolved.executable,
                code.display()
            ),
            hint: "use another working directory, remove the file, or set permission_policy to \
                   allow if you trust it"
                .to_owned(),
        });
    }
    let path = executable(resolved, inputs, variables.path())?;
    Ok((folder, variables, path))
}

/// The first of these names in a folder or its parents, up to the root of a Git repository. The
/// files of the user's home folder are settings of the user.
fn find_folder_code(folder: &Path, names: &[&str], user_home: Option<&Path>) -> Option<PathBuf> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    for parent in folder.ancestors().take_while(|parent| Some(*parent) != user_home) {
        let mut paths = names.iter().map(|name| parent.join(name));
        let found = paths.find(|path| path.symlink_metadata().is_ok());
        if found.is_some() {
            return found;
        }
        if parent.join(".git").symlink_metadata().is_ok() {
            break;
        }
    }
    None
}

fn request(inputs: RunInputs<'_>) -> String {
    let params = json!({ "input": inputs.input, "parameters": inputs.parameters });
    let request = json!({ "jsonrpc": "2.0", "id": RPC_ID, "method": "execute", "params": params });
    format!("{request}\n")
}

/// The working directory. A relative path starts at the home folder.
pub(crate) fn working_directory(
    resolved: &ResolvedAgent,
    inputs: RunInputs<'_>,
) -> Result<PathBuf, NotReady> {
    let from_task = inputs.overrides.working_directory.as_ref();
    let Some(given) = from_task.or(resolved.working_directory.as_ref()) else {
        return Ok(inputs.current_folder.to_owned());
    };
    let folder = inputs.home.join(given);
    let (agent, shown) = (inputs.agent, folder.display());
    let wrong = match folder.metadata() {
        Ok(data) if data.is_dir() => return Ok(folder),
        Ok(_) => format!("{shown} is not a folder"),
        Err(error) => format!("{shown}: {error}"),
    };
    let source = if from_task.is_some() { "of the task" } else { "of the agent's file" };
    Err(NotReady {
        message: format!("the working directory of agent \"{agent}\" cannot be used: {wrong}"),
        hint: format!("make the folder, or change the working_directory {source}"),
    })
}

fn executable(
    resolved: &ResolvedAgent,
    inputs: RunInputs<'_>,
    folders: &str,
) -> Result<PathBuf, NotReady> {
    let command = resolved.executable.as_str();
    let found = find_executable(command, inputs.home, folders);
    let distrust = match &found {
        Some(path) => inputs.program_check.check(command, path, inputs.home).err(),
        None => None,
    };
    let is_distrusted = distrust.is_some();
    let wrong = match (found, distrust) {
        (Some(path), None) => return Ok(path),
        (Some(_), Some(reason)) => reason,
        (None, _) => missing_reason(command, inputs.home),
    };
    let owner = match &resolved.script {
        Some(script) => format!("script \"{}\"", script.label()),
        None => format!("agent \"{}\"", inputs.agent),
    };
    let hint = match (&resolved.script, resolved.install) {
        (_, _) if is_distrusted => {
            "take ownership of it, or name the home with --home if you trust all who can write to it"
                .to_owned()
        }
        (Some(_), _) => "install it, or give the step another command".to_owned(),
        (None, Some(install)) => format!("install it ({install}), or set executable_path"),
        (None, None) => "install it, or change executable_path in the agent's file".to_owned(),
    };
    Err(NotReady {
        message: format!("the program \"{command}\" of {owner} cannot be run: {wrong}"),
        hint,
    })
}

/// The reason why an executable was not found.
fn missing_reason(command: &str, home: &Path) -> String {
    if command.contains('/') {
        let path = home.join(command);
        let shown = path.display();
        match path.metadata() {
            Ok(data) if data.is_dir() => format!("{shown} is a folder"),
            Ok(_) => format!("{shown} is not executable"),
            Err(error) => format!("{shown}: {error}"),
        }
    } else {
        "not found in the PATH".to_owned()
    }
}
