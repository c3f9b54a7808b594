//! The load of agents: running and queued executions, and the slots of their pools.

use polity_definition::{AgentDefinition, AgentKind};
use polity_engine::agent_toggles::AgentToggles;
use polity_engine::driver::{ProgramDriver, RunOverrides};
use polity_engine::runtime::is_owner_alive;
use polity_model::machine::execution::ExecutionState;
use polity_model::name::Name;
use polity_store::ExecutionFilter;
use serde::{Deserialize, Serialize};

use super::HomeQueries;
use crate::error::HostError;

/// The load of one agent, counting only live processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// True if the agent accepts work.
    pub enabled: bool,
    /// The agent's name.
    pub name: Name,
    /// The slots that the agent's executions take.
    pub pool: PoolStatus,
    /// The number of executions that wait for a slot.
    pub queued: u32,
    /// The number of executions that have begun and not ended.
    pub running: u32,
}

/// The slots of an agent's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The number of slots; none if unlimited.
    pub capacity: Option<u32>,
    /// The number of slots taken.
    pub in_use: u32,
}

impl HomeQueries {
    /// The overrides that enable or disable agents.
    pub async fn agent_toggles(&self) -> Result<AgentToggles, HostError> {
        Ok(AgentToggles::read(&*self.store).await?)
    }

    /// The load of an agent.
    pub async fn agent_status(
        &self,
        agent: &AgentDefinition,
        toggles: &AgentToggles,
        programs: &dyn ProgramDriver,
    ) -> Result<AgentStatus, HostError> {
        let of_agent = ExecutionFilter {
            agent: Some(agent.name.to_string()),
            open_only: true,
            ..ExecutionFilter::default()
        };
        let (running, queued) = self.count_executions(&of_agent).await?;
        // Agents with the same folder or lock_key share a pool.
        let pool = match &agent.kind {
            AgentKind::Cli(cli) => {
                let key = programs.slot_pool(agent, &RunOverrides::default());
                let of_pool = ExecutionFilter {
                    pool: Some(key),
                    open_only: true,
                    ..ExecutionFilter::default()
                };
                let in_use = self.count_executions(&of_pool).await?.0;
                PoolStatus { in_use, capacity: Some(cli.max_concurrent_executions.get()) }
            }
            AgentKind::Llm(_) | AgentKind::Remote(_) => {
                PoolStatus { in_use: running, capacity: None }
            }
        };
        let enabled = toggles.is_enabled(agent);
        Ok(AgentStatus { name: agent.name.clone(), enabled, running, queued, pool })
    }

    /// The numbers of running and of queued executions in live processes.
    async fn count_executions(&self, filter: &ExecutionFilter) -> Result<(u32, u32), HostError> {
        let (mut running, mut queued) = (0, 0);
        for row in self.store.execution_rows(filter).await? {
            if !is_owner_alive(&*self.leases, row.owner).await {
                continue;
            }
            match row.execution.state {
                ExecutionState::Idle => queued += 1,
                ExecutionState::Starting
                | ExecutionState::Running
                | ExecutionState::Completed
                | ExecutionState::Failed
                | ExecutionState::Timeout
                | ExecutionState::Cancelled
                | ExecutionState::Cleanup => running += 1,
            }
        }
        Ok((running, queued))
    }
}
