//! Reflection: write, criticise, rewrite, until the critic accepts or the rounds are over.

use std::collections::BTreeMap;

use polity_model::name::Name;

use super::{ExpansionError, PatternBuilder, PatternEnds, roles};
use crate::workflow::WorkflowNodeKind;

pub(super) fn expand(
    builder: &mut PatternBuilder,
    agents: &BTreeMap<Name, Name>,
    goal: &str,
    rounds: u32,
) -> Result<Option<PatternEnds>, ExpansionError> {
    let (Some(generator), Some(critic)) =
        (roles::agent(agents, &roles::GENERATOR), roles::agent(agents, &roles::CRITIC))
    else {
        return Ok(None);
    };
    let refiner = roles::agent(agents, &roles::REFINER).unwrap_or(generator);
    let first = builder.agent(
        "generate",
        generator,
        &format!("Task:\n{goal}\n\nDo the task. Answer with the finished text alone."),
    )?;
    // The drafts so far, oldest first.
    let mut texts = vec![first.clone()];
    let mut critiques = Vec::new();
    let mut newest = first.clone();
    for round in 1..=rounds {
        let critique = builder.agent(
            &format!("critique_{round}"),
            critic,
            &format!(
                "Task:\n{goal}\n\nThe text to judge:\n{{{{ nodes.{newest}.output }}}}\n\n\
                 Judge whether the text does the task well. If it does, answer with the one word \
                 ACCEPT. If it does not, write REVISE on the first line and below it what must \
                 change, point by point."
            ),
        )?;
        builder.edge(&newest, &critique, None)?;
        let refine = builder.agent(
            &format!("refine_{round}"),
            refiner,
            &format!(
                "Task:\n{goal}\n\nThe text so far:\n{{{{ nodes.{newest}.output }}}}\n\n\
                 What a critic says about it:\n{{{{ nodes.{critique}.output }}}}\n\n\
                 Rewrite the text so that every point is dealt with. Answer with the whole new \
                 text alone."
            ),
        )?;
        builder.edge(&critique, &refine, Some(&format!("!{}", accepts(&critique))))?;
        critiques.push(critique);
        newest = refine;
        texts.push(newest.clone());
    }
    let result = builder
        .node("result", WorkflowNodeKind::Condition { expression: newest_of(&texts).parse()? })?;
    for critique in &critiques {
        builder.edge(critique, &result, Some(&accepts(critique)))?;
    }
    builder.edge(&newest, &result, None)?;
    Ok(Some(PatternEnds { first, last: result }))
}

fn accepts(critique: &Name) -> String {
    format!("accepts(nodes.{critique}.output)")
}

/// An expression for the newest text: a text that was accepted is not rewritten any more.
fn newest_of(texts: &[Name]) -> String {
    let mut names = texts.iter();
    let first = names.next().map_or_else(String::new, |first| format!("nodes.{first}.output"));
    names.fold(first, |older, name| format!("has(nodes.{name}) ? nodes.{name}.output : {older}"))
}
