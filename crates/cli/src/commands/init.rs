//! `polity init`: a home that works.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use polity_files::{FileAccess, create_folder};
use serde_json::json;

use crate::args::{GlobalOptions, HomeExample, InitArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::print_json;
use crate::terminal::say;
use polity_host::{SETTINGS_FILE, home_from_environment, is_home};

/// The files of an example, by their path in the home.
pub(super) type ExampleFiles = &'static [(&'static str, &'static str)];

/// The files of an example, embedded in the program.
macro_rules! example {
    ($folder:literal: $($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../examples/", $folder, "/", $path)))),+]
    };
}

const HELLO: ExampleFiles =
    example!("01-hello": "polity.yaml", "agents/greeter.yaml", "scripts/greeter.yaml");

/// The supervisor example without its settings.
pub(super) const SUPERVISOR: ExampleFiles = example!(
    "05-supervisor":
    "agents/supervisor.yaml",
    "agents/researcher.yaml",
    "agents/writer.yaml",
    "scripts/supervisor.yaml",
    "scripts/researcher.yaml",
    "scripts/writer.yaml",
);
const SUPERVISOR_SETTINGS: ExampleFiles = example!("05-supervisor": "polity.yaml");

/// The newsroom example without its settings.
pub(super) const NEWSROOM: ExampleFiles = example!(
    "06-newsroom":
    "workflows/newsroom.yaml",
    "agents/reporter.yaml",
    "agents/author.yaml",
    "scripts/reporter.yaml",
    "scripts/author.yaml",
);
const NEWSROOM_SETTINGS: ExampleFiles = example!("06-newsroom": "polity.yaml");

/// The workshop example without its settings.
pub(super) const WORKSHOP: ExampleFiles =
    example!("10-workshop": "agents/words.yaml", "agents/notebook.yaml", "agents/judge.yaml");
const WORKSHOP_SETTINGS: ExampleFiles = example!("10-workshop": "polity.yaml");

/// The society example without its settings.
pub(super) const SOCIETY: ExampleFiles =
    example!("11-society": "charts/social.yaml", "scenarios/society.yaml");
const SOCIETY_SETTINGS: ExampleFiles = example!("11-society": "polity.yaml");

/// The file that every new home gets in addition.
const IGNORED: (&str, &str) = (".gitignore", "/data/\n");

impl HomeExample {
    fn files(self) -> Vec<(&'static str, &'static str)> {
        let (settings, files) = match self {
            Self::Hello => (&[][..], HELLO),
            Self::Supervisor => (SUPERVISOR_SETTINGS, SUPERVISOR),
            Self::Newsroom => (NEWSROOM_SETTINGS, NEWSROOM),
            Self::Workshop => (WORKSHOP_SETTINGS, WORKSHOP),
            Self::Society => (SOCIETY_SETTINGS, SOCIETY),
        };
        settings.iter().chain(files).copied().chain([IGNORED]).collect()
    }

    fn try_it(self) -> &'static str {
        match self {
            Self::Hello => "polity run greeter \"Ada\"",
            Self::Supervisor => "polity run supervisor \"A report on rain and snow\"",
            Self::Newsroom => "polity run newsroom \"rain\"",
            Self::Workshop => "polity run words \"one two three\"",
            Self::Society => "polity sim run society",
        }
    }

    /// Commands to try next, each with its effect.
    fn then(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Hello | Self::Supervisor => &[],
            Self::Workshop => &[
                ("polity run notebook \"a line\"", "a program that changes a file"),
                ("polity run judge \"a few words\"", "a program that prints JSON"),
                ("polity execution show ID", "show state changes, resource usage and output files"),
                ("polity agent status", "show running and queued executions"),
            ],
            Self::Society => &[
                (
                    "polity sim export last --agent ada",
                    "show the state and transitions of one agent",
                ),
                (
                    "polity sim fork last --at 10 --set seed=8",
                    "start a new run that shares the first 10 turns",
                ),
                (
                    "polity chart graph social --format svg",
                    "draw the states and transitions of the agents",
                ),
            ],
            Self::Newsroom => &[
                ("", "the command ends with exit code 3: the task waits for your review"),
                ("polity review show last", "show the review"),
                (
                    "polity review modify last --message \"say more about hats\"",
                    "have the author rewrite it, and review it again",
                ),
                ("polity review approve last", "publish it; `reject` drops it"),
                ("polity task trace last", "show every step"),
            ],
        }
    }
}

pub(crate) fn init(options: &GlobalOptions, args: &InitArgs) -> CliResult {
    // `--home` is another name for the folder argument.
    if args.dir.is_some() && options.home.is_some() {
        return Err(CliError::usage("both a folder and --home are given").hint("name one of them"));
    }
    let here = Path::new(".");
    let named = args.dir.clone().or_else(|| options.home.clone()).or_else(home_from_environment);
    let dir = named.as_deref().unwrap_or(here);
    let files = args.example.files();
    if is_home(dir) {
        return Err(CliError::conflict(format!("{} is already a home", dir.display()))
            .hint("nothing was changed; name another folder"));
    }
    // Existing files belong to the user: the error comes before any file is written.
    if let Some((path, _)) =
        files.iter().find(|(path, _)| *path != ".gitignore" && dir.join(path).exists())
    {
        return Err(CliError::conflict(format!("{} already exists", dir.join(path).display()))
            .hint("nothing was changed; name another folder"));
    }
    write_home(dir, &files)?;
    if options.json {
        let paths: Vec<_> = files.iter().map(|(path, _)| path).collect();
        print_json(&json!({"home": dir, "files": paths}))?;
    } else if !options.quiet {
        say!("created {}", dir.display())?;
        for (path, _) in &files {
            say!("  {path}")?;
        }
        let enter = if dir == here { String::new() } else { format!("cd {} && ", quoted(dir)) };
        say!("next: {enter}{}", args.example.try_it())?;
        for (command, outcome) in args.example.then() {
            say!("  {}", format!("{command:60}  {outcome}").trim_start())?;
        }
    }
    Ok(ExitStatus::Done)
}

/// A path quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-~".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Writes the files of a new home. The settings file, which marks a home, comes last, so that an
/// unfinished home is not taken for one.
pub(super) fn write_home(dir: &Path, files: &[(&str, &str)]) -> Result<(), CliError> {
    let (marks, others): (Vec<_>, Vec<_>) =
        files.iter().partition(|(path, _)| *path == SETTINGS_FILE);
    let mut written = Vec::new();
    for (path, content) in others.into_iter().chain(marks) {
        let path = dir.join(path);
        match write_new(&path, content) {
            Ok(true) => written.push(path),
            Ok(false) => {}
            Err(error) => {
                for path in written {
                    // A file that cannot be removed does not make the folder a home.
                    let _ = fs::remove_file(path);
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Writes a file unless it exists. Returns true if it was written.
fn write_new(path: &Path, content: &str) -> Result<bool, CliError> {
    if let Some(folder) = path.parent() {
        create_folder(folder, FileAccess::Shared)
            .map_err(|error| CliError::io("make", folder, &error))?;
    }
    match polity_files::write_new(path, FileAccess::Shared, content.as_bytes()) {
        Ok(()) => Ok(true),
        // Only `.gitignore` may exist already.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(CliError::io("write", path, &error)),
    }
}
