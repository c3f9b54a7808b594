//! Plan and execute: one agent plans, another carries out the steps, and a report ends it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use polity_model::name::Name;

use super::{ExpansionError, PLAN_STEPS_MAX, PatternBuilder, PatternEnds, roles};

pub(super) fn expand(
    builder: &mut PatternBuilder,
    agents: &BTreeMap<Name, Name>,
    goal: &str,
) -> Result<Option<PatternEnds>, ExpansionError> {
    let (Some(planner), Some(executor)) =
        (roles::agent(agents, &roles::PLANNER), roles::agent(agents, &roles::EXECUTOR))
    else {
        return Ok(None);
    };
    let reporter = roles::agent(agents, &roles::REPORTER).unwrap_or(planner);
    let plan = builder.agent(
        "plan",
        planner,
        &format!(
            "Goal:\n{goal}\n\nMake a plan of at most {PLAN_STEPS_MAX} steps that reaches the goal. \
             Each step is carried out by someone who sees the goal, the plan and the results of the \
             steps before it. Answer with a numbered list of the steps alone, one step on each line."
        ),
    )?;
    let mut executed: Vec<Name> = Vec::new();
    for number in 1..=PLAN_STEPS_MAX {
        let input = execution(goal, &plan, &executed, number);
        executed.push(builder.agent(&format!("execute_{number}"), executor, &input)?);
    }
    let report = builder.agent("report", reporter, &reporting(goal, &plan, &executed))?;
    let mut former = &plan;
    for (place, execute) in executed.iter().enumerate() {
        let condition = format!("size(steps(nodes.{plan}.output)) > {place}");
        // The first step is always taken: a plan without steps is one step.
        builder.edge(former, execute, (place > 0).then_some(condition.as_str()))?;
        if place > 0 {
            let condition = format!("size(steps(nodes.{plan}.output)) <= {place}");
            builder.edge(former, &report, Some(&condition))?;
        }
        former = execute;
    }
    builder.edge(former, &report, None)?;
    Ok(Some(PatternEnds { first: plan, last: report }))
}

/// The input of the executor of one step.
fn execution(goal: &str, plan: &Name, executed: &[Name], number: usize) -> String {
    let mut text = format!(
        "{{% set parts = nodes.{plan}.output | steps %}}Goal:\n{goal}\n\n\
         The whole plan:\n{{{{ nodes.{plan}.output }}}}\n\n"
    );
    if !executed.is_empty() {
        text.push_str("Results so far:\n");
        for (place, node) in executed.iter().enumerate() {
            let _ = writeln!(text, "Step {}: {{{{ nodes.{node}.output }}}}", place + 1);
        }
        text.push('\n');
    }
    let before = number - 1;
    if number == PLAN_STEPS_MAX {
        let _ = write!(
            text,
            "Your steps, all that are left:\n{{% for step in parts %}}{{% if loop.index > {before} \
             %}}- {{{{ step }}}}\n{{% endif %}}{{% endfor %}}\n\
             Do all of these steps. Answer with their results alone."
        );
    } else if number == 1 {
        let _ = write!(
            text,
            "Your step, number 1:\n{{% if parts %}}{{{{ parts[0] }}}}{{% else %}}{{{{ \
             nodes.{plan}.output }}}}{{% endif %}}\n\n\
             Do this step and no other. Answer with its result alone."
        );
    } else {
        let _ = write!(
            text,
            "Your step, number {number}:\n{{{{ parts[{before}] }}}}\n\n\
             Do this step and no other. Answer with its result alone."
        );
    }
    text
}

/// The input of the reporter: only executed steps have results.
fn reporting(goal: &str, plan: &Name, executed: &[Name]) -> String {
    let mut text =
        format!("Goal:\n{goal}\n\nThe plan:\n{{{{ nodes.{plan}.output }}}}\n\nResults:\n");
    for (place, node) in executed.iter().enumerate() {
        let _ = write!(
            text,
            "{{% if nodes.{node} is defined %}}Step {}: {{{{ nodes.{node}.output }}}}\n{{% endif %}}",
            place + 1
        );
    }
    text.push_str("\nPut the results together. Answer with what reaches the goal alone.");
    text
}
