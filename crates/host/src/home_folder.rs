//! The home folder: its location, paths and definition files.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use polity_definition::{
    DEFINITION_BYTES_MAX, EXTENSIONS, Home, HomeFile, MISSING_SCRIPT, SCRIPT_BYTES_MAX, ScriptPath,
};
use polity_drivers::process::{DATA_FOLDER, HomeProgramCheck};
use polity_files::{RegularFileError, open_named_file};
use polity_model::ids::ExecutionId;

use crate::error::HostError;
use crate::home_trust::{check_path, check_program};
use crate::home_version::HomeVersion;
use crate::simulations::{CHARTS, SCENARIOS, SimulationDefinitions};

/// The settings file that `init` writes, which marks a home.
pub const SETTINGS_FILE: &str = "polity.yaml";

/// The names of the settings files in a folder.
fn settings_of(folder: &Path) -> impl Iterator<Item = String> + '_ {
    EXTENSIONS
        .iter()
        .map(|extension| format!("polity.{extension}"))
        .filter(|name| folder.join(name).exists())
}

/// True if a folder is a home.
pub fn is_home(folder: &Path) -> bool {
    settings_of(folder).next().is_some()
}

/// The folders that definitions are read from.
const FOLDERS: [&str; 5] = ["agents", "workflows", "schedules", "scripts", "config"];

/// The home in `POLITY_HOME`.
pub fn home_from_environment() -> Option<PathBuf> {
    std::env::var_os("POLITY_HOME").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The paths of a home.
#[derive(Debug, Clone)]
pub struct HomeFolder {
    root: PathBuf,
    /// True if the home was found in a parent folder, where another user may have put it.
    is_found: bool,
}

impl HomeFolder {
    /// Finds a home: the given folder, `POLITY_HOME`, the nearest parent folder, or `~/.polity`.
    /// Fails if another user may have written a home that was not named.
    pub fn find(asked_for: Option<&Path>) -> Result<Self, HostError> {
        if let Some(root) = asked_for.map(Path::to_owned).or_else(home_from_environment) {
            return Ok(Self { root, is_found: false });
        }
        let here = std::env::current_dir()
            .map_err(|error| HostError::io("find", Path::new("the current folder"), error))?;
        let root = match here.ancestors().find(|folder| is_home(folder)) {
            Some(root) => root.to_owned(),
            None => std::env::home_dir().ok_or(HostError::NoUserFolder)?.join(".polity"),
        };
        let home = Self { root, is_found: true };
        home.check_trust()?;
        Ok(home)
    }

    /// Fails if another user may have written the settings or a definition.
    fn check_trust(&self) -> Result<(), HostError> {
        check_path(&self.root)?;
        for settings in settings_of(&self.root) {
            check_path(&self.root.join(settings))?;
        }
        for folder in FOLDERS.iter().chain(&[CHARTS, SCENARIOS]) {
            let folder = self.root.join(folder);
            check_path(&folder)?;
            for file in definition_files(&folder)? {
                check_path(&file)?;
            }
        }
        Ok(())
    }

    /// The check of programs in the home: that nobody else can have written them, if the home was
    /// found.
    pub(crate) fn program_check(&self) -> HomeProgramCheck {
        if !self.is_found {
            return HomeProgramCheck::default();
        }
        let root = self.root.clone();
        HomeProgramCheck::new(move |program| {
            // Links lead to the file that is run, and the folders of both may be replaced.
            let real = program
                .canonicalize()
                .map_err(|error| format!("{}: {error}", program.display()))?;
            let real_root =
                root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
            check_program(&real_root, &real).and_then(|()| check_program(&root, program)).map_err(
                |error| match error {
                    HostError::UntrustedHome { path, fault } => {
                        format!("{}: {fault}", path.display())
                    }
                    error => error.to_string(),
                },
            )
        })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of everything that Polity writes about its work.
    pub fn data(&self) -> PathBuf {
        Self::data_of(&self.root)
    }

    pub(crate) fn data_of(root: &Path) -> PathBuf {
        root.join(DATA_FOLDER)
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.data().join("polity.db")
    }

    /// The folder of the instance locks.
    pub fn instances(&self) -> PathBuf {
        self.data().join("instances")
    }

    /// The folder of simulation runs.
    pub fn runs(&self) -> PathBuf {
        self.data().join("simulations")
    }

    /// The output of an execution, if there is any.
    pub fn output(&self, execution: ExecutionId) -> PathBuf {
        self.data().join("output").join(execution.to_string())
    }

    /// Fails if the folder does not exist.
    pub fn must_exist(&self) -> Result<(), HostError> {
        if self.root.is_dir() {
            return Ok(());
        }
        Err(HostError::MissingHome { path: self.root.clone() })
    }

    /// Reads every definition. An unreadable file becomes a problem of that file.
    pub fn read(&self) -> Result<Home, HostError> {
        Ok(self.parse(self.definitions()?))
    }

    /// Reads every definition and one more, which may not be written yet.
    pub fn read_with(&self, another: HomeFile) -> Result<Home, HostError> {
        let mut sources = self.definitions()?;
        sources.push(another);
        Ok(self.parse(sources))
    }

    /// Reads the definitions together with the version of their files. A file that changes in
    /// between makes the version outdated at once.
    pub fn read_version(&self) -> Result<(Home, HomeVersion), HostError> {
        let files = self.definition_paths()?;
        let mut scripts = Vec::new();
        let home = Home::parse_with(self.definitions()?, &mut |path| {
            scripts.push(self.root.join(path.as_str()));
            self.script(path)
        });
        Ok((home, HomeVersion::of(files, scripts)))
    }

    /// True if no file has changed, come or gone since a version was read.
    pub fn is_current(&self, version: &HomeVersion) -> Result<bool, HostError> {
        Ok(version.again(self.definition_paths()?) == *version)
    }

    /// The files of all definitions.
    fn definition_paths(&self) -> Result<Vec<PathBuf>, HostError> {
        let mut files: Vec<PathBuf> =
            settings_of(&self.root).map(|name| self.root.join(name)).collect();
        for folder in FOLDERS {
            files.extend(definition_files(&self.root.join(folder))?);
        }
        Ok(files)
    }

    fn parse(&self, sources: Vec<HomeFile>) -> Home {
        Home::parse_with(sources, &mut |path| self.script(path))
    }

    /// The text of a workflow's script, or the reason why it cannot be used.
    fn script(&self, path: &ScriptPath) -> Result<String, String> {
        let file = self.root.join(path.as_str());
        let real = |path: &Path| {
            path.canonicalize().map_err(|error| match error.kind() {
                ErrorKind::NotFound => MISSING_SCRIPT.to_owned(),
                _ => format!("the file cannot be read: {error}"),
            })
        };
        if !real(&file)?.starts_with(real(&self.root)?) {
            return Err(
                "it is a link to a file outside the home: copy that file into the home, or \
                        give the step a command"
                    .to_owned(),
            );
        }
        if self.is_found {
            check_path(&file).map_err(|error| error.to_string())?;
        }
        text(&file, SCRIPT_BYTES_MAX)
    }

    fn definitions(&self) -> Result<Vec<HomeFile>, HostError> {
        self.must_exist()?;
        let mut sources = self.sources(&FOLDERS)?;
        for settings in settings_of(&self.root) {
            let file = self.root.join(&settings);
            sources.push(HomeFile { path: settings, text: text(&file, DEFINITION_BYTES_MAX) });
        }
        Ok(sources)
    }

    /// Reads every chart and scenario.
    pub fn simulations(&self) -> Result<SimulationDefinitions, HostError> {
        self.must_exist()?;
        Ok(SimulationDefinitions::read(&self.sources(&[CHARTS, SCENARIOS])?))
    }

    /// The possible definition files in these folders.
    fn sources(&self, folders: &[&str]) -> Result<Vec<HomeFile>, HostError> {
        let mut sources = Vec::new();
        for folder in folders {
            for file in definition_files(&self.root.join(folder))? {
                if let Some(name) = file.file_name() {
                    let path = format!("{folder}/{}", name.to_string_lossy());
                    sources.push(HomeFile { path, text: text(&file, DEFINITION_BYTES_MAX) });
                }
            }
        }
        Ok(sources)
    }
}

/// The possible definition files in a folder, none if it does not exist.
fn definition_files(folder: &Path) -> Result<Vec<PathBuf>, HostError> {
    let cannot_read = |error| HostError::io("read", folder, error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot_read)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(cannot_read)?.path();
        if is_definition(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

fn is_definition(file: &Path) -> bool {
    let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = file.extension().and_then(|extension| extension.to_str());
    !hidden && !file.is_dir() && extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

/// The text of a file, or the reason why it cannot be read. Reads one byte over the size limit at most,
/// so that a huge file is rejected without loading it.
fn text(file: &Path, bytes_max: usize) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("the file cannot be read: {error}");
    let opened = open_named_file(file).map_err(|error| match error {
        RegularFileError::NotRegular(_) => "this is not a file".to_owned(),
        error => cannot(error.into()),
    })?;
    let mut bytes = Vec::new();
    let most = bytes_max as u64 + 1;
    opened.take(most).read_to_end(&mut bytes).map_err(cannot)?;
    String::from_utf8(bytes).or_else(|error| {
        // The cut within a character shows that the file is too long, which decoding reports.
        if error.as_bytes().len() as u64 == most {
            return Ok(String::from_utf8_lossy(error.as_bytes()).into_owned());
        }
        let at = error.utf8_error().valid_up_to();
        Err(format!("the file is not UTF-8 text: its byte {at} is invalid"))
    })
}
