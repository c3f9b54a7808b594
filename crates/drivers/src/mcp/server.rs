//! One server: whether it is there, and when it is started again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_definition::McpServerDefinition;
use polity_engine::driver::Tool;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::Connection;
use super::{McpOptions, listing, transient};

/// A connection that lasted for so long was a good one: what went wrong before is forgotten.
const GOOD_AFTER: Duration = Duration::from_secs(30);

/// How long to wait between the first restart, which is made at once, and the second.
const RESTART_DELAY_FIRST: Duration = Duration::from_millis(500);

/// The longest wait between two restarts.
const RESTART_DELAY_MAX: Duration = Duration::from_mins(1);

/// One server of the home.
pub(super) struct Server {
    definition: McpServerDefinition,
    options: Arc<McpOptions>,
    live: Mutex<Option<Arc<Connection>>>,
    /// Held by the one who starts the server.
    history: tokio::sync::Mutex<History>,
    /// Whether its tools were asked for in vain when it was held in reserve.
    late: AtomicBool,
    closed: watch::Sender<bool>,
}

impl Server {
    pub(super) fn new(definition: McpServerDefinition, options: Arc<McpOptions>) -> Self {
        let (closed, _) = watch::channel(false);
        let history = tokio::sync::Mutex::new(History::default());
        let late = AtomicBool::new(false);
        Self { definition, options, live: Mutex::new(None), history, late, closed }
    }

    /// The server's name.
    pub(super) fn name(&self) -> &str {
        self.definition.name.as_str()
    }

    /// The connection, which is made if there is none.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, AttemptFailure> {
        if let Some(live) = self.live()
            && live.answers().await
        {
            return Ok(live);
        }
        // The start belongs to no one: others wait for it who may have more patience.
        let this = Arc::clone(self);
        tokio::spawn(async move { this.start().await }).await.unwrap_or_else(|error| {
            let message = format!("MCP server \"{}\" cannot be started: {error}", self.name());
            Err(AttemptFailure { category: ErrorCategory::SystemError, message })
        })
    }

    /// The tools of the server as it lists them now.
    pub(super) async fn tools(self: &Arc<Self>) -> Result<Arc<[Arc<Tool>]>, AttemptFailure> {
        let connection = self.connection().await?;
        listing::tools(&connection, &self.definition).await
    }

    /// The tools of the server, which is held in reserve and must not hold up anyone for long. One
    /// that was waited for in vain is not waited for again before it has answered; until then it is
    /// only tried in the background, as often as its failures allow.
    pub(super) async fn tools_in_reserve(
        self: &Arc<Self>,
    ) -> Result<Arc<[Arc<Tool>]>, AttemptFailure> {
        let name = self.name();
        let was_late = self.late.load(Ordering::SeqCst);
        let is_being_started = self.history.try_lock().is_err();
        if was_late && is_being_started {
            return Err(transient(format!("MCP server \"{name}\" is still being started")));
        }
        let this = Arc::clone(self);
        let listing = tokio::spawn(async move {
            let tools = this.tools().await;
            this.late.store(tools.is_err(), Ordering::SeqCst);
            tools
        });
        if was_late {
            return Err(transient(format!(
                "MCP server \"{name}\" failed before and is tried again in the background"
            )));
        }
        let limit = self.options.reserve_timeout;
        let Ok(listed) = tokio::time::timeout(limit, listing).await else {
            self.late.store(true, Ordering::SeqCst);
            let seconds = limit.as_secs_f64();
            return Err(transient(format!(
                "MCP server \"{name}\" did not list its tools within {seconds} seconds and is no \
                 longer waited for"
            )));
        };
        listed.unwrap_or_else(|error| {
            let message = format!("the tools of MCP server \"{name}\" cannot be listed: {error}");
            Err(AttemptFailure { category: ErrorCategory::SystemError, message })
        })
    }

    /// Ends the server for good, and waits until it is gone.
    pub(super) async fn shutdown(&self) {
        self.closed.send_replace(true);
        // Whoever starts it just now gives up at once.
        let _history = self.history.lock().await;
        let live = self.replace(None);
        if let Some(connection) = live {
            connection.close().await;
        }
    }

    fn live(&self) -> Option<Arc<Connection>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().filter(|connection| connection.is_alive()).cloned()
    }

    fn replace(&self, connection: Option<Arc<Connection>>) -> Option<Arc<Connection>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *live, connection)
    }

    /// Starts the server unless someone else just did, or it is too early.
    async fn start(&self) -> Result<Arc<Connection>, AttemptFailure> {
        let mut history = self.history.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let mut closed = self.closed.subscribe();
        if let Some(dead) = self.replace(None) {
            let signs = dead.last_signs().await;
            history.lost(dead.age(), format!("the connection was lost{signs}"));
            // Others may still hold it, so it is ended and not only let go.
            tokio::spawn(async move { dead.close().await });
        }
        history.may_start(self.name())?;
        tokio::select! {
            // First of all, so that nothing is started once the end has begun.
            biased;
            _ = closed.wait_for(|closed| *closed) => {
                Err(transient(format!("MCP server \"{}\" is being shut down", self.name())))
            }
            opened = Connection::open(&self.definition, &self.options) => {
                history.tried = Some(Instant::now());
                let connection =
                    opened.map(Arc::new).inspect_err(|failure| history.failed(failure))?;
                self.replace(Some(Arc::clone(&connection)));
                Ok(connection)
            }
        }
    }
}

/// How the server fared.
#[derive(Debug, Default)]
struct History {
    /// How often it failed in a row.
    failures: u32,
    /// When the last start came to its end, well or badly. The next one waits from there: a start
    /// that failed after a long time has not been waited for already.
    tried: Option<Instant>,
    /// Why it last failed.
    reason: String,
}

impl History {
    /// A connection of this age was lost.
    fn lost(&mut self, age: Duration, reason: String) {
        if age >= GOOD_AFTER {
            self.failures = 0;
        }
        self.failures += 1;
        self.reason = reason;
    }

    /// The server could not be started. One that can never be started is not tried less often.
    fn failed(&mut self, failure: &AttemptFailure) {
        match failure.category {
            ErrorCategory::Transient => {
                self.failures += 1;
                self.reason.clone_from(&failure.message);
            }
            ErrorCategory::Permanent | ErrorCategory::AgentError | ErrorCategory::SystemError => {}
        }
    }

    /// Whether enough time has passed since the last start.
    fn may_start(&self, server: &str) -> Result<(), AttemptFailure> {
        let Some(tried) = self.tried else { return Ok(()) };
        let wait = (tried + delay(self.failures)).saturating_duration_since(Instant::now());
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

/// How long must be between the end of a start that failed and the next: nothing at first, then ever longer.
fn delay(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(2) else { return Duration::ZERO };
    let factor = 2_u32.saturating_pow(doublings);
    RESTART_DELAY_FIRST.saturating_mul(factor).min(RESTART_DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_made_at_once_and_each_next_one_later() {
        let delays: Vec<_> = (0..=5).map(|failures| delay(failures).as_millis()).collect();
        assert_eq!(delays, [0, 0, 500, 1000, 2000, 4000]);
        assert_eq!(delay(u32::MAX), RESTART_DELAY_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_good_connection_makes_up_for_what_was_before() {
        let mut history = History { tried: Some(Instant::now()), ..History::default() };
        for _ in 0..3 {
            history.failed(&transient("as ever".to_owned()));
        }
        let failure = history.may_start("files").unwrap_err();
        assert_eq!(
            failure.message,
            "MCP server \"files\" failed 3 times in a row and is not started again before 1.0 \
             seconds have passed; the last time: as ever"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(history.may_start("files"), Ok(()));
        history.lost(GOOD_AFTER, "lost".to_owned());
        assert_eq!(history.failures, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_start_takes_to_fail_is_no_delay() {
        let definition = polity_testkit::mcp::stdio_server("silent", "sh", &["-c", "sleep 1000"]);
        let environment = crate::environment::Environment::new(polity_testkit::mcp::environment);
        let options =
            McpOptions::new("/".into(), environment, crate::process::ProcessLauncher::Direct);
        let server = Arc::new(Server::new(definition, Arc::new(options)));
        for _ in 0..2 {
            let failure = server.start().await.err().unwrap();
            assert!(failure.message.contains("did not answer within 30 seconds"), "{failure}");
        }
        let failure = server.start().await.err().unwrap();
        assert!(failure.message.contains("failed 2 times in a row"), "{failure}");
    }
}
