//! What a task did, step by step, as far as it can be held against another: no ids and no times.

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

use crate::runtime::{Beginning, EngineError};
use crate::state::{TaskState, WorkflowRun};

/// One step of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunStep {
    /// A node of a workflow that ended.
    Node {
        /// The node.
        node: Name,
        /// What came out of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<String>,
        /// The routing key that it gave.
        #[serde(skip_serializing_if = "Option::is_none")]
        routing_key: Option<String>,
        /// Why it failed, if it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<NodeFailure>,
        /// What people decided and changed before it ended.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        interventions: Vec<HumanIntervention>,
    },
    /// A message of an agent's conversation.
    Message {
        /// Who said it.
        role: MessageRole,
        /// The text.
        content: String,
        /// The tools that are asked for.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<RequestedTool>,
    },
    /// What people decided and changed where no step follows.
    Intervention(HumanIntervention),
}

/// Why a node failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeFailure {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub error: String,
}

/// A tool that a model asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestedTool {
    /// The tool.
    pub tool: String,
    /// With what.
    pub arguments: Map<String, Value>,
}

/// What a person did to a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HumanIntervention {
    /// What was decided, if something was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// What was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What was changed in the State.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
}

/// A task with all its steps, those included that it shares with the one that it is a fork of.
#[derive(Debug, Clone)]
pub struct ComparedRun {
    /// The task.
    pub task: Task,
    /// The definitions that it pinned.
    pub pins: Vec<DefinitionPin>,
    /// Its steps.
    pub steps: Vec<RunStep>,
    /// What the State holds besides the conversation, where steps do not tell it.
    pub metadata: Option<Map<String, Value>>,
    /// The tasks whose history it has, from the first on, each with the last event of it that this
    /// one shares.
    pub(super) line: Vec<SharedHistory>,
}

/// As much of a task's history as belongs to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedHistory {
    pub(super) task: TaskId,
    pub(super) until: StreamSequence,
    /// The newest checkpoint there.
    pub(super) checkpoint: Option<u32>,
}

impl ComparedRun {
    /// Reads it from the store.
    pub fn of(store: &dyn Store, id: TaskId) -> Result<Self, EngineError> {
        let mut steps = StepCollector::default();
        let mut line = Vec::new();
        let mut end = None;
        for Beginning { mut state, rest, .. } in Beginning::line(store, id)? {
            let mut checkpoint = None;
            for recorded in rest {
                if let Event::CheckpointTaken { sequence, .. } = &recorded.event {
                    checkpoint = Some(*sequence);
                }
                steps.follow(&mut state, recorded)?;
            }
            line.push(SharedHistory { task: state.id(), until: state.sequence(), checkpoint });
            end = Some(state);
        }
        let state = end.ok_or(EngineError::NotFound(id))?;
        let (steps, metadata) = if state.workflow_run().is_some() {
            (steps.in_order(), None)
        } else {
            // The first message is the input, which is told apart.
            let said = state.messages().iter().skip(1).map(message);
            (said.collect(), Some(state.state().metadata))
        };
        Ok(Self { task: state.snapshot(), pins: state.pins().to_vec(), steps, metadata, line })
    }

    /// Where the history that two runs share ends, if they share any.
    pub(super) fn shared_with(&self, other: &Self) -> Option<ForkedFrom> {
        let mut shared = None;
        for (a, b) in self.line.iter().zip(&other.line) {
            if a.task != b.task {
                break;
            }
            let least = if a.until <= b.until { a } else { b };
            shared = least.checkpoint.map(|checkpoint| (least.task, checkpoint)).or(shared);
            if a.until != b.until {
                break;
            }
        }
        shared.map(|(task_id, checkpoint)| ForkedFrom { task_id, checkpoint })
    }
}

/// The steps of a workflow while its events are followed.
#[derive(Debug, Default)]
struct StepCollector {
    /// Each step with its place.
    told: Vec<(StepKey, RunStep)>,
    /// The round in which each node began.
    rounds: HashMap<Name, u32>,
    pending: Vec<HumanIntervention>,
}

/// Where a step belongs: the round of its node, and the node's rank. Nodes that run at once may end
/// in any order, and the runs are the same for that.
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
            Event::TaskCreated(_)
            | Event::TaskClaimed { .. }
            | Event::TaskReleased
            | Event::TaskStarted
            | Event::TaskPaused
            | Event::TaskResumed
            | Event::RunShared { .. }
            | Event::CancelRequested
            | Event::TaskCompleted { .. }
            | Event::TaskFailed { .. }
            | Event::TaskCancelled
            | Event::ExecutionChanged { .. }
            | Event::ModelCalled { .. }
            | Event::ModelAnswered { .. }
            | Event::ModelFailed { .. }
            | Event::HistoryShortened { .. }
            | Event::ToolChanged { .. }
            | Event::MessageAdded { .. }
            | Event::CheckpointTaken { .. }
            | Event::AgentEnabled
            | Event::AgentDisabled { .. } => {}
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
            NodeChange::Fail { code, error } => (None, None, Some(NodeFailure { code, error })),
            // How far a branch came before another was first says nothing about the task.
            NodeChange::Drop => return,
        };
        let rank = run.plan().number(&node).map_or(0, |number| run.plan().nodes()[number].rank);
        let round = self.rounds.remove(&node).unwrap_or(now);
        let interventions = std::mem::take(&mut self.pending);
        let step = RunStep::Node { node, output, routing_key, failure, interventions };
        self.told.push(((round, rank), step));
    }

    fn in_order(mut self) -> Vec<RunStep> {
        self.told.sort_by_key(|(place, _)| *place);
        let steps = self.told.into_iter().map(|(_, step)| step);
        steps.chain(self.pending.into_iter().map(RunStep::Intervention)).collect()
    }
}

fn message(message: &Message) -> RunStep {
    let asked = message.tool_calls().iter();
    let tool_calls =
        asked.map(|call| RequestedTool { tool: call.name(), arguments: call.arguments.clone() });
    RunStep::Message {
        role: message.role(),
        content: message.content().to_owned(),
        tool_calls: tool_calls.collect(),
    }
}
