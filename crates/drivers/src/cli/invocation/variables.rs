//! The environment of an agent process: inherited variables, the definition's and the task's.

use std::collections::BTreeMap;

use polity_engine::driver::{NotReady, RunOverrides, current_traceparent};
use polity_masking::is_secret_name;

use super::RunInputs;
use crate::cli::invocation::presets::ResolvedAgent;
use crate::environment::EnvSource;

/// The variable that carries the trace context to programs.
const TRACEPARENT: &str = "TRACEPARENT";

/// The complete environment of a process.
pub(crate) struct EnvVariables {
    pub(crate) all: BTreeMap<String, String>,
    /// The values to mask.
    pub(crate) secrets: Vec<String>,
}

impl EnvVariables {
    pub(crate) fn path(&self) -> &str {
        self.all.get("PATH").map_or("", String::as_str)
    }
}

/// The environment of a run, or an error that names the missing variable.
pub(crate) fn collect_variables(
    resolved: &ResolvedAgent,
    inputs: RunInputs<'_>,
) -> Result<EnvVariables, NotReady> {
    let agent = inputs.agent;
    if let Some(name) =
        inputs.overrides.envs.keys().find(|name| resolved.policy_envs.contains(*name))
    {
        return Err(NotReady {
            message: format!(
                "the task sets the variable {name}, on which the permission_policy of agent \
                 \"{agent}\" depends"
            ),
            hint: format!(
                "leave out --env {name}, or change permission_policy in the agent's file"
            ),
        });
    }
    let (mut variables, problem) = collect(resolved, inputs.overrides, inputs.environment);
    if let Some(traceparent) = current_traceparent() {
        // A value from the definition or the task stays.
        let variable = variables.all.entry(TRACEPARENT.to_owned());
        variable.or_insert_with(|| traceparent.to_string());
    }
    match problem {
        None => Ok(variables),
        Some(VariableProblem::Missing { variable, named_in }) => Err(NotReady {
            message: format!(
                "agent \"{agent}\" needs the environment variable {variable}, which is not set (it \
                 is named in its {named_in})"
            ),
            hint: format!("set {variable}"),
        }),
        Some(VariableProblem::Wrong { variable }) => Err(NotReady {
            message: format!(
                "the variable \"{variable}\" for agent \"{agent}\" cannot be set: a name is not \
                 empty and has no \"=\", and neither name nor value has a zero character"
            ),
            hint: "change the variables of the task or of the agent's file".to_owned(),
        }),
    }
}

/// The secret values of an agent, without missing variables, also for agents that cannot start.
pub(crate) fn secrets(
    resolved: &ResolvedAgent,
    overrides: &RunOverrides,
    environment: &EnvSource,
) -> Vec<String> {
    collect(resolved, overrides, environment).0.secrets
}

enum VariableProblem {
    Missing { variable: String, named_in: String },
    Wrong { variable: String },
}

/// The variables that are available, and the first problem.
fn collect(
    resolved: &ResolvedAgent,
    overrides: &RunOverrides,
    environment: &EnvSource,
) -> (EnvVariables, Option<VariableProblem>) {
    let mut all = environment.inherited();
    let mut secrets = Vec::new();
    let mut problem = None;
    for name in &resolved.env_allow {
        if let Some(value) = environment.raw(name) {
            all.insert(name.clone(), value);
        }
    }
    for (name, value) in &resolved.envs {
        match environment.fill(value, &mut secrets) {
            Ok(value) => _ = all.insert(name.clone(), value),
            Err(missing) => {
                let (variable, named_in) = (missing.to_owned(), name.clone());
                problem.get_or_insert(VariableProblem::Missing { variable, named_in });
            }
        }
    }
    all.retain(|name, _| !resolved.env_unset.contains(name));
    for (name, value) in &overrides.envs {
        secrets.push(value.clone());
        all.insert(name.clone(), value.clone());
    }
    let is_wrong = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if let Some((name, _)) = all.iter().find(is_wrong) {
        problem
            .get_or_insert(VariableProblem::Wrong { variable: name.escape_default().to_string() });
    }
    let by_name = all.iter().filter(|(name, _)| is_secret_name(name));
    secrets.extend(by_name.map(|(_, value)| value.clone()));
    secrets.retain(|value| !value.trim().is_empty());
    secrets.sort_unstable();
    secrets.dedup();
    (EnvVariables { all, secrets }, problem)
}
