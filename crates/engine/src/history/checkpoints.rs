//! Checkpoints with their States, rebuilt from the journal.
//!
//! The store keeps a checkpoint as a position. Folding the task's events up to that position
//! restores its State, so storage grows linearly with the conversation.

use polity_model::checkpoint::Checkpoint;
use polity_model::event::Event;
use polity_model::review::{HumanFeedback, ReviewVerdict};
use polity_model::state::StateUpdates;
use serde_json::{Map, Value, json};

use crate::runtime::TaskHistory;
use crate::state::CorruptJournal;

/// Lists the checkpoints of a task, oldest first.
pub fn checkpoints(history: TaskHistory) -> Result<Vec<Checkpoint>, CorruptJournal> {
    let TaskHistory { mut state, rest, .. } = history;
    let mut checkpoints: Vec<Checkpoint> = Vec::new();
    for recorded in rest {
        if let Event::CheckpointTaken { checkpoint_id, sequence, node, awaiting_human, .. } =
            &recorded.event
        {
            checkpoints.push(Checkpoint {
                checkpoint_id: *checkpoint_id,
                task_id: state.id(),
                state: state.state(),
                position: node.clone(),
                sequence: *sequence,
                created_at: recorded.at,
                awaiting_human: *awaiting_human,
                human_feedback: None,
            });
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
