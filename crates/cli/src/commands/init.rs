//! `polity init`: a home that works.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde_json::json;

use crate::args::{Example, InitArgs, Options};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::home::SETTINGS_FILE;
use crate::view::print_json;

/// The files of an example, by their path in the home.
type Files = &'static [(&'static str, &'static str)];

const HELLO: Files = &[
    ("polity.yaml", include_str!("../../../../examples/01-hello/polity.yaml")),
    ("agents/greeter.yaml", include_str!("../../../../examples/01-hello/agents/greeter.yaml")),
    ("scripts/greeter.yaml", include_str!("../../../../examples/01-hello/scripts/greeter.yaml")),
    (".gitignore", "/data/\n"),
];

impl Example {
    fn files(self) -> Files {
        match self {
            Self::Hello => HELLO,
        }
    }

    fn try_it(self) -> &'static str {
        match self {
            Self::Hello => "polity run greeter \"Ada\"",
        }
    }
}

pub(crate) fn init(options: &Options, args: &InitArgs) -> CliResult {
    // `--home` names the same thing, so either may be given.
    let here = Path::new(".");
    let dir = args.dir.as_deref().or(options.home.as_deref()).unwrap_or(here);
    let files = args.example.files();
    if dir.join(SETTINGS_FILE).exists() {
        return Err(CliError::conflict(format!("{} is a home already", dir.display()))
            .hint("nothing was changed; name another folder"));
    }
    // A file that is there already is the user's: say so before anything is written.
    if let Some((path, _)) =
        files.iter().find(|(path, _)| *path != ".gitignore" && dir.join(path).exists())
    {
        return Err(CliError::conflict(format!("{} exists already", dir.join(path).display()))
            .hint("nothing was changed; name another folder"));
    }
    for (path, content) in files {
        write_new(&dir.join(path), content)?;
    }
    if options.json {
        let paths: Vec<_> = files.iter().map(|(path, _)| path).collect();
        print_json(&json!({"home": dir, "files": paths}))?;
    } else {
        anstream::println!("made {}", dir.display());
        for (path, _) in files {
            anstream::println!("  {path}");
        }
        let enter = if dir == here { String::new() } else { format!("cd {} && ", dir.display()) };
        anstream::println!("try: {enter}{}", args.example.try_it());
    }
    Ok(Exit::Done)
}

pub(super) fn write_new(path: &Path, content: &str) -> Result<(), CliError> {
    let io = |error| CliError::io("write", path, &error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| CliError::io("make", folder, &error))?;
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(content.as_bytes()).map_err(io),
        // Only the list of ignored files may be there already.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io(error)),
    }
}
