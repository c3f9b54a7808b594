//! A chart, checked and compiled to flat tables. It never changes.

mod acts;
mod candidates;

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::compile;
use crate::effect::Effect;
use crate::error::{ChartError, ChartErrors};
use crate::expression::{Compare, Fault};
use crate::fire::Step;
use crate::guard::Guard;
use crate::ids::{ContextId, FieldId, StateId, TriggerId, WorldId};
use crate::read;
use crate::source::ChartSource;
use crate::value::Value;

pub use self::acts::{Act, ActShape};
pub use self::candidates::{Destination, Entry, EntryId, GuardShape, RowId, WayId};

/// The most states that agents of one chart can be in.
pub const STATES_MAX: usize = 255;
/// The most triggers of one chart, with `timeout`.
pub const TRIGGERS_MAX: usize = 255;
/// The most pairs of source and trigger that may lead to one state.
pub const WAYS_INTO_STATE_MAX: usize = 255;
/// The most transitions of an agent that a chart may have remembered.
pub const HISTORY_DEPTH_MAX: usize = 1000;
/// How many are remembered unless the chart says otherwise.
pub const HISTORY_DEPTH_DEFAULT: usize = 50;

/// The trigger of timeouts.
pub const TIMEOUT: &str = "timeout";

/// A statechart, ready to be fired.
#[derive(Debug)]
pub struct Chart {
    pub(crate) name: String,
    pub(crate) tree: Box<[StateNode]>,
    /// The leaves of the tree.
    pub(crate) states: Box<[u16]>,
    pub(crate) initial: StateId,
    pub(crate) triggers: Box<[String]>,
    pub(crate) timeout: Option<TriggerId>,
    pub(crate) fields: Box<[Field]>,
    pub(crate) worlds: Box<[WorldValue]>,
    pub(crate) contexts: Box<[String]>,
    pub(crate) transitions: Box<[Transition]>,
    /// Where the candidates of a state and trigger begin in `rows`; those of the next end them.
    pub(crate) starts: Box<[u32]>,
    pub(crate) rows: Box<[Row]>,
    /// Where to go, by the states inside that were left last.
    pub(crate) entries: Box<[Entry]>,
    pub(crate) ways: Box<[Way]>,
    pub(crate) effects: Box<[Effect]>,
    /// The effects of ways, which refer to stretches of it.
    pub(crate) performed: Box<[u16]>,
    /// What ways remember about the states they leave: which history, and which state inside.
    pub(crate) remembered: Box<[(u8, u8)]>,
    /// What is in each history at first.
    pub(crate) memories: Box<[u8]>,
    pub(crate) guards: Box<[Guard]>,
    pub(crate) thresholds: Box<[Option<Threshold>]>,
    /// By state, which sources and triggers lead to it.
    pub(crate) into: Box<[WaysInto]>,
    pub(crate) oracle_default: Option<StateId>,
    pub(crate) depth: usize,
    pub(crate) draws: u32,
}

/// The sources and triggers that lead to a state; their codes count from 1.
pub(crate) type WaysInto = Box<[(StateId, TriggerId)]>;

/// A state in the tree of states.
#[derive(Debug, Clone)]
pub struct StateNode {
    /// Its name.
    pub name: String,
    /// The state that it is inside of, by its place in the tree.
    pub parent: Option<usize>,
    /// The states inside, by their places in the tree.
    pub children: Vec<usize>,
    /// The one of them that is entered first.
    pub initial: Option<usize>,
    /// Whether the one that was left last is entered again.
    pub history: bool,
    /// The actions when it is entered, as written.
    pub entry: Vec<String>,
    /// The actions when it is left, as written.
    pub exit: Vec<String>,
    /// The state that agents can be in, if nothing is inside.
    pub state: Option<StateId>,
}

/// A field of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it is at first.
    pub default: Option<Value>,
    /// The least number it may be.
    pub min: Option<f64>,
    /// The greatest number it may be.
    pub max: Option<f64>,
    /// Whether it says how long a state may last. Then it is above 0.
    pub is_threshold: bool,
}

impl Field {
    /// The numbers that it may be.
    pub fn range(&self) -> RangeInclusive<f64> {
        let least = self.min.unwrap_or(f64::MIN);
        let least = if self.is_threshold { least.max(0.0_f64.next_up()) } else { least };
        least..=self.max.unwrap_or(f64::MAX)
    }

    /// Whether it may have this value; if not, why.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let Self { name, default, min, max, is_threshold } = self;
        if let Some(default) = default
            && default.kind() != value.kind()
        {
            return Err(format!("{name} must be {}, found {value}", default.kind().in_words()));
        }
        let Value::Number(number) = value else { return Ok(()) };
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
            self.range_in_words()
        };
        Err(format!("{name} must be {range}, found {number}"))
    }

    /// The numbers that it may be.
    fn range_in_words(&self) -> String {
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

/// A value of the world.
#[derive(Debug, Clone, PartialEq)]
pub struct WorldValue {
    /// Its name.
    pub name: String,
    /// What it is at first.
    pub default: Option<Value>,
}

/// A transition or timeout as it was written, for people to look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Where it stands, such as `transitions[3]`.
    pub place: String,
    /// What sets it off.
    pub trigger: TriggerId,
    /// The states that it leads from, by their places in the tree.
    pub sources: Vec<usize>,
    /// Whether it leads from all states, as `*`. Then it counts as one of the outermost.
    pub from_any: bool,
    /// The state that it leads to, by its place in the tree.
    pub target: usize,
    /// Its guard, as written.
    pub guard: Option<String>,
    /// Its actions, as written.
    pub actions: Vec<String>,
    /// Whether it is left to the oracle.
    pub oracle: bool,
    /// How long an agent may be in the state, as written, if this is a timeout.
    pub threshold: Option<String>,
}

/// How long an agent may be in a state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// So many ticks.
    Ticks(f64),
    /// As many ticks as the field says.
    Field(FieldId),
}

/// What most guards are, where it saves a look at the guard.
#[derive(Debug, Clone, Copy)]
pub enum Quick {
    /// There is none.
    Always,
    /// A field against a number.
    Field(FieldId, Compare, f64),
    /// A draw against a number, by its number among those of the state and trigger.
    Draw(u32, Compare, f64),
    /// Something else.
    Guard,
}

/// A candidate: a transition, seen from one of the states that it leads from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) quick: Quick,
    pub(crate) guard: Option<u16>,
    pub(crate) oracle: bool,
    /// Whether it leads to where the oracle's default is.
    pub(crate) is_default: bool,
    pub(crate) entry: Entry,
    /// Where it ends, if nothing else happens on it. It saves a look at the way.
    pub(crate) plain: Option<Step>,
    /// Its first random number among those of its state and trigger.
    pub(crate) first_draw: u32,
    /// The first random number of its effects.
    pub(crate) effect_draw: u32,
    pub(crate) transition: u16,
}

/// From one state to another, with all that happens on the way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) to: StateId,
    /// Which of those into `to` it is, from 1; 0 if it leads nowhere else.
    pub(crate) code: u8,
    pub(crate) effects: (u32, u32),
    pub(crate) remembers: (u32, u32),
}

impl Chart {
    /// A chart from the text of a YAML or JSON file.
    pub fn from_text(text: &str) -> Result<Self, ChartErrors> {
        // `on` and `off` are good names for states, and not true and false.
        let options = serde_saphyr::options! { strict_booleans: true };
        let document: Json = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| ChartErrors(vec![ChartError::new("", error.to_string())]))?;
        Self::from_document(&document)
    }

    /// A chart from a document that has been read already.
    pub fn from_document(document: &Json) -> Result<Self, ChartErrors> {
        let (source, errors) = read::read(document);
        compile::compile(&source, errors)
    }

    /// A chart from its parts.
    pub fn build(source: &ChartSource) -> Result<Self, ChartErrors> {
        compile::compile(source, Vec::new())
    }

    /// The chart's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The states that agents can be in, in the order of the file.
    pub fn states(&self) -> impl ExactSizeIterator<Item = StateId> + use<> {
        (0..state_number(self.states.len())).map(StateId)
    }

    /// The state of this name, if agents can be in it.
    pub fn state(&self, name: &str) -> Option<StateId> {
        self.states().find(|state| self.state_name(*state) == name)
    }

    /// A state's name.
    pub fn state_name(&self, state: StateId) -> &str {
        &self.tree[usize::from(self.states[state.index()])].name
    }

    /// All states, with those that others are inside of.
    pub fn tree(&self) -> &[StateNode] {
        &self.tree
    }

    /// The state that new agents are in.
    pub fn initial(&self) -> StateId {
        self.initial
    }

    /// The state that an agent goes to when the oracle has no usable answer.
    pub fn oracle_default(&self) -> Option<StateId> {
        self.oracle_default
    }

    /// The triggers, in the order in which the file names them; `timeout` is the last.
    pub fn triggers(&self) -> impl ExactSizeIterator<Item = TriggerId> + use<> {
        (0..state_number(self.triggers.len())).map(TriggerId)
    }

    /// The trigger of this name.
    pub fn trigger(&self, name: &str) -> Option<TriggerId> {
        self.triggers().find(|trigger| self.trigger_name(*trigger) == name)
    }

    /// A trigger's name.
    pub fn trigger_name(&self, trigger: TriggerId) -> &str {
        &self.triggers[trigger.index()]
    }

    /// The trigger of timeouts, if the chart has some.
    #[inline]
    pub fn timeout(&self) -> Option<TriggerId> {
        self.timeout
    }

    /// How long an agent may be in a state: the tick after so many takes it out.
    #[inline]
    pub fn threshold(&self, state: StateId) -> Option<Threshold> {
        self.thresholds[state.index()]
    }

    /// The triggers that something can follow on in a state.
    pub fn valid_triggers(&self, state: StateId) -> Vec<TriggerId> {
        self.triggers().filter(|trigger| self.candidates(state, *trigger).len() > 0).collect()
    }

    /// The fields of agents, by [`FieldId`].
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        position(&self.fields, |field| field.name == name).map(FieldId)
    }

    /// The values of the world, by [`WorldId`].
    pub fn worlds(&self) -> &[WorldValue] {
        &self.worlds
    }

    /// The value of the world of this name.
    pub fn world(&self, name: &str) -> Option<WorldId> {
        position(&self.worlds, |world| world.name == name).map(WorldId)
    }

    /// The names of the states inside the state of this name, if it has any: agents are in those.
    pub fn names_inside(&self, name: &str) -> Option<Vec<&str>> {
        let node = self.tree.iter().find(|node| node.name == name && !node.children.is_empty())?;
        Some(node.children.iter().map(|child| self.tree[*child].name.as_str()).collect())
    }

    /// Whether what agents do to the world can make a difference to what agents do: whether something
    /// that an action changes is looked at anywhere.
    pub fn sees_changes_of_world(&self) -> bool {
        let changed: Vec<WorldId> =
            self.effects.iter().filter_map(|effect| effect.body.changes()).collect();
        let mut codes = self.effects.iter().filter_map(|effect| effect.body.code());
        !changed.is_empty()
            && (self.guards.iter().any(|guard| guard.looks_at(&changed))
                || codes.any(|code| code.looks_at(&changed)))
    }

    /// The names that guards read from the context, by [`ContextId`].
    pub fn contexts(&self) -> &[String] {
        &self.contexts
    }

    pub(crate) fn context_id(&self, name: &str) -> Option<ContextId> {
        position(&self.contexts, |context| context == name).map(ContextId)
    }

    /// The transitions, then the timeouts, as they were written.
    pub fn transitions(&self) -> &[Transition] {
        &self.transitions
    }

    /// How many transitions of an agent are remembered.
    #[inline]
    pub fn max_history_depth(&self) -> usize {
        self.depth
    }

    /// What is in each history of states inside others at first.
    pub fn memories(&self) -> &[u8] {
        &self.memories
    }

    /// How many states are inside those that have a history, in the order of
    /// [`memories`](Self::memories).
    pub fn memory_sizes(&self) -> impl Iterator<Item = usize> {
        self.tree.iter().filter(|node| node.history).map(|node| node.children.len())
    }

    /// Whether a field may have this value; if not, why.
    pub fn check_field(&self, field: FieldId, value: &Value) -> Result<(), String> {
        self.fields[field.index()].check(value)
    }

    /// Whether a value of the world may be this at first; if not, why.
    pub fn check_world(&self, world: WorldId, value: &Value) -> Result<(), String> {
        let WorldValue { name, default } = &self.worlds[world.index()];
        match default.as_ref().map(Value::kind) {
            Some(kind) if kind != value.kind() => {
                Err(format!("{name} is {} in the chart, found {value}", kind.in_words()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A fault in words.
    pub fn describe(&self, fault: &Fault) -> String {
        match fault {
            Fault::NoField(field) => {
                format!("the agent has no field \"{}\"", self.fields[field.index()].name)
            }
            Fault::NoContext(context) => {
                format!("the context has no \"{}\"", self.contexts[context.index()])
            }
            Fault::NoWorld(world) => {
                format!("the world has no \"{}\"", self.worlds[world.index()].name)
            }
            Fault::NoDraws => "there is no source of random numbers".to_owned(),
            Fault::DivisionByZero => "division by zero".to_owned(),
            Fault::Overflow => "the result is too large for a number".to_owned(),
            Fault::Mismatch { operator, left, right: Some(right) } => format!(
                "\"{operator}\" has no meaning for {} and {}",
                left.in_words(),
                right.in_words()
            ),
            Fault::Mismatch { operator, left, right: None } => {
                format!("\"{operator}\" has no meaning for {}", left.in_words())
            }
            Fault::NotBool(kind) => {
                format!("it must be true or false, and is {}", kind.in_words())
            }
            Fault::OutOfRange(field) => {
                let field = &self.fields[field.index()];
                let (name, range) = (&field.name, field.range_in_words());
                format!("the value is not one that \"{name}\" may have: it must be {range}")
            }
            Fault::Rust(reason) => reason.to_string(),
        }
    }

    /// How the state `to` was reached, by the code that firing reported.
    pub fn way_into(&self, to: StateId, code: u8) -> Option<(StateId, TriggerId)> {
        let index = usize::from(code).checked_sub(1)?;
        self.into[to.index()].get(index).copied()
    }

    /// The greatest code of a way into any state.
    pub fn greatest_code(&self) -> u8 {
        let ways = self.into.iter().map(|ways| ways.len()).max();
        // There are not more ways than codes.
        u8::try_from(ways.unwrap_or(0)).unwrap_or(u8::MAX)
    }

    /// The code of a way into the state `to`.
    pub fn code_into(&self, to: StateId, from: StateId, trigger: TriggerId) -> Option<u8> {
        let index = self.into[to.index()].iter().position(|way| *way == (from, trigger))?;
        u8::try_from(index + 1).ok()
    }

    #[inline]
    pub(crate) fn group(&self, state: StateId, trigger: TriggerId) -> std::ops::Range<usize> {
        let index = state.index() * self.triggers.len() + trigger.index();
        self.starts[index] as usize..self.starts[index + 1] as usize
    }

    /// A context for firing, from a mapping. Names that no guard reads are kept for the history.
    pub fn context(&self, record: &Json) -> crate::Context {
        let mut context = crate::Context::new(self);
        for (index, name) in self.contexts.iter().enumerate() {
            let mut found = Some(record);
            for part in name.split('.') {
                found = found.and_then(|json| json.get(part));
            }
            context.values[index] = found.and_then(Value::from_json);
        }
        context.record = (!record.is_null()).then(|| Arc::new(record.clone()));
        context
    }
}

fn position<T>(items: &[T], is_it: impl Fn(&T) -> bool) -> Option<u16> {
    items.iter().position(is_it).and_then(|index| u16::try_from(index).ok())
}

/// Tables of states and triggers were built with at most 255 of them.
fn state_number(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}
