//! Charts as written, in a file or in code, before any check.

pub(crate) mod decode;
mod schema;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::chart::RustGuard;
use crate::value::ScalarValue;

pub use self::decode::STATE_DEPTH_MAX;
pub use self::schema::schema;

/// An unchecked chart. [`Chart::build`](crate::Chart::build) checks and compiles it.
///
/// ```
/// use polity_statechart::{Chart, ChartSource, TransitionSource};
///
/// let source = ChartSource::new("lamp", ["off", "on"], "off")
///     .transition(TransitionSource::new("press", ["off"], "on"))
///     .transition(TransitionSource::new("press", ["on"], "off"));
/// let chart = Chart::build(&source).unwrap();
/// assert_eq!(chart.state_name(chart.initial()), "off");
/// ```
#[derive(Debug, Clone, Default)]
pub struct ChartSource {
    /// The chart's name.
    pub name: String,
    /// The states, in order.
    pub states: Vec<StateSource>,
    /// The initial state of new agents.
    pub initial: String,
    /// The transitions; the first eligible one is taken.
    pub transitions: Vec<TransitionSource>,
    /// The timeouts.
    pub timeouts: Vec<TimeoutSource>,
    /// The fallback state if the oracle has no usable answer.
    pub oracle_default: Option<String>,
    /// The fields of an agent. Guards and actions may use only declared fields.
    pub fields: BTreeMap<String, FieldSource>,
    /// The world values with their initial values. Guards and actions may use only declared values.
    pub world: BTreeMap<String, ScalarValue>,
    /// The number of transitions kept per agent; 50 by default.
    pub max_history_depth: Option<usize>,
    /// Context names read by Rust guards, in addition to those in the text of guards.
    pub context: Vec<String>,
}

/// A state as written.
#[derive(Debug, Clone, Default)]
pub struct StateSource {
    /// Its name.
    pub name: String,
    /// The child states of a composite state.
    pub states: Vec<StateSource>,
    /// The child that is entered first.
    pub initial: Option<String>,
    /// Entry actions.
    pub entry: Vec<String>,
    /// Exit actions.
    pub exit: Vec<String>,
    /// True if the composite state has a shallow history: it is re-entered at its last active
    /// child.
    pub history: bool,
}

/// A transition as written.
#[derive(Debug, Clone, Default)]
pub struct TransitionSource {
    /// The trigger that fires it.
    pub trigger: String,
    /// The source states.
    pub source: StateSelector,
    /// The target state.
    pub target: String,
    /// The condition.
    pub guard: Option<GuardSource>,
    /// The actions.
    pub action: Vec<String>,
    /// True if the oracle chooses between this and the other eligible oracle transitions.
    pub oracle: bool,
}

/// A timeout as written.
#[derive(Debug, Clone)]
pub struct TimeoutSource {
    /// The states with this timeout.
    pub state: StateSelector,
    /// The number of ticks that an agent may stay in the state.
    pub threshold: ThresholdSource,
    /// The target state.
    pub target: String,
    /// The actions.
    pub action: Vec<String>,
}

/// A selection of states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateSelector {
    /// `*`: every state but the target.
    Any,
    /// The listed states.
    Listed(Vec<String>),
}

/// The number of ticks before a timeout.
#[derive(Debug, Clone, PartialEq)]
pub enum ThresholdSource {
    /// A fixed number of ticks.
    Ticks(f64),
    /// The value of this field of the agent, named without `agent.`.
    Field(String),
}

/// A guard as written.
#[derive(Clone)]
pub enum GuardSource {
    /// An expression.
    Text(String),
    /// A Rust closure, with a name for messages.
    Rust(String, RustGuard),
}

/// A field of an agent as declared.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldSource {
    /// The initial value, which also fixes the kind of value.
    pub default: ScalarValue,
    /// The minimum of a number.
    pub min: Option<f64>,
    /// The maximum of a number.
    pub max: Option<f64>,
}

impl ChartSource {
    /// Creates a chart of plain states without transitions.
    pub fn new<'a>(name: &str, states: impl IntoIterator<Item = &'a str>, initial: &str) -> Self {
        Self {
            name: name.to_owned(),
            states: states.into_iter().map(StateSource::new).collect(),
            initial: initial.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a transition.
    pub fn transition(mut self, transition: TransitionSource) -> Self {
        self.transitions.push(transition);
        self
    }

    /// Adds a timeout.
    pub fn timeout(mut self, state: &str, threshold: ThresholdSource, target: &str) -> Self {
        let state = StateSelector::Listed(vec![state.to_owned()]);
        let target = target.to_owned();
        self.timeouts.push(TimeoutSource { state, threshold, target, action: Vec::new() });
        self
    }

    /// Adds a field of the same kind as its default.
    pub fn field(mut self, name: &str, default: impl Into<ScalarValue>) -> Self {
        let field = FieldSource { default: default.into(), min: None, max: None };
        self.fields.insert(name.to_owned(), field);
        self
    }
}

impl StateSource {
    /// Creates a state without children.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

impl TransitionSource {
    /// Creates a transition without a guard. The source `*` is every state but the target.
    pub fn new<'a>(trigger: &str, source: impl IntoIterator<Item = &'a str>, target: &str) -> Self {
        let source: Vec<String> = source.into_iter().map(str::to_owned).collect();
        let is_any = source == ["*"];
        let source = if is_any { StateSelector::Any } else { StateSelector::Listed(source) };
        let (trigger, target) = (trigger.to_owned(), target.to_owned());
        Self { trigger, source, target, ..Self::default() }
    }

    /// Sets a guard expression.
    pub fn guard(mut self, text: &str) -> Self {
        self.guard = Some(GuardSource::Text(text.to_owned()));
        self
    }

    /// Sets a guard in Rust. The name is for messages; an error counts as false and is recorded.
    pub fn guard_with(
        mut self,
        name: &str,
        guard: impl Fn(crate::GuardView<'_>) -> Result<bool, String> + Send + Sync + 'static,
    ) -> Self {
        self.guard = Some(GuardSource::Rust(name.to_owned(), RustGuard(Arc::new(guard))));
        self
    }

    /// Adds an action.
    pub fn action(mut self, text: &str) -> Self {
        self.action.push(text.to_owned());
        self
    }

    /// Marks the transition as one of the oracle's choices.
    pub fn oracle(mut self) -> Self {
        self.oracle = true;
        self
    }
}

impl Default for StateSelector {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl fmt::Debug for GuardSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.debug_tuple("Text").field(text).finish(),
            Self::Rust(name, _) => f.debug_tuple("Rust").field(name).finish(),
        }
    }
}
