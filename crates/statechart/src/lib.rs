//! Statecharts compiled to flat tables, and firing them.
//!
//! A [`Chart`] comes from the text of a YAML or JSON file ([`Chart::from_text`]) or from code
//! ([`ChartSource`], [`Chart::build`]). It is checked and compiled once and never changes. States,
//! triggers and fields are small numbers in it; names are for people.
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
//! - `source` is a state, a list of them, or `*`: every state but the target. A transition of a
//!   state with others inside is one of each of those, after their own; one of `*` counts as one of
//!   the outermost states. The first transition that fits is taken. Of those without a guard there may be only one for a state and trigger, unless
//!   all are declared `oracle: true`; then the oracle is asked ([`Decision::Ask`]), and
//!   `oracle_default` is gone to where it does not help.
//! - Guards are in the language of [`expression`], actions in that of [`effect`]; guards may be Rust
//!   closures too ([`TransitionSource::guard_with`]). A guard that cannot be evaluated counts as
//!   false and is recorded with its [`Fault`].
//! - A `timeout` is due on the first tick that makes an agent's ticks in a state more than its
//!   threshold. It is taken instead of what the tick would have brought.
//! - A transition to the state that an agent is in performs its action, and nothing else: it is not
//!   recorded, and the ticks in the state go on.
//! - Entering a state with others inside enters its `initial`, or with `history: shallow` the one
//!   that was left last. States are left from the inside out and entered from the outside in:
//!   exit actions, the transition's actions, entry actions.
//!
//! An [`Instance`] is one agent: [`Instance::fire`], [`Instance::begin_tick`], its history, and its
//! [`AgentRecord`] as JSON. Those who run many at once implement [`Stage`] and use [`Chart::fire`],
//! or look at [`Chart::candidates`], [`Chart::guard_shape`] and [`Chart::destination`].
//! [`Chart::to_scxml`] writes charts for others, [`Chart::arrows`] is for those who draw them.
//!
//! Nothing here performs I/O, reads a clock or a random source.

pub mod effect;
mod export;
pub mod expression;

mod chart;
mod compile;
mod error;
mod fire;
mod guard;
mod ids;
mod instance;
mod read;
mod schema;
mod source;
mod value;

pub use self::chart::{
    Act, ActShape, Chart, Destination, Entry, EntryId, Field, GuardShape, HISTORY_DEPTH_DEFAULT,
    HISTORY_DEPTH_MAX, Quick, RowId, STATES_MAX, StateNode, TIMEOUT, TRIGGERS_MAX, Threshold,
    Transition, WAYS_INTO_STATE_MAX, WayId, WorldValue,
};
pub use self::compile::{EXPRESSIONS_MAX, HISTORIES_MAX, PROBLEMS_MAX, TRANSITIONS_MAX, WAYS_MAX};
pub use self::effect::{Request, Who, WorldChange};
pub use self::error::{ChartError, ChartErrors};
pub use self::export::Arrow;
pub use self::expression::{Arithmetic, Compare, Comparison, Fault, Node, Operand, Scope, Tree};
pub use self::fire::{Decision, Site, Stage, Step};
pub use self::guard::{GuardView, RustGuard};
pub use self::ids::{ContextId, FieldId, StateId, TriggerId, WorldId};
pub use self::instance::{
    AgentRecord, Context, FAILURES_MAX, Failure, Instance, StateTransition, TransitionRecord,
    agents_in_state, state_distribution,
};
pub use self::read::STATE_DEPTH_MAX;
pub use self::schema::schema;
pub use self::source::{
    ChartSource, FieldSource, GuardSource, StateSource, States, ThresholdSource, TimeoutSource,
    TransitionSource,
};
pub use self::value::{Kind, Scalar, Value};
