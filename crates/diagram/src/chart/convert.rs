//! The diagram of a statechart.

use polity_statechart::{Chart, StateNode, Transition};

use super::{ChartDiagram, ChartDiagramArrow, ChartDiagramState};

/// The diagram of a chart. Transitions with the same ends share an arrow.
pub fn chart_diagram(chart: &Chart) -> ChartDiagram {
    let tree = chart.tree();
    let states = tree.iter().map(|node| ChartDiagramState {
        name: node.name.clone(),
        notes: state_actions(node),
        parent: node.parent,
        initial: node.initial,
        history: node.history,
    });
    let mut arrows: Vec<ChartDiagramArrow> = Vec::new();
    for transition in chart.transitions() {
        let (to, label) = (transition.target, parts(chart, transition));
        for &from in &transition.sources {
            match arrows.iter_mut().find(|arrow| arrow.from == from && arrow.to == to) {
                Some(arrow) => arrow.labels.push(label.clone()),
                None => arrows.push(ChartDiagramArrow { from, to, labels: vec![label.clone()] }),
            }
        }
    }
    let initial = tree.iter().position(|node| node.state == Some(chart.initial()));
    ChartDiagram {
        name: chart.name().to_owned(),
        states: states.collect(),
        arrows,
        initial: initial.unwrap_or_default(),
    }
}

/// The entry and exit actions of a state, in statechart notation.
pub fn state_actions(node: &StateNode) -> Vec<String> {
    let entry = node.entry.iter().map(|action| format!("entry / {action}"));
    entry.chain(node.exit.iter().map(|action| format!("exit / {action}"))).collect()
}

/// Trigger, guard and actions.
fn parts(chart: &Chart, transition: &Transition) -> Vec<String> {
    let threshold = transition.threshold.as_ref();
    let after = threshold.map(|ticks| format!(" after {ticks} ticks")).unwrap_or_default();
    let oracle = if transition.oracle { " (oracle)" } else { "" };
    let trigger = format!("{}{after}{oracle}", chart.trigger_name(transition.trigger));
    let guard = transition.guard.as_ref().map(|guard| format!("[{guard}]"));
    let actions = transition.actions.iter().map(|action| format!("/ {action}"));
    std::iter::once(trigger).chain(guard).chain(actions).collect()
}
