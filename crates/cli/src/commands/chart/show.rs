//! `polity chart show`: all that a chart says.

use polity_diagram::state_actions;
use polity_host::simulations::charts::chart_details;
use polity_statechart::{AgentField, Chart, ScalarValue, StateNode};

use crate::app::AppContext;
use crate::args::ChartArgs;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::{style, table};

pub(super) fn show(app: &AppContext, args: &ChartArgs) -> CliResult {
    let simulations = app.folder().simulations()?;
    let read = simulations.chart(&args.name)?;
    let chart = &*read.chart;
    if app.json() {
        print_json(&chart_details(read))?;
        return Ok(ExitStatus::Done);
    }
    say!("{} {}", style::label("name:"), chart.name())?;
    say!("{} {}", style::label("initial:"), chart.state_name(chart.initial()))?;
    if let Some(state) = chart.oracle_default() {
        say!("{} {}", style::label("oracle_default:"), chart.state_name(state))?;
    }
    say!("{} {}", style::label("max_history_depth:"), chart.max_history_depth())?;
    say!("{}", style::label("states:"))?;
    let outermost = chart.tree().iter().filter(|node| node.parent.is_none());
    for node in outermost {
        state(chart, node, 1)?;
    }
    for field in chart.fields() {
        let label = style::label(&format!("field {}:", field.name));
        say!("{label} {}{}", in_words(field.default.as_ref()), range(field))?;
    }
    for world in chart.world_values() {
        let label = style::label(&format!("world {}:", world.name));
        say!("{label} {}", in_words(world.default.as_ref()))?;
    }
    say!("\n{}", transitions(chart))?;
    Ok(ExitStatus::Done)
}

/// A state and those inside, each further to the right.
fn state(chart: &Chart, node: &StateNode, depth: usize) -> Result<(), CliError> {
    let tree = chart.tree();
    let then = if node.history { ", later the last active one" } else { "" };
    let begins =
        node.initial.map(|initial| format!(" (initial child {}{then})", tree[initial].name));
    let indent = "  ".repeat(depth);
    say!("{indent}{}{}", node.name, begins.unwrap_or_default())?;
    for happening in state_actions(node) {
        say!("{indent}  {happening}")?;
    }
    node.children.iter().try_for_each(|child| state(chart, &tree[*child], depth + 1))
}

fn in_words(default: Option<&ScalarValue>) -> String {
    default.map_or("nothing".to_owned(), ToString::to_string)
}

fn range(field: &AgentField) -> String {
    match (field.min, field.max) {
        (None, None) => String::new(),
        (Some(min), None) => format!(", at least {min}"),
        (None, Some(max)) => format!(", at most {max}"),
        (Some(min), Some(max)) => format!(", from {min} to {max}"),
    }
}

fn transitions(chart: &Chart) -> String {
    let rows = chart.transitions().iter().map(|transition| {
        let tree = chart.tree();
        let name = |place: &usize| tree[*place].name.clone();
        let sources: Vec<String> = transition.sources.iter().map(name).collect();
        let threshold = transition.threshold.as_ref().map(|ticks| format!("after {ticks} ticks"));
        let oracle = transition.oracle.then(|| "the oracle decides".to_owned());
        let when = [transition.guard.clone(), threshold, oracle];
        let when = when.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let trigger = chart.trigger_name(transition.trigger).to_owned();
        [trigger, sources.join(", "), name(&transition.target), when, transition.actions.join("; ")]
    });
    table(["TRIGGER", "FROM", "TO", "IF", "THEN"], rows)
}
