//! One server: opens its connection and limits restarts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_definition::McpServerDefinition;
use polity_engine::driver::ToolSpec;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::McpConnection;
use super::{McpOptions, tool_listing, transient};

/// A connection of at least this age resets the failure count.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// The delay before the second restart; the first is immediate.
const RESTART_DELAY_FIRST: Duration = Duration::from_millis(500);

/// The longest delay between restarts.
const RESTART_DELAY_MAX: Duration = Duration::from_mins(1);

pub(super) struct McpServer {
    definition: McpServerDefinition,
    options: Arc<McpOptions>,
    live: Mutex<Option<Arc<McpConnection>>>,
    /// Locked while the server is being started.
    history: tokio::sync::Mutex<RestartHistory>,
    /// True if the last attempt to list it for fallback tools failed or timed out.
    was_slow: AtomicBool,
    closed: watch::Sender<bool>,
}

impl McpServer {
    pub(super) fn new(definition: McpServerDefinition, options: Arc<McpOptions>) -> Self {
        let (closed, _) = watch::channel(false);
        let history = tokio::sync::Mutex::new(RestartHistory::default());
        let was_slow = AtomicBool::new(false);
        Self { definition, options, live: Mutex::new(None), history, was_slow, closed }
    }

    pub(super) fn name(&self) -> &str {
        self.definition.name.as_str()
    }

    /// Returns the connection, and opens it if needed.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<McpConnection>, AttemptFailure> {
        if let Some(live) = self.live()
            && live.is_responsive().await
        {
            return Ok(live);
        }
        // The start runs in its own task, so that it survives an impatient caller.
        let this = Arc::clone(self);
        tokio::spawn(async move { this.start().await }).await.unwrap_or_else(|error| {
            Err(system_error(format!("MCP server \"{}\" cannot be started: {error}", self.name())))
        })
    }

    /// Lists the server's tools.
    pub(super) async fn tools(self: &Arc<Self>) -> Result<Arc<[Arc<ToolSpec>]>, AttemptFailure> {
        let connection = self.connection().await?;
        tool_listing::list_tools(&connection, &self.definition).await
    }

    /// Lists the tools of a server that only has fallback tools, within `reserve_timeout`. After a
    /// failure it is only retried in the background, at the rate of its restart delays.
    pub(super) async fn list_fallback_tools(
        self: &Arc<Self>,
    ) -> Result<Arc<[Arc<ToolSpec>]>, AttemptFailure> {
        let name = self.name();
        let was_slow_before = self.was_slow.load(Ordering::SeqCst);
        let is_being_started = self.history.try_lock().is_err();
        if was_slow_before && is_being_started {
            return Err(transient(format!("MCP server \"{name}\" is still being started")));
        }
        let this = Arc::clone(self);
        let listing = tokio::spawn(async move {
            let tools = this.tools().await;
            this.was_slow.store(tools.is_err(), Ordering::SeqCst);
            tools
        });
        if was_slow_before {
            return Err(transient(format!(
                "MCP server \"{name}\" failed before and is tried again in the background"
            )));
        }
        let limit = self.options.reserve_timeout;
        let Ok(listed) = tokio::time::timeout(limit, listing).await else {
            self.was_slow.store(true, Ordering::SeqCst);
            let seconds = limit.as_secs_f64();
            return Err(transient(format!(
                "MCP server \"{name}\" did not list its tools within {seconds} seconds and is no \
                 longer waited for"
            )));
        };
        listed.unwrap_or_else(|error| {
            Err(system_error(format!(
                "the tools of MCP server \"{name}\" cannot be listed: {error}"
            )))
        })
    }

    /// Ends the server permanently and waits for its exit.
    pub(super) async fn shutdown(&self) {
        self.closed.send_replace(true);
        // A start in progress gives up at once.
        let _history = self.history.lock().await;
        if let Some(connection) = self.replace(None) {
            connection.close().await;
        }
    }

    fn live(&self) -> Option<Arc<McpConnection>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().filter(|connection| connection.is_alive()).cloned()
    }

    fn replace(&self, connection: Option<Arc<McpConnection>>) -> Option<Arc<McpConnection>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *live, connection)
    }

    /// Starts the server unless it is already running or must wait.
    async fn start(&self) -> Result<Arc<McpConnection>, AttemptFailure> {
        let mut history = self.history.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let mut closed = self.closed.subscribe();
        if let Some(dead) = self.replace(None) {
            let details = dead.exit_details().await;
            history.lost(dead.age(), format!("the connection was lost{details}"));
            // Other references may exist, so it is closed explicitly.
            tokio::spawn(async move { dead.close().await });
        }
        history.check_backoff(self.name())?;
        tokio::select! {
            // Checked first, so that nothing is started during a shutdown.
            biased;
            _ = closed.wait_for(|closed| *closed) => {
                Err(transient(format!("MCP server \"{}\" is being shut down", self.name())))
            }
            opened = McpConnection::open(&self.definition, &self.options) => {
                history.last_attempt = Some(Instant::now());
                let connection =
                    opened.map(Arc::new).inspect_err(|failure| history.failed(failure))?;
                self.replace(Some(Arc::clone(&connection)));
                Ok(connection)
            }
        }
    }
}

fn system_error(message: String) -> AttemptFailure {
    AttemptFailure { category: ErrorCategory::SystemError, message }
}

/// The recent failures of the server.
#[derive(Debug, Default)]
struct RestartHistory {
    failures: u32,
    /// The end of the last start, successful or not. Delays count from there, not from the
    /// beginning of a slow start.
    last_attempt: Option<Instant>,
    reason: String,
}

impl RestartHistory {
    /// Records a lost connection of this age.
    fn lost(&mut self, age: Duration, reason: String) {
        if age >= STABLE_AFTER {
            self.failures = 0;
        }
        self.failures += 1;
        self.reason = reason;
    }

    /// Records a failed start. Permanent failures do not slow down restarts.
    fn failed(&mut self, failure: &AttemptFailure) {
        if failure.category == ErrorCategory::Transient {
            self.failures += 1;
            self.reason.clone_from(&failure.message);
        }
    }

    /// Fails if the restart delay has not passed.
    fn check_backoff(&self, server: &str) -> Result<(), AttemptFailure> {
        let Some(last_attempt) = self.last_attempt else { return Ok(()) };
        let wait = (last_attempt + delay(self.failures)).saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return Ok(());
        }
        Err(transient(format!(
            "MCP server \"{server}\" failed {} times in a row and is not started again before {:.1} \
             seconds have passed; the last time: {}",
            self.failures,
            wait.as_secs_f64(),
            self.reason
        )))
    }
}

/// The delay after a number of consecutive failures: none at first, then doubling.
fn delay(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(2) else { return Duration::ZERO };
    let factor = 2_u32.saturating_pow(doublings);
    RESTART_DELAY_FIRST.saturating_mul(factor).min(RESTART_DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_restart_is_immediate_then_delays_double() {
        let delays: Vec<_> = (0..=5).map(|failures| delay(failures).as_millis()).collect();
        assert_eq!(delays, [0, 0, 500, 1000, 2000, 4000]);
        assert_eq!(delay(u32::MAX), RESTART_DELAY_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn stable_connection_resets_failure_count() {
        let mut history =
            RestartHistory { last_attempt: Some(Instant::now()), ..RestartHistory::default() };
        for _ in 0..3 {
            history.failed(&transient("as ever".to_owned()));
        }
        let failure = history.check_backoff("files").unwrap_err();
        insta::assert_snapshot!(failure.message, @r#"MCP server "files" failed 3 times in a row and is not started again before 1.0 seconds have passed; the last time: as ever"#);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(history.check_backoff("files"), Ok(()));
        history.lost(STABLE_AFTER, "lost".to_owned());
        assert_eq!(history.failures, 1);
    }

    /// A server that never answers.
    fn silent_server() -> Arc<McpServer> {
        let definition = polity_testkit::mcp::stdio_server("silent", "sh", &["-c", "sleep 1000"]);
        let environment = crate::environment::EnvSource::new(polity_testkit::mcp::environment);
        let options =
            McpOptions::new("/".into(), environment, crate::process::ProcessLauncher::Direct);
        Arc::new(McpServer::new(definition, Arc::new(options)))
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_fallback_server_is_awaited_once() {
        let server = silent_server();
        let failure = server.list_fallback_tools().await.err().unwrap();
        assert!(failure.message.contains("is no longer waited for"), "{failure}");
        // Time is paused, so it passes only while something is awaited.
        let began = Instant::now();
        for _ in 0..2 {
            let failure = server.list_fallback_tools().await.err().unwrap();
            assert!(failure.message.contains("is still being started"), "{failure}");
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn restart_delay_counts_from_the_end_of_a_failed_start() {
        let server = silent_server();
        for _ in 0..2 {
            let failure = server.start().await.err().unwrap();
            assert!(failure.message.contains("did not answer within 30 seconds"), "{failure}");
        }
        let failure = server.start().await.err().unwrap();
        assert!(failure.message.contains("failed 2 times in a row"), "{failure}");
    }
}
