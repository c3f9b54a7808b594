//! `polity run` on a server.

use std::path::Path;

use polity_host::process_environment;
use polity_model::number::UsdLimit;
use serde_json::{Map, Value, json};

use super::start::show_started;
use crate::args::RunArgs;
use crate::client::ServerLink;
use crate::commands::run::{parameters, read_input, variables, working_directory};
use crate::error::{CliError, CliResult};

/// The most bytes that are read from stdin. The limit of the server is smaller.
const STDIN_BYTES_MAX: u64 = 1 << 30;

pub(super) async fn run(link: &ServerLink, args: &RunArgs) -> CliResult {
    let mut body = Map::new();
    let mut add = |field: &str, value: Value| {
        if !value.is_null() {
            body.insert(field.to_owned(), value);
        }
    };
    add("parameters", Value::Object(parameters(&args.params)?));
    add("input", json!(read_input(args.input.as_deref(), STDIN_BYTES_MAX)?));
    add("working_directory", json!(folder(link, args.cwd.as_deref())?));
    add("envs", json!(variables(&process_environment(), &args.envs)?));
    add("class", json!(args.class));
    add("retention_days", json!(args.retention_days));
    add("max_cost_usd", json!(args.max_cost_usd.map(UsdLimit::get)));
    add("max_tokens", json!(args.max_tokens));
    let submit = async |field: &str| {
        let mut body = body.clone();
        body.insert(field.to_owned(), Value::from(args.name.as_str()));
        link.client.start(&["tasks"], &Value::Object(body)).await
    };
    let started = match submit("agent").await {
        // There is no agent of this name, but perhaps a workflow.
        Err(unknown) if unknown.code() == "unknown_agent" => match submit("workflow").await {
            Err(error) if error.code() == "unknown_agent" => Err(unknown),
            outcome => outcome,
        },
        outcome => outcome,
    };
    show_started(link, started, args.detach).await
}

/// The working directory: a folder of this machine, or of the server's.
fn folder(link: &ServerLink, cwd: Option<&Path>) -> Result<Option<String>, CliError> {
    if link.home.is_some() {
        return working_directory(cwd);
    }
    let Some(folder) = cwd else { return Ok(None) };
    if !folder.is_absolute() {
        let message = format!("--cwd {} is not an absolute path", folder.display());
        return Err(CliError::usage(message).hint("name a folder of the server's machine"));
    }
    Ok(Some(folder.to_string_lossy().into_owned()))
}
