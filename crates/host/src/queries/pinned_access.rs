//! The commands, endpoints and variables that a task's pinned definitions use. A person reads them
//! before an imported task runs.

use polity_definition::AgentKind;
use polity_drivers::cli::CommandSummary;
use polity_drivers::llm;
use polity_engine::pinned::{Assignee, PinnedAgent};
use polity_engine::runtime::load_task;
use polity_model::ids::TaskId;
use polity_model::name::Name;
use serde::Serialize;

use super::HomeQueries;
use crate::error::HostError;

/// The access of one pinned agent or workflow to this machine and to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PinnedAccess {
    /// The agent or workflow.
    pub name: Name,
    /// The program with its arguments, before the input is filled in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The text of the script that the program runs, as the task pinned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The working directory of the program, if the task or the agent names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The address of the model or the remote agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The variables: `NAME` for one of this environment, `NAME=VALUE` for one that is set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// The tools, which the MCP servers of this home provide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

impl PinnedAccess {
    fn of_agent(pinned: &PinnedAgent, folder: Option<&String>) -> Self {
        let agent = &*pinned.agent;
        let mut access = Self::without_access(agent.name.clone());
        access.script = pinned.step.as_ref().map(|step| step.content.clone());
        match &agent.kind {
            AgentKind::Llm(model) => {
                let config = &model.llm_config;
                access.endpoint = llm::base_address(config).map(str::to_owned);
                access.variables =
                    llm::key_variables(config).into_iter().map(str::to_owned).collect();
                access.tools = model.tools.iter().map(ToString::to_string).collect();
            }
            AgentKind::Cli(cli) => {
                let CommandSummary { command, envs, env_allow } = CommandSummary::of(cli);
                let own = cli.working_directory.as_ref().map(|folder| folder.as_str().to_owned());
                access.command = command;
                access.working_directory = folder.cloned().or(own);
                let set = envs.into_iter().map(|(name, value)| format!("{name}={value}"));
                access.variables = set.chain(env_allow).collect();
            }
            AgentKind::Remote(remote) => {
                access.endpoint = Some(remote.card_url.to_string());
                let token = remote.auth.as_ref().and_then(|auth| auth.token_env.as_ref());
                access.variables = token.into_iter().map(ToString::to_string).collect();
            }
        }
        access
    }

    fn without_access(name: Name) -> Self {
        Self {
            name,
            command: Vec::new(),
            script: None,
            working_directory: None,
            endpoint: None,
            variables: Vec::new(),
            tools: Vec::new(),
        }
    }
}

impl HomeQueries {
    /// The access of every definition that a task or a task below it has pinned, each once.
    pub async fn pinned_access(&self, task: TaskId) -> Result<Vec<PinnedAccess>, HostError> {
        let (mut found, mut waiting) = (Vec::new(), vec![task]);
        while let Some(id) = waiting.pop() {
            let loaded = load_task(&*self.store, id).await?;
            let folder = loaded.state.task().order().working_directory.as_ref();
            if let Assignee::Workflow(flow) = &loaded.assignee {
                let tools: Vec<_> = flow.all_tools().iter().map(ToString::to_string).collect();
                if !tools.is_empty() {
                    let name = flow.workflow.name.clone();
                    found.push(PinnedAccess { tools, ..PinnedAccess::without_access(name) });
                }
            }
            let agents = loaded.assignee.everyone();
            found.extend(agents.iter().map(|pinned| PinnedAccess::of_agent(pinned, folder)));
            waiting.extend(self.parts(id).await?.iter().map(|part| part.id));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let mut unique: Vec<PinnedAccess> = Vec::new();
        for access in found {
            if !unique.contains(&access) {
                unique.push(access);
            }
        }
        Ok(unique)
    }
}
