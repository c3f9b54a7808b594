//! What a server that is started finds around it: its program, its environment, its folder.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use polity_model::definition::EnvName;
use polity_model::failure::Failure;

use super::{McpOptions, permanent};
use crate::environment::Environment;
use crate::process::Program;
use crate::secrets::Secrets;

/// What every server gets of Polity's own environment, as far as it is set. Everything else may be
/// a secret of someone else, and is passed only where `env` names it.
const INHERITED: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

/// The program of a stdio server, and what it must not repeat.
pub(super) fn program(
    server: &str,
    command: &str,
    args: &[String],
    env: &BTreeMap<EnvName, String>,
    options: &McpOptions,
) -> Result<(Program, Secrets), Failure> {
    let mut all: BTreeMap<String, String> = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), options.environment.raw(name)?)))
        .collect();
    let mut filled_in = Vec::new();
    for (name, value) in env {
        let value = filled(value, &options.environment, &mut filled_in).map_err(|missing| {
            permanent(format!(
                "MCP server \"{server}\" needs the environment variable {missing}, which is not \
                 set (it is named in its {name})"
            ))
        })?;
        all.insert(name.as_str().to_owned(), value);
    }
    let folders = all.get("PATH").map_or("", String::as_str);
    let path = find(command, &options.home, folders).ok_or_else(|| {
        let place = if command.contains('/') { "in the home" } else { "on the PATH" };
        permanent(format!(
            "the program \"{command}\" of MCP server \"{server}\" is not there: no such executable \
             {place}"
        ))
    })?;
    let env = all.into_iter().collect();
    let program = Program { path, args: args.to_vec(), env, folder: options.home.clone() };
    Ok((program, Secrets::new(filled_in.iter().map(String::as_str))))
}

/// What is filled into a server's environment, as far as it is set.
pub(super) fn secrets_of(
    env: &BTreeMap<EnvName, String>,
    environment: &Environment,
) -> Vec<String> {
    let mut filled_in = Vec::new();
    for value in env.values() {
        // A server whose variables are not all set is never started.
        let _ = filled(value, environment, &mut filled_in);
    }
    filled_in
}

/// The value with each `${NAME}` replaced; or the name of a variable that is not set. Whatever is
/// filled in may be secret, but for what every server gets.
fn filled<'v>(
    value: &'v str,
    environment: &Environment,
    filled_in: &mut Vec<String>,
) -> Result<String, &'v str> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else { break };
        text.push_str(before);
        let found = environment.raw(name).ok_or(name)?;
        text.push_str(&found);
        if !INHERITED.contains(&name) {
            filled_in.push(found);
        }
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// The executable that a command means: a path is relative to the home, a bare name is looked for
/// in the folders of the PATH.
fn find(command: &str, home: &Path, folders: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(home.join(command)).filter(|path| is_executable(path));
    }
    std::env::split_paths(folders)
        .map(|folder| home.join(folder).join(command))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Launcher;

    fn options() -> McpOptions {
        let environment = |name: &str| match name {
            "PATH" => Some("/nowhere:/bin".to_owned()),
            "TOKEN" => Some("s3cret".to_owned()),
            "OTHER" => Some("not passed on".to_owned()),
            _ => None,
        };
        McpOptions::new("/".into(), Environment::new(environment), Launcher::Direct)
    }

    #[test]
    fn variables_are_filled_in() {
        let environment = options().environment;
        for (value, expected) in [
            ("plain", Ok("plain")),
            ("${TOKEN}", Ok("s3cret")),
            ("${PATH}", Ok("/nowhere:/bin")),
            ("a ${TOKEN} b ${TOKEN}", Ok("a s3cret b s3cret")),
            ("$TOKEN ${TOKEN", Ok("$TOKEN ${TOKEN")),
            ("${NONE}", Err("NONE")),
        ] {
            let mut filled_in = Vec::new();
            let text = filled(value, &environment, &mut filled_in);
            assert_eq!(text, expected.map(str::to_owned), "{value}");
            assert!(filled_in.iter().all(|secret| secret == "s3cret"), "{value}");
        }
    }

    #[test]
    fn a_server_gets_what_it_names_and_little_else() {
        let env = BTreeMap::from([("KEY".parse().unwrap(), "${TOKEN}".to_owned())]);
        let (program, secrets) = program("files", "sh", &[], &env, &options()).unwrap();
        assert_eq!(program.path, Path::new("/bin/sh"));
        let expected = [("KEY", "s3cret"), ("PATH", "/nowhere:/bin")];
        assert_eq!(program.env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(secrets.removed_from("s3cret in /nowhere"), "*** in /nowhere");
    }

    #[test]
    fn what_is_missing_is_named_and_secrets_are_not() {
        let env = BTreeMap::from([("KEY".parse().unwrap(), "${TOKEN}${NONE}".to_owned())]);
        let failure = program("files", "sh", &[], &env, &options()).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "MCP server \"files\" needs the environment variable NONE, which is not set (it is \
             named in its KEY) (permanent)"
        );
        let none = BTreeMap::new();
        for command in ["no-such-program", "./no-such-program", "etc"] {
            let failure = program("files", command, &[], &none, &options()).unwrap_err();
            assert!(failure.message.contains("no such executable"), "{failure}");
        }
    }
}
