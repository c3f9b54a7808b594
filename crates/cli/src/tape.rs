//! `--record` and `--replay`: the file with the cassette, and who answers then.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polity_definition::{Home, NameLookup};
use polity_drivers::Secrets;
use polity_drivers::cassette::{
    Cassette, CassetteError, PlayedPrograms, PlayedRemotes, Player, RecordedPrograms,
    RecordedRemotes, Recorder, Size,
};
use polity_engine::driver::{Programs, RunOverrides};
use polity_engine::runtime::{resumed_with, top_of};
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use polity_store::{Store, StoreError, TaskRow};
use serde_json::Value;

use crate::app::{App, Drivers, environment};
use crate::args::TapeArgs;
use crate::error::CliError;
use crate::view::{count, harmless, note};

/// The most answers that are listed when a replay did not need them.
const LEFT_OVER_MAX: usize = 5;

/// What the command line says about cassettes, with the file looked at.
pub(crate) struct TapeFile {
    file: PathBuf,
    way: Way,
    /// What is in the file; nothing if it is to be written anew.
    cassette: Option<Cassette>,
    part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Record,
    Replay,
}

/// What a task is given.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    /// Who does it.
    pub(crate) agent: &'a str,
    /// What there is to do.
    pub(crate) input: &'a str,
    /// What it says otherwise than the agent's file.
    pub(crate) overrides: &'a RunOverrides,
}

/// Which part of a task is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// What is left of it.
    Rest,
}

/// The task that is taken over so that this one goes on. A cassette knows parts by their place in
/// the whole, so with one it is the whole that goes on.
pub(crate) fn carrier_of(
    args: &TapeArgs,
    store: &dyn Store,
    row: TaskRow,
) -> Result<TaskRow, StoreError> {
    match (&args.record, &args.replay) {
        (None, None) => resumed_with(store, row),
        (Some(_), _) | (_, Some(_)) => top_of(store, row),
    }
}

impl TapeFile {
    /// Looks at the file that the command line names, if it names one. What is wrong with it is
    /// told before there is a task.
    pub(crate) fn find(args: &TapeArgs, agent: &str, part: Part) -> Result<Option<Self>, CliError> {
        let (file, way) = match (&args.record, &args.replay) {
            (None, None) => return Ok(None),
            (Some(file), None) => (file.clone(), Way::Record),
            (None, Some(file)) => (file.clone(), Way::Replay),
            (Some(_), Some(_)) => {
                return Err(CliError::usage("--record and --replay exclude each other"));
            }
        };
        let there = match way {
            Way::Record => {
                must_be_writable(&file)?;
                known(&file)?
            }
            Way::Replay => Some(read(&file)?),
        };
        if let (Way::Record, Some(other)) =
            (way, there.as_ref().filter(|there| there.agent() != agent))
        {
            let message = format!(
                "the cassette {} holds a run of agent \"{}\", which recording agent \"{agent}\" \
                 would replace",
                file.display(),
                other.agent()
            );
            return Err(CliError::cassette(message).hint("name another file, or remove this one"));
        }
        let cassette = match (way, part, there) {
            (Way::Record, Part::Whole, _) => None,
            (Way::Record, Part::Rest, None) => {
                let message =
                    format!("there is no cassette {} with the task's beginning", file.display());
                return Err(CliError::cassette(message).hint(
                    "go on without --record, or begin again: polity run NAME INPUT --record FILE",
                ));
            }
            (Way::Replay, _, there) | (Way::Record, Part::Rest, there) => there,
        };
        if let Some(recorded) = &cassette
            && recorded.agent() != agent
        {
            let message = format!(
                "the cassette {} was recorded with agent \"{}\", and this is agent \"{agent}\"",
                file.display(),
                recorded.agent()
            );
            return Err(CliError::cassette(message).hint("name the agent's own cassette"));
        }
        Ok(Some(Self { file, way, cassette, part }))
    }

    /// The input that a replay repeats.
    pub(crate) fn input(&self) -> Option<&str> {
        match self.way {
            Way::Replay => self.cassette.as_ref().map(Cassette::input),
            Way::Record => None,
        }
    }

    /// Puts the recorder before the real models, tools and programs, or the player in their place.
    fn open(self, app: &App, home: &Home, given: Given<'_>) -> Result<(Drivers, Tape), CliError> {
        let Self { file, way, cassette, part } = self;
        let secrets = secrets(home, given.overrides);
        let programs = app.programs(home)?;
        let input = &shown_input(home, &*programs, &secrets, given);
        let cassette = cassette.unwrap_or_else(|| Cassette::new(given.agent, input));
        match way {
            Way::Replay => {
                let player = Arc::new(Player::new(cassette, secrets));
                let drivers = Drivers {
                    models: player.clone(),
                    tools: player.clone(),
                    programs: Arc::new(PlayedPrograms::new(player.clone(), programs)),
                    remotes: Arc::new(PlayedRemotes::new(player.clone())),
                    servers: None,
                    notifies: false,
                };
                Ok((drivers, Tape::Replaying { player, part }))
            }
            Way::Record => {
                if ![given.input, input].contains(&cassette.input()) {
                    let message = format!(
                        "the cassette {} was recorded with another input: {}",
                        file.display(),
                        harmless(cassette.input())
                    );
                    return Err(CliError::cassette(message).hint("name the task's own cassette"));
                }
                let live = Drivers::live(app, home)?;
                let recorder = Recorder::new(live.models, live.tools, secrets, cassette);
                let recorder = Arc::new(recorder);
                let drivers = Drivers {
                    models: recorder.clone(),
                    tools: recorder.clone(),
                    programs: Arc::new(RecordedPrograms::new(recorder.clone(), programs)),
                    remotes: Arc::new(RecordedRemotes::new(recorder.clone(), live.remotes)),
                    servers: live.servers,
                    notifies: live.notifies,
                };
                Ok((drivers, Tape::Recording { file, recorder }))
            }
        }
    }
}

/// The cassette of a task that is run.
pub(crate) enum Tape {
    /// There is none.
    None,
    /// What happens is written down.
    Recording {
        /// Where to.
        file: PathBuf,
        /// Who does it.
        recorder: Arc<Recorder>,
    },
    /// What happened once happens again.
    Replaying {
        /// Who answers.
        player: Arc<Player>,
        /// How much of the cassette should be asked for.
        part: Part,
    },
}

impl Tape {
    /// Who answers for models, tools and programs, and what becomes of the cassette.
    pub(crate) fn open(
        file: Option<TapeFile>,
        app: &App,
        home: &Home,
        given: Given<'_>,
    ) -> Result<(Drivers, Self), CliError> {
        match file {
            Some(file) => file.open(app, home, given),
            None => Ok((Drivers::live(app, home)?, Self::None)),
        }
    }

    /// Writes the cassette when the task has ended, or waits for a person; or tells what of it was
    /// not asked for.
    pub(crate) fn finish(&self, app: &App, task: &Task) -> Result<(), CliError> {
        match (self, task.status) {
            (Self::None, _) => Ok(()),
            // A run that someone broke off must not take the place of a good one.
            (
                Self::Recording { file, .. },
                TaskStatus::Cancelled | TaskStatus::Pending | TaskStatus::Running,
            ) => {
                if !app.json() {
                    let status = task.status;
                    note!("nothing was recorded in {}: the task is {status}", file.display());
                }
                Ok(())
            }
            (
                Self::Recording { file, recorder },
                TaskStatus::Completed | TaskStatus::Failed | TaskStatus::AwaitingHuman,
            ) => {
                let cassette = recorder.cassette();
                write(file, &cassette)?;
                if app.shows_progress() {
                    let size = cassette.size();
                    let answers = told(size);
                    note!("recorded {answers} in {}", file.display());
                }
                Ok(())
            }
            (Self::Replaying { player, part: Part::Whole }, status) if status.is_final() => {
                if app.shows_progress() {
                    tell_left_over(&player.never_asked_for());
                }
                Ok(())
            }
            (Self::Replaying { .. }, _) => Ok(()),
        }
    }
}

/// How much a cassette holds, in words.
fn told(size: Size) -> String {
    let Size { model_calls, tool_calls, runs, messages } = size;
    let mut told = vec![count(model_calls, "model call"), count(tool_calls, "tool call")];
    if runs > 0 {
        told.push(count(runs, "program run"));
    }
    if messages > 0 {
        told.push(count(messages, "remote message"));
    }
    let last = told.pop().unwrap_or_default();
    format!("{} and {last}", told.join(", "))
}

fn tell_left_over(left: &[String]) {
    if left.is_empty() {
        return;
    }
    note!("the cassette has {} that no one asked for:", count(left.len(), "answer"));
    for answer in left.iter().take(LEFT_OVER_MAX) {
        note!("  {}", harmless(answer));
    }
    if left.len() > LEFT_OVER_MAX {
        note!("  and {} more", left.len() - LEFT_OVER_MAX);
    }
}

/// What must not get into a cassette: all that the home's agents and servers are given.
fn secrets(home: &Home, overrides: &RunOverrides) -> Secrets {
    let agents = home.agents.values().map(|agent| &**agent);
    let servers = home.mcp_servers.values().map(|server| &**server);
    Secrets::known_to(agents, servers, overrides, &environment())
}

/// What a task is given, without secrets; what is for a program, also without what looks like one.
fn shown_input(
    home: &Home,
    programs: &dyn Programs,
    secrets: &Secrets,
    given: Given<'_>,
) -> String {
    let input = secrets.removed_from(given.input);
    let NameLookup::Agent(agent) = home.find(given.agent) else { return input };
    if agent.program().is_none() {
        return input;
    }
    match programs.masked(&agent, given.overrides, input.into()) {
        Value::String(masked) => masked,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            String::new()
        }
    }
}

fn read(file: &Path) -> Result<Cassette, CliError> {
    let bytes = fs::read(file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            CliError::cassette(format!("there is no cassette {}", file.display()))
                .hint(format!("record one: polity run NAME INPUT --record {}", file.display()))
        }
        ErrorKind::IsADirectory => is_a_folder(file),
        _ => CliError::io("read", file, &error),
    })?;
    let text =
        String::from_utf8(bytes).map_err(|_| unusable(file, &CassetteError::NotACassette))?;
    Cassette::parse(&text).map_err(|error| unusable(file, &error))
}

fn is_a_folder(file: &Path) -> CliError {
    CliError::cassette(format!("{} is a folder, and a cassette is a file", file.display()))
        .hint("name a file in it")
}

fn unusable(file: &Path, error: &CassetteError) -> CliError {
    let hint = match error {
        CassetteError::NotACassette => "name a file that `polity run --record` wrote",
        CassetteError::CutShort { .. } | CassetteError::Unreadable { .. } => {
            "mend it or take it back from where it is kept; or remove it, and record it again with \
             --record"
        }
        CassetteError::UnknownVersion { .. } => {
            "use the Polity that wrote it; or remove it, and record it again with --record"
        }
    };
    CliError::cassette(format!("cannot use {}: {error}", file.display())).hint(hint)
}

/// The cassette that is there already, if there is a file. Whatever else it is stays as it is.
fn known(file: &Path) -> Result<Option<Cassette>, CliError> {
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::io("look at", file, &error)),
        Ok(metadata) if metadata.is_dir() => Err(is_a_folder(file)),
        Ok(metadata) if !metadata.is_file() => {
            Err(unusable(file, &CassetteError::NotACassette).hint("name another file"))
        }
        Ok(_) => read(file).map(Some).map_err(|error| {
            error.hint("nothing was changed; name another file, or remove this one first")
        }),
    }
}

/// Tries to write beside the file, so that nothing is asked of a model in vain.
fn must_be_writable(file: &Path) -> Result<(), CliError> {
    let target = target(file);
    let folder = folder(&target);
    if !folder.is_dir() {
        return Err(CliError::cassette(format!(
            "cannot record in {}: there is no folder {}",
            file.display(),
            folder.display()
        ))
        .hint("make the folder first, or name another file"));
    }
    if file.file_name().is_none() {
        return Err(is_a_folder(file));
    }
    let beside = beside(&target);
    fs::write(&beside, "").map_err(|error| CliError::io("write", &beside, &error))?;
    fs::remove_file(&beside).map_err(|error| CliError::io("remove", &beside, &error))
}

/// Writes beside the file and puts that in its place, so that there is always a whole one.
fn write(file: &Path, cassette: &Cassette) -> Result<(), CliError> {
    let text = cassette
        .to_text()
        .map_err(|error| CliError::cassette(format!("cannot write {}: {error}", file.display())))?;
    let target = target(file);
    let beside = beside(&target);
    let written = fs::File::create(&beside)
        .and_then(|mut new| new.write_all(text.as_bytes()).and_then(|()| new.sync_all()))
        .and_then(|()| fs::rename(&beside, &target));
    written.map_err(|error| {
        // It is of no use to anyone; if it cannot be removed, the error says what is wrong.
        let _ = fs::remove_file(&beside);
        CliError::io("write", file, &error)
    })
}

/// The file itself, where the path leads to it over a link.
fn target(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

fn beside(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    folder(file).join(format!(".{name}.{}", std::process::id()))
}
