//! All definitions that may take part in a task.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_definition::{
    AgentDefinition, DefinitionProblem, Home, ScriptDefinition, ScriptPath, ScriptSource,
    WorkflowDefinition,
};
use polity_model::event::{DefinitionPin, PinKind};
use polity_model::name::Name;
use polity_store::Store;

use super::workflow::needs;
use super::{MissingDefinition, PinnedError, script_of, sub_agents_of};

/// The agents, scripts and workflows that may take part in a task, by name.
#[derive(Debug, Default)]
pub struct TaskParticipants {
    pub(super) agents: BTreeMap<Name, Arc<AgentDefinition>>,
    pub(super) scripts: BTreeMap<Name, Arc<ScriptDefinition>>,
    pub(super) workflows: BTreeMap<Name, Arc<WorkflowDefinition>>,
    /// The scripts of the workflows' nodes.
    pub(super) steps: BTreeMap<ScriptPath, Arc<ScriptSource>>,
}

impl TaskParticipants {
    /// Adds an agent and every definition it needs.
    pub(super) fn add_agent(
        &mut self,
        home: &Home,
        agent: Arc<AgentDefinition>,
    ) -> Result<(), MissingDefinition> {
        let mut waiting = vec![agent];
        while let Some(next) = waiting.pop() {
            if self.agents.contains_key(&next.name) {
                continue;
            }
            if let Some(name) = script_of(&next) {
                let script = find(&home.scripts, PinKind::Script, name, &next.name)?;
                self.scripts.insert(name.clone(), script);
            }
            for name in sub_agents_of(&next) {
                waiting.push(find(&home.agents, PinKind::Agent, name, &next.name)?);
            }
            self.agents.insert(next.name.clone(), next);
        }
        Ok(())
    }

    /// Adds a workflow and every definition its nodes need.
    pub(super) fn add_workflow(
        &mut self,
        home: &Home,
        workflow: Arc<WorkflowDefinition>,
    ) -> Result<(), MissingDefinition> {
        let mut waiting = vec![workflow];
        while let Some(next) = waiting.pop() {
            if self.workflows.contains_key(&next.name) {
                continue;
            }
            let needs = needs(&next);
            for name in &needs.agents {
                self.add_agent(home, find(&home.agents, PinKind::Agent, name, &next.name)?)?;
            }
            for name in &needs.workflows {
                let workflow = find(&home.workflows, PinKind::Workflow, name, &next.name)?;
                waiting.push(workflow);
            }
            for program in &needs.scripts {
                let Some(file) = program.file() else { continue };
                let missing = || MissingDefinition {
                    kind: PinKind::Step,
                    name: program.agent_name(),
                    needed_by: next.name.clone(),
                };
                let script = home.steps.get(file).cloned().ok_or_else(missing)?;
                self.steps.insert(file.clone(), script);
            }
            self.workflows.insert(next.name.clone(), next);
        }
        Ok(())
    }

    /// Loads the definitions that a task pinned.
    pub(super) async fn load(
        store: &dyn Store,
        pins: &[DefinitionPin],
    ) -> Result<Self, PinnedError> {
        let mut participants = Self::default();
        for pin in pins {
            let json = store
                .definition(&pin.digest)
                .await?
                .ok_or_else(|| PinnedError::Lost { kind: pin.kind, name: pin.name.clone() })?;
            let unreadable = |problems: Vec<DefinitionProblem>| PinnedError::Unreadable {
                name: pin.name.clone(),
                problem: problems.first().map(ToString::to_string).unwrap_or_default(),
            };
            let name = pin.name.clone();
            match pin.kind {
                PinKind::Agent => {
                    let agent = AgentDefinition::from_canonical(&json).map_err(unreadable)?;
                    participants.agents.insert(name, Arc::new(agent));
                }
                PinKind::Workflow => {
                    let workflow = WorkflowDefinition::from_canonical(&json).map_err(unreadable)?;
                    participants.workflows.insert(name, Arc::new(workflow));
                }
                PinKind::Script => {
                    let script =
                        ScriptDefinition::from_canonical(&pin.name, &json).map_err(unreadable)?;
                    participants.scripts.insert(name, Arc::new(script));
                }
                PinKind::Step => {
                    let script = ScriptSource::from_canonical(&json)
                        .map_err(|problem| PinnedError::Unreadable { name, problem })?;
                    participants.steps.insert(script.file.clone(), Arc::new(script));
                }
            }
        }
        Ok(participants)
    }
}

/// Returns the definition with this name.
fn find<T>(
    among: &BTreeMap<Name, Arc<T>>,
    kind: PinKind,
    name: &Name,
    needed_by: &Name,
) -> Result<Arc<T>, MissingDefinition> {
    let missing = || MissingDefinition { kind, name: name.clone(), needed_by: needed_by.clone() };
    among.get(name).cloned().ok_or_else(missing)
}
