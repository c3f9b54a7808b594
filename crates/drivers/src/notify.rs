//! Sends notifications: runs a command and calls a webhook.

mod command;
mod webhook;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use polity_definition::OnReview;

use crate::environment::EnvSource;
use crate::process::{DATA_FOLDER, HomeProgramCheck, ProcessLauncher};

/// The default time limit of the command.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// The default time limit of the webhook, including retries.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationPayload {
    /// The whole content, as JSON.
    pub json: Vec<u8>,
    /// The main fields, as environment variables of the command.
    pub variables: Vec<(&'static str, String)>,
}

/// The options for sending notifications.
#[derive(Debug, Clone)]
pub struct NotifyOptions {
    /// The home folder, the command's working directory.
    pub home: PathBuf,
    /// The source of environment variables.
    pub environment: EnvSource,
    /// The launcher of the command.
    pub launcher: ProcessLauncher,
    /// The data folder of the home, for the record of the command.
    pub data: PathBuf,
    /// The check of a command whose executable is in the home.
    pub program_check: HomeProgramCheck,
    /// The time limit of the command.
    pub command_timeout: Duration,
    /// The time limit of the webhook, including retries.
    pub webhook_timeout: Duration,
}

impl NotifyOptions {
    /// Options with the default limits.
    pub fn new(home: PathBuf, environment: EnvSource, launcher: ProcessLauncher) -> Self {
        let (command_timeout, webhook_timeout) = (COMMAND_TIMEOUT, WEBHOOK_TIMEOUT);
        let (data, program_check) = (home.join(DATA_FOLDER), HomeProgramCheck::default());
        Self { home, environment, launcher, data, program_check, command_timeout, webhook_timeout }
    }
}

/// Runs the command and calls the webhook in parallel. Returns the errors of both.
pub async fn send_notification(
    settings: &OnReview,
    payload: &NotificationPayload,
    options: &NotifyOptions,
) -> Vec<NotifyError> {
    let run = async {
        match &settings.command {
            Some(command) => command::run(command, payload, options).await,
            None => Ok(()),
        }
    };
    let call = async {
        match &settings.webhook {
            Some(webhook) => webhook::call(webhook, payload, options).await,
            None => Ok(()),
        }
    };
    let (ran, called) = tokio::join!(run, call);
    [ran, called].into_iter().filter_map(Result::err).collect()
}

/// An error while sending a notification. It contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// A setting references an unset variable.
    #[error("notify.on_review.{field} needs the environment variable {name}, which is not set")]
    Unset {
        /// `command` or `webhook`.
        field: &'static str,
        /// The variable.
        name: String,
    },
    /// The program does not exist.
    #[error("the program \"{program}\" of notify.on_review.command is not there")]
    NoProgram {
        /// The program as configured.
        program: String,
    },
    /// The program is a file of the home that another user may have written.
    #[error("the program \"{program}\" of notify.on_review.command cannot be run: {reason}")]
    NotTrusted {
        /// The program as configured.
        program: String,
        /// The cause.
        reason: String,
    },
    /// The program cannot be started.
    #[error("the program \"{program}\" of notify.on_review.command cannot be started: {reason}")]
    NotStarted {
        /// The program as configured.
        program: String,
        /// The cause.
        reason: String,
    },
    /// The program failed.
    #[error("the program \"{program}\" of notify.on_review.command ended with {status}{words}")]
    Failed {
        /// The program as configured.
        program: String,
        /// The exit status.
        status: ExitStatus,
        /// The end of its output.
        words: String,
    },
    /// The program exceeded its time limit and was ended.
    #[error(
        "the program \"{program}\" of notify.on_review.command did not end within {} seconds and \
         was stopped{words}",
        limit.as_secs()
    )]
    TookTooLong {
        /// The program as configured.
        program: String,
        /// The time limit.
        limit: Duration,
        /// The end of its output.
        words: String,
    },
    /// The webhook is not a URL.
    #[error("notify.on_review.webhook is no address that starts with http:// or https://")]
    NoAddress,
    /// The HTTP client cannot be created.
    #[error("HTTP cannot be set up for notify.on_review.webhook: {reason}")]
    NoClient {
        /// The cause.
        reason: String,
    },
    /// The server is unreachable.
    #[error("the server {server} of notify.on_review.webhook cannot be reached: {reason}")]
    NotReached {
        /// The server.
        server: String,
        /// The cause.
        reason: String,
    },
    /// The server answered with an error status.
    #[error("the server {server} of notify.on_review.webhook answered with status {status}{said}")]
    Refused {
        /// The server.
        server: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the response.
        said: String,
    },
    /// The server did not answer in time.
    #[error(
        "the server {server} of notify.on_review.webhook has not taken it within {} seconds",
        limit.as_secs()
    )]
    NotInTime {
        /// The server.
        server: String,
        /// The time limit.
        limit: Duration,
    },
}

impl NotifyError {
    /// The fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unset { .. } => "set it where Polity is started, or take it out of polity.yaml",
            Self::NoProgram { .. } => {
                "name a program that is on the PATH, or a path from the home, in polity.yaml; it \
                 must be executable"
            }
            Self::NotTrusted { .. } => {
                "take ownership of it, or name the home with --home if you trust all who can write \
                 to it"
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

    /// True if a retry may succeed.
    fn is_transient(&self) -> bool {
        matches!(self, Self::NotReached { .. } | Self::Refused { status: 500.., .. })
    }
}

/// Formats output for the end of an error message.
fn append_text(said: &str) -> String {
    let said = said.trim();
    if said.is_empty() { String::new() } else { format!(": {said}") }
}
