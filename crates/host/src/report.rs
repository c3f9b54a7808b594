//! Error reports: the code, message and hint of an error, for every front end.

mod engine_errors;
mod host_errors;

use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::path::Path;

use polity_definition::DefinitionProblem;
use polity_engine::driver::ToolsUnavailable;
use polity_model::ids::TaskId;

use crate::queries::PinnedAccess;

/// The kind of an error: the exit code of a command, and the default status of an HTTP answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// A failed task, an unknown id, a conflict, an I/O error.
    Failed,
    /// Wrong usage, an invalid definition, an unknown or disabled agent.
    Usage,
    /// A task that waits for a person.
    AwaitingHuman,
    /// An operation that timed out.
    TimedOut,
    /// A budget or limit that is exceeded.
    OverLimit,
}

/// An error as a front end shows it. Codes are part of the API.
#[derive(Debug, Clone)]
pub struct ErrorReport {
    code: Cow<'static, str>,
    message: String,
    hint: Option<Box<str>>,
    kind: ReportKind,
    /// Problems of definitions, shown one per line.
    problems: Vec<DefinitionProblem>,
    /// What a task would use if it ran.
    access: Vec<PinnedAccess>,
}

/// Declares the constructors of errors that have one code and one kind.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident: $code:literal, $exit:ident;)*) => {
        impl ErrorReport {
            $(
                $(#[$doc])*
                pub fn $name(message: impl Display) -> Self {
                    Self::new($code, ReportKind::$exit, message)
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

impl ErrorReport {
    /// An error with a code of its own.
    pub fn new(
        code: impl Into<Cow<'static, str>>,
        kind: ReportKind,
        message: impl Display,
    ) -> Self {
        let (message, hint) = (message.to_string(), None);
        Self { code: code.into(), message, hint, kind, problems: Vec::new(), access: Vec::new() }
    }

    /// Replaces a placeholder in the hint.
    pub fn about(mut self, placeholder: &str, name: &str) -> Self {
        self.hint = self.hint.map(|hint| hint.replace(placeholder, name).into());
        self
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// True if a record or file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == "not_found"
    }

    /// A limit is exceeded.
    pub fn over_limit(code: &'static str, message: impl Display) -> Self {
        Self::new(code, ReportKind::OverLimit, message)
    }

    /// Definitions are not valid.
    pub fn invalid(message: impl Display, problems: Vec<DefinitionProblem>) -> Self {
        let hint = "fix the files; `polity check` checks the whole home";
        Self {
            hint: Some(hint.into()),
            problems,
            ..Self::new("invalid_definition", ReportKind::Usage, message)
        }
    }

    /// Tools cannot be listed.
    pub fn tools_unavailable(unavailable: ToolsUnavailable) -> Self {
        Self::new("tools_unavailable", ReportKind::Failed, unavailable.failure.message)
    }

    /// A file could not be read or written.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let (code, hint) = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ("not_writable", Some("check the permissions, or use another folder with --home"))
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ("disk_full", Some("free some space and try again"))
            }
            _ => ("io", None),
        };
        let message = format!("cannot {doing} {}: {error}", path.display());
        Self { hint: hint.map(Into::into), ..Self::new(code, ReportKind::Failed, message) }
    }

    /// Sets the hint.
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string().into());
        self
    }

    /// Sets the problems of definitions.
    pub fn with_problems(mut self, problems: Vec<DefinitionProblem>) -> Self {
        self.problems = problems;
        self
    }

    /// Adds the task's id to the message, unless it is there.
    pub fn of_task(mut self, id: TaskId) -> Self {
        if !self.message.contains(&id.to_string()) {
            self.message = format!("task {id}: {}", self.message);
        }
        self
    }

    /// Adds what the task would use if it ran.
    pub fn with_access(mut self, access: Vec<PinnedAccess>) -> Self {
        self.access = access;
        self
    }

    /// The code, which is stable.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The way to fix it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The kind.
    pub fn kind(&self) -> ReportKind {
        self.kind
    }

    /// The problems of definitions.
    pub fn problems(&self) -> &[DefinitionProblem] {
        &self.problems
    }

    /// The programs, addresses and variables that a task would use if it ran.
    pub fn access(&self) -> &[PinnedAccess] {
        &self.access
    }
}
