//! One agent at a time, for what cannot be said of many.

use polity_statechart::{
    AgentRequest, AgentScope, ContextId, ErrorSite, EvalError, EvalScope, FieldId, ScalarRef,
    ScalarValue, WorldChange, WorldId,
};

use super::block::Block;
use super::outbox::{Asked, Failed};
use super::philox::{Philox, Purpose, unit};
use super::world::At;

/// One agent that something happens to.
pub(super) struct Agent<'a> {
    pub(super) block: &'a mut Block,
    pub(super) index: usize,
    pub(super) first_slot: u32,
    pub(super) tick: u32,
    /// Where the tick is written.
    pub(super) column: usize,
    pub(super) purpose: Purpose,
    pub(super) philox: Philox,
    pub(super) world: &'a [Option<ScalarValue>],
}

impl EvalScope for Agent<'_> {
    fn field(&self, field: FieldId) -> Option<ScalarRef<'_>> {
        Some(self.block.fields[field.index()].get(self.index))
    }

    fn context(&self, _: ContextId) -> Option<ScalarRef<'_>> {
        None
    }

    fn world(&self, world: WorldId) -> Option<ScalarRef<'_>> {
        self.world[world.index()].as_ref().map(ScalarValue::as_scalar)
    }

    fn draw(&self, index: u32) -> Option<f64> {
        let key = self.block.keys[self.index];
        Some(unit(self.philox.draw(key, self.tick, self.purpose, index)))
    }
}

impl Agent<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "an index within a block")]
    fn slot(&self) -> u32 {
        self.first_slot + self.index as u32
    }
}

impl AgentScope for Agent<'_> {
    fn set_field(&mut self, field: FieldId, value: ScalarValue) {
        self.block.fields[field.index()].set(self.index, Some(value));
    }

    fn change_world(&mut self, change: WorldChange) {
        #[expect(clippy::cast_possible_truncation, reason = "an index within a block")]
        let at = At::new(self.column, self.index as u16);
        self.block.outbox.changes.push(at, change);
    }

    fn request(&mut self, request: &AgentRequest) {
        let asked = Asked { tick: self.tick, slot: self.slot(), request: request.clone() };
        self.block.outbox.requests.push(asked);
    }

    fn report_error(&mut self, site: ErrorSite, fault: EvalError) {
        let serial = self.block.serials[self.index];
        let failed = Failed { count: 1, tick: self.tick, slot: self.slot(), serial };
        self.block.outbox.fail(site, fault, failed);
    }

    fn last_active_child(&self, memory: u8) -> u8 {
        self.block.memories[usize::from(memory)][self.index]
    }

    fn set_last_active_child(&mut self, memory: u8, child: u8) {
        self.block.memories[usize::from(memory)][self.index] = child;
    }
}
