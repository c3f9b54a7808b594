//! Invocations of scripts, which are steps of workflows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polity_definition::{ScriptPath, ScriptProgram};
use polity_engine::driver::NotReady;

use super::RunInputs;
use super::arguments::check_argument;

/// The separator of folders in a list of them.
const FOLDER_SEPARATOR: char = ':';

/// The arguments of a script, and the private copy of its pinned text.
pub(super) struct ScriptInvocation {
    pub(super) args: Vec<String>,
    pub(super) copy: Option<(PathBuf, String)>,
}

/// Builds the arguments of a script. Its file is always the last argument.
pub(super) fn build(
    program: &ScriptProgram,
    inputs: RunInputs<'_>,
) -> Result<ScriptInvocation, NotReady> {
    let mut args: Vec<String> = program.arguments().into_iter().map(str::to_owned).collect();
    let copy = match program {
        ScriptProgram::Command(_) => None,
        ScriptProgram::File(path) => {
            let source = inputs.script.filter(|source| source.file == *path);
            let source = source.ok_or_else(|| NotReady {
                message: format!("the task did not pin the script {path}"),
                hint: "start a new task".to_owned(),
            })?;
            let copy = inputs.private_folder.join(path.file_name());
            args.push(copy.to_string_lossy().into_owned());
            Some((copy, source.content.clone()))
        }
    };
    for arg in &args {
        check_argument(arg, inputs.agent)?;
    }
    Ok(ScriptInvocation { args, copy })
}

/// Lets a script import the files beside its original.
pub(super) fn add_import_folder(
    path: &ScriptPath,
    home: &Path,
    variables: &mut BTreeMap<String, String>,
) {
    let Some(name) = path.interpreter().import_variable() else { return };
    let script = home.join(path.as_str());
    let Some(folder) = script.parent().and_then(Path::to_str) else { return };
    let folders = match variables.get(name).filter(|others| !others.is_empty()) {
        Some(others) => format!("{folder}{FOLDER_SEPARATOR}{others}"),
        None => folder.to_owned(),
    };
    variables.insert(name.to_owned(), folders);
}
