//! The scalar path: one agent at a time.

use polity_statechart::{
    AgentRequest, AgentScope, ContextId, ErrorSite, EvalError, EvalScope, FieldId, ScalarRef,
    ScalarValue, WorldChange, WorldId,
};

use crate::kernel::columns::block::AgentBlock;
use crate::kernel::draws::philox::{DrawPurpose, PhiloxRng, unit};
use crate::kernel::effects::block_effects::{ErrorTally, PendingRequest};
use crate::kernel::effects::world::ChangeOrder;

/// One agent of a block during a tick.
pub(crate) struct ScalarAgent<'a> {
    pub(crate) block: &'a mut AgentBlock,
    pub(crate) index: usize,
    pub(crate) first_slot: u32,
    pub(crate) tick: u32,
    /// The history column that the tick writes.
    pub(crate) column: usize,
    pub(crate) purpose: DrawPurpose,
    pub(crate) philox: PhiloxRng,
    pub(crate) world: &'a [Option<ScalarValue>],
}

impl EvalScope for ScalarAgent<'_> {
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

impl ScalarAgent<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "an index within a block")]
    fn slot(&self) -> u32 {
        self.first_slot + self.index as u32
    }
}

impl AgentScope for ScalarAgent<'_> {
    fn set_field(&mut self, field: FieldId, value: ScalarValue) {
        self.block.fields[field.index()].set(self.index, Some(value));
    }

    fn change_world(&mut self, change: WorldChange) {
        #[expect(clippy::cast_possible_truncation, reason = "an index within a block")]
        let at = ChangeOrder::new(self.column, self.index as u16);
        self.block.effects.changes.push(at, change);
    }

    fn request(&mut self, request: &AgentRequest) {
        let requested =
            PendingRequest { tick: self.tick, slot: self.slot(), request: request.clone() };
        self.block.effects.requests.push(requested);
    }

    fn report_error(&mut self, site: ErrorSite, fault: EvalError) {
        let serial = self.block.serials[self.index];
        let tally = ErrorTally { count: 1, tick: self.tick, slot: self.slot(), serial };
        self.block.effects.add_error(site, fault, tally);
    }

    fn last_active_child(&self, memory: u8) -> u8 {
        self.block.last_active[usize::from(memory)][self.index]
    }

    fn set_last_active_child(&mut self, memory: u8, child: u8) {
        self.block.last_active[usize::from(memory)][self.index] = child;
    }
}
