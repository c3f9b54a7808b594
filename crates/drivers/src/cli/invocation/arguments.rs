//! Renders templates for arguments, files and paths.

use std::path::{Path, PathBuf};

use polity_definition::{CliPlaceholder, CliTemplate};
use polity_engine::driver::NotReady;
use serde_json::Value;

use super::RunInputs;
use crate::cli::invocation::presets::ResolvedAgent;

/// Linux's limit for one argument, in bytes, excluding the terminating zero.
const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

/// The task parameter that selects the model.
const MODEL_PARAMETER: &str = "model";

pub(crate) struct TemplateValues<'a> {
    inputs: RunInputs<'a>,
    model: Option<String>,
    folder: &'a Path,
    pub(crate) input_file: Option<PathBuf>,
    pub(crate) output_file: Option<PathBuf>,
}

impl<'a> TemplateValues<'a> {
    pub(crate) fn new(resolved: &ResolvedAgent, inputs: RunInputs<'a>, folder: &'a Path) -> Self {
        let from_task = inputs.parameters.get(MODEL_PARAMETER).map(as_text);
        let model = from_task.or_else(|| resolved.model.clone());
        Self { inputs, model, folder, input_file: None, output_file: None }
    }

    /// Renders a template to text.
    pub(crate) fn text(&self, template: &CliTemplate) -> Result<String, NotReady> {
        template
            .render(|placeholder| self.value(placeholder)?.ok_or_else(|| self.missing(placeholder)))
    }

    /// Renders a template to a path. The task's values must be names, so that they cannot lead
    /// elsewhere.
    pub(crate) fn path(&self, template: &CliTemplate) -> Result<PathBuf, NotReady> {
        if template.leads_up() {
            return Err(NotReady {
                message: format!(
                    "output_file_template of agent \"{}\" leads out of the working directory",
                    self.inputs.agent
                ),
                hint: "write a path in the working directory, or an absolute one".to_owned(),
            });
        }
        let path = template.render(|placeholder| {
            let value = self.value(placeholder)?.ok_or_else(|| self.missing(placeholder))?;
            let is_name =
                !value.contains(['/', '\0']) && !["", ".", ".."].contains(&value.as_str());
            if is_name || *placeholder == CliPlaceholder::Workdir {
                return Ok(value);
            }
            Err(NotReady {
                message: format!(
                    "{placeholder} in output_file_template of agent \"{}\" must be the name of a \
                     file or folder, without \"/\"",
                    self.inputs.agent
                ),
                hint: "give the task another value".to_owned(),
            })
        });
        path.map(PathBuf::from)
    }

    /// The value of a placeholder, if it has one.
    fn value(&self, placeholder: &CliPlaceholder) -> Result<Option<String>, NotReady> {
        let file =
            |path: &Option<PathBuf>| path.as_deref().map(|path| self.path_text(path)).transpose();
        let value = match placeholder {
            CliPlaceholder::Input => Some(self.inputs.input.to_owned()),
            CliPlaceholder::Workdir => Some(self.path_text(self.folder)?),
            CliPlaceholder::InputFile => file(&self.input_file)?,
            CliPlaceholder::OutputFile => file(&self.output_file)?,
            CliPlaceholder::Model => self.model.clone(),
            CliPlaceholder::SessionId => self.inputs.session_id.map(str::to_owned),
            CliPlaceholder::Parameter(name) => self.inputs.parameters.get(&**name).map(as_text),
        };
        Ok(value)
    }

    fn path_text(&self, path: &Path) -> Result<String, NotReady> {
        path.to_str().map(str::to_owned).ok_or_else(|| NotReady {
            message: format!(
                "agent \"{}\" cannot use the path {}: it is not valid UTF-8",
                self.inputs.agent,
                path.display()
            ),
            hint: "rename the folder".to_owned(),
        })
    }

    fn missing(&self, placeholder: &CliPlaceholder) -> NotReady {
        let agent = self.inputs.agent;
        let hint = match placeholder {
            CliPlaceholder::Parameter(name) => format!("give the task a parameter \"{name}\""),
            CliPlaceholder::Model => {
                "set model in the agent's file, or give the task a parameter \"model\"".to_owned()
            }
            CliPlaceholder::SessionId => "it has a value only in a resumed session".to_owned(),
            CliPlaceholder::Input
            | CliPlaceholder::Workdir
            | CliPlaceholder::InputFile
            | CliPlaceholder::OutputFile => "change the patterns in the agent's file".to_owned(),
        };
        NotReady {
            message: format!("agent \"{agent}\" needs {placeholder}, which has no value"),
            hint,
        }
    }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Renders the arguments. An argument that names a missing model or session is left out. `last` is
/// appended unless a template names it.
pub(crate) fn render_arguments(
    templates: &[CliTemplate],
    last: Option<&CliPlaceholder>,
    values: &TemplateValues<'_>,
) -> Result<Vec<String>, NotReady> {
    let mut args: Vec<String> = Vec::new();
    for template in templates {
        if lacks_value(template, values)? {
            let is_alone = template.only_placeholder().is_some();
            let follows_option = args.last().is_some_and(|before| before.starts_with('-'));
            if is_alone && follows_option {
                args.pop();
            }
            continue;
        }
        args.push(values.text(template)?);
    }
    if let Some(last) = last.filter(|last| !templates.iter().any(|one| one.names(last))) {
        args.extend(values.value(last)?);
    }
    for arg in &args {
        check_argument(arg, values.inputs.agent)?;
    }
    Ok(args)
}

/// True if a template names a model or session that is missing.
fn lacks_value(template: &CliTemplate, values: &TemplateValues<'_>) -> Result<bool, NotReady> {
    for placeholder in [CliPlaceholder::Model, CliPlaceholder::SessionId] {
        if template.names(&placeholder) && values.value(&placeholder)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that an argument can be passed to a process.
pub(super) fn check_argument(arg: &str, agent: &str) -> Result<(), NotReady> {
    let wrong = if arg.contains('\0') {
        "contains a zero character".to_owned()
    } else if arg.len() > ARGUMENT_BYTES_MAX {
        format!("has {} bytes; the maximum is {ARGUMENT_BYTES_MAX}", arg.len())
    } else {
        return Ok(());
    };
    Err(NotReady {
        message: format!("an argument for the program of agent \"{agent}\" {wrong}"),
        hint: "set input_pattern to stdin or file, if the program can read one".to_owned(),
    })
}
