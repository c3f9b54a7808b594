//! Schedules: lookup, files, and the tasks that they start.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::{EXTENSIONS, Home, HomeFile, ScheduleDefinition, nearest};
use polity_engine::agent_toggles::AgentToggles;
use polity_engine::commands::{CreateTask, TaskOrigin};
use polity_engine::decide::CommandRejection;
use polity_engine::pinned::Assignee;
use polity_engine::runtime::{EngineError, TaskHandle};
use polity_engine::schedule::StartFault;
use polity_files::{FileAccess, create_folder, write_new};
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_store::CommitError;
use serde_json::Value;

use crate::context::HostContext;
use crate::definition_yaml::yaml_file;
use crate::definitions::{DefinitionError, find_assignee};
use crate::error::HostError;
use crate::host::Host;
use crate::report::ErrorReport;

/// The folder of schedules in a home.
const FOLDER: &str = "schedules";

/// The result of creating the task of a due time.
#[derive(Debug)]
pub enum ScheduledStart {
    /// The task was created.
    Started(TaskHandle),
    /// Another process had created it.
    Exists,
    /// The store cannot be written at the moment: the task is created later.
    Later(EngineError),
    /// The task cannot be created.
    Failed(StartFault),
}

/// The schedule of a name.
pub fn find_schedule(home: &Home, name: &str) -> Result<Arc<ScheduleDefinition>, HostError> {
    if let Some(schedule) = home.schedules.get(name) {
        return Ok(Arc::clone(schedule));
    }
    let file = format!("{FOLDER}/{name}.");
    let problems: Vec<_> =
        home.problems.iter().filter(|found| found.file.starts_with(&file)).cloned().collect();
    if !problems.is_empty() {
        return Err(HostError::invalid(format!("the schedule \"{name}\" is not valid"), problems));
    }
    let suggestion = nearest(name, home.schedules.keys().map(Name::as_str)).map(str::to_owned);
    Err(DefinitionError::UnknownSchedule { name: name.to_owned(), suggestion }.into())
}

/// The agent or workflow that a schedule starts, or the reason why it cannot.
pub fn schedule_assignee(
    context: &HostContext,
    home: &Home,
    toggles: &AgentToggles,
    definition: &ScheduleDefinition,
) -> Result<Assignee, StartFault> {
    let assignee =
        find_assignee(context, home, definition.target.name().as_str()).map_err(fault_of)?;
    for pinned in assignee.everyone() {
        if !toggles.is_enabled(&pinned.agent) {
            let agent = pinned.agent.name.clone();
            let reason = toggles.of(&agent).and_then(|toggle| toggle.reason.clone());
            let rejection = CommandRejection::Disabled { agent, reason };
            return Err(fault_of(EngineError::Rejected(rejection)));
        }
    }
    Ok(assignee)
}

fn fault_of(error: impl Into<ErrorReport>) -> StartFault {
    let report = error.into();
    StartFault { code: report.code().to_owned(), message: report.message().to_owned() }
}

/// Creates the task of a due time, whose record is durable. A second call finds the task.
pub async fn start_scheduled(
    host: &Host,
    assignee: Assignee,
    definition: &ScheduleDefinition,
    due: Timestamp,
    id: TaskId,
) -> ScheduledStart {
    let schedule = definition.name.clone();
    let mut parameters = definition.input_parameters.clone();
    let description = match parameters.remove("input") {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => format!("{schedule}, due {due}"),
    };
    let create = CreateTask {
        origin: TaskOrigin::Schedule { id, schedule, due },
        parameters,
        ..CreateTask::new(assignee, description)
    };
    match host.runtime().create(create).await {
        Ok(handle) => ScheduledStart::Started(handle),
        Err(EngineError::Commit(CommitError::Conflict { .. })) => ScheduledStart::Exists,
        Err(
            error @ (EngineError::Store(_)
            | EngineError::Commit(CommitError::Store(_) | CommitError::Fenced { .. })),
        ) => ScheduledStart::Later(error),
        Err(error) => ScheduledStart::Failed(fault_of(error)),
    }
}

/// Writes the file of a new schedule, if it would be valid. Returns its path in the home.
pub fn add_schedule(
    context: &HostContext,
    name: &Name,
    fields: &[(String, Value)],
) -> Result<String, HostError> {
    if !files_of(context, name).is_empty() {
        return Err(HostError::ScheduleExists(name.clone()));
    }
    let text = yaml_file(fields);
    let path = format!("{FOLDER}/{name}.yaml");
    let file = HomeFile { path: path.clone(), text: Ok(text.clone()) };
    let home = context.folder().read_with(file)?;
    let wrong: Vec<_> = home.problems.into_iter().filter(|found| found.file == path).collect();
    if !wrong.is_empty() {
        let message = format!("the schedule \"{name}\" would not be valid; nothing was written");
        return Err(HostError::invalid(message, wrong));
    }
    let target = context.folder().root().join(&path);
    let folder = context.folder().root().join(FOLDER);
    let written = create_folder(&folder, FileAccess::Shared)
        .and_then(|()| write_new(&target, FileAccess::Shared, text.as_bytes()));
    match written {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(HostError::ScheduleExists(name.clone()))
        }
        Err(error) => Err(HostError::io("write", &target, error)),
    }
}

/// Deletes the files of a schedule, valid or not.
pub fn delete_schedule(context: &HostContext, home: &Home, name: &Name) -> Result<(), HostError> {
    let files = files_of(context, name);
    if files.is_empty() {
        find_schedule(home, name.as_str())?;
    }
    for file in files {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(HostError::io("remove", &file, error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The files that a schedule of this name has.
fn files_of(context: &HostContext, name: &Name) -> Vec<PathBuf> {
    let folder = context.folder().root().join(FOLDER);
    let paths = EXTENSIONS.iter().map(|extension| folder.join(format!("{name}.{extension}")));
    paths.filter(|path| path.exists()).collect()
}
