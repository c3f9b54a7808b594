//! A chart as it was written, in a file or in code, before anything is checked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::guard::RustGuard;
use crate::value::Value;

/// A chart as it was written. [`Chart::build`](crate::Chart::build) checks and compiles it.
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
    /// The state that new agents are in.
    pub initial: String,
    /// The transitions; the first that fits is taken.
    pub transitions: Vec<TransitionSource>,
    /// Where agents go that stay in a state for too long.
    pub timeouts: Vec<TimeoutSource>,
    /// The state to go to when the oracle has no usable answer.
    pub oracle_default: Option<String>,
    /// The fields of an agent. When there are some, guards and actions know no others.
    pub fields: BTreeMap<String, FieldSource>,
    /// The values of the world and what they are at first. When there are some, guards and actions
    /// know no others.
    pub world: BTreeMap<String, Value>,
    /// How many transitions of an agent are remembered; 50 unless given.
    pub max_history_depth: Option<usize>,
    /// Names that guards in Rust read from the context, besides those in the text of guards.
    pub context: Vec<String>,
}

/// A state as it was written.
#[derive(Debug, Clone, Default)]
pub struct StateSource {
    /// Its name.
    pub name: String,
    /// The states inside it; agents are then in one of those.
    pub states: Vec<StateSource>,
    /// The one of the states inside that is entered first.
    pub initial: Option<String>,
    /// Actions when it is entered.
    pub entry: Vec<String>,
    /// Actions when it is left.
    pub exit: Vec<String>,
    /// Whether the one of the states inside that was left last is entered again.
    pub history: bool,
}

/// A transition as it was written.
#[derive(Debug, Clone, Default)]
pub struct TransitionSource {
    /// What sets it off.
    pub trigger: String,
    /// The states that it leads from.
    pub source: States,
    /// The state that it leads to.
    pub target: String,
    /// What must hold for it.
    pub guard: Option<GuardSource>,
    /// What happens with it.
    pub action: Vec<String>,
    /// Whether the oracle decides between this and others that could be taken as well.
    pub oracle: bool,
}

/// A timeout as it was written.
#[derive(Debug, Clone)]
pub struct TimeoutSource {
    /// The states that time out.
    pub state: States,
    /// How many ticks an agent may be in the state.
    pub threshold: ThresholdSource,
    /// The state that it leads to.
    pub target: String,
    /// What happens with it.
    pub action: Vec<String>,
}

/// Some of the states of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum States {
    /// `*`: every state but the target.
    Any,
    /// These.
    Listed(Vec<String>),
}

/// How long an agent may be in a state.
#[derive(Debug, Clone, PartialEq)]
pub enum ThresholdSource {
    /// So many ticks.
    Ticks(f64),
    /// As many ticks as this field of the agent says, without `agent.`.
    Field(String),
}

/// A guard as it was written.
#[derive(Clone)]
pub enum GuardSource {
    /// In the language of guards.
    Text(String),
    /// In Rust, with a name for messages.
    Rust(String, RustGuard),
}

/// A field of an agent as it was declared.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldSource {
    /// What it is at first, which also says what kind of value it is.
    pub default: Value,
    /// The least number it may be.
    pub min: Option<f64>,
    /// The greatest number it may be.
    pub max: Option<f64>,
}

impl ChartSource {
    /// A chart of plain states without transitions.
    pub fn new<'a>(name: &str, states: impl IntoIterator<Item = &'a str>, initial: &str) -> Self {
        Self {
            name: name.to_owned(),
            states: states.into_iter().map(StateSource::new).collect(),
            initial: initial.to_owned(),
            ..Self::default()
        }
    }

    /// The same with one more transition.
    pub fn transition(mut self, transition: TransitionSource) -> Self {
        self.transitions.push(transition);
        self
    }

    /// The same with one more timeout.
    pub fn timeout(mut self, state: &str, threshold: ThresholdSource, target: &str) -> Self {
        let state = States::Listed(vec![state.to_owned()]);
        self.timeouts.push(TimeoutSource {
            state,
            threshold,
            target: target.to_owned(),
            action: Vec::new(),
        });
        self
    }

    /// The same with one more field, of the kind that its default is.
    pub fn field(mut self, name: &str, default: impl Into<Value>) -> Self {
        let field = FieldSource { default: default.into(), min: None, max: None };
        self.fields.insert(name.to_owned(), field);
        self
    }
}

impl StateSource {
    /// A state with nothing inside.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

impl TransitionSource {
    /// A transition that nothing holds back. The source `*` is every state but the target.
    pub fn new<'a>(trigger: &str, source: impl IntoIterator<Item = &'a str>, target: &str) -> Self {
        let source: Vec<String> = source.into_iter().map(str::to_owned).collect();
        Self {
            trigger: trigger.to_owned(),
            source: if source == ["*"] { States::Any } else { States::Listed(source) },
            target: target.to_owned(),
            ..Self::default()
        }
    }

    /// The same with a guard in the language of guards.
    pub fn guard(mut self, text: &str) -> Self {
        self.guard = Some(GuardSource::Text(text.to_owned()));
        self
    }

    /// The same with a guard in Rust. The name is for messages; an error counts as false and is
    /// recorded.
    pub fn guard_with(
        mut self,
        name: &str,
        guard: impl Fn(crate::GuardView<'_>) -> Result<bool, String> + Send + Sync + 'static,
    ) -> Self {
        self.guard = Some(GuardSource::Rust(name.to_owned(), RustGuard(Arc::new(guard))));
        self
    }

    /// The same with one more action.
    pub fn action(mut self, text: &str) -> Self {
        self.action.push(text.to_owned());
        self
    }

    /// The same as one of those that the oracle decides between.
    pub fn oracle(mut self) -> Self {
        self.oracle = true;
        self
    }
}

impl Default for States {
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
