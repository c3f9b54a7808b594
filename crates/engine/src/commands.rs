//! The commands, one per file, grouped by subject. Each file holds its rules and its tests.

mod advance_workflow;
mod cli_run {
    mod begin_run;
    mod record_duplicate;
    mod record_process;
    mod record_recovered_run;
    mod record_run;

    pub use begin_run::{BeginRun, SlotWait};
    pub use record_duplicate::RecordDuplicate;
    pub use record_process::RecordProcess;
    pub use record_recovered_run::RecordRecoveredRun;
    pub use record_run::RecordRun;
}
mod model {
    mod record_model_failure;
    mod record_model_reply;

    pub use record_model_failure::{FailureCause, RecordModelFailure};
    pub use record_model_reply::{
        FRUITLESS_TURNS_MAX, REPEATED_TURNS_MAX, RecordModelReply, TURN_CALLS_MAX,
    };
}
mod remote {
    mod record_remote_acceptance;
    mod record_remote_cancel;
    mod record_remote_outcome;

    pub use record_remote_acceptance::RecordRemoteAcceptance;
    pub use record_remote_cancel::RecordRemoteCancel;
    pub use record_remote_outcome::{RecordRemoteOutcome, RemoteTimeout};
}
mod review {
    mod answer_review;
    mod expire_review;

    pub use answer_review::AnswerReview;
    pub use expire_review::ExpireReview;
}
mod task {
    mod cancel_task;
    mod claim_task;
    mod create_task;
    mod release_task;
    mod resume_task;
    mod retry_execution;
    mod start_task;
    mod trust_task;

    pub use cancel_task::{CancelOrigin, CancelTask};
    pub use claim_task::ClaimTask;
    pub use create_task::{CreateTask, NewTask, ParentStep, TaskOrigin};
    pub use release_task::ReleaseTask;
    pub use resume_task::ResumeTask;
    pub use retry_execution::RetryExecution;
    pub use start_task::StartTask;
    pub use trust_task::TrustTask;
}
mod toggle_agent;
mod tool {
    mod record_session_wait;
    mod record_tool_failure;
    mod record_tool_reply;
    mod reopen_session;
    mod retry_tool;

    pub use record_session_wait::RecordSessionWait;
    pub use record_tool_failure::RecordToolFailure;
    pub use record_tool_reply::RecordToolReply;
    pub use reopen_session::ReopenSession;
    pub use retry_tool::RetryTool;
}

pub use advance_workflow::AdvanceWorkflow;
pub use cli_run::*;
pub use model::*;
pub use remote::*;
pub use review::*;
pub use task::*;
pub use toggle_agent::ToggleAgent;
pub use tool::*;
