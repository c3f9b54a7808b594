//! Creates tasks.

use polity_model::event::{StreamId, StreamSequence};
use polity_store::Commit;
use serde_json::{Value, json};

use crate::commands::{CreateTask, NewTask};
use crate::driver::{ProgramPreparation, RunIdentity};
use crate::runtime::history::LoadedTask;
use crate::runtime::journal::CommitMode;
use crate::runtime::{EngineError, RuntimeInner};
use crate::sealed_input::SealedInput;
use crate::state::{CorruptJournal, TaskState};

/// Creates a task and makes it durable. `at_fork` is the state from which a fork or retry continues.
pub(in crate::runtime) async fn create_task(
    inner: &RuntimeInner,
    mut create: CreateTask,
    at_fork: Option<TaskState>,
) -> Result<LoadedTask, EngineError> {
    let deps = &inner.deps;
    let mut context = inner.plain_context();
    if let Some(agent) = create.assignee.agent()
        && let Some(cli) = agent.program()
    {
        let folder = deps.programs.working_directory(agent, &create.overrides);
        create.overrides.working_directory = Some(folder);
        context.slot.pool = deps.programs.slot_pool(agent, &create.overrides).into();
        let CreateTask { description: input, parameters, overrides, .. } = &create;
        let identity = RunIdentity { agent, input, parameters, overrides };
        context.slot.dedup_key =
            cli.deduplicate_seconds.and_then(|_| deps.programs.dedup_key(&identity));
    }
    let sealed_input = seal_input(&*deps.programs, &mut create);
    let assignee = create.assignee.clone().with_timeout(create.raised.timeout_seconds);
    let new = create.decide(deps.instance(), &deps.limits, &mut context, sealed_input.is_some())?;
    let NewTask { id, events, definitions } = new;
    let commit = Commit {
        definitions,
        sealed_input,
        ..Commit::new(StreamId::Task(id), StreamSequence::default(), None, context.now, events)
    };
    let mode = if inner.scheduler.has_workers() { CommitMode::Grouped } else { CommitMode::Inline };
    let recorded = inner.journal.commit(commit, mode).await?;
    let mut recorded = recorded.into_iter();
    let state = match (at_fork, recorded.next()) {
        (Some(origin), Some(first)) => origin.fork(first, &assignee),
        (None, Some(first)) => TaskState::begin(&assignee, first),
        (_, None) => Err(CorruptJournal::NoBeginning),
    };
    let state = state.and_then(|state| state.following(recorded));
    let state = state.map_err(|broken| EngineError::broken(id, &broken))?;
    Ok(LoadedTask { assignee, state })
}

/// Replaces the secrets in the input of a CLI agent. Returns the original, if it differs.
fn seal_input(programs: &dyn ProgramPreparation, create: &mut CreateTask) -> Option<String> {
    let agent = create.assignee.agent().filter(|agent| agent.program().is_some())?;
    let overrides = &create.overrides;
    let original = json!({"input": create.description, "parameters": create.parameters});
    let mut masked = programs.mask_secrets(agent, overrides, original);
    let (Value::String(description), Value::Object(parameters)) =
        (masked["input"].take(), masked["parameters"].take())
    else {
        return None;
    };
    let is_plain = description == create.description && parameters == create.parameters;
    if is_plain && overrides.envs.is_empty() {
        return None;
    }
    let sealed = SealedInput {
        description: std::mem::replace(&mut create.description, description),
        parameters: std::mem::replace(&mut create.parameters, parameters),
        envs: create.overrides.envs.clone(),
    };
    serde_json::to_string(&sealed).ok()
}
