//! Statecharts for simulated agents: a YAML format, a compiler to flat tables, and an interpreter.
//!
//! A [`Chart`] says how an agent behaves. Load one from YAML or JSON with [`Chart::from_text`], or
//! build one in code with [`ChartSource`] and [`Chart::build`]. A chart is checked and compiled
//! once and never changes. A [`ChartInstance`] is one agent on a chart.
//!
//! ```
//! use std::sync::Arc;
//! use polity_statechart::{Chart, ChartInstance, FireContext};
//!
//! let chart = Chart::from_text(
//!     "name: lamp
//! states: [dark, lit]
//! initial: dark
//! transitions:
//!   - {trigger: press, source: dark, target: lit}
//!   - {trigger: press, source: lit, target: dark}",
//! ).unwrap();
//! let chart = Arc::new(chart);
//! let press = chart.trigger("press").unwrap();
//! let mut lamp = ChartInstance::new(Arc::clone(&chart));
//! lamp.fire(press, &FireContext::new(&chart));
//! assert_eq!(chart.state_name(lamp.state()), "lit");
//! ```
//!
//! # The chart format
//!
//! ```yaml
//! name: reader
//! states: [idle, scrolling, {name: engaging, initial: like, history: shallow, states: [like, reply],
//!   entry: add world.engaged = 1}]
//! initial: idle
//! fields: {timeout_threshold: {default: 5, min: 1}, threshold: {default: 0.5, min: 0, max: 1}, mood: calm}
//! world: {engaged: 0}
//! transitions:
//!   - {trigger: feed_ready, source: idle, target: scrolling}
//!   - {trigger: decides, source: scrolling, target: reply, guard: 'agent.threshold < context.score'}
//!   - {trigger: decides, source: scrolling, target: engaging, action: 'set agent.mood = "keen"'}
//!   - {trigger: round_ends, source: '*', target: idle}
//! timeouts:
//!   - {state: scrolling, threshold: agent.timeout_threshold, target: idle}
//! max_history_depth: 50
//! ```
//!
//! - **Sources.** `source` is a state, a list of states, or `*` for every state but the target. A
//!   transition of a composite state applies to all its children, after their own transitions. `*`
//!   ranks with the transitions of the outermost states.
//! - **Order.** Candidates are tried in order, and the first whose guard holds is taken. A state
//!   may have one transition without a guard per trigger, unless all of them are `oracle: true`.
//! - **Oracle.** If several `oracle: true` candidates hold, the caller chooses
//!   ([`FireDecision::AskOracle`]). Without a usable answer the agent goes to `oracle_default`.
//! - **Guards and actions.** Guards use the language of [`expression`], actions that of [`action`].
//!   A guard may also be a Rust closure ([`TransitionSource::guard_with`]). A guard that cannot be
//!   evaluated counts as false and is recorded with its [`EvalError`].
//! - **Timeouts.** A timeout fires on the first tick on which the ticks in the state exceed its
//!   threshold. It replaces any other transition of that tick.
//! - **Self-transitions** run their action only. They are not recorded and do not reset the ticks
//!   in the state.
//! - **Nested states.** Entering a composite state enters its `initial` child, or with
//!   `history: shallow` the child that was last active. Exit actions run from the inside out, then
//!   the transition's actions, then entry actions from the outside in.
//!
//! # Running many agents
//!
//! A caller with many agents implements [`AgentScope`] and uses [`Chart::fire`]. To evaluate one
//! candidate for many agents at once, it reads [`Chart::candidates`], [`Chart::guard_kind`] and
//! [`Chart::outcome`].
//!
//! This crate performs no I/O and reads no clock and no random source.

pub mod action;
mod export;
pub mod expression;

mod chart;
mod compile;
mod error;
mod ids;
mod instance;
mod source;
mod value;

pub use self::action::{AgentRef, AgentRequest, WorldChange};
pub use self::chart::{
    ARRIVALS_PER_STATE_MAX, ActionKind, AgentField, CandidateId, Chart, EntryRule, EntryRuleId,
    FastGuard, GuardKind, HISTORY_DEPTH_DEFAULT, HISTORY_DEPTH_MAX, PathId, STATES_MAX, StateNode,
    TIMEOUT, TRIGGERS_MAX, TimeoutThreshold, Transition, TransitionAction, TransitionOutcome,
    WorldValue,
};
pub use self::chart::{AgentScope, ErrorSite, FireDecision, StateChange};
pub use self::chart::{GuardView, RustGuard};
pub use self::compile::{
    EXPRESSIONS_MAX, HISTORIES_MAX, PROBLEMS_MAX, TRANSITION_PATHS_MAX, TRANSITIONS_MAX,
};
pub use self::error::{ChartError, ChartErrors};
pub use self::export::Arrow;
pub use self::expression::{
    ArithmeticOp, CompareOp, EvalError, EvalScope, ExprNode, ExprOperand, ExprTree,
    OperandComparison,
};
pub use self::ids::{ContextId, FieldId, StateId, TriggerId, WorldId};
pub use self::instance::{
    AgentRecord, AgentTransition, ChartInstance, EVAL_ERRORS_MAX, EvalErrorRecord, FireContext,
    TransitionRecord, agents_in_state, state_distribution,
};
pub use self::source::{
    ChartSource, FieldSource, GuardSource, STATE_DEPTH_MAX, StateSelector, StateSource,
    ThresholdSource, TimeoutSource, TransitionSource, schema,
};
pub use self::value::{ScalarKind, ScalarRef, ScalarValue};
