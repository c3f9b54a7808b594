//! Creates tasks.

use polity_model::event::{StreamId, StreamSequence};
use polity_store::Commit;
use serde_json::{Value, json};

use crate::commands::{CreateTask, NewTask, TaskOrigin};
use crate::driver::{ProgramPreparation, RunIdentity};
use crate::runtime::history::{LoadedTask, load_task};
use crate::runtime::journal::CommitMode;
use crate::runtime::{EngineError, RuntimeInner};
use crate::sealed_input::SealedInput;
use crate::state::TaskState;

/// Creates a task and makes it durable.
pub(in crate::runtime) async fn create_task(
    inner: &RuntimeInner,
    mut create: CreateTask,
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
    let assignee = create.assignee.clone();
    let is_fork = matches!(create.origin, TaskOrigin::Fork { .. });
    let new = create.decide(deps.instance(), &deps.limits, &mut context, sealed_input.is_some())?;
    let NewTask { id, events, definitions } = new;
    let commit = Commit {
        definitions,
        sealed_input,
        ..Commit::new(StreamId::Task(id), StreamSequence::default(), None, context.now, events)
    };
    let mode = if inner.scheduler.has_workers() { CommitMode::Grouped } else { CommitMode::Inline };
    let recorded = inner.journal.commit(commit, mode).await?;
    if is_fork {
        return load_task(&*deps.store, id).await;
    }
    let state =
        TaskState::load(&assignee, recorded).map_err(|broken| EngineError::broken(id, &broken))?;
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
