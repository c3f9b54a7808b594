//! MCP servers in a temporary home.

use std::fs;
use std::path::PathBuf;

use polity_definition::McpServerDefinition;
use polity_drivers::EnvSource;
use polity_drivers::mcp::{McpOptions, McpTools};
use polity_drivers::process::ProcessLauncher;
use polity_engine::driver::{
    CallSite, ToolDriver, ToolFailure, ToolReply, ToolRequest, Toolbox, ToolsUnavailable,
};
use polity_testkit::mcp::{environment, fixture_server};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::waiting::TEST_TIMEOUT;

/// Servers in a temporary home.
pub(crate) struct McpHarness {
    pub(crate) tools: McpTools,
    home: TempDir,
}

impl McpHarness {
    pub(crate) fn new(servers: impl IntoIterator<Item = McpServerDefinition>) -> Self {
        Self::with(servers, |_| {})
    }

    /// Registers servers with changed options.
    pub(crate) fn with(
        servers: impl IntoIterator<Item = McpServerDefinition>,
        change: impl FnOnce(&mut McpOptions),
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let environment = EnvSource::new(environment);
        let mut options = McpOptions::new(home.path().into(), environment, ProcessLauncher::Direct);
        change(&mut options);
        Self { tools: McpTools::new(servers, options), home }
    }

    /// Registers the fixture as the server `test`, with a log.
    pub(crate) fn fixture(args: &[&str]) -> Self {
        Self::new([fixture_server("test", &[&["--log", "log"], args].concat())])
    }

    /// A file in the home, the servers' working directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The number of log lines with this prefix.
    pub(crate) fn logged(&self, beginning: &str) -> usize {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(beginning)).count()
    }

    /// The process ids of all started fixtures; fails unless there are `count`.
    pub(crate) fn pids(&self, count: usize) -> Vec<u32> {
        let log = fs::read_to_string(self.file("log")).unwrap();
        let pids = log.lines().filter_map(|line| line.strip_prefix("started "));
        let pids: Vec<u32> = pids.map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), count, "{log}");
        pids
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolReply, ToolFailure> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let (tool, arguments) = (&tool.parse().unwrap(), &arguments);
        let (limit, call_site, index) = (TEST_TIMEOUT, CallSite::OUTSIDE, 0);
        self.tools
            .call(ToolRequest { tool, arguments, limit, limited_by: None, call_site, index })
            .await
    }

    /// Echoes a text with the server `test`.
    pub(crate) async fn echo(&self, text: &str) -> String {
        self.text("test/echo", json!({"text": text})).await
    }

    /// Calls a tool successfully and returns its text.
    pub(crate) async fn text(&self, tool: &str, arguments: Value) -> String {
        let reply = self.call(tool, arguments).await.unwrap();
        assert!(!reply.is_error, "{reply:?}");
        reply.content
    }

    pub(crate) async fn toolbox(&self, patterns: &[&str]) -> Result<Toolbox, ToolsUnavailable> {
        let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        self.tools.toolbox(&patterns, CallSite::OUTSIDE).await.map(|toolbox| (*toolbox).clone())
    }

    /// The failure to list a pattern's tools.
    pub(crate) async fn refusal(&self, pattern: &str) -> polity_model::failure::AttemptFailure {
        self.toolbox(&[pattern]).await.unwrap_err().failure
    }
}

pub(crate) fn names(toolbox: &Toolbox) -> Vec<&str> {
    toolbox.offered().iter().map(|tool| tool.name.as_str()).collect()
}
