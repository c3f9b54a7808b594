//! Codes and hints for the errors of the store and the engine.

use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{EngineError, ForkError, RetryError};
use polity_engine::schedule::ScheduleRejection;
use polity_model::machine::task::TaskStatus;
use polity_store::{CommitError, StoreError};

use super::{ErrorReport, ReportKind};

impl From<StoreError> for ErrorReport {
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
        Self::new(code, ReportKind::Failed, &error).hint(error.hint())
    }
}

impl From<EngineError> for ErrorReport {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) | EngineError::Commit(CommitError::Store(error)) => {
                error.into()
            }
            EngineError::Rejected(rejection) => rejection.into(),
            EngineError::NotReady(not_ready) => {
                Self::new("not_ready", ReportKind::Usage, &not_ready.message).hint(not_ready.hint)
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
            EngineError::Schedule(rejection) => rejection.into(),
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
            | EngineError::Broken { .. } => Self::new("engine", ReportKind::Failed, &error),
        }
    }
}

impl From<ScheduleRejection> for ErrorReport {
    fn from(error: ScheduleRejection) -> Self {
        match &error {
            ScheduleRejection::AlreadyPaused { schedule, .. } => Self::conflict(&error)
                .hint(format!("continue it with `polity schedule resume {schedule}`")),
            ScheduleRejection::NotPaused(schedule) => Self::conflict(&error)
                .hint(format!("`polity schedule show {schedule}` shows its state")),
            ScheduleRejection::CannotStart { code, .. } => {
                let code = match code.as_str() {
                    "agent_disabled" => "agent_disabled",
                    "unknown_agent" => "unknown_agent",
                    "invalid_definition" => "invalid_definition",
                    _ => "not_ready",
                };
                Self::new(code, ReportKind::Usage, &error)
                    .hint("nothing was started; `polity check` checks the whole home")
            }
            ScheduleRejection::InvalidRange { .. } => Self::usage(&error)
                .hint("the range must end at or before now, and not before it begins"),
            ScheduleRejection::EmptyRange { schedule, .. } => Self::usage(&error)
                .hint(format!("`polity schedule next {schedule}` shows the times to come")),
            ScheduleRejection::TooManyTicks(_) => Self::over_limit("limit_queued_ticks", &error)
                .hint("use a shorter range, or wait until some of them have run"),
            ScheduleRejection::Broken { .. } => Self::new("engine", ReportKind::Failed, &error),
        }
    }
}

impl From<RetryError> for ErrorReport {
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
                ReportKind::OverLimit,
                &error,
            )
            .hint(format!(
                "raise the limit: `polity task retry {task} --max-cost-usd USD` or `--max-tokens \
                     N`; what was spent so far counts"
            )),
            RetryError::SecretsGone { .. } => Self::conflict(&error)
                .hint("start it again with `polity run` and the same input and --env"),
            RetryError::Undone { .. } => Self::conflict(&error)
                .hint("run the workflow again; a fork would build on nodes that were undone"),
            RetryError::Unfit { .. } => Self::conflict(&error)
                .hint("put it back into the file, or retry without --definitions"),
        }
    }
}

impl From<CommandRejection> for ErrorReport {
    fn from(rejection: CommandRejection) -> Self {
        match &rejection {
            CommandRejection::EmptyInput => Self::usage(&rejection)
                .hint("give it as polity run NAME \"INPUT\", or use - to read it from stdin"),
            CommandRejection::InputTooLarge { .. } => {
                Self::new("limit_input_bytes", ReportKind::OverLimit, &rejection)
                    .hint("shorten the input, or raise limits.input_bytes in polity.yaml")
            }
            CommandRejection::TooDeep { .. } => {
                Self::new("limit_sub_agent_depth", ReportKind::OverLimit, &rejection).hint(
                    "nest sub-agents less deeply, or raise limits.sub_agent_depth in \
                     polity.yaml",
                )
            }
            CommandRejection::Disabled { agent, .. } => {
                Self::new("agent_disabled", ReportKind::Usage, &rejection)
                    .hint(format!("enable it with `polity agent enable {agent}`"))
            }
            CommandRejection::KindNotRunnable { .. } => Self::unsupported(&rejection),
            CommandRejection::Finished { .. } => Self::conflict(&rejection),
            CommandRejection::AwaitingHuman { task } => {
                Self::new("awaiting_human", ReportKind::AwaitingHuman, &rejection)
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
            CommandRejection::UnfitResult { .. } => Self::usage(&rejection)
                .hint("nothing was recorded; repeat with a result that the node can take"),
            CommandRejection::InvalidUpdate(_) => Self::usage(&rejection).hint(
                "nothing was changed; see the State with `polity task checkpoints ID --json`",
            ),
            CommandRejection::NoStateThere { .. } => Self::usage(&rejection)
                .hint("leave out --set, or use `polity review modify` to change the arguments"),
            CommandRejection::TooLate { task, .. } => Self::conflict(&rejection).hint(format!(
                "`polity task resume {task}` applies the default action, or fails the task"
            )),
            CommandRejection::NeedsTrust { .. } => {
                Self::new("untrusted", ReportKind::Usage, &rejection)
                    .hint("repeat the command with --trust if you trust all of it")
            }
            CommandRejection::OwnerAlive { .. } => Self::conflict(&rejection)
                .hint("follow it with `polity task watch`, or end it with `polity task cancel`"),
            CommandRejection::UnexpectedCommand { .. }
            | CommandRejection::NoAgent { .. }
            | CommandRejection::TooEarly { .. } => {
                Self::new("engine", ReportKind::Failed, &rejection)
            }
        }
    }
}
