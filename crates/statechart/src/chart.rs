//! A checked and compiled chart. It never changes.

mod actions;
mod candidates;
mod firing;
mod guard;

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::action::CompiledAction;
use crate::compile;
use crate::error::{ChartError, ChartErrors};
use crate::expression::{CompareOp, EvalError};
use crate::ids::{ContextId, FieldId, StateId, TriggerId, WorldId};
use crate::source::ChartSource;
use crate::source::decode;
use crate::value::ScalarValue;

pub use self::actions::{ActionKind, TransitionAction};
pub use self::candidates::{
    CandidateId, EntryRule, EntryRuleId, GuardKind, PathId, TransitionOutcome,
};
pub use self::firing::{AgentScope, ErrorSite, FireDecision, StateChange};
pub(crate) use self::guard::{Guard, GuardBody};
pub use self::guard::{GuardView, RustGuard};

/// The maximum number of leaf states of a chart.
pub const STATES_MAX: usize = 255;
/// The maximum number of triggers of a chart, including `timeout`.
pub const TRIGGERS_MAX: usize = 255;
/// The maximum number of pairs of source and trigger that lead to one state.
pub const ARRIVALS_PER_STATE_MAX: usize = 255;
/// The maximum number of transitions kept per agent.
pub const HISTORY_DEPTH_MAX: usize = 1000;
/// The default number of transitions kept per agent.
pub const HISTORY_DEPTH_DEFAULT: usize = 50;

/// The trigger of timeouts.
pub const TIMEOUT: &str = "timeout";

/// A compiled statechart.
#[derive(Debug)]
pub struct Chart {
    pub(crate) name: String,
    pub(crate) tree: Box<[StateNode]>,
    /// The index in `tree` of each leaf state.
    pub(crate) states: Box<[u16]>,
    pub(crate) initial: StateId,
    pub(crate) triggers: Box<[String]>,
    pub(crate) timeout: Option<TriggerId>,
    pub(crate) fields: Box<[AgentField]>,
    pub(crate) world_values: Box<[WorldValue]>,
    pub(crate) context_names: Box<[String]>,
    pub(crate) transitions: Box<[Transition]>,
    /// The index in `candidates` of the first candidate of each state and trigger, plus the end.
    pub(crate) candidate_starts: Box<[u32]>,
    pub(crate) candidates: Box<[CandidateRow]>,
    /// Entry rules of the children of states with a history.
    pub(crate) entries: Box<[EntryRule]>,
    pub(crate) paths: Box<[TransitionPath]>,
    pub(crate) effects: Box<[CompiledAction]>,
    /// The actions of all paths and exits; each refers to a range.
    pub(crate) action_lists: Box<[u16]>,
    /// The exit actions of each leaf state and its ancestors, as ranges of `action_lists`.
    pub(crate) exits: Box<[(u32, u32)]>,
    /// The history updates of all paths, as pairs of history state and child; a path refers to a
    /// range.
    pub(crate) history_updates: Box<[(u8, u8)]>,
    /// The initial child of each history state.
    pub(crate) history_defaults: Box<[u8]>,
    pub(crate) guards: Box<[Guard]>,
    pub(crate) thresholds: Box<[Option<TimeoutThreshold>]>,
    /// The arrivals of each state.
    pub(crate) arrivals: Box<[ArrivalTable]>,
    pub(crate) oracle_default: Option<StateId>,
    pub(crate) depth: usize,
    pub(crate) draws: u32,
}

/// The pairs of source and trigger that lead to a state. Their codes count from 1.
pub(crate) type ArrivalTable = Box<[(StateId, TriggerId)]>;

/// A state in the state tree.
#[derive(Debug, Clone)]
pub struct StateNode {
    /// Its name.
    pub name: String,
    /// The index of the parent.
    pub parent: Option<usize>,
    /// The indexes of the children.
    pub children: Vec<usize>,
    /// The index of the child that is entered first.
    pub initial: Option<usize>,
    /// True if the state is re-entered at its last active child.
    pub history: bool,
    /// The entry actions as written.
    pub entry: Vec<String>,
    /// The exit actions as written.
    pub exit: Vec<String>,
    /// The id of a leaf state.
    pub state: Option<StateId>,
}

/// A field of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentField {
    /// Its name.
    pub name: String,
    /// The initial value.
    pub default: Option<ScalarValue>,
    /// The minimum of a number.
    pub min: Option<f64>,
    /// The maximum of a number.
    pub max: Option<f64>,
    /// True if a timeout uses the field as its threshold. It must then be above 0.
    pub is_threshold: bool,
}

impl AgentField {
    /// Returns the allowed numbers.
    pub fn range(&self) -> RangeInclusive<f64> {
        let least = self.min.unwrap_or(f64::MIN);
        let least = if self.is_threshold { least.max(0.0_f64.next_up()) } else { least };
        least..=self.max.unwrap_or(f64::MAX)
    }

    /// Returns an error message if the field may not have this value.
    pub(crate) fn check(&self, value: &ScalarValue) -> Result<(), String> {
        let Self { name, default, min, max, is_threshold } = self;
        if let Some(default) = default
            && default.kind() != value.kind()
        {
            return Err(format!("{name} must be {}, found {value}", default.kind().describe()));
        }
        let ScalarValue::Number(number) = value else { return Ok(()) };
        if !number.is_finite() {
            return Err(format!("{name} must be a finite number"));
        }
        if self.range().contains(number) {
            return Ok(());
        }
        let is_declared =
            min.is_none_or(|min| min <= *number) && max.is_none_or(|max| *number <= max);
        let range = if is_declared && *is_threshold {
            "above 0, because it is a threshold".to_owned()
        } else {
            self.describe_range()
        };
        Err(format!("{name} must be {range}, found {number}"))
    }

    /// Returns the allowed numbers in words.
    fn describe_range(&self) -> String {
        match (self.min, self.max, self.is_threshold) {
            (Some(min), Some(max), _) => format!("from {min} to {max}"),
            (Some(min), None, _) => format!("at least {min}"),
            (None, Some(max), false) => format!("at most {max}"),
            (None, Some(max), true) => format!("above 0 and at most {max}"),
            (None, None, true) => "above 0".to_owned(),
            (None, None, false) => "a finite number".to_owned(),
        }
    }
}

/// A world value.
#[derive(Debug, Clone, PartialEq)]
pub struct WorldValue {
    /// Its name.
    pub name: String,
    /// The initial value.
    pub default: Option<ScalarValue>,
}

/// A transition or timeout as written.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Its location in the document, such as `transitions[3]`.
    pub location: String,
    /// The trigger that fires it.
    pub trigger: TriggerId,
    /// The indexes of its source states in the tree.
    pub sources: Vec<usize>,
    /// True if the source is `*`. It then ranks with those of the outermost states.
    pub from_any: bool,
    /// The index of its target state in the tree.
    pub target: usize,
    /// The guard as written.
    pub guard: Option<String>,
    /// The actions as written.
    pub actions: Vec<String>,
    /// True if the oracle may choose it.
    pub oracle: bool,
    /// The threshold as written, if this is a timeout.
    pub threshold: Option<String>,
}

/// The number of ticks before a timeout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TimeoutThreshold {
    /// A fixed number of ticks.
    Ticks(f64),
    /// The value of the field.
    Field(FieldId),
}

/// A guard in one of the most frequent forms, which need no look-up.
#[derive(Debug, Clone, Copy)]
pub enum FastGuard {
    /// No guard.
    Always,
    /// A comparison of a field with a number.
    Field(FieldId, CompareOp, f64),
    /// A comparison of a draw with a number. The index counts the draws of the state and trigger.
    Draw(u32, CompareOp, f64),
    /// Any other guard.
    Other,
}

/// A candidate: a transition as seen from one of its source states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CandidateRow {
    pub(crate) fast_guard: FastGuard,
    pub(crate) guard: Option<u16>,
    pub(crate) oracle: bool,
    /// True if it leads to `oracle_default`.
    pub(crate) is_default: bool,
    pub(crate) entry: EntryRule,
    /// The resulting state change, if the path has no actions and no history updates.
    pub(crate) plain_change: Option<StateChange>,
    /// The index of its first draw among those of its state and trigger.
    pub(crate) first_draw: u32,
    /// The index of the first draw of its actions.
    pub(crate) action_draw: u32,
    pub(crate) transition: u16,
}

/// A transition path: from one leaf state to another, with all actions on the way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransitionPath {
    pub(crate) to: StateId,
    /// The arrival code; 0 if the state stays the same.
    pub(crate) code: u8,
    pub(crate) effects: (u32, u32),
    pub(crate) history_updates: (u32, u32),
}

impl Chart {
    /// Parses and compiles a chart from YAML or JSON.
    pub fn from_text(text: &str) -> Result<Self, ChartErrors> {
        // `on` and `off` are state names here, not booleans.
        let options = serde_saphyr::options! { strict_booleans: true };
        let document: Json = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| ChartErrors(vec![ChartError::new("", error.to_string())]))?;
        Self::from_document(&document)
    }

    /// Compiles a chart from a parsed document.
    pub fn from_document(document: &Json) -> Result<Self, ChartErrors> {
        let (source, errors) = decode::decode(document);
        compile::compile(&source, errors)
    }

    /// Compiles a chart from its source.
    pub fn build(source: &ChartSource) -> Result<Self, ChartErrors> {
        compile::compile(source, Vec::new())
    }

    /// Returns the chart's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the leaf states in file order.
    pub fn states(&self) -> impl ExactSizeIterator<Item = StateId> + use<> {
        (0..to_u8(self.states.len())).map(StateId)
    }

    /// Returns the leaf state with this name.
    pub fn state(&self, name: &str) -> Option<StateId> {
        self.states().find(|state| self.state_name(*state) == name)
    }

    /// Returns a state's name.
    pub fn state_name(&self, state: StateId) -> &str {
        &self.tree[usize::from(self.states[state.index()])].name
    }

    /// Returns all states, including composite states.
    pub fn tree(&self) -> &[StateNode] {
        &self.tree
    }

    /// Returns the initial state of new agents.
    pub fn initial(&self) -> StateId {
        self.initial
    }

    /// Returns the fallback state if the oracle has no usable answer.
    pub fn oracle_default(&self) -> Option<StateId> {
        self.oracle_default
    }

    /// Returns the triggers in file order; `timeout` is the last.
    pub fn triggers(&self) -> impl ExactSizeIterator<Item = TriggerId> + use<> {
        (0..to_u8(self.triggers.len())).map(TriggerId)
    }

    /// Returns the trigger with this name.
    pub fn trigger(&self, name: &str) -> Option<TriggerId> {
        self.triggers().find(|trigger| self.trigger_name(*trigger) == name)
    }

    /// Returns a trigger's name.
    pub fn trigger_name(&self, trigger: TriggerId) -> &str {
        &self.triggers[trigger.index()]
    }

    /// Returns the trigger of timeouts, if the chart has any.
    #[inline]
    pub fn timeout(&self) -> Option<TriggerId> {
        self.timeout
    }

    /// Returns the timeout threshold of a state. The timeout fires once the ticks exceed it.
    #[inline]
    pub fn threshold(&self, state: StateId) -> Option<TimeoutThreshold> {
        self.thresholds[state.index()]
    }

    /// Returns the triggers that have candidates in a state.
    pub fn valid_triggers(&self, state: StateId) -> Vec<TriggerId> {
        self.triggers().filter(|trigger| self.candidates(state, *trigger).len() > 0).collect()
    }

    /// Returns the agent fields, by [`FieldId`].
    pub fn fields(&self) -> &[AgentField] {
        &self.fields
    }

    /// Returns the field with this name.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        position(&self.fields, |field| field.name == name).map(FieldId)
    }

    /// Returns the world values, by [`WorldId`].
    pub fn world_values(&self) -> &[WorldValue] {
        &self.world_values
    }

    /// Returns the world value with this name.
    pub fn world(&self, name: &str) -> Option<WorldId> {
        position(&self.world_values, |world| world.name == name).map(WorldId)
    }

    /// Returns the names of the children of a composite state.
    pub fn child_names(&self, name: &str) -> Option<Vec<&str>> {
        let node = self.tree.iter().find(|node| node.name == name && !node.children.is_empty())?;
        Some(node.children.iter().map(|child| self.tree[*child].name.as_str()).collect())
    }

    /// True if any guard or action reads a world value that some action changes.
    pub fn reads_written_world_values(&self) -> bool {
        let changed: Vec<WorldId> =
            self.effects.iter().filter_map(|effect| effect.body.changes()).collect();
        let mut codes = self.effects.iter().filter_map(|effect| effect.body.code());
        !changed.is_empty()
            && (self.guards.iter().any(|guard| guard.reads_world(&changed))
                || codes.any(|code| code.reads_world(&changed)))
    }

    /// Returns the names that guards read from the context, by [`ContextId`].
    pub fn context_names(&self) -> &[String] {
        &self.context_names
    }

    pub(crate) fn context_id(&self, name: &str) -> Option<ContextId> {
        position(&self.context_names, |context| context == name).map(ContextId)
    }

    /// Returns the transitions, then the timeouts, as written.
    pub fn transitions(&self) -> &[Transition] {
        &self.transitions
    }

    /// Returns the number of transitions kept per agent.
    #[inline]
    pub fn max_history_depth(&self) -> usize {
        self.depth
    }

    /// Returns the initial child of each history state.
    pub fn history_defaults(&self) -> &[u8] {
        &self.history_defaults
    }

    /// Returns the number of children of each history state, in the order of
    /// [`history_defaults`](Self::history_defaults).
    pub fn history_child_counts(&self) -> impl Iterator<Item = usize> {
        self.tree.iter().filter(|node| node.history).map(|node| node.children.len())
    }

    /// Returns an error message if a field may not have this value.
    pub fn check_field(&self, field: FieldId, value: &ScalarValue) -> Result<(), String> {
        self.fields[field.index()].check(value)
    }

    /// Returns an error message if a world value may not have this initial value.
    pub fn check_world(&self, world: WorldId, value: &ScalarValue) -> Result<(), String> {
        let WorldValue { name, default } = &self.world_values[world.index()];
        match default.as_ref().map(ScalarValue::kind) {
            Some(kind) if kind != value.kind() => {
                Err(format!("{name} is {} in the chart, found {value}", kind.describe()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Describes an evaluation error.
    pub fn describe_error(&self, error: &EvalError) -> String {
        match error {
            EvalError::NoField(field) => {
                format!("the agent has no field \"{}\"", self.fields[field.index()].name)
            }
            EvalError::NoContext(context) => {
                format!("the context has no \"{}\"", self.context_names[context.index()])
            }
            EvalError::NoWorld(world) => {
                format!("the world has no \"{}\"", self.world_values[world.index()].name)
            }
            EvalError::NoDraws => "there is no source of random numbers".to_owned(),
            EvalError::DivisionByZero => "division by zero".to_owned(),
            EvalError::Overflow => "the result is too large for a number".to_owned(),
            EvalError::Mismatch { operator, left, right: Some(right) } => {
                let (left, right) = (left.describe(), right.describe());
                format!("\"{operator}\" has no meaning for {left} and {right}")
            }
            EvalError::Mismatch { operator, left, right: None } => {
                format!("\"{operator}\" has no meaning for {}", left.describe())
            }
            EvalError::NotBool(kind) => {
                format!("it must be true or false, and is {}", kind.describe())
            }
            EvalError::OutOfRange(field) => {
                let field = &self.fields[field.index()];
                let (name, range) = (&field.name, field.describe_range());
                format!("the value is not one that \"{name}\" may have: it must be {range}")
            }
            EvalError::Rust(reason) => reason.to_string(),
        }
    }

    /// Returns the source and trigger of an arrival code of state `to`.
    pub fn decode_arrival(&self, to: StateId, code: u8) -> Option<(StateId, TriggerId)> {
        let index = usize::from(code).checked_sub(1)?;
        self.arrivals[to.index()].get(index).copied()
    }

    /// Returns the greatest arrival code of any state.
    pub fn max_arrival_code(&self) -> u8 {
        let paths = self.arrivals.iter().map(|paths| paths.len()).max();
        // There are at most `ARRIVALS_PER_STATE_MAX` of them.
        u8::try_from(paths.unwrap_or(0)).unwrap_or(u8::MAX)
    }

    /// Returns the code of an arrival in state `to`.
    pub fn arrival_code(&self, to: StateId, from: StateId, trigger: TriggerId) -> Option<u8> {
        let index = self.arrivals[to.index()].iter().position(|path| *path == (from, trigger))?;
        u8::try_from(index + 1).ok()
    }

    #[inline]
    pub(crate) fn candidate_range(
        &self,
        state: StateId,
        trigger: TriggerId,
    ) -> std::ops::Range<usize> {
        let index = state.index() * self.triggers.len() + trigger.index();
        self.candidate_starts[index] as usize..self.candidate_starts[index + 1] as usize
    }

    /// Creates a context from a JSON object. Names that no guard reads are kept for the history.
    pub fn context(&self, record: &Json) -> crate::FireContext {
        let mut context = crate::FireContext::new(self);
        for (index, name) in self.context_names.iter().enumerate() {
            let mut found = Some(record);
            for part in name.split('.') {
                found = found.and_then(|json| json.get(part));
            }
            context.values[index] = found.and_then(ScalarValue::from_json);
        }
        context.record = (!record.is_null()).then(|| Arc::new(record.clone()));
        context
    }
}

fn position<T>(items: &[T], is_it: impl Fn(&T) -> bool) -> Option<u16> {
    items.iter().position(is_it).and_then(|index| u16::try_from(index).ok())
}

/// The compiler limits states and triggers to 255.
fn to_u8(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}
