//! Builds the program of a stdio server and collects its secrets.

use std::collections::BTreeMap;

use polity_definition::EnvName;
use polity_model::failure::AttemptFailure;

use super::{McpOptions, permanent};
use crate::environment::EnvSource;
use crate::process::{ProcessCommand, find_executable};
use crate::secrets::SecretSet;

/// Builds the program of a stdio server and collects its secrets.
pub(super) fn build_program(
    server: &str,
    command: &str,
    args: &[String],
    env: &BTreeMap<EnvName, String>,
    options: &McpOptions,
) -> Result<(ProcessCommand, SecretSet), AttemptFailure> {
    let mut all = options.environment.inherited();
    let mut filled_in = Vec::new();
    for (name, value) in env {
        let value = options.environment.fill(value, &mut filled_in).map_err(|missing| {
            permanent(format!(
                "MCP server \"{server}\" needs the environment variable {missing}, which is not \
                 set (it is named in its {name})"
            ))
        })?;
        all.insert(name.as_str().to_owned(), value);
    }
    let folders = all.get("PATH").map_or("", String::as_str);
    let path = find_executable(command, &options.home, folders).ok_or_else(|| {
        let place = if command.contains('/') { "in the home" } else { "on the PATH" };
        permanent(format!(
            "the program \"{command}\" of MCP server \"{server}\" is not there: no such executable \
             {place}"
        ))
    })?;
    options.program_check.check(command, &path, &options.home).map_err(|reason| {
        permanent(format!(
            "the program \"{command}\" of MCP server \"{server}\" cannot be run: {reason}; take \
             ownership of it, or name the home with --home if you trust all who can write to it"
        ))
    })?;
    let env = all.into_iter().collect();
    let program = ProcessCommand { path, args: args.to_vec(), env, folder: options.home.clone() };
    Ok((program, SecretSet::new(filled_in.iter().map(String::as_str))))
}

/// The values of the variables that a server's environment references.
pub(super) fn secret_values(
    env: &BTreeMap<EnvName, String>,
    environment: &EnvSource,
) -> Vec<String> {
    let mut filled_in = Vec::new();
    for value in env.values() {
        // A server with an unset variable is never started.
        let _ = environment.fill(value, &mut filled_in);
    }
    filled_in
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::process::ProcessLauncher;

    fn options() -> McpOptions {
        let environment = |name: &str| match name {
            "PATH" => Some("/nowhere:/bin".to_owned()),
            "TOKEN" => Some("s3cret".to_owned()),
            "OTHER" => Some("not passed on".to_owned()),
            _ => None,
        };
        McpOptions::new("/".into(), EnvSource::new(environment), ProcessLauncher::Direct)
    }

    #[test]
    fn server_gets_only_named_and_inherited_variables() {
        let env = BTreeMap::from([("KEY".parse().unwrap(), "${TOKEN}".to_owned())]);
        let (program, secrets) = build_program("files", "sh", &[], &env, &options()).unwrap();
        assert_eq!(program.path, Path::new("/bin/sh"));
        let expected = [("KEY", "s3cret"), ("PATH", "/nowhere:/bin")];
        assert_eq!(program.env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(secrets.redact("s3cret in /nowhere"), "*** in /nowhere");
    }

    #[test]
    fn errors_name_the_missing_variable_without_secrets() {
        let env = BTreeMap::from([("KEY".parse().unwrap(), "${TOKEN}${NONE}".to_owned())]);
        let failure = build_program("files", "sh", &[], &env, &options()).unwrap_err();
        insta::assert_snapshot!(failure, @r#"MCP server "files" needs the environment variable NONE, which is not set (it is named in its KEY) (permanent)"#);
        let none = BTreeMap::new();
        for command in ["no-such-program", "./no-such-program", "etc"] {
            let failure = build_program("files", command, &[], &none, &options()).unwrap_err();
            assert!(failure.message.contains("no such executable"), "{failure}");
        }
    }
}
