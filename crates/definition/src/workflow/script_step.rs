//! The program of a script node.

use std::path::{Component, Path};

use polity_model::text_type;
use polity_model::value::excerpt;

use super::ScriptInterpreter;
use crate::value::command_line::ProgramCommand;

/// The program of a script node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptProgram {
    /// A file of the home, whose ending selects the interpreter.
    File(ScriptPath),
    /// A program with its arguments.
    Command(ProgramCommand),
}

text_type!(
    /// The path of a script, relative to the home and inside it.
    ScriptPath,
    check_script_path,
    { "type": "string", "pattern": "^[^/\\\\].*\\.(py|js|mjs|ts|sh)$" }
);

fn check_script_path(text: &str) -> Result<(), String> {
    let path = Path::new(text);
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if text.trim().is_empty() || !is_inside {
        return Err(format!(
            "must be a path inside the home, such as steps/score.py, without \"..\", and not \
             \"{}\"",
            excerpt(text)
        ));
    }
    let ending = path.extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    if ScriptInterpreter::of_ending(ending).is_none() {
        return Err(format!(
            "no interpreter is known for \"{}\": name it .py, .js, .mjs, .ts or .sh, or give a \
             command",
            excerpt(text)
        ));
    }
    Ok(())
}
