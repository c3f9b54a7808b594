//! Access to compiled actions, for callers that run many agents at once.

use super::{CandidateId, Chart, PathId};
use crate::action::{ActionBody, AgentRequest};
use crate::chart::{AgentScope, ErrorSite};
use crate::expression::ExprTree;
use crate::ids::{FieldId, StateId, WorldId};

/// An action of a transition path.
#[derive(Debug, Clone, Copy)]
pub struct TransitionAction<'a> {
    /// The kind of action, with its operands.
    pub shape: ActionKind<'a>,
    effect: u16,
    first_draw: u32,
}

/// The kind of an action.
#[derive(Debug, Clone, Copy)]
pub enum ActionKind<'a> {
    /// Sets a field of the agent.
    SetField(FieldId, ExprTree<'a>),
    /// Adds to a field of the agent.
    AddField(FieldId, ExprTree<'a>),
    /// Sets a world value.
    SetWorld(WorldId, ExprTree<'a>),
    /// Adds to a world value.
    AddWorld(WorldId, ExprTree<'a>),
    /// Records a request of the agent.
    Request(&'a AgentRequest),
}

impl TransitionAction<'_> {
    /// Returns the site to report if the action fails.
    pub fn site(&self) -> ErrorSite {
        ErrorSite::Action(self.effect)
    }
}

impl Chart {
    /// Returns the actions of a path in order. `first_draw` comes from
    /// [`Chart::first_action_draw`].
    pub fn actions(
        &self,
        path: PathId,
        first_draw: u32,
    ) -> impl Iterator<Item = TransitionAction<'_>> {
        self.actions_of(self.paths[path.0 as usize].effects, first_draw)
    }

    /// True if a state or one of its ancestors has exit actions.
    pub fn has_exit_actions(&self, state: StateId) -> bool {
        let (begin, end) = self.exits[state.index()];
        begin < end
    }

    /// Performs the exit actions of a state and its ancestors, innermost first, for an agent that
    /// leaves the chart. Draws count from 0.
    pub fn exit(&self, state: StateId, agent: &mut impl AgentScope) {
        for action in self.actions_of(self.exits[state.index()], 0) {
            self.perform(&action, agent);
        }
    }

    fn actions_of(
        &self,
        (begin, end): (u32, u32),
        first_draw: u32,
    ) -> impl Iterator<Item = TransitionAction<'_>> {
        let mut next_draw = first_draw;
        self.action_lists[begin as usize..end as usize].iter().map(move |number| {
            let effect = &self.effects[usize::from(*number)];
            let first_draw = next_draw;
            next_draw += effect.draws();
            let shape = match &effect.body {
                ActionBody::SetField(field, code) => {
                    ActionKind::SetField(*field, code.tree(first_draw))
                }
                ActionBody::AddField(field, code) => {
                    ActionKind::AddField(*field, code.tree(first_draw))
                }
                ActionBody::SetWorld(world, code) => {
                    ActionKind::SetWorld(*world, code.tree(first_draw))
                }
                ActionBody::AddWorld(world, code) => {
                    ActionKind::AddWorld(*world, code.tree(first_draw))
                }
                ActionBody::Request(request) => ActionKind::Request(request),
            };
            TransitionAction { shape, effect: *number, first_draw }
        })
    }

    /// Returns all requests that actions of the chart can make.
    pub fn requests(&self) -> impl Iterator<Item = &AgentRequest> {
        self.effects.iter().filter_map(|effect| match &effect.body {
            ActionBody::Request(request) => Some(request),
            _ => None,
        })
    }

    /// Performs one action for one agent and reports an error to the agent.
    pub fn perform(&self, action: &TransitionAction<'_>, agent: &mut impl AgentScope) {
        let effect = &self.effects[usize::from(action.effect)];
        if let Err(error) = self.perform_body(&effect.body, action.first_draw, agent) {
            agent.report_error(action.site(), error);
        }
    }

    /// Returns the history updates of a path, as pairs of history state and child.
    pub fn history_updates(&self, path: PathId) -> &[(u8, u8)] {
        let (begin, end) = self.paths[path.0 as usize].history_updates;
        &self.history_updates[begin as usize..end as usize]
    }

    /// Returns the index of the first draw of a candidate's actions.
    pub fn first_action_draw(&self, candidate: CandidateId) -> u32 {
        self.candidates[candidate.0 as usize].action_draw
    }

    /// Returns the maximum number of draws for one trigger in one state.
    pub fn max_draws(&self) -> u32 {
        self.draws
    }
}
