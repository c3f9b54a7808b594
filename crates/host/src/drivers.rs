//! The drivers that a host performs effects with.

use std::sync::Arc;

use polity_definition::Home;
use polity_drivers::llm::LanguageModels;
use polity_drivers::mcp::McpTools;
use polity_engine::driver::{ModelDriver, ProgramDriver, RemoteDriver, ToolDriver};
use polity_store::SlotPools;

use crate::context::HostContext;
use crate::error::HostError;

/// One driver of each kind.
pub struct DriverSet {
    /// Calls models.
    pub(crate) models: Arc<dyn ModelDriver>,
    /// Calls tools.
    pub(crate) tools: Arc<dyn ToolDriver>,
    /// Runs CLI agents.
    pub(crate) programs: Arc<dyn ProgramDriver>,
    /// Sends tasks to agents on other servers.
    pub(crate) remotes: Arc<dyn RemoteDriver>,
    /// The concurrency slots of CLI agents.
    pub(crate) slots: Arc<dyn SlotPools>,
    /// The MCP servers behind the tools, which the host shuts down.
    pub(crate) servers: Option<Arc<McpTools>>,
    /// True if reviewers are notified. A replay stays offline and notifies no one.
    pub(crate) notifies: bool,
}

impl DriverSet {
    /// The real drivers. Fails if the definition of an MCP server is not valid.
    pub fn live(context: &HostContext, home: &Home) -> Result<Self, HostError> {
        Self::new(context, home, context.tools(home)?)
    }

    /// The real drivers without the MCP servers whose definitions are not valid.
    pub fn available(context: &HostContext, home: &Home) -> Result<Self, HostError> {
        Self::new(context, home, context.valid_tools(home)?)
    }

    fn new(context: &HostContext, home: &Home, servers: McpTools) -> Result<Self, HostError> {
        let servers = Arc::new(servers);
        let models = Arc::new(LanguageModels::new(context.environment().clone()));
        let remotes = Arc::new(context.remotes(home));
        let (tools, programs) = (servers.clone(), context.programs(home)?);
        let slots = Arc::new(context.slots()?);
        let (servers, notifies) = (Some(servers), true);
        Ok(Self { models, tools, programs, remotes, slots, servers, notifies })
    }
}
