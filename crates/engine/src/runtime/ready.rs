//! Whether a task could be done at all, asked before there is one.

use polity_definition::AgentKind;

use super::Shared;
use crate::commands::CreateTask;
use crate::driver::{NotReady, RunOverrides};
use crate::pinned::Assignee;

impl Shared {
    /// Whether the agent, and all that it may hand work to, could be run as their files say.
    pub(super) fn ready(&self, assignee: &Assignee) -> Result<(), NotReady> {
        self.ready_with(assignee, &RunOverrides::default())
    }

    /// Whether they could be run with what a task says otherwise.
    pub(super) fn ready_with(
        &self,
        assignee: &Assignee,
        overrides: &RunOverrides,
    ) -> Result<(), NotReady> {
        if let Assignee::Workflow(flow) = assignee {
            self.parts.tools.ready(&flow.all_tools())?;
        }
        for pinned in assignee.everyone() {
            match &pinned.agent.kind {
                AgentKind::Llm(llm) => {
                    self.parts.models.ready(&pinned)?;
                    self.parts.tools.ready(&llm.tools)?;
                }
                AgentKind::Cli(_) => self.parts.programs.ready(&pinned.agent, overrides)?,
                AgentKind::Remote(_) => self.parts.remotes.ready(&pinned.agent)?,
            }
        }
        Ok(())
    }

    /// A budget in money cannot be kept where no one knows what a model costs.
    pub(super) fn check_prices(&self, create: &CreateTask) -> Result<(), NotReady> {
        let everyone = create.assignee.everyone();
        let of_agents = everyone.iter().filter_map(|pinned| pinned.llm()?.budget);
        let mut budgets = of_agents.chain(create.budget);
        if !budgets.any(|budget| budget.max_cost_usd.is_some()) {
            return Ok(());
        }
        match everyone.iter().find(|pinned| self.parts.models.price(pinned).is_none()) {
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
}
