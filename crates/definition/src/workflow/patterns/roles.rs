//! The roles of patterns, and whether a file has agents for them.

use std::collections::BTreeMap;

use polity_model::name::Name;

use super::WorkflowPattern;
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;

/// A role: the names it goes by, the usual one first.
pub(super) type PatternRole = &'static [&'static str];

pub(super) const REACT: PatternRole = &["agent", "reasoner"];
pub(super) const GENERATOR: PatternRole = &["generator"];
pub(super) const CRITIC: PatternRole = &["critic"];
pub(super) const REFINER: PatternRole = &["refiner"];
pub(super) const PLANNER: PatternRole = &["planner"];
pub(super) const EXECUTOR: PatternRole = &["executor"];
pub(super) const REPORTER: PatternRole = &["reporter"];
pub(super) const SUPERVISOR: PatternRole = &["supervisor"];

/// The agent that plays a role.
pub(super) fn agent<'a>(agents: &'a BTreeMap<Name, Name>, role: &PatternRole) -> Option<&'a Name> {
    role.iter().find_map(|name| agents.get(*name))
}

impl WorkflowPattern {
    /// The name as files have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::React => "react",
            Self::Reflection => "reflection",
            Self::PlanExecute => "plan_execute",
            Self::Supervisor => "supervisor",
        }
    }

    fn needed(self) -> &'static [PatternRole] {
        match self {
            Self::React => &[REACT],
            Self::Reflection => &[GENERATOR, CRITIC],
            Self::PlanExecute => &[PLANNER, EXECUTOR],
            Self::Supervisor => &[SUPERVISOR],
        }
    }

    fn optional(self) -> &'static [PatternRole] {
        match self {
            Self::Reflection => &[REFINER],
            Self::PlanExecute => &[REPORTER],
            Self::React | Self::Supervisor => &[],
        }
    }
}

/// Checks that every required role is set, and every set role is used.
pub(crate) fn check_roles(
    patterns: &[WorkflowPattern],
    agents: &BTreeMap<Name, Name>,
    checker: &mut FileChecker,
) {
    let path = FieldPath::root().field("agents");
    let there: Vec<&str> = agents.keys().map(Name::as_str).collect();
    for (place, pattern) in patterns.iter().enumerate() {
        if patterns[..place].contains(pattern) {
            continue;
        }
        for role in pattern.needed() {
            // A role with an undecodable agent is reported already.
            let is_there = |name: &&str| checker.is_there(&path.field(name));
            if !role.iter().any(is_there) {
                let message = format!(
                    "agents: the pattern {} needs the role \"{}\", and there are only {}",
                    pattern.as_str(),
                    role.join("\" or \""),
                    there.join(", ")
                );
                checker.report(&path, FindingText::new(message));
            }
        }
    }
    check_workers(patterns, agents, checker);
}

/// Rejects unknown roles, except for the workers of a supervisor.
fn check_workers(
    patterns: &[WorkflowPattern],
    agents: &BTreeMap<Name, Name>,
    checker: &mut FileChecker,
) {
    let path = FieldPath::root().field("agents");
    if patterns.contains(&WorkflowPattern::Supervisor) {
        let supervisor = agent(agents, &SUPERVISOR);
        if agents.len() == 1 && supervisor.is_some() {
            let message = "agents: the pattern supervisor needs at least one more role, a worker";
            checker.report(&path, FindingText::new(message));
        }
        for (role, worker) in agents {
            if Some(worker) == supervisor && !SUPERVISOR.contains(&role.as_str()) {
                let place = path.field(role.as_str());
                let message = format!("{place}: \"{worker}\" cannot hand work to itself");
                checker.report(&place, FindingText::new(message));
            }
        }
        return;
    }
    let roles = patterns.iter().flat_map(|pattern| [pattern.needed(), pattern.optional()]);
    let mut known: Vec<&str> = Vec::new();
    for name in roles.flatten().copied().flatten() {
        if !known.contains(name) {
            known.push(name);
        }
    }
    for role in agents.keys().filter(|role| !known.contains(&role.as_str())) {
        let place = path.field(role.as_str());
        let message = format!("{place}: no pattern uses the role \"{role}\"");
        checker.report_key(&place, FindingText::new(message).one_of(role.as_str(), &known));
    }
}
