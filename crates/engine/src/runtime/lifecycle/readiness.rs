//! Readiness checks, made before a task is created or claimed.

use polity_definition::AgentKind;

use crate::commands::CreateTask;
use crate::driver::{ModelDriver, NotReady, RunOverrides};
use crate::pinned::Assignee;
use crate::runtime::RuntimeDeps;

/// Checks that the agent, and every agent that it may call, could run with these overrides.
pub(in crate::runtime) fn check_ready(
    deps: &RuntimeDeps,
    assignee: &Assignee,
    overrides: &RunOverrides,
) -> Result<(), NotReady> {
    if let Assignee::Workflow(flow) = assignee {
        deps.tools.ready(&flow.all_tools())?;
    }
    for pinned in assignee.everyone() {
        match &pinned.agent.kind {
            AgentKind::Llm(llm) => {
                deps.models.ready(&pinned)?;
                deps.tools.ready(&llm.tools)?;
            }
            AgentKind::Cli(_) => deps.programs.ready(&pinned.agent, overrides)?,
            AgentKind::Remote(_) => deps.remotes.ready(&pinned.agent)?,
        }
    }
    Ok(())
}

/// Checks that a budget in money can be kept: every model must have a price.
pub(in crate::runtime) fn check_prices(
    models: &dyn ModelDriver,
    create: &CreateTask,
) -> Result<(), NotReady> {
    let everyone = create.assignee.everyone();
    let agent_budgets = everyone.iter().filter_map(|pinned| pinned.llm()?.budget);
    let mut budgets = agent_budgets.chain(create.budget);
    if !budgets.any(|budget| budget.max_cost_usd.is_some()) {
        return Ok(());
    }
    match everyone.iter().find(|pinned| models.price(pinned).is_none()) {
        None => Ok(()),
        Some(pinned) => Err(NotReady {
            message: format!(
                "it is not known what the model of agent \"{}\" costs, so a budget in dollars \
                 could not be kept",
                pinned.agent.name
            ),
            hint: "give llm_config.price, or limit max_tokens instead".to_owned(),
        }),
    }
}
