//! Actions for those who perform them for many agents at once.

use super::{Chart, RowId, WayId};
use crate::effect::{EffectBody, Request};
use crate::expression::Tree;
use crate::fire::{Site, Stage};
use crate::ids::{FieldId, WorldId};

/// An action on a way.
#[derive(Debug, Clone, Copy)]
pub struct Act<'a> {
    /// What it does.
    pub shape: ActShape<'a>,
    effect: u16,
    first_draw: u32,
}

/// What an action does.
#[derive(Debug, Clone, Copy)]
pub enum ActShape<'a> {
    /// Changes a field of the agent.
    SetField(FieldId, Tree<'a>),
    /// Adds to a field of the agent.
    AddField(FieldId, Tree<'a>),
    /// Changes a value of the world.
    SetWorld(WorldId, Tree<'a>),
    /// Adds to a value of the world.
    AddWorld(WorldId, Tree<'a>),
    /// Asks for something.
    Request(&'a Request),
}

impl Act<'_> {
    /// What stands in a warning if it fails.
    pub fn site(&self) -> Site {
        Site::Action(self.effect)
    }
}

impl Chart {
    /// The actions on a way, in order. The number of their first draw comes from the
    /// [candidate](Self::first_act_draw).
    pub fn acts(&self, way: WayId, first_draw: u32) -> impl Iterator<Item = Act<'_>> {
        let (begin, end) = self.ways[way.0 as usize].effects;
        let mut next_draw = first_draw;
        self.performed[begin as usize..end as usize].iter().map(move |number| {
            let effect = &self.effects[usize::from(*number)];
            let first_draw = next_draw;
            next_draw += effect.draws();
            let shape = match &effect.body {
                EffectBody::SetField(field, code) => {
                    ActShape::SetField(*field, code.tree(first_draw))
                }
                EffectBody::AddField(field, code) => {
                    ActShape::AddField(*field, code.tree(first_draw))
                }
                EffectBody::SetWorld(world, code) => {
                    ActShape::SetWorld(*world, code.tree(first_draw))
                }
                EffectBody::AddWorld(world, code) => {
                    ActShape::AddWorld(*world, code.tree(first_draw))
                }
                EffectBody::Request(request) => ActShape::Request(request),
            };
            Act { shape, effect: *number, first_draw }
        })
    }

    /// All that actions ask for.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.effects.iter().filter_map(|effect| match &effect.body {
            EffectBody::Request(request) => Some(request),
            EffectBody::SetField(..)
            | EffectBody::AddField(..)
            | EffectBody::SetWorld(..)
            | EffectBody::AddWorld(..) => None,
        })
    }

    /// Performs one action for one agent. If it fails, that is reported.
    pub fn perform(&self, act: &Act<'_>, agent: &mut impl Stage) {
        let effect = &self.effects[usize::from(act.effect)];
        if let Err(fault) = self.effect(&effect.body, act.first_draw, agent) {
            agent.failed(act.site(), fault);
        }
    }

    /// What a way remembers about the states that it leaves: which history, and which state inside.
    pub fn remembered(&self, way: WayId) -> &[(u8, u8)] {
        let (begin, end) = self.ways[way.0 as usize].remembers;
        &self.remembered[begin as usize..end as usize]
    }

    /// The number of the first draw of a candidate's actions.
    pub fn first_act_draw(&self, row: RowId) -> u32 {
        self.rows[row.0 as usize].effect_draw
    }

    /// The most numbers that the guards and actions of one trigger in one state draw.
    pub fn draws(&self) -> u32 {
        self.draws
    }
}
