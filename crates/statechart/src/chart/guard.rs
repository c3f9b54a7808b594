//! Compiled guards.

use std::fmt;
use std::sync::Arc;

use crate::chart::Chart;
use crate::expression::{CompiledExpression, EvalError, EvalScope, OperandComparison};
use crate::ids::WorldId;
use crate::value::ScalarRef;

/// A guard in Rust.
#[derive(Clone)]
pub struct RustGuard(pub(crate) Arc<GuardFunction>);

type GuardFunction = dyn Fn(GuardView<'_>) -> Result<bool, String> + Send + Sync;

impl fmt::Debug for RustGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RustGuard")
    }
}

/// The values that a Rust guard can read.
#[derive(Clone, Copy)]
pub struct GuardView<'a> {
    chart: &'a Chart,
    scope: &'a dyn EvalScope,
}

impl<'a> GuardView<'a> {
    /// Returns a field of the agent.
    pub fn field(&self, name: &str) -> Option<ScalarRef<'a>> {
        self.scope.field(self.chart.field(name)?)
    }

    /// Returns a value of the context, if the chart declares its name.
    pub fn context(&self, name: &str) -> Option<ScalarRef<'a>> {
        self.scope.context(self.chart.context_id(name)?)
    }

    /// Returns a world value.
    pub fn world(&self, name: &str) -> Option<ScalarRef<'a>> {
        self.scope.world(self.chart.world(name)?)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Guard {
    /// The guard as written, or the name of a Rust guard.
    pub(crate) text: String,
    pub(crate) body: GuardBody,
}

#[derive(Debug, Clone)]
pub(crate) enum GuardBody {
    /// A conjunction of comparisons, kept both as a list and as an expression.
    Simple(Box<[OperandComparison]>, CompiledExpression),
    Code(CompiledExpression),
    Rust(RustGuard),
}

impl Guard {
    /// True if the guard may read one of the world values. A Rust guard may read all of them.
    pub(crate) fn reads_world(&self, world_values: &[WorldId]) -> bool {
        match &self.body {
            GuardBody::Simple(_, code) | GuardBody::Code(code) => code.reads_world(world_values),
            GuardBody::Rust(_) => true,
        }
    }

    pub(crate) fn draws(&self) -> u32 {
        match &self.body {
            GuardBody::Simple(_, code) | GuardBody::Code(code) => u32::from(code.draws()),
            GuardBody::Rust(_) => 0,
        }
    }

    #[inline]
    pub(crate) fn holds(
        &self,
        chart: &Chart,
        scope: &impl EvalScope,
        first_draw: u32,
    ) -> Result<bool, EvalError> {
        match &self.body {
            GuardBody::Simple(_, code) | GuardBody::Code(code) => code.holds(scope, first_draw),
            GuardBody::Rust(RustGuard(guard)) => {
                guard(GuardView { chart, scope }).map_err(|reason| EvalError::Rust(reason.into()))
            }
        }
    }
}
