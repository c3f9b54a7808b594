//! The home folder: finding it, and reading its files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use polity_model::definition::{DEFINITION_BYTES_MAX, Home, SourceFile};

use crate::error::CliError;

/// The file that marks a home.
pub(crate) const SETTINGS_FILE: &str = "polity.yaml";

/// The folders that definitions are read from.
const FOLDERS: [&str; 5] = ["agents", "workflows", "schedules", "scripts", "config"];

/// Where everything of one home is.
#[derive(Debug, Clone)]
pub(crate) struct HomeFolder {
    root: PathBuf,
}

impl HomeFolder {
    /// The folder that was asked for, or the nearest one upwards, or the user's own.
    pub(crate) fn find(asked_for: Option<&Path>) -> Result<Self, CliError> {
        let named = std::env::var_os("POLITY_HOME").filter(|path| !path.is_empty());
        if let Some(root) = asked_for.map(Path::to_owned).or(named.map(PathBuf::from)) {
            return Ok(Self { root });
        }
        let here = std::env::current_dir()
            .map_err(|error| CliError::io("find", Path::new("the current folder"), &error))?;
        if let Some(root) = here.ancestors().find(|folder| folder.join(SETTINGS_FILE).is_file()) {
            return Ok(Self { root: root.to_owned() });
        }
        let user = std::env::home_dir().ok_or_else(|| {
            CliError::usage("there is no home folder here, and no user's folder to fall back on")
                .hint("make one with `polity init`, or name one with --home")
        })?;
        Ok(Self { root: user.join(".polity") })
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The database.
    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("data").join("polity.db")
    }

    /// Where processes show that they are alive.
    pub(crate) fn instances(&self) -> PathBuf {
        self.root.join("data").join("instances")
    }

    /// Reads every definition.
    pub(crate) fn read(&self) -> Result<Home, CliError> {
        let mut files = Vec::new();
        let settings = self.root.join(SETTINGS_FILE);
        if settings.is_file() {
            files.push(source(&settings, SETTINGS_FILE.to_owned())?);
        }
        for folder in FOLDERS {
            let path = self.root.join(folder);
            let entries = match fs::read_dir(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries.map_err(|error| CliError::io("read", &path, &error))?,
            };
            for entry in entries {
                let file = entry.map_err(|error| CliError::io("read", &path, &error))?.path();
                let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
                if let (true, Some(name)) = (file.is_file(), name)
                    && is_definition(&file)
                {
                    files.push(source(&file, format!("{folder}/{name}"))?);
                }
            }
        }
        Ok(Home::parse(files))
    }
}

fn is_definition(file: &Path) -> bool {
    let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = file.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Reads no more of a file than a definition may have and a little, so that a huge one is refused
/// and not loaded.
fn source(file: &Path, path: String) -> Result<SourceFile, CliError> {
    use std::io::Read;
    let io = |error| CliError::io("read", file, &error);
    let mut bytes = Vec::new();
    let most = DEFINITION_BYTES_MAX as u64 + 1;
    fs::File::open(file).map_err(io)?.take(most).read_to_end(&mut bytes).map_err(io)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(SourceFile { path, text })
}
