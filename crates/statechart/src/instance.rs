//! One agent on a chart.

mod export;
mod history;

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::chart::{Chart, RowId, Threshold};
use crate::effect::{Request, WorldChange};
use crate::expression::{Fault, Scope};
use crate::fire::{Decision, Site, Stage, Step};
use crate::ids::{ContextId, FieldId, StateId, TriggerId, WorldId};
use crate::value::{Scalar, Value};

pub use self::export::{AgentRecord, TransitionRecord};
use self::history::{Entry, History};

/// What is known when a trigger is fired.
#[derive(Clone)]
pub struct Context {
    pub(crate) values: Box<[Option<Value>]>,
    pub(crate) worlds: Box<[Option<Value>]>,
    pub(crate) record: Option<Arc<Json>>,
    draws: Option<Arc<DrawFunction>>,
}

type DrawFunction = dyn Fn(u32) -> f64 + Send + Sync;

impl Context {
    /// Nothing but what the chart says of the world.
    pub fn new(chart: &Chart) -> Self {
        Self {
            values: vec![None; chart.contexts().len()].into(),
            worlds: chart.worlds().iter().map(|world| world.default.clone()).collect(),
            record: None,
            draws: None,
        }
    }

    /// The same with a source of random numbers from 0 up to but not including 1. It is asked by
    /// the number of a draw and must give the same answer to the same number.
    pub fn with_draws(mut self, draws: impl Fn(u32) -> f64 + Send + Sync + 'static) -> Self {
        self.draws = Some(Arc::new(draws));
        self
    }

    /// The same with another value of the world.
    pub fn with_world(mut self, world: WorldId, value: Value) -> Self {
        self.worlds[world.index()] = Some(value);
        self
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("record", &self.record).finish_non_exhaustive()
    }
}

/// A transition that an agent made. It never leads to the state that it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct StateTransition {
    /// The state before.
    pub from: StateId,
    /// The state after.
    pub to: StateId,
    /// What set it off.
    pub trigger: TriggerId,
    /// When, in ticks.
    pub tick: u64,
    /// What was known, if anything.
    pub context: Option<Arc<Json>>,
}

/// The most failures that an agent keeps until it is asked for them. The first ones say what is
/// wrong; later ones are not kept.
pub const FAILURES_MAX: usize = 1000;

/// A guard or action that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which one.
    pub site: Site,
    /// Why.
    pub fault: Fault,
    /// When, in ticks.
    pub tick: u64,
}

/// One agent: its state, its fields, and how it came there.
#[derive(Debug, Clone)]
pub struct Instance {
    chart: Arc<Chart>,
    state: StateId,
    ticks_in_state: u32,
    tick: u64,
    history: History,
    body: Body,
}

/// What guards and actions get to see and to change.
#[derive(Debug, Clone)]
struct Body {
    fields: Box<[Option<Value>]>,
    memories: Box<[u8]>,
    changes: Vec<WorldChange>,
    requests: Vec<Request>,
    failures: Vec<Failure>,
    tick: u64,
}

struct OnStage<'a> {
    body: &'a mut Body,
    context: &'a Context,
}

impl Instance {
    /// An agent in the initial state, with the fields that the chart declares.
    pub fn new(chart: Arc<Chart>) -> Self {
        let body = Body {
            fields: chart.fields().iter().map(|field| field.default.clone()).collect(),
            memories: chart.memories().into(),
            changes: Vec::new(),
            requests: Vec::new(),
            failures: Vec::new(),
            tick: 0,
        };
        let history = History::new(chart.max_history_depth());
        Self { state: chart.initial(), ticks_in_state: 0, tick: 0, history, body, chart }
    }

    /// The same agent in another state, as if it had always been there.
    pub fn in_state(mut self, state: StateId) -> Self {
        self.state = state;
        self
    }

    /// The chart.
    pub fn chart(&self) -> &Arc<Chart> {
        &self.chart
    }

    /// The state that it is in.
    pub fn state(&self) -> StateId {
        self.state
    }

    /// For how many ticks it has been there.
    pub fn ticks_in_state(&self) -> u32 {
        self.ticks_in_state
    }

    /// The transitions that it made, the newest last.
    pub fn history(&self) -> impl ExactSizeIterator<Item = StateTransition> {
        self.history.iter()
    }

    /// Which states inside others were left last, by the chart's histories.
    pub fn memories(&self) -> &[u8] {
        &self.body.memories
    }

    /// A field.
    pub fn field(&self, field: FieldId) -> Option<&Value> {
        self.body.fields[field.index()].as_ref()
    }

    /// Changes a field; refused with the reason if it may not have that value.
    pub fn set_field(&mut self, field: FieldId, value: Value) -> Result<(), String> {
        self.chart.check_field(field, &value)?;
        self.body.fields[field.index()] = Some(value);
        Ok(())
    }

    /// What its actions did to the world since it was last asked.
    pub fn take_changes(&mut self) -> Vec<WorldChange> {
        std::mem::take(&mut self.body.changes)
    }

    /// What it has asked for since it was last asked.
    pub fn take_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.body.requests)
    }

    /// The guards and actions that could not be evaluated since it was last asked, the first
    /// [`FAILURES_MAX`] of them.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.body.failures)
    }

    /// Fires a trigger: the new state, or nothing if no transition fits. Where the oracle would
    /// have to be asked, `oracle_default` is gone to.
    #[inline]
    pub fn fire(&mut self, trigger: TriggerId, context: &Context) -> Option<StateId> {
        let mut stage = OnStage { body: &mut self.body, context };
        let step = self.chart.fire(self.state, trigger, &mut stage)?;
        self.arrive(step, trigger, context);
        Some(self.state)
    }

    /// What a trigger would lead to. Nothing changes, but guards that fail are recorded.
    pub fn decide(&mut self, trigger: TriggerId, context: &Context) -> Decision {
        let mut stage = OnStage { body: &mut self.body, context };
        self.chart.decide(self.state, trigger, &mut stage)
    }

    /// Takes a candidate that [`decide`](Self::decide) named, as the oracle chose it.
    pub fn take(&mut self, row: RowId, trigger: TriggerId, context: &Context) -> StateId {
        let mut stage = OnStage { body: &mut self.body, context };
        let step = self.chart.take(row, &mut stage);
        self.arrive(step, trigger, context);
        self.state
    }

    /// Begins the next tick. If the agent has been in its state for too long, the timeout is taken
    /// and its new state returned; a tick has room for one transition only.
    pub fn begin_tick(&mut self, context: &Context) -> Option<StateId> {
        self.tick += 1;
        self.body.tick = self.tick;
        self.ticks_in_state = self.ticks_in_state.saturating_add(1);
        let timeout = self.chart.timeout().filter(|_| self.is_overdue())?;
        self.fire(timeout, context)
    }

    fn is_overdue(&self) -> bool {
        let threshold = match self.chart.threshold(self.state) {
            None => return false,
            Some(Threshold::Ticks(ticks)) => ticks,
            Some(Threshold::Field(field)) => match self.field(field) {
                Some(Value::Number(ticks)) => *ticks,
                Some(Value::Bool(_) | Value::Text(_)) | None => return false,
            },
        };
        f64::from(self.ticks_in_state) > threshold
    }

    #[inline]
    fn arrive(&mut self, step: Step, trigger: TriggerId, context: &Context) {
        if step.code == 0 {
            return;
        }
        let entry = Entry { from: self.state, to: step.to, trigger, tick: self.tick };
        self.history.push(entry, context.record.as_ref());
        self.state = step.to;
        self.ticks_in_state = 0;
    }
}

impl Scope for OnStage<'_> {
    #[inline]
    fn field(&self, field: FieldId) -> Option<Scalar<'_>> {
        self.body.fields[field.index()].as_ref().map(Value::as_scalar)
    }

    #[inline]
    fn context(&self, context: ContextId) -> Option<Scalar<'_>> {
        self.context.values[context.index()].as_ref().map(Value::as_scalar)
    }

    fn world(&self, world: WorldId) -> Option<Scalar<'_>> {
        self.context.worlds[world.index()].as_ref().map(Value::as_scalar)
    }

    fn draw(&self, index: u32) -> Option<f64> {
        self.context.draws.as_ref().map(|draws| draws(index))
    }
}

impl Stage for OnStage<'_> {
    fn set_field(&mut self, field: FieldId, value: Value) {
        self.body.fields[field.index()] = Some(value);
    }

    fn change_world(&mut self, change: WorldChange) {
        self.body.changes.push(change);
    }

    fn request(&mut self, request: &Request) {
        self.body.requests.push(request.clone());
    }

    fn failed(&mut self, site: Site, fault: Fault) {
        if self.body.failures.len() < FAILURES_MAX {
            self.body.failures.push(Failure { site, fault, tick: self.body.tick });
        }
    }

    fn recall(&self, memory: u8) -> u8 {
        self.body.memories[usize::from(memory)]
    }

    fn remember(&mut self, memory: u8, child: u8) {
        self.body.memories[usize::from(memory)] = child;
    }
}

/// How many agents are in each state of the chart, by its name and in its order.
pub fn state_distribution(
    chart: &Chart,
    agents: impl IntoIterator<Item = StateId>,
) -> Vec<(&str, usize)> {
    let mut counts = vec![0; chart.states().len()];
    for state in agents {
        counts[state.index()] += 1;
    }
    chart.states().map(|state| chart.state_name(state)).zip(counts).collect()
}

/// Which agents are in a state.
pub fn agents_in_state<A>(
    agents: impl IntoIterator<Item = (A, StateId)>,
    state: StateId,
) -> Vec<A> {
    let there = agents.into_iter().filter(|(_, its)| *its == state);
    there.map(|(agent, _)| agent).collect()
}
