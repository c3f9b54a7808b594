//! MCP servers in a temporary home.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use polity_definition::McpServerDefinition;
use polity_drivers::EnvSource;
use polity_drivers::mcp::{McpOptions, McpTools};
use polity_drivers::process::ProcessLauncher;
use polity_engine::driver::{
    CallSite, ToolDriver, ToolFailure, ToolReply, ToolRequest, Toolbox, ToolsUnavailable,
};
use polity_testkit::mcp::{environment, fixture_server};
use serde_json::Value;
use tempfile::TempDir;

/// The longest wait for an expected event, far above its usual time.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

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
        let mut options = McpOptions::new(
            home.path().into(),
            EnvSource::new(environment),
            ProcessLauncher::Direct,
        );
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

/// True if a process exists and is not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < TEST_TIMEOUT, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
