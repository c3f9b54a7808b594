//! Gives work to an agent. A person drives it, or a program on a person's behalf. It is the one
//! command that has no state to start from. The task belongs to the process that creates it from
//! its first moment on, so there is no instant at which a crash would leave it unowned.

use polity_model::definition::{AgentKind, LlmAgent};
use polity_model::event::{Epoch, Event, TaskCreated};
use polity_model::ids::{InstanceId, TaskId};
use polity_store::PinnedDefinition;
use serde_json::{Map, Value};

use crate::closure::Closure;
use crate::decide::{Given, Rejection};

/// What to do, and who does it.
#[derive(Debug, Clone)]
pub struct CreateTask {
    /// The agent with everything it needs.
    pub closure: Closure,
    /// The input.
    pub description: String,
    /// Named values that come with it.
    pub parameters: Map<String, Value>,
    /// A class of the retention policy.
    pub class: Option<String>,
    /// How long to keep the task after its end.
    pub retention_days: Option<u32>,
}

/// A task that is about to be.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its id.
    pub id: TaskId,
    /// Its first events.
    pub events: Vec<Event>,
    /// The definitions that it pins.
    pub definitions: Vec<PinnedDefinition>,
}

impl CreateTask {
    /// Checks the input and makes the task's first events.
    pub fn decide(
        self,
        owner: InstanceId,
        input_bytes_max: u64,
        given: &mut Given,
    ) -> Result<NewTask, Rejection> {
        let agent = &self.closure.agent;
        match &agent.kind {
            AgentKind::Llm(llm) => {
                if let Some(field) = not_kept(llm) {
                    return Err(Rejection::FieldNotKept { agent: agent.name.clone(), field });
                }
            }
            AgentKind::Cli(_) | AgentKind::Remote(_) => {
                let (agent, kind) = (agent.name.clone(), agent.kind.label());
                return Err(Rejection::KindNotRunnable { agent, kind });
            }
        }
        if self.description.trim().is_empty() {
            return Err(Rejection::EmptyInput);
        }
        let found = self.description.len() as u64;
        if found > input_bytes_max {
            return Err(Rejection::InputTooLarge { found, limit: input_bytes_max });
        }
        let (pins, definitions) = self.closure.pin();
        let created = Event::TaskCreated(TaskCreated {
            description: self.description,
            assigned_agent: agent.name.clone(),
            pins,
            parameters: self.parameters,
            class: self.class,
            retention_days: self.retention_days,
            parent_task_id: None,
        });
        let claimed = Event::TaskClaimed { instance: owner, epoch: Epoch::default().next() };
        let id = TaskId::from_random_bytes(given.entropy.id_bytes());
        Ok(NewTask { id, events: vec![created, claimed], definitions })
    }
}

/// A field that promises something which no part of this version does. Running the agent all the
/// same would break the promise in silence.
fn not_kept(llm: &LlmAgent) -> Option<&'static str> {
    let fields = [("sub_agents", !llm.sub_agents.is_empty()), ("a budget", llm.budget.is_some())];
    fields.into_iter().find_map(|(field, given)| given.then_some(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{closure, given, instance};

    fn create(description: &str) -> Result<NewTask, Rejection> {
        let create = CreateTask {
            closure: closure(),
            description: description.to_owned(),
            parameters: Map::new(),
            class: None,
            retention_days: None,
        };
        create.decide(instance(1), 10, &mut given())
    }

    #[test]
    fn a_task_is_owned_from_its_first_moment() {
        let new = create("Ada").unwrap();
        let labels: Vec<_> = new.events.iter().map(Event::label).collect();
        assert_eq!(labels, ["task_created", "task_claimed"]);
        assert_eq!(new.definitions.len(), 2);
    }

    #[test]
    fn inputs_are_neither_empty_nor_too_large() {
        assert_eq!(create(" \n ").unwrap_err(), Rejection::EmptyInput);
        assert!(create("0123456789").is_ok());
        assert_eq!(
            create("0123456789a").unwrap_err(),
            Rejection::InputTooLarge { found: 11, limit: 10 }
        );
    }
}
