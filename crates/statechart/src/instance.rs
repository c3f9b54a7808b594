//! One agent on a chart.

mod export;
mod history;

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::action::{AgentRequest, WorldChange};
use crate::chart::{AgentScope, ErrorSite, FireDecision, StateChange};
use crate::chart::{CandidateId, Chart, TimeoutThreshold};
use crate::expression::{EvalError, EvalScope};
use crate::ids::{ContextId, FieldId, StateId, TriggerId, WorldId};
use crate::value::{ScalarRef, ScalarValue};

pub use self::export::{AgentRecord, TransitionRecord};
use self::history::{RingEntry, TransitionRing};

/// The inputs of firing: context values, world values and random draws.
#[derive(Clone)]
pub struct FireContext {
    pub(crate) values: Box<[Option<ScalarValue>]>,
    pub(crate) world_values: Box<[Option<ScalarValue>]>,
    pub(crate) record: Option<Arc<Json>>,
    draws: Option<Arc<DrawFunction>>,
}

type DrawFunction = dyn Fn(u32) -> f64 + Send + Sync;

impl FireContext {
    /// Creates an empty context with the chart's initial world values.
    pub fn new(chart: &Chart) -> Self {
        Self {
            values: vec![None; chart.context_names().len()].into(),
            world_values: chart.world_values().iter().map(|world| world.default.clone()).collect(),
            record: None,
            draws: None,
        }
    }

    /// Sets the source of random numbers in [0, 1). It must return the same number for the same
    /// draw index.
    pub fn with_draws(mut self, draws: impl Fn(u32) -> f64 + Send + Sync + 'static) -> Self {
        self.draws = Some(Arc::new(draws));
        self
    }

    /// Sets a world value.
    pub fn with_world(mut self, world: WorldId, value: ScalarValue) -> Self {
        self.world_values[world.index()] = Some(value);
        self
    }
}

impl fmt::Debug for FireContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FireContext").field("record", &self.record).finish_non_exhaustive()
    }
}

/// A recorded transition of an agent. Its states always differ.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentTransition {
    /// The state before.
    pub from: StateId,
    /// The state after.
    pub to: StateId,
    /// The trigger.
    pub trigger: TriggerId,
    /// The tick.
    pub tick: u64,
    /// The context, if any.
    pub context: Option<Arc<Json>>,
}

/// The maximum number of evaluation errors kept between two calls of
/// [`ChartInstance::take_eval_errors`]. Later ones are dropped.
pub const EVAL_ERRORS_MAX: usize = 1000;

/// A guard or action that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvalErrorRecord {
    /// The guard or action.
    pub site: ErrorSite,
    /// The reason.
    pub error: EvalError,
    /// The tick.
    pub tick: u64,
}

/// One agent: its state, fields and transition history.
#[derive(Debug, Clone)]
pub struct ChartInstance {
    chart: Arc<Chart>,
    state: StateId,
    ticks_in_state: u32,
    tick: u64,
    history: TransitionRing,
    data: AgentData,
}

/// The part of an agent that guards and actions access.
#[derive(Debug, Clone, Default)]
struct AgentData {
    fields: Box<[Option<ScalarValue>]>,
    last_active: Box<[u8]>,
    changes: Vec<WorldChange>,
    requests: Vec<AgentRequest>,
    eval_errors: Vec<EvalErrorRecord>,
    tick: u64,
}

struct FiringAgent<'a> {
    data: &'a mut AgentData,
    context: &'a FireContext,
}

impl ChartInstance {
    /// Creates an agent in the initial state, with the default fields.
    pub fn new(chart: Arc<Chart>) -> Self {
        let data = AgentData {
            fields: chart.fields().iter().map(|field| field.default.clone()).collect(),
            last_active: chart.history_defaults().into(),
            ..AgentData::default()
        };
        let history = TransitionRing::new(chart.max_history_depth());
        Self { state: chart.initial(), ticks_in_state: 0, tick: 0, history, data, chart }
    }

    /// Places the agent in another state, without a transition.
    pub fn in_state(mut self, state: StateId) -> Self {
        self.state = state;
        self
    }

    /// The chart.
    pub fn chart(&self) -> &Arc<Chart> {
        &self.chart
    }

    /// Returns the current state.
    pub fn state(&self) -> StateId {
        self.state
    }

    /// Returns the number of ticks in the current state.
    pub fn ticks_in_state(&self) -> u32 {
        self.ticks_in_state
    }

    /// Returns the recorded transitions, oldest first.
    pub fn history(&self) -> impl ExactSizeIterator<Item = AgentTransition> {
        self.history.iter()
    }

    /// Returns the last active child of each history state.
    pub fn last_active_children(&self) -> &[u8] {
        &self.data.last_active
    }

    /// Returns a field.
    pub fn field(&self, field: FieldId) -> Option<&ScalarValue> {
        self.data.fields[field.index()].as_ref()
    }

    /// Sets a field. Returns an error message if it may not have that value.
    pub fn set_field(&mut self, field: FieldId, value: ScalarValue) -> Result<(), String> {
        self.chart.check_field(field, &value)?;
        self.data.fields[field.index()] = Some(value);
        Ok(())
    }

    /// Takes the world changes since the last call.
    pub fn take_changes(&mut self) -> Vec<WorldChange> {
        std::mem::take(&mut self.data.changes)
    }

    /// Takes the requests since the last call.
    pub fn take_requests(&mut self) -> Vec<AgentRequest> {
        std::mem::take(&mut self.data.requests)
    }

    /// Takes the evaluation errors since the last call, at most [`EVAL_ERRORS_MAX`].
    pub fn take_eval_errors(&mut self) -> Vec<EvalErrorRecord> {
        std::mem::take(&mut self.data.eval_errors)
    }

    /// Fires a trigger. Returns the new state, or `None` if no transition is eligible. Falls back
    /// to the default choice instead of asking the oracle.
    #[inline]
    pub fn fire(&mut self, trigger: TriggerId, context: &FireContext) -> Option<StateId> {
        let mut agent = FiringAgent { data: &mut self.data, context };
        let step = self.chart.fire(self.state, trigger, &mut agent)?;
        self.arrive(step, trigger, context);
        Some(self.state)
    }

    /// Decides which candidate a trigger selects. Changes nothing, but records guards that fail.
    pub fn decide(&mut self, trigger: TriggerId, context: &FireContext) -> FireDecision {
        let mut agent = FiringAgent { data: &mut self.data, context };
        self.chart.decide(self.state, trigger, &mut agent)
    }

    /// Takes a candidate from [`decide`](Self::decide), as chosen by the oracle.
    pub fn take(
        &mut self,
        candidate: CandidateId,
        trigger: TriggerId,
        context: &FireContext,
    ) -> StateId {
        let mut agent = FiringAgent { data: &mut self.data, context };
        let step = self.chart.take(candidate, &mut agent);
        self.arrive(step, trigger, context);
        self.state
    }

    /// Performs the exit actions of the current state and its ancestors, for an agent that is
    /// removed. The state does not change.
    pub fn exit(&mut self, context: &FireContext) {
        let mut agent = FiringAgent { data: &mut self.data, context };
        self.chart.exit(self.state, &mut agent);
    }

    /// Begins the next tick. If the state has timed out, takes the timeout and returns the new
    /// state; the tick then allows no other transition.
    pub fn begin_tick(&mut self, context: &FireContext) -> Option<StateId> {
        self.tick += 1;
        self.data.tick = self.tick;
        self.ticks_in_state = self.ticks_in_state.saturating_add(1);
        let timeout = self.chart.timeout().filter(|_| self.is_timed_out())?;
        self.fire(timeout, context)
    }

    fn is_timed_out(&self) -> bool {
        let threshold = self.chart.threshold(self.state).and_then(|threshold| match threshold {
            TimeoutThreshold::Ticks(ticks) => Some(ticks),
            TimeoutThreshold::Field(field) => self.field(field)?.as_scalar().as_number(),
        });
        threshold.is_some_and(|threshold| f64::from(self.ticks_in_state) > threshold)
    }

    #[inline]
    fn arrive(&mut self, step: StateChange, trigger: TriggerId, context: &FireContext) {
        if step.code == 0 {
            return;
        }
        let entry = RingEntry { from: self.state, to: step.to, trigger, tick: self.tick };
        self.history.push(entry, context.record.as_ref());
        self.state = step.to;
        self.ticks_in_state = 0;
    }
}

impl EvalScope for FiringAgent<'_> {
    #[inline]
    fn field(&self, field: FieldId) -> Option<ScalarRef<'_>> {
        self.data.fields[field.index()].as_ref().map(ScalarValue::as_scalar)
    }

    #[inline]
    fn context(&self, context: ContextId) -> Option<ScalarRef<'_>> {
        self.context.values[context.index()].as_ref().map(ScalarValue::as_scalar)
    }

    fn world(&self, world: WorldId) -> Option<ScalarRef<'_>> {
        self.context.world_values[world.index()].as_ref().map(ScalarValue::as_scalar)
    }

    fn draw(&self, index: u32) -> Option<f64> {
        self.context.draws.as_ref().map(|draws| draws(index))
    }
}

impl AgentScope for FiringAgent<'_> {
    fn set_field(&mut self, field: FieldId, value: ScalarValue) {
        self.data.fields[field.index()] = Some(value);
    }

    fn change_world(&mut self, change: WorldChange) {
        self.data.changes.push(change);
    }

    fn request(&mut self, request: &AgentRequest) {
        self.data.requests.push(request.clone());
    }

    fn report_error(&mut self, site: ErrorSite, error: EvalError) {
        if self.data.eval_errors.len() < EVAL_ERRORS_MAX {
            self.data.eval_errors.push(EvalErrorRecord { site, error, tick: self.data.tick });
        }
    }

    fn last_active_child(&self, history_state: u8) -> u8 {
        self.data.last_active[usize::from(history_state)]
    }

    fn set_last_active_child(&mut self, history_state: u8, child: u8) {
        self.data.last_active[usize::from(history_state)] = child;
    }
}

/// Counts the agents in each state, in chart order.
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

/// Returns the agents in a state.
pub fn agents_in_state<A>(
    agents: impl IntoIterator<Item = (A, StateId)>,
    state: StateId,
) -> Vec<A> {
    let there = agents.into_iter().filter(|(_, its)| *its == state);
    there.map(|(agent, _)| agent).collect()
}
