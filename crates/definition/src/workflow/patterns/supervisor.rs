//! Supervisor: one agent delegates to others and combines their results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use polity_model::name::Name;

use super::{ExpansionError, PatternBuilder, PatternEnds, roles};

pub(super) fn expand(
    builder: &mut PatternBuilder,
    agents: &BTreeMap<Name, Name>,
    goal: &str,
) -> Result<Option<PatternEnds>, ExpansionError> {
    let Some(supervisor) = roles::agent(agents, &roles::SUPERVISOR) else { return Ok(None) };
    let is_worker = |role: &Name| !roles::SUPERVISOR.contains(&role.as_str());
    let mut workers: Vec<Name> = Vec::new();
    let mut list = String::new();
    for (role, agent) in agents.iter().filter(|(role, _)| is_worker(role)) {
        let _ = writeln!(list, "- {agent}, whose role is {role}");
        if !workers.contains(agent) {
            workers.push(agent.clone());
        }
    }
    let input = format!(
        "Goal:\n{goal}\n\nYou supervise these workers:\n{list}\n\
         Hand each part of the work to the worker that it fits, check what comes back, and hand it \
         out again where it is not good enough. Then put the parts together. Answer with the \
         finished result alone."
    );
    let node = builder.supervising("supervise", supervisor, &input, workers)?;
    Ok(Some(PatternEnds { first: node.clone(), last: node }))
}
