//! The comparable steps of a task: no ids and no times.

use std::collections::HashMap;

use polity_model::event::{DefinitionPin, Event, NodeChange, RecordedEvent, StreamSequence};
use polity_model::failure::ErrorCode;
use polity_model::ids::TaskId;
use polity_model::message::{Message, MessageRole};
use polity_model::name::Name;
use polity_model::task::{ForkedFrom, Task};
use polity_store::Store;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::runtime::{EngineError, TaskHistory};
use crate::state::{TaskState, WorkflowRun};

/// A step of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunStep {
    /// A finished or failed node of a workflow.
    Node {
        /// The node.
        node: Name,
        /// The node's output.
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<String>,
        /// The node's routing key.
        #[serde(skip_serializing_if = "Option::is_none")]
        routing_key: Option<String>,
        /// The failure, if the node failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<NodeFailure>,
        /// Human interventions before the node ended.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        interventions: Vec<HumanIntervention>,
    },
    /// A message of an agent's conversation.
    Message {
        /// The author.
        role: MessageRole,
        /// The text.
        content: String,
        /// The requested tools.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ComparedToolCall>,
    },
    /// A human intervention after the last step.
    Intervention(HumanIntervention),
}

/// The failure of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeFailure {
    /// The error code.
    pub code: ErrorCode,
    /// The error message.
    pub error: String,
}

/// A tool requested by a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedToolCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

/// A person's intervention in a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HumanIntervention {
    /// The action, if a review was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The changes of the State.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
}

/// A task with all its steps, including those shared with its original.
#[derive(Debug, Clone)]
pub struct ComparedRun {
    /// The task.
    pub task: Task,
    /// The definitions that it pinned.
    pub pins: Vec<DefinitionPin>,
    /// Its steps.
    pub steps: Vec<RunStep>,
    /// The State's metadata, for runs whose steps do not show it.
    pub metadata: Option<Map<String, Value>>,
    /// The tasks that form its history, oldest first.
    pub(super) line: Vec<SharedHistory>,
}

/// The part of a task's history that belongs to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedHistory {
    pub(super) task: TaskId,
    pub(super) until: StreamSequence,
    /// The newest checkpoint in that part.
    pub(super) checkpoint: Option<u32>,
}

impl ComparedRun {
    /// Loads a run from the store.
    pub async fn of(store: &dyn Store, id: TaskId) -> Result<Self, EngineError> {
        let mut steps = StepCollector::default();
        let mut line = Vec::new();
        let mut end = None;
        for TaskHistory { mut state, rest, .. } in TaskHistory::load_lineage(store, id).await? {
            let mut checkpoint = None;
            for recorded in rest {
                checkpoint = recorded.event.checkpoint().or(checkpoint);
                steps.follow(&mut state, recorded)?;
            }
            line.push(SharedHistory { task: state.id(), until: state.sequence(), checkpoint });
            end = Some(state);
        }
        let state = end.ok_or(EngineError::NotFound(id))?;
        let (steps, metadata) = if state.workflow_run().is_some() {
            (steps.in_order(), None)
        } else {
            // The first message is the input, which is compared separately.
            let said = state.messages().iter().skip(1).map(message);
            (said.collect(), Some(state.state().metadata))
        };
        Ok(Self { task: state.snapshot(), pins: state.pins().to_vec(), steps, metadata, line })
    }

    /// The end of the common history of two runs, if they share any.
    pub(super) fn shared_with(&self, other: &Self) -> Option<ForkedFrom> {
        let mut shared = None;
        for (a, b) in self.line.iter().zip(&other.line) {
            if a.task != b.task {
                break;
            }
            let least = if a.until <= b.until { a } else { b };
            shared = least.checkpoint.map(|checkpoint| (least.task, Some(checkpoint))).or(shared);
            if a.until != b.until {
                break;
            }
        }
        shared.map(|(task_id, checkpoint)| ForkedFrom { task_id, checkpoint })
    }
}

/// Collects the steps of a workflow from its events.
#[derive(Debug, Default)]
struct StepCollector {
    /// Each step with its sort key.
    steps: Vec<(StepKey, RunStep)>,
    /// The round in which each node started.
    rounds: HashMap<Name, u32>,
    pending: Vec<HumanIntervention>,
}

/// The sort key of a step: its node's round and rank. Concurrent nodes may end in any order, and
/// the runs still compare equal.
type StepKey = (u32, u32);

impl StepCollector {
    fn follow(
        &mut self,
        state: &mut TaskState,
        recorded: RecordedEvent,
    ) -> Result<(), EngineError> {
        let event = recorded.event.clone();
        state.apply(recorded).map_err(|broken| EngineError::broken(state.id(), &broken))?;
        let Some(run) = state.workflow_run() else { return Ok(()) };
        match event {
            Event::NodeChanged { node, change } => self.node(run, node, change),
            Event::ReviewOpened { subject, .. } => {
                if let Some(node) = subject.node() {
                    self.rounds.insert(node.clone(), run.progress().rounds());
                }
            }
            Event::ReviewAnswered { verdict, message, state_updates, .. } => {
                let action = Some(verdict.action().to_owned());
                let set = state_updates.as_map().clone();
                self.pending.push(HumanIntervention { action, message, set });
            }
            Event::StateSet { updates } => {
                let set = updates.as_map().clone();
                self.pending.push(HumanIntervention { action: None, message: None, set });
            }
            _ => {}
        }
        Ok(())
    }

    fn node(&mut self, run: &WorkflowRun, node: Name, change: NodeChange) {
        let now = run.progress().rounds();
        let (output, routing_key, failure) = match change {
            NodeChange::Start { .. } => {
                self.rounds.insert(node, now);
                return;
            }
            NodeChange::Finish { routing_key, .. } => {
                let number = run.plan().number(&node);
                let output = number.and_then(|number| run.output(number));
                (output.map(str::to_owned), routing_key, None)
            }
            NodeChange::Fail { code, error, .. } => (None, None, Some(NodeFailure { code, error })),
            // The output of the map has the outputs of its items.
            NodeChange::StartItem { .. }
            | NodeChange::FinishItems { .. }
            | NodeChange::FailItem { .. } => return,
            // The progress of a dropped branch says nothing about the task.
            NodeChange::Drop => return,
        };
        let rank = run.plan().number(&node).map_or(0, |number| run.plan().nodes()[number].rank);
        let round = self.rounds.remove(&node).unwrap_or(now);
        let interventions = std::mem::take(&mut self.pending);
        let step = RunStep::Node { node, output, routing_key, failure, interventions };
        self.steps.push(((round, rank), step));
    }

    fn in_order(mut self) -> Vec<RunStep> {
        self.steps.sort_by_key(|(place, _)| *place);
        let steps = self.steps.into_iter().map(|(_, step)| step);
        steps.chain(self.pending.into_iter().map(RunStep::Intervention)).collect()
    }
}

fn message(message: &Message) -> RunStep {
    let asked = message.tool_calls().iter();
    let tool_calls =
        asked.map(|call| ComparedToolCall { tool: call.name(), arguments: call.arguments.clone() });
    RunStep::Message {
        role: message.role(),
        content: message.content().to_owned(),
        tool_calls: tool_calls.collect(),
    }
}
