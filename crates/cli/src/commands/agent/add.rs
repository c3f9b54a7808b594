//! `polity agent add`: the file of a new agent.

use std::io::ErrorKind;

use polity_definition::{HomeFile, NameLookup};
use polity_files::{FileAccess, create_folder, write_new};
use polity_host::yaml_file;
use polity_model::name::Name;
use serde_json::{Map, Value, json};

use crate::app::AppContext;
use crate::args::{AgentAddArgs, KindArg};
use crate::commands::set_option::change;
use crate::error::{CliError, CliResult};

/// The fields of a definition, in file order.
#[derive(Default)]
struct AgentFields(Vec<(String, Value)>);

impl AgentFields {
    fn put(&mut self, name: &str, value: Option<impl Into<Value>>) {
        self.0.extend(value.map(|value| (name.to_owned(), value.into())));
    }

    fn put_all(&mut self, name: &str, values: &[String]) {
        self.put(name, (!values.is_empty()).then(|| values.to_vec()));
    }

    fn put_map(&mut self, name: &str, fields: Map<String, Value>) {
        self.put(name, (!fields.is_empty()).then_some(fields));
    }

    /// Sets a field or a part of one. Setting a field twice is an error.
    fn set(&mut self, text: &str) -> Result<(), CliError> {
        let (path, value) = change(text, "timeout_seconds=60")?;
        let twice = || CliError::usage(format!("\"{path}\" is set twice"));
        let (field, rest) = path.split_once('.').map_or((path, None), |(f, rest)| (f, Some(rest)));
        let index = match self.0.iter().position(|(name, _)| name == field) {
            Some(_) if rest.is_none() => return Err(twice()),
            Some(index) => index,
            None => {
                let empty = if rest.is_some() { json!({}) } else { Value::Null };
                self.0.push((field.to_owned(), empty));
                self.0.len() - 1
            }
        };
        let mut place = &mut self.0[index].1;
        for part in rest.into_iter().flat_map(|rest| rest.split('.')) {
            let Value::Object(fields) = place else { return Err(twice()) };
            place = fields.entry(part).or_insert_with(|| json!({}));
        }
        *place = value;
        Ok(())
    }
}

/// The definition that the flags describe.
fn fields(args: &AgentAddArgs, name: &Name) -> Result<AgentFields, CliError> {
    let mut fields = AgentFields::default();
    fields.put("name", Some(name.as_str()));
    let kind = match args.kind {
        KindArg::Llm => "llm",
        KindArg::Cli => "cli",
        KindArg::Remote => "remote",
    };
    fields.put("kind", Some(kind));
    fields.put("role", args.role.clone());
    let program = &args.program;
    fields.put("preset", program.preset.clone());
    fields.put("executable_path", program.executable.clone());
    fields.put_all("cli_args", &program.args);
    if args.kind == KindArg::Cli {
        fields.put("model", args.model.clone());
    }
    fields.put_map("envs", variables(&program.envs)?);
    fields.put_all("env_allow", &program.env_allow);
    fields.put("working_directory", program.working_directory.clone());
    fields.put("input_pattern", program.input_pattern.clone());
    fields.put("output_pattern", program.output_pattern.clone());
    fields.put("access_type", program.access_type.clone());
    let at_once = program.max_concurrent_executions.map(std::num::NonZeroU32::get);
    fields.put("max_concurrent_executions", at_once);
    fields.put("workspace", program.workspace.clone());
    fields.put("timeout", program.timeout.map(std::num::NonZeroU64::get));
    let llm = &args.llm;
    fields.put("system_prompt", llm.system_prompt.clone());
    fields.put_all("tools", &llm.tools);
    let mut config = Map::new();
    let model = args.model.as_ref().filter(|_| args.kind == KindArg::Llm);
    for (name, value) in [
        ("provider", llm.provider.as_ref()),
        ("endpoint", llm.endpoint.as_ref()),
        ("model", model),
        ("api_key_env", llm.api_key_env.as_ref()),
        ("script", llm.script.as_ref()),
    ] {
        config.extend(value.map(|value| (name.to_owned(), Value::from(value.as_str()))));
    }
    fields.put_map("llm_config", config);
    fields.put("max_retries", args.max_retries);
    fields.put("card_url", args.card_url.clone());
    args.set.iter().try_for_each(|text| fields.set(text))?;
    Ok(fields)
}

fn variables(envs: &[String]) -> Result<Map<String, Value>, CliError> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), Value::from(value))),
        Some(_) | None => Err(CliError::usage("--env takes NAME=VALUE")
            .hint("to pass on a variable of Polity's own environment, use --env-allow NAME")),
    };
    envs.iter().map(pair).collect()
}

pub(super) fn add(app: &AppContext, args: &AgentAddArgs) -> CliResult {
    let name: Name = args.name.parse().map_err(|error| CliError::usage(&error))?;
    match app.folder().read()?.find(name.as_str()) {
        NameLookup::Unknown { .. } => {}
        NameLookup::Agent(_) | NameLookup::Workflow(_) | NameLookup::Broken(_) => {
            return Err(taken(&name));
        }
    }
    let text = yaml_file(&fields(args, &name)?.0);
    let path = format!("agents/{name}.yaml");
    let home = app.folder().read_with(HomeFile { path: path.clone(), text: Ok(text.clone()) })?;
    let wrong: Vec<_> = home.problems.into_iter().filter(|found| found.file == path).collect();
    if !wrong.is_empty() {
        let message = format!("the agent \"{name}\" would not be valid");
        return Err(CliError::invalid(message, wrong)
            .hint("nothing was written; `polity schema agent` lists all fields"));
    }
    write(app, &name, &path, &text)?;
    app.print(&json!({"name": name, "file": path}), || {
        format!("wrote {path}; run it with `polity run {name} INPUT`")
    })
}

/// Writes the file, unless there is one.
fn write(app: &AppContext, name: &Name, path: &str, text: &str) -> Result<(), CliError> {
    let path = app.folder().root().join(path);
    let written = path
        .parent()
        .map_or(Ok(()), |folder| create_folder(folder, FileAccess::Shared))
        .and_then(|()| write_new(&path, FileAccess::Shared, text.as_bytes()));
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken(name)),
        written => written.map_err(|error| CliError::io("write", &path, &error)),
    }
}

fn taken(name: &Name) -> CliError {
    CliError::already(format!("there is an agent or workflow \"{name}\" already"))
        .hint("nothing was written; edit its file, or choose another name")
}
