//! Telling someone that something happened: with a program that is run, and by calling an address.

mod command;
mod webhook;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use polity_definition::OnReview;

use crate::environment::Environment;
use crate::process::ProcessLauncher;

/// How long the program may take.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it may take until the address has taken the notice, all tries included.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// What there is to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// All of it, as JSON.
    pub json: Vec<u8>,
    /// The gist of it, as environment variables of the program.
    pub variables: Vec<(&'static str, String)>,
}

/// What notices are sent with.
#[derive(Debug, Clone)]
pub struct NotifyOptions {
    /// The home folder, in which the program is run.
    pub home: PathBuf,
    /// Looks up an environment variable.
    pub environment: Environment,
    /// How the program is started.
    pub launcher: ProcessLauncher,
    /// How long the program may take.
    pub command_timeout: Duration,
    /// How long it may take until the address has taken the notice, all tries included.
    pub webhook_timeout: Duration,
}

impl NotifyOptions {
    /// Options with the default limits.
    pub fn new(home: PathBuf, environment: Environment, launcher: ProcessLauncher) -> Self {
        let (command_timeout, webhook_timeout) = (COMMAND_TIMEOUT, WEBHOOK_TIMEOUT);
        Self { home, environment, launcher, command_timeout, webhook_timeout }
    }
}

/// Tells as the settings say, both ways at once. The answer is what went wrong.
pub async fn tell(settings: &OnReview, notice: &Notice, options: &NotifyOptions) -> Vec<NotTold> {
    let run = async {
        match &settings.command {
            Some(command) => command::run(command, notice, options).await,
            None => Ok(()),
        }
    };
    let call = async {
        match &settings.webhook {
            Some(webhook) => webhook::call(webhook, notice, options).await,
            None => Ok(()),
        }
    };
    let (ran, called) = tokio::join!(run, call);
    [ran, called].into_iter().filter_map(Result::err).collect()
}

/// Why someone was not told. No secret that was filled in is in it.
#[derive(Debug, thiserror::Error)]
pub enum NotTold {
    /// A setting names a variable that is not set.
    #[error("notify.on_review.{field} needs the environment variable {name}, which is not set")]
    Unset {
        /// `command` or `webhook`.
        field: &'static str,
        /// The variable.
        name: String,
    },
    /// There is no such program.
    #[error("the program \"{program}\" of notify.on_review.command is not there")]
    NoProgram {
        /// As the setting names it.
        program: String,
    },
    /// The program cannot be started.
    #[error("the program \"{program}\" of notify.on_review.command cannot be started: {reason}")]
    NotStarted {
        /// As the setting names it.
        program: String,
        /// Why.
        reason: String,
    },
    /// The program failed.
    #[error("the program \"{program}\" of notify.on_review.command ended with {status}{words}")]
    Failed {
        /// As the setting names it.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it last said.
        words: String,
    },
    /// The program was ended because it took too long.
    #[error(
        "the program \"{program}\" of notify.on_review.command did not end within {} seconds and \
         was stopped{words}",
        limit.as_secs()
    )]
    TookTooLong {
        /// As the setting names it.
        program: String,
        /// How long it had.
        limit: Duration,
        /// What it last said.
        words: String,
    },
    /// The address is none.
    #[error("notify.on_review.webhook is no address that starts with http:// or https://")]
    NoAddress,
    /// There is no way to call anyone.
    #[error("HTTP cannot be set up for notify.on_review.webhook: {reason}")]
    NoClient {
        /// Why.
        reason: String,
    },
    /// The connection failed.
    #[error("the server {server} of notify.on_review.webhook cannot be reached: {reason}")]
    NotReached {
        /// Where.
        server: String,
        /// Why.
        reason: String,
    },
    /// The server did not take it.
    #[error("the server {server} of notify.on_review.webhook answered with status {status}{said}")]
    Refused {
        /// Where.
        server: String,
        /// The status of HTTP.
        status: u16,
        /// What it said.
        said: String,
    },
    /// The server did not take it in time.
    #[error(
        "the server {server} of notify.on_review.webhook has not taken it within {} seconds",
        limit.as_secs()
    )]
    NotInTime {
        /// Where.
        server: String,
        /// How long it had.
        limit: Duration,
    },
}

impl NotTold {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unset { .. } => "set it where Polity is started, or take it out of polity.yaml",
            Self::NoProgram { .. } => {
                "name a program that is on the PATH, or a path from the home, in polity.yaml; it \
                 must be executable"
            }
            Self::NotStarted { .. } => "see that it can be run by hand in the home folder",
            Self::Failed { .. } => {
                "run it by hand in the home folder, with what `polity review show ID --json` \
                 prints on its stdin"
            }
            Self::TookTooLong { .. } => {
                "let it end sooner; what it leaves running is ended with it"
            }
            Self::NoAddress => "correct it in polity.yaml, or the variable that it names",
            Self::NoClient { .. } => {
                "see that the proxies in the environment are right, and that this machine has \
                 certificates"
            }
            Self::NotReached { .. } => {
                "see that the address in polity.yaml is right, and that its server runs"
            }
            Self::Refused { status: 500.., .. } | Self::NotInTime { .. } => {
                "see what is wrong with that server"
            }
            Self::Refused { .. } => "see that the address in polity.yaml is right, key and all",
        }
    }

    /// Whether it may go better in a moment.
    fn is_passing(&self) -> bool {
        match self {
            Self::NotReached { .. } | Self::Refused { status: 500.., .. } => true,
            Self::Unset { .. }
            | Self::NoProgram { .. }
            | Self::NotStarted { .. }
            | Self::Failed { .. }
            | Self::TookTooLong { .. }
            | Self::NoAddress
            | Self::NoClient { .. }
            | Self::Refused { .. }
            | Self::NotInTime { .. } => false,
        }
    }
}

/// What someone said, to put behind what went wrong.
fn quoted(said: &str) -> String {
    let said = said.trim();
    if said.is_empty() { String::new() } else { format!(": {said}") }
}
