//! Lookup of agents and workflows by name.

use std::path::PathBuf;
use std::sync::Arc;

use polity_definition::{AgentDefinition, Home, NameLookup, WorkflowDefinition, nearest};
use polity_engine::pinned::{Assignee, MissingDefinition, PinnedAgent, PinnedWorkflow};
use polity_model::event::PinKind;
use polity_model::name::Name;

use crate::context::HostContext;
use crate::error::HostError;

/// A definition that is unknown or of another kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DefinitionError {
    /// No agent or workflow has this name.
    #[error("there is no agent or workflow \"{name}\" in {}", root.display())]
    UnknownAssignee { name: String, root: PathBuf, suggestion: Option<String> },
    /// No workflow has this name.
    #[error("there is no workflow \"{name}\" in {}", root.display())]
    UnknownWorkflow { name: String, root: PathBuf, suggestion: Option<String> },
    /// No schedule has this name.
    #[error("there is no schedule \"{name}\"")]
    UnknownSchedule { name: String, suggestion: Option<String> },
    /// No chart or scenario has this name.
    #[error("there is no {kind} \"{name}\"")]
    UnknownSimulation {
        kind: &'static str,
        folder: &'static str,
        name: String,
        suggestion: Option<String>,
    },
    /// A workflow has the name of the agent that was asked for.
    #[error("\"{0}\" is a workflow, not an agent")]
    NotAnAgent(String),
    /// An agent has the name of the workflow that was asked for.
    #[error("\"{0}\" is an agent, not a workflow")]
    NotAWorkflow(String),
    /// The workflow has no nodes.
    #[error("the workflow \"{0}\" has no nodes")]
    EmptyWorkflow(String),
}

/// The agent of a name.
pub fn find_agent(
    context: &HostContext,
    home: &Home,
    name: &str,
) -> Result<Arc<AgentDefinition>, HostError> {
    match home.find(name) {
        NameLookup::Agent(agent) => Ok(agent),
        NameLookup::Broken(problems) => Err(invalid(name, problems)),
        NameLookup::Workflow(_) => Err(DefinitionError::NotAnAgent(name.to_owned()).into()),
        NameLookup::Unknown { suggestion } => Err(unknown(context, name, suggestion).into()),
    }
}

/// The workflow of a name.
pub fn find_workflow(
    context: &HostContext,
    home: &Home,
    name: &str,
) -> Result<Arc<WorkflowDefinition>, HostError> {
    match home.find(name) {
        NameLookup::Workflow(workflow) => Ok(workflow),
        NameLookup::Broken(problems) => Err(invalid(name, problems)),
        NameLookup::Agent(_) => Err(DefinitionError::NotAWorkflow(name.to_owned()).into()),
        NameLookup::Unknown { .. } => {
            let suggestion = nearest(name, home.workflows.keys().map(Name::as_str));
            Err(DefinitionError::UnknownWorkflow {
                name: name.to_owned(),
                root: context.folder().root().to_owned(),
                suggestion: suggestion.map(str::to_owned),
            }
            .into())
        }
    }
}

/// The agent or workflow of a name, with every definition it needs.
pub fn find_assignee(
    context: &HostContext,
    home: &Home,
    name: &str,
) -> Result<Assignee, HostError> {
    match home.find(name) {
        NameLookup::Agent(agent) => {
            let pinned = PinnedAgent::of(home, agent);
            Ok(pinned.map_err(|missing| incomplete(home, &missing))?.into())
        }
        NameLookup::Workflow(workflow) => {
            let flow = PinnedWorkflow::of(home, workflow);
            let flow = flow.map_err(|missing| incomplete(home, &missing))?;
            let empty = || DefinitionError::EmptyWorkflow(name.to_owned());
            Ok(flow.ok_or_else(empty)?.into())
        }
        NameLookup::Broken(problems) => Err(invalid(name, problems)),
        NameLookup::Unknown { suggestion } => Err(unknown(context, name, suggestion).into()),
    }
}

fn invalid(name: &str, problems: Vec<polity_definition::DefinitionProblem>) -> HostError {
    HostError::invalid(format!("the definition of \"{name}\" is not valid"), problems)
}

fn unknown(context: &HostContext, name: &str, suggestion: Option<Name>) -> DefinitionError {
    DefinitionError::UnknownAssignee {
        name: name.to_owned(),
        root: context.folder().root().to_owned(),
        suggestion: suggestion.map(|name| name.to_string()),
    }
}

/// The error for a definition that an agent or workflow needs and that is missing or invalid.
fn incomplete(home: &Home, missing: &MissingDefinition) -> HostError {
    let (kind, folder) = match missing.kind {
        PinKind::Agent => ("agent", "agents"),
        PinKind::Workflow => ("workflow", "workflows"),
        PinKind::Script => ("script", "scripts"),
        PinKind::Step => ("step", "workflows"),
    };
    let file = format!("{folder}/{}.", missing.name);
    let problems = home.problems.iter().filter(|problem| problem.file.starts_with(&file));
    let message = format!(
        "the {kind} \"{}\" that \"{}\" needs is missing or not valid",
        missing.name, missing.needed_by
    );
    HostError::invalid(message, problems.cloned().collect())
}
