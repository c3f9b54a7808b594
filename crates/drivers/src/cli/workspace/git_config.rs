//! The environment in which Git runs nothing else.
//!
//! Settings in variables take precedence over all files. A filter has any name, so the names that a
//! repository uses are listed first.

use std::collections::BTreeMap;

use crate::environment::EnvSource;

/// Variables that turn off configuration files, prompts, editors, pagers and network access.
const VARIABLES: [(&str, &str); 13] = [
    ("LC_ALL", "C"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_PAGER", "cat"),
    ("GIT_NO_LAZY_FETCH", "1"),
    // No protocol has this name.
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// Settings that start a command or name a file outside the repository, and an author.
const SETTINGS: [(&str, &str); 22] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.sshCommand", "false"),
    ("core.gitProxy", "none"),
    ("core.askPass", "true"),
    ("core.editor", "true"),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", "true"),
    ("credential.helper", ""),
    ("diff.external", ""),
    ("diff.ignoreSubmodules", "all"),
    ("submodule.recurse", "false"),
    ("protocol.allow", "never"),
    ("commit.gpgSign", "false"),
    ("gpg.program", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("user.name", "Polity"),
    ("user.email", "polity@localhost"),
];

/// The settings of a filter without commands. Git then leaves the files as they are.
const NO_FILTER: [(&str, &str); 4] =
    [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];

/// The environment of Git.
#[derive(Debug, Clone)]
pub(super) struct GitEnvironment {
    inherited: BTreeMap<String, String>,
}

impl GitEnvironment {
    /// Lists the folders of other users that the user trusts. Git heeds this setting only in files
    /// of the user and the system.
    pub(super) const LIST_TRUSTED_FOLDERS: [&str; 4] =
        ["config", "-z", "--get-all", "safe.directory"];

    /// Lists the settings of filters and configured hooks, by name.
    pub(super) const LIST_COMMANDS: [&str; 5] =
        ["config", "-z", "--name-only", "--get-regexp", r"^(filter|hook)\."];

    pub(super) fn new(environment: &EnvSource) -> Self {
        Self { inherited: environment.inherited() }
    }

    /// The environment in which Git reads the files of the user and the system, but no repository.
    pub(super) fn of_user(&self) -> Vec<(String, String)> {
        let mut variables = self.inherited.clone();
        variables.insert("GIT_DIR".to_owned(), "/dev/null".to_owned());
        variables.into_iter().collect()
    }

    /// The environment in which Git reads no files of the user or the system.
    pub(super) fn hardened(&self, trusted_folders: &[u8]) -> Vec<(String, String)> {
        let mut variables = self.inherited.clone();
        let fixed = VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        variables.extend(fixed);
        let mut variables: Vec<_> = variables.into_iter().collect();
        let mut settings: Vec<_> =
            SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        for folder in entries(trusted_folders) {
            // A folder whose name is not UTF-8 is refused, as without the setting.
            if let Ok(folder) = std::str::from_utf8(folder) {
                settings.push(("safe.directory".to_owned(), folder.to_owned()));
            }
        }
        set(&mut variables, settings);
        variables
    }

    /// Disables the filters and hooks with these settings. Fails if that is impossible.
    pub(super) fn disable_commands(
        variables: &mut Vec<(String, String)>,
        names: &[u8],
    ) -> Result<(), String> {
        let mut settings = Vec::new();
        for key in entries(names) {
            let key = std::str::from_utf8(key).map_err(|_| {
                "its configuration has a filter or hook whose name is not UTF-8".to_owned()
            })?;
            // The name is between the first and the last dot, and may contain dots itself.
            let Some((section, _)) = key.rsplit_once('.') else { continue };
            if section.starts_with("filter.") {
                settings.extend(
                    NO_FILTER
                        .iter()
                        .map(|(field, value)| (format!("{section}.{field}"), (*value).to_owned())),
                );
            } else if section.starts_with("hook.") {
                settings.push((format!("{section}.enabled"), "false".to_owned()));
            }
        }
        settings.sort();
        settings.dedup();
        set(variables, settings);
        Ok(())
    }
}

/// The parts of a list that Git ends with zero bytes.
fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty())
}

/// Adds settings to those that the variables already contain.
fn set(variables: &mut Vec<(String, String)>, settings: Vec<(String, String)>) {
    const COUNT: &str = "GIT_CONFIG_COUNT";
    let before = variables.iter().position(|(name, _)| name == COUNT);
    let before = before.map(|index| variables.swap_remove(index).1);
    let before = before.and_then(|count| count.parse().ok()).unwrap_or(0);
    let count: usize = before + settings.len();
    for (index, (key, value)) in (before..).zip(settings) {
        variables.push((format!("GIT_CONFIG_KEY_{index}"), key));
        variables.push((format!("GIT_CONFIG_VALUE_{index}"), value));
    }
    variables.push((COUNT.to_owned(), count.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_and_hook_is_disabled() {
        let environment = GitEnvironment::new(&EnvSource::empty());
        let mut variables = environment.hardened(b"/a\0/b\0");
        let names = b"filter.a.b=c\nd.clean\0filter.a.b=c\nd.smudge\0hook.x.command\0filter.y\0";
        GitEnvironment::disable_commands(&mut variables, names).unwrap();
        let get = |name: &str| {
            let found: Vec<_> = variables.iter().filter(|(own, _)| own == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            found[0].1.clone()
        };
        let count: usize = get("GIT_CONFIG_COUNT").parse().unwrap();
        let settings: Vec<_> = (0..count)
            .map(|index| {
                let part = |part: &str| get(&format!("GIT_CONFIG_{part}_{index}"));
                format!("{}={}", part("KEY"), part("VALUE"))
            })
            .collect();
        for expected in [
            "core.fsmonitor=false",
            "safe.directory=/a",
            "safe.directory=/b",
            "filter.a.b=c\nd.clean=",
            "filter.a.b=c\nd.smudge=",
            "filter.a.b=c\nd.process=",
            "filter.a.b=c\nd.required=false",
            "hook.x.enabled=false",
        ] {
            let times = settings.iter().filter(|setting| *setting == expected).count();
            assert_eq!(times, 1, "{expected}: {settings:?}");
        }
        assert_eq!(get("GIT_CONFIG_GLOBAL"), "/dev/null");
    }

    #[test]
    fn unreadable_filter_name_is_refused() {
        let refusal = GitEnvironment::disable_commands(&mut Vec::new(), b"filter.\xff.clean\0");
        assert!(refusal.unwrap_err().contains("not UTF-8"));
    }
}
