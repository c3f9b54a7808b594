//! From a chart as it was written to its tables, with all that is wrong with it.
//!
//! `states` knows the tree of states, `names` what guards and actions may speak of, `transitions`
//! one transition at a time, `rules` all of them together, `tables` builds what is fired.

mod names;
mod rules;
mod states;
mod tables;
mod transitions;

use crate::chart::{Chart, HISTORY_DEPTH_DEFAULT, HISTORY_DEPTH_MAX};
use crate::effect::Effect;
use crate::error::{ChartError, ChartErrors};
use crate::guard::Guard;
use crate::read::STATE_DEPTH_MAX;
use crate::source::{ChartSource, StateSource};

use self::names::Vocabulary;
use self::states::Tree;
use self::transitions::Checked;

/// The most problems that are listed for one chart.
pub const PROBLEMS_MAX: usize = 50;

/// The most guards and the most actions of one chart.
pub const EXPRESSIONS_MAX: usize = 10_000;

/// The most transitions of one chart, with its timeouts.
pub const TRANSITIONS_MAX: usize = 10_000;

/// The most ways of one chart: each transition from each of its sources, to each state that a history
/// may lead to.
pub const WAYS_MAX: usize = 1_000_000;

/// The most states of one chart that have a history.
pub const HISTORIES_MAX: usize = 255;

/// What is known of a chart while it is compiled.
struct Draft {
    tree: Tree,
    vocabulary: Vocabulary,
    triggers: Vec<String>,
    guards: Vec<Guard>,
    effects: Vec<Effect>,
    checked: Vec<Checked>,
    /// Which of `checked` each trigger sets off.
    by_trigger: Vec<Vec<usize>>,
    errors: Vec<ChartError>,
}

/// Compiles a chart. `errors` is what could not be read of it.
pub(crate) fn compile(source: &ChartSource, errors: Vec<ChartError>) -> Result<Chart, ChartErrors> {
    if is_deeper(&source.states, STATE_DEPTH_MAX) {
        return Err(ChartErrors(vec![too_deep("states")]));
    }
    let unread: Vec<String> = errors.iter().map(|error| error.place.clone()).collect();
    let mut draft = Draft {
        tree: Tree::new(&source.states),
        vocabulary: Vocabulary::new(source),
        triggers: Vec::new(),
        guards: Vec::new(),
        effects: Vec::new(),
        checked: Vec::new(),
        by_trigger: Vec::new(),
        errors,
    };
    draft.check_name("name", "name", &source.name);
    draft.check_depth(source.max_history_depth);
    draft.check_states(&source.states);
    draft.check_vocabulary(source);
    let initial = draft.check_initial(&source.initial);
    draft.check_transitions(source);
    draft.check_timeouts(source);
    draft.sort_by_trigger();
    let oracle_default = draft.check_oracle(source);
    draft.check_ambiguity();
    if draft.errors.is_empty()
        && let Some(initial) = initial
    {
        draft.check_reachable(initial);
        if draft.errors.is_empty() {
            return tables::build(draft, source, initial, oracle_default).map_err(few);
        }
    }
    let mut errors = draft.errors;
    drop_consequences(&mut errors, &unread);
    Err(few(errors))
}

/// Whether states are nested deeper than so many levels.
fn is_deeper(states: &[StateSource], levels: usize) -> bool {
    let Some(inside) = levels.checked_sub(1) else { return !states.is_empty() };
    states.iter().any(|state| is_deeper(&state.states, inside))
}

/// That states are nested deeper than they may be.
pub(crate) fn too_deep(place: &str) -> ChartError {
    let message = format!("states are nested too deep: the limit state_depth is {STATE_DEPTH_MAX}");
    ChartError::new(place, message)
}

/// No more problems than anyone would read.
fn few(mut errors: Vec<ChartError>) -> ChartErrors {
    if errors.len() > PROBLEMS_MAX {
        errors.truncate(PROBLEMS_MAX);
        let message = format!("only the first {PROBLEMS_MAX} problems are listed");
        errors.push(ChartError::new("", message));
    }
    ChartErrors(errors)
}

/// What could not be read is empty, and that is not a second problem.
fn drop_consequences(errors: &mut Vec<ChartError>, unread: &[String]) {
    let mut seen = Vec::new();
    let mut read = unread.len();
    errors.retain(|error| {
        if read > 0 {
            read -= 1;
            return true;
        }
        let follows = unread.iter().any(|place| {
            error.place == *place
                || error.place.strip_prefix(place.as_str()).is_some_and(|rest| {
                    place.is_empty() || rest.starts_with('.') || rest.starts_with('[')
                })
        });
        let is_new = !seen.contains(error);
        seen.push(error.clone());
        !follows && is_new
    });
}

impl Draft {
    fn error(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.errors.push(ChartError::new(place, message));
    }

    /// Names are what files, pictures and exports can all hold.
    fn check_name(&mut self, place: &str, what: &str, name: &str) {
        let mut letters = name.chars();
        let is_name = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if name.is_empty() {
            self.error(place, format!("{what} is missing or empty"));
        } else if !is_name {
            let message = format!(
                "{what} \"{name}\" must begin with a small letter, and have nothing but small \
                 letters, digits and _"
            );
            self.error(place, message);
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

/// The place of one of several texts. A single one may stand there without a list.
fn item(place: &str, name: &str, count: usize, index: usize) -> String {
    if count == 1 { format!("{place}.{name}") } else { format!("{place}.{name}[{index}]") }
}
