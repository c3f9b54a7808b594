//! Errors for the user: message, hint, error code and exit code.

mod host;

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;

use polity_definition::DefinitionProblem;
use polity_engine::decide::CommandRejection;
use polity_engine::driver::ToolsUnavailable;
use polity_engine::runtime::{EngineError, ForkError, RetryError};
use polity_host::PinnedAccess;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_store::{CommitError, StoreError};
use serde_json::json;

use crate::exit::ExitStatus;
use crate::terminal::{note, tell_json};
use crate::view::access::pinned_access;
use crate::view::style;

/// The error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    code: &'static str,
    message: String,
    hint: Option<String>,
    exit: ExitStatus,
    /// Problems of definitions, printed one per line.
    problems: Vec<DefinitionProblem>,
    /// What a task would use if it ran.
    access: Vec<PinnedAccess>,
}

/// The result of a command.
pub(crate) type CliResult = Result<ExitStatus, CliError>;

/// Declares the constructors of errors that have one code and one exit status.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident: $code:literal, $exit:ident;)*) => {
        impl CliError {
            $(
                $(#[$doc])*
                pub(crate) fn $name(message: impl Display) -> Self {
                    Self::new($code, ExitStatus::$exit, message)
                }
            )*
        }
    };
}

constructors! {
    /// Wrong usage of a command.
    usage: "usage", Usage;
    /// A record or file does not exist.
    not_found: "not_found", Failed;
    /// There is no such agent or workflow.
    unknown_agent: "unknown_agent", Usage;
    /// There is no such definition.
    unknown_definition: "not_found", Usage;
    /// A file of a run is damaged.
    damaged: "damaged", Failed;
    /// The current state does not allow the operation.
    conflict: "conflict", Failed;
    /// This version does not support the operation.
    unsupported: "unsupported", Usage;
    /// A cassette cannot be used.
    cassette: "cassette", Usage;
    /// A tool could not be called, or its server could not be reached.
    tool_failed: "tool_failed", Failed;
    /// An archive cannot be used.
    archive: "archive", Failed;
    /// A definition or folder of that name exists.
    already: "exists", Failed;
    /// The operation timed out.
    timed_out: "timeout", TimedOut;
}

impl CliError {
    fn new(code: &'static str, exit: ExitStatus, message: impl Display) -> Self {
        let (message, hint) = (message.to_string(), None);
        Self { code, message, hint, exit, problems: Vec::new(), access: Vec::new() }
    }

    /// Replaces a placeholder in the hint.
    pub(crate) fn about(mut self, placeholder: &str, name: &str) -> Self {
        self.hint = self.hint.map(|hint| hint.replace(placeholder, name));
        self
    }

    /// The message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// True if a record or file does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == "not_found"
    }

    /// A limit is exceeded.
    pub(crate) fn over_limit(code: &'static str, message: impl Display) -> Self {
        Self::new(code, ExitStatus::OverLimit, message)
    }

    /// Definitions are not valid.
    pub(crate) fn invalid(message: impl Display, problems: Vec<DefinitionProblem>) -> Self {
        let hint = "fix the files; `polity check` checks the whole home".to_owned();
        Self {
            hint: Some(hint),
            problems,
            ..Self::new("invalid_definition", ExitStatus::Usage, message)
        }
    }

    /// Tools cannot be listed.
    pub(crate) fn tools_unavailable(unavailable: ToolsUnavailable) -> Self {
        Self::new("tools_unavailable", ExitStatus::Failed, unavailable.failure.message)
    }

    /// A file could not be read or written.
    pub(crate) fn io(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        let (code, hint) = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                ("not_writable", Some("check the permissions, or use another folder with --home"))
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                ("disk_full", Some("free some space and try again"))
            }
            _ => ("io", None),
        };
        let message = format!("cannot {doing} {}: {error}", path.display());
        Self { hint: hint.map(str::to_owned), ..Self::new(code, ExitStatus::Failed, message) }
    }

    /// Sets the hint.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Adds the task's id to the message, unless it is there.
    pub(crate) fn of_task(mut self, id: TaskId) -> Self {
        if !self.message.contains(&id.to_string()) {
            self.message = format!("task {id}: {}", self.message);
        }
        self
    }

    /// Adds what the task would use if it ran.
    pub(crate) fn with_access(mut self, access: Vec<PinnedAccess>) -> Self {
        self.access = access;
        self
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> ExitStatus {
        self.exit
    }

    /// Prints the error on stderr.
    pub(crate) fn print(&self, json: bool) {
        if json {
            let mut error = json!({"code": self.code, "message": self.message, "hint": self.hint});
            if !self.problems.is_empty() {
                error["problems"] = json!(self.problems);
            }
            if !self.access.is_empty() {
                error["access"] = json!(self.access);
            }
            tell_json(&json!({ "error": error }));
            return;
        }
        for problem in &self.problems {
            note!("{problem}");
        }
        note!("{}: {}", style::error("error"), self.message);
        if !self.access.is_empty() {
            note!("it would use:\n{}", pinned_access(&self.access));
        }
        if let Some(hint) = &self.hint {
            note!("  {}: {hint}", style::hint("hint"));
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Damaged { .. } => "store_damaged",
            StoreError::Foreign { .. } => "store_foreign",
            StoreError::Newer { .. } => "store_newer",
            StoreError::Full { .. } => "disk_full",
            StoreError::NotWritable { .. } => "not_writable",
            StoreError::Busy { .. } => "store_busy",
            StoreError::Unreadable { .. } => "store_unreadable",
            StoreError::InUse { .. } => "conflict",
            StoreError::Exists { .. } => "exists",
            StoreError::Missing { .. } => "not_found",
            StoreError::Failed { .. } | StoreError::Closed => "store_failed",
        };
        Self::new(code, ExitStatus::Failed, &error).hint(error.hint())
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) | EngineError::Commit(CommitError::Store(error)) => {
                error.into()
            }
            EngineError::Rejected(rejection) => rejection.into(),
            EngineError::NotReady(not_ready) => {
                Self::new("not_ready", ExitStatus::Usage, &not_ready.message).hint(not_ready.hint)
            }
            EngineError::Fork(ForkError::NoCheckpoint { task, .. }) => Self::not_found(&error)
                .hint(format!("`polity task checkpoints {task}` lists the checkpoints")),
            EngineError::Fork(ForkError::AtWork { task, .. }) => {
                Self::conflict(&error).hint(format!(
                    "fork it at another checkpoint: `polity task checkpoints {task}` shows them"
                ))
            }
            EngineError::Fork(ForkError::Unfit { task, .. }) => Self::conflict(&error).hint(format!(
                "put it back into the file, fork at an earlier checkpoint (`polity task checkpoints \
                 {task}`), or leave out --definitions"
            )),
            EngineError::Retry(retry) => retry.into(),
            EngineError::NotFound(_) => {
                Self::not_found(&error).hint("`polity task list` lists the tasks")
            }
            EngineError::TakenOver(_) | EngineError::Contended(_) => {
                Self::conflict(&error).hint("another process is working on it: `polity task list`")
            }
            EngineError::Left(_)
            | EngineError::Panicked { .. }
            | EngineError::Pinned(_)
            | EngineError::Commit(_)
            | EngineError::Broken { .. } => Self::new("engine", ExitStatus::Failed, &error),
        }
    }
}

impl From<RetryError> for CliError {
    fn from(error: RetryError) -> Self {
        match &error {
            RetryError::NotEnded { task, status } => Self::conflict(&error).hint(match status {
                TaskStatus::AwaitingHuman => {
                    format!("answer its review: `polity review show {task}`")
                }
                TaskStatus::Pending
                | TaskStatus::Running
                | TaskStatus::Completed
                | TaskStatus::Failed
                | TaskStatus::Cancelled => format!(
                    "follow it with `polity task watch {task}`; if its process has ended, continue \
                     with `polity task resume {task}`"
                ),
            }),
            RetryError::Completed { task } => Self::conflict(&error).hint(format!(
                "to go another way, fork it: `polity task fork {task} --from CHECKPOINT`"
            )),
            RetryError::Retried { retry, status, .. } => {
                Self::conflict(&error).hint(match status {
                    TaskStatus::Failed | TaskStatus::Cancelled => {
                        format!("retry that one: `polity task retry {retry}`")
                    }
                    TaskStatus::AwaitingHuman => {
                        format!("answer its review: `polity review show {retry}`")
                    }
                    TaskStatus::Completed => format!("see its result: `polity task show {retry}`"),
                    TaskStatus::Pending | TaskStatus::Running => {
                        format!("follow it: `polity task watch {retry}`")
                    }
                })
            }
            RetryError::Part { whole, .. } => {
                Self::usage(&error).hint(format!("retry the whole: `polity task retry {whole}`"))
            }
            RetryError::BudgetUsedUp { task, .. } => Self::new(
                "budget",
                ExitStatus::OverLimit,
                &error,
            )
            .hint(format!(
                "raise the limit: `polity task retry {task} --max-cost-usd USD` or `--max-tokens \
                     N`; what was spent so far counts"
            )),
            RetryError::SecretsGone { .. } => Self::conflict(&error)
                .hint("start it again with `polity run` and the same input and --env"),
            RetryError::Undone { task } => Self::conflict(&error).hint(format!(
                "run the workflow again, or fork the task before its failure: `polity task fork \
                 {task} --from CHECKPOINT`"
            )),
            RetryError::Unfit { .. } => Self::conflict(&error)
                .hint("put it back into the file, or retry without --definitions"),
        }
    }
}

impl From<CommandRejection> for CliError {
    fn from(rejection: CommandRejection) -> Self {
        match &rejection {
            CommandRejection::EmptyInput => Self::usage(&rejection)
                .hint("give it as polity run NAME \"INPUT\", or use - to read it from stdin"),
            CommandRejection::InputTooLarge { .. } => {
                Self::new("limit_input_bytes", ExitStatus::OverLimit, &rejection)
                    .hint("shorten the input, or raise limits.input_bytes in polity.yaml")
            }
            CommandRejection::TooDeep { .. } => {
                Self::new("limit_sub_agent_depth", ExitStatus::OverLimit, &rejection).hint(
                    "nest sub-agents less deeply, or raise limits.sub_agent_depth in \
                     polity.yaml",
                )
            }
            CommandRejection::Disabled { agent, .. } => {
                Self::new("agent_disabled", ExitStatus::Usage, &rejection)
                    .hint(format!("enable it with `polity agent enable {agent}`"))
            }
            CommandRejection::KindNotRunnable { .. } => Self::unsupported(&rejection),
            CommandRejection::Finished { .. } => Self::conflict(&rejection),
            CommandRejection::AwaitingHuman { task } => {
                Self::new("awaiting_human", ExitStatus::AwaitingHuman, &rejection)
                    .hint(format!("show the review with `polity review show {task}`"))
            }
            CommandRejection::AnotherQuestion { task, .. } => {
                Self::conflict(&rejection).hint(format!(
                    "nothing was recorded; show the review with `polity review show \
                     {task}`"
                ))
            }
            CommandRejection::NoSuchCheckpoint { task, .. } => {
                Self::not_found(&rejection).hint(format!(
                    "nothing was recorded; `polity review show {task} --json` shows the current \
                     checkpoint"
                ))
            }
            CommandRejection::NothingToDecide { .. } => {
                Self::conflict(&rejection).hint("`polity review list` lists the open reviews")
            }
            CommandRejection::DoubtNeedsChoice { task } => Self::usage(&rejection).hint(format!(
                "`polity review approve {task} --retry` repeats it, `--skip-with RESULT` uses \
                 RESULT as its result, `polity review reject {task}` fails the task"
            )),
            CommandRejection::AnswerNeedsText { task } => Self::usage(&rejection).hint(format!(
                "`polity review approve {task} --message TEXT` answers it, `polity review reject \
                 {task}` fails the task"
            )),
            CommandRejection::WrongVerdict { task, .. } => Self::usage(&rejection)
                .hint(format!("see the possible answers with `polity review show {task}`")),
            CommandRejection::Misfit { .. } => Self::usage(&rejection).hint(
                "nothing was recorded; see the tool's input schema with `polity tool list --json`",
            ),
            CommandRejection::InvalidUpdate(_) => Self::usage(&rejection).hint(
                "nothing was changed; see the State with `polity task checkpoints ID --json`",
            ),
            CommandRejection::NoStateThere { .. } => Self::usage(&rejection)
                .hint("leave out --set, or use `polity review modify` to change the arguments"),
            CommandRejection::TooLate { task, .. } => Self::conflict(&rejection).hint(format!(
                "`polity task resume {task}` applies the default action, or fails the task"
            )),
            CommandRejection::NeedsTrust { .. } => {
                Self::new("untrusted", ExitStatus::Usage, &rejection)
                    .hint("repeat the command with --trust if you trust all of it")
            }
            CommandRejection::OwnerAlive { .. } => Self::conflict(&rejection)
                .hint("follow it with `polity task watch`, or end it with `polity task cancel`"),
            CommandRejection::UnexpectedCommand { .. }
            | CommandRejection::NoAgent { .. }
            | CommandRejection::TooEarly { .. } => {
                Self::new("engine", ExitStatus::Failed, &rejection)
            }
        }
    }
}
