//! Checkpoints with their States, rebuilt from the journal.
//!
//! The store keeps a checkpoint as a position. Folding the task's events up to that position
//! restores its State, so storage grows linearly with the conversation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polity_model::checkpoint::Checkpoint;
use polity_model::event::{Event, RecordedEvent};
use polity_model::ids::CheckpointId;
use polity_model::review::{HumanFeedback, ReviewVerdict};
use polity_model::state::StateUpdates;
use serde_json::{Map, Value, json};

use crate::runtime::TaskHistory;
use crate::state::{CorruptJournal, TaskState};

/// A checkpoint without its State.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointSummary {
    /// The checkpoint's id.
    pub checkpoint_id: CheckpointId,
    /// The number of the checkpoint, from 0.
    pub sequence: u32,
    /// The node of the workflow, or the agent's name.
    pub position: String,
    /// The number of messages of the State.
    pub message_count: usize,
    /// The time it was taken.
    pub created_at: Timestamp,
    /// True if the task waits there for a person.
    pub awaiting_human: bool,
    /// The reviewer's answer, if there is one.
    pub human_feedback: Option<HumanFeedback>,
}

/// Lists the checkpoints of a task without their States, oldest first.
pub fn summaries(history: TaskHistory) -> Result<Vec<CheckpointSummary>, CorruptJournal> {
    follow(history, |_, _| ())
}

/// Lists the checkpoints of a task with these numbers, oldest first. Each has a copy of its State, so
/// the list of all those of a long conversation is large.
pub fn checkpoints(
    history: TaskHistory,
    is_wanted: impl Fn(u32) -> bool,
) -> Result<Vec<Checkpoint>, CorruptJournal> {
    let task_id = history.state.id();
    let mut states = BTreeMap::new();
    let taken = follow(history, |sequence, state| {
        if is_wanted(sequence) {
            states.insert(sequence, state.state());
        }
    })?;
    let checkpoints = taken.into_iter().filter_map(|taken| {
        Some(Checkpoint {
            checkpoint_id: taken.checkpoint_id,
            task_id,
            state: states.remove(&taken.sequence)?,
            position: taken.position,
            sequence: taken.sequence,
            created_at: taken.created_at,
            awaiting_human: taken.awaiting_human,
            human_feedback: taken.human_feedback,
        })
    });
    Ok(checkpoints.collect())
}

/// Folds a history and visits the state of the task at each checkpoint.
fn follow(
    history: TaskHistory,
    mut visit: impl FnMut(u32, &TaskState),
) -> Result<Vec<CheckpointSummary>, CorruptJournal> {
    let TaskHistory { mut state, rest, .. } = history;
    let mut checkpoints: Vec<CheckpointSummary> = Vec::new();
    for recorded in rest {
        if let Some(taken) = taken_at(&state, &recorded) {
            visit(taken.sequence, &state);
            checkpoints.push(taken);
        }
        if let Event::ReviewAnswered { verdict, message, by, state_updates } = &recorded.event
            && let Some(answered) = state.review().map(|review| review.checkpoint_id)
            && let Some(checkpoint) =
                checkpoints.iter_mut().find(|checkpoint| checkpoint.checkpoint_id == answered)
        {
            checkpoint.human_feedback = Some(HumanFeedback {
                action: verdict.action().to_owned(),
                message: message.clone(),
                state_updates: updates(verdict, state_updates),
                by: by.clone(),
                at: recorded.at,
            });
        }
        state.apply(recorded)?;
    }
    Ok(checkpoints)
}

/// The checkpoint that an event takes in this state of the task.
fn taken_at(state: &TaskState, recorded: &RecordedEvent) -> Option<CheckpointSummary> {
    let (checkpoint_id, sequence, position, awaiting_human) = match &recorded.event {
        Event::CheckpointTaken { checkpoint_id, sequence, node, awaiting_human, .. } => {
            (*checkpoint_id, *sequence, node.clone(), *awaiting_human)
        }
        Event::ModelCalled { checkpoint: Some(taken), .. } => {
            let agent = state.task().order().assigned_agent.to_string();
            (taken.checkpoint_id, taken.sequence, agent, false)
        }
        _ => return None,
    };
    Some(CheckpointSummary {
        checkpoint_id,
        sequence,
        position,
        message_count: state.message_count(),
        created_at: recorded.at,
        awaiting_human,
        human_feedback: None,
    })
}

/// The updates that a person made with a verdict.
fn updates(verdict: &ReviewVerdict, state_updates: &StateUpdates) -> Map<String, Value> {
    if !state_updates.is_empty() {
        return state_updates.as_map().clone();
    }
    let (name, value) = match verdict {
        ReviewVerdict::Approve | ReviewVerdict::Reject | ReviewVerdict::Retry => return Map::new(),
        ReviewVerdict::Modify { arguments } if arguments.is_empty() => return Map::new(),
        ReviewVerdict::Modify { arguments } => ("arguments", json!(arguments)),
        ReviewVerdict::SkipWith { result } => ("result", json!(result)),
    };
    Map::from_iter([(name.to_owned(), value)])
}
