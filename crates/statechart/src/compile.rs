//! Compiles a [`ChartSource`] into the tables of a [`Chart`] and collects all errors.
//!
//! - `states`: the state tree.
//! - `names`: declared fields, world values and context names.
//! - `transitions`: checks each transition on its own.
//! - `rules`: checks all transitions together.
//! - `tables`: builds the tables.

mod names;
mod rules;
mod states;
mod tables;
mod transitions;

use crate::action::CompiledAction;
use crate::chart::Guard;
use crate::chart::{Chart, HISTORY_DEPTH_DEFAULT, HISTORY_DEPTH_MAX};
use crate::error::{ChartError, ChartErrors};
use crate::source::STATE_DEPTH_MAX;
use crate::source::{ChartSource, StateSource};

use self::names::DeclaredNames;
use self::states::StateTree;
use self::transitions::CheckedTransition;

/// The maximum number of errors listed per chart.
pub const PROBLEMS_MAX: usize = 50;

/// The maximum number of guards, and of actions, of a chart.
pub const EXPRESSIONS_MAX: usize = 10_000;

/// The maximum number of transitions of a chart, including timeouts.
pub const TRANSITIONS_MAX: usize = 10_000;

/// The maximum number of transition paths of a chart: one per transition, source and state that a
/// history may lead to.
pub const TRANSITION_PATHS_MAX: usize = 1_000_000;

/// The maximum number of states with a history.
pub const HISTORIES_MAX: usize = 255;

/// A chart during compilation.
#[derive(Default)]
struct ChartDraft {
    tree: StateTree,
    names: DeclaredNames,
    triggers: Vec<String>,
    guards: Vec<Guard>,
    effects: Vec<CompiledAction>,
    checked: Vec<CheckedTransition>,
    /// The indexes in `checked` of each trigger's transitions.
    by_trigger: Vec<Vec<usize>>,
    errors: Vec<ChartError>,
}

/// Compiles a chart. `errors` are those of decoding.
pub(crate) fn compile(source: &ChartSource, errors: Vec<ChartError>) -> Result<Chart, ChartErrors> {
    if is_deeper(&source.states, STATE_DEPTH_MAX) {
        return Err(ChartErrors(vec![nesting_error("states")]));
    }
    let unread: Vec<String> = errors.iter().map(|error| error.location.clone()).collect();
    let mut draft = ChartDraft {
        tree: StateTree::new(&source.states),
        names: DeclaredNames::new(source),
        errors,
        ..ChartDraft::default()
    };
    draft.check_name("name", "name", &source.name);
    draft.check_depth(source.max_history_depth);
    draft.check_states(&source.states);
    draft.check_declarations(source);
    let initial = draft.check_initial(&source.initial);
    draft.check_transitions(source);
    draft.check_timeouts(source);
    draft.index_by_trigger();
    let oracle_default = draft.check_oracle(source);
    draft.check_ambiguity();
    if draft.errors.is_empty()
        && let Some(initial) = initial
    {
        draft.check_reachable(initial);
        if draft.errors.is_empty() {
            return tables::build(draft, source, initial, oracle_default).map_err(truncate_errors);
        }
    }
    let mut errors = draft.errors;
    drop_follow_up_errors(&mut errors, &unread);
    Err(truncate_errors(errors))
}

/// True if states are nested deeper than `levels`.
fn is_deeper(states: &[StateSource], levels: usize) -> bool {
    let Some(inside) = levels.checked_sub(1) else { return !states.is_empty() };
    states.iter().any(|state| is_deeper(&state.states, inside))
}

/// Returns the error for states that are nested too deep.
pub(crate) fn nesting_error(location: &str) -> ChartError {
    let message = format!("states are nested too deep: the limit state_depth is {STATE_DEPTH_MAX}");
    ChartError::new(location, message)
}

/// Truncates the list of errors to its limit.
fn truncate_errors(mut errors: Vec<ChartError>) -> ChartErrors {
    if errors.len() > PROBLEMS_MAX {
        errors.truncate(PROBLEMS_MAX);
        let message = format!("only the first {PROBLEMS_MAX} problems are listed");
        errors.push(ChartError::new("", message));
    }
    ChartErrors(errors)
}

/// Drops errors that follow from values that could not be decoded, and duplicates.
fn drop_follow_up_errors(errors: &mut Vec<ChartError>, unread: &[String]) {
    let mut seen = Vec::new();
    let mut read = unread.len();
    errors.retain(|error| {
        if read > 0 {
            read -= 1;
            return true;
        }
        let follows = unread.iter().any(|location| {
            error.location == *location
                || error.location.strip_prefix(location.as_str()).is_some_and(|rest| {
                    location.is_empty() || rest.starts_with('.') || rest.starts_with('[')
                })
        });
        let is_new = !seen.contains(error);
        seen.push(error.clone());
        !follows && is_new
    });
}

impl ChartDraft {
    fn error(&mut self, location: impl Into<String>, message: impl Into<String>) {
        self.errors.push(ChartError::new(location, message));
    }

    /// Checks that a name is valid in files, diagrams and exports.
    fn check_name(&mut self, location: &str, what: &str, name: &str) {
        let mut letters = name.chars();
        let is_name = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if name.is_empty() {
            self.error(location, format!("{what} is missing or empty"));
        } else if !is_name {
            let message = format!(
                "{what} \"{name}\" must begin with a small letter, and have nothing but small \
                 letters, digits and _"
            );
            self.error(location, message);
        }
    }

    fn check_depth(&mut self, depth: Option<usize>) {
        let depth = depth.unwrap_or(HISTORY_DEPTH_DEFAULT);
        if !(1..=HISTORY_DEPTH_MAX).contains(&depth) {
            let message =
                format!("max_history_depth must be from 1 to {HISTORY_DEPTH_MAX}, found {depth}");
            self.error("max_history_depth", message);
        }
    }
}

/// Returns the location of one of several texts. A single text may stand there without a list.
fn item_location(location: &str, name: &str, count: usize, index: usize) -> String {
    if count == 1 { format!("{location}.{name}") } else { format!("{location}.{name}[{index}]") }
}
