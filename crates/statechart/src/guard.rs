//! Guards: what must hold for a transition.

use std::fmt;
use std::sync::Arc;

use crate::chart::Chart;
use crate::expression::{Code, Comparison, Fault, Scope};
use crate::ids::WorldId;
use crate::value::Scalar;

/// A guard in Rust.
#[derive(Clone)]
pub struct RustGuard(pub(crate) Arc<GuardFunction>);

type GuardFunction = dyn Fn(GuardView<'_>) -> Result<bool, String> + Send + Sync;

impl fmt::Debug for RustGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RustGuard")
    }
}

/// What a guard in Rust sees.
#[derive(Clone, Copy)]
pub struct GuardView<'a> {
    chart: &'a Chart,
    scope: &'a dyn Scope,
}

impl<'a> GuardView<'a> {
    /// A field of the agent.
    pub fn field(&self, name: &str) -> Option<Scalar<'a>> {
        self.scope.field(self.chart.field(name)?)
    }

    /// A value of the context; its name must be one that the chart knows.
    pub fn context(&self, name: &str) -> Option<Scalar<'a>> {
        self.scope.context(self.chart.context_id(name)?)
    }

    /// A value of the world.
    pub fn world(&self, name: &str) -> Option<Scalar<'a>> {
        self.scope.world(self.chart.world(name)?)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Guard {
    /// As it was written, or its name if it is in Rust.
    pub(crate) text: String,
    pub(crate) body: GuardBody,
}

#[derive(Debug, Clone)]
pub(crate) enum GuardBody {
    /// Nothing but comparisons, which are also kept one by one.
    Simple(Box<[Comparison]>, Code),
    Code(Code),
    Rust(RustGuard),
}

impl Guard {
    /// Whether it may look at one of some values of the world. A function in Rust may look at all.
    pub(crate) fn looks_at(&self, worlds: &[WorldId]) -> bool {
        match &self.body {
            GuardBody::Simple(_, code) | GuardBody::Code(code) => code.looks_at(worlds),
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
        scope: &impl Scope,
        first_draw: u32,
    ) -> Result<bool, Fault> {
        match &self.body {
            GuardBody::Simple(_, code) | GuardBody::Code(code) => code.holds(scope, first_draw),
            GuardBody::Rust(RustGuard(guard)) => {
                guard(GuardView { chart, scope }).map_err(|reason| Fault::Rust(reason.into()))
            }
        }
    }
}
