//! Whether a task could be done at all, asked before there is one.

use polity_definition::AgentKind;

use super::Shared;
use crate::closure::Assignee;
use crate::commands::CreateTask;
use crate::driver::{NotReady, RunOverrides};

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
        for closure in assignee.everyone() {
            match &closure.agent.kind {
                AgentKind::Llm(llm) => {
                    self.parts.models.ready(&closure)?;
                    self.parts.tools.ready(&llm.tools)?;
                }
                AgentKind::Cli(_) => self.parts.programs.ready(&closure.agent, overrides)?,
                AgentKind::Remote(_) => self.parts.remotes.ready(&closure.agent)?,
            }
        }
        Ok(())
    }

    /// A budget in money cannot be kept where no one knows what a model costs.
    pub(super) fn check_prices(&self, create: &CreateTask) -> Result<(), NotReady> {
        let everyone = create.assignee.everyone();
        let of_agents = everyone.iter().filter_map(|closure| closure.llm()?.budget);
        let mut budgets = of_agents.chain(create.budget);
        if !budgets.any(|budget| budget.max_cost_usd.is_some()) {
            return Ok(());
        }
        match everyone.iter().find(|closure| self.parts.models.price(closure).is_none()) {
            None => Ok(()),
            Some(closure) => Err(NotReady {
                message: format!(
                    "it is not known what the model of agent \"{}\" costs, so a budget in dollars \
                     could not be kept",
                    closure.agent.name
                ),
                hint: "give llm_config.price, or limit max_tokens instead".to_owned(),
            }),
        }
    }
}
