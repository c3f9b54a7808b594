//! Rules that the commands of CLI runs share: queueing, starting, retrying and doubt. The rules for
//! retries and doubt also apply to remote agents.

use std::time::Duration;

use jiff::SignedDuration;
use polity_definition::{AccessType, CliAgent, WorkspaceMode};
use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::execution::AgentExecution;
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::ExecutionId;
use polity_model::name::Name;
use polity_model::review::ReviewSubject;
use polity_model::trace::shorten;
use serde_json::Value;

use crate::decide::call_batch::QUESTION_CHARACTERS_MAX;
use crate::decide::outcomes::{end_execution, ended_execution, execution_event, open_review};
use crate::decide::{Decision, DecisionContext, Effect, backoff};
use crate::pinned::Assignee;
use crate::script_output::SCRIPT_ARGUMENTS;
use crate::state::TaskState;

/// The CLI agent that performs the task, if one does.
pub(crate) fn cli_agent(state: &TaskState) -> Option<&CliAgent> {
    state.context()?.agent.program()
}

/// True if a run may be repeated: the agent is idempotent or read-only, or has a fresh workspace
/// per run. The word of the node that runs it overrules all of these.
pub(crate) fn is_repeatable(cli: &CliAgent) -> bool {
    let has_own_folder = match cli.workspace {
        WorkspaceMode::Shared => false,
        WorkspaceMode::Worktree | WorkspaceMode::Copy => true,
    };
    let is_harmless = cli.access_type == AccessType::ReadOnly || has_own_folder;
    !cli.never_repeat && (cli.idempotent || is_harmless)
}

/// The CLI agent of an assignee, with its name.
pub(crate) fn cli_agent_of(assignee: &Assignee) -> Option<(&Name, &CliAgent)> {
    let agent = assignee.agent()?;
    Some((&agent.name, agent.program()?))
}

/// Queues an execution of the CLI agent.
pub(crate) fn queue_execution(
    agent: &Name,
    cli: &CliAgent,
    ctx: &mut DecisionContext,
) -> (ExecutionId, Event) {
    let id = ExecutionId::from_random_bytes(ctx.entropy.id_bytes());
    let change = ExecutionChange::Queue {
        agent: agent.clone(),
        max_retries: cli.max_retries,
        pool: ctx.slot.pool.to_string(),
        timeout_seconds: cli.timeout_seconds.get(),
    };
    (id, execution_event(id, change))
}

/// Fails the task because its budget is used up.
pub(crate) fn fail_over_budget(mut events: Vec<Event>, over: &str) -> Decision {
    let (code, error) = (ErrorCode::Budget, over.to_owned());
    events.push(Event::TaskFailed { code, error, partial_result: None });
    Decision { events, effects: Vec::new() }
}

/// Fails the task although its agent answered. The answer stays as the partial result.
pub(crate) fn fail_answer(
    execution: ExecutionId,
    code: ErrorCode,
    error: &str,
    mut events: Vec<Event>,
) -> Decision {
    let (category, message) = (ErrorCategory::AgentError, error.to_owned());
    let failure = AttemptFailure { category, message: message.clone() };
    let change = ExecutionChange::Fail { failure, retry_at: None };
    events.extend(ended_execution(execution, change));
    let partial_result = Some(ResultRef::LastAnswer);
    events.push(Event::TaskFailed { code, error: message, partial_result });
    Decision { events, effects: Vec::new() }
}

/// Starts the run if the task holds a slot, and queues it otherwise. A duplicate waits for its
/// original instead.
pub(crate) fn start_or_queue(
    state: &TaskState,
    cli: &CliAgent,
    ctx: &mut DecisionContext,
    mut events: Vec<Event>,
) -> Decision {
    if let Some(over) = ctx.budget.reached() {
        return fail_over_budget(events, over);
    }
    if let Some(with) = ctx.slot.duplicate_of {
        if state.task().shared_with() != Some(with) {
            events.push(Event::RunShared { with });
        }
        return Decision { events, effects: vec![Effect::WaitForOriginal] };
    }
    let agent = &state.task().order().assigned_agent;
    let in_line = state.execution().filter(|execution| !execution.is_over());
    let id = if let Some(execution) = in_line {
        execution.id
    } else {
        let (id, event) = queue_execution(agent, cli, ctx);
        events.push(event);
        id
    };
    if ctx.slot.is_held {
        let (agent, max_retries) = (agent.clone(), cli.max_retries);
        events.push(execution_event(id, ExecutionChange::Start { agent, max_retries }));
        return Decision { events, effects: vec![Effect::RunCliAgent] };
    }
    Decision { events, effects: vec![Effect::WaitForSlot] }
}

/// Retries the execution after a backoff.
pub(crate) fn retry_later(
    execution: &AgentExecution,
    failure: &AttemptFailure,
    asked_for: Option<Duration>,
    ctx: &mut DecisionContext,
    mut events: Vec<Event>,
) -> Decision {
    let wait = backoff::delay(execution.retry_count, asked_for, &mut ctx.entropy);
    let until = ctx.now + SignedDuration::try_from(wait).unwrap_or_default();
    let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: Some(until) };
    events.push(execution_event(execution.id, change));
    Decision { events, effects: vec![Effect::WaitUntil(until)] }
}

/// A run or message with an unknown outcome.
pub(crate) struct RunDoubt {
    /// The failure of the execution.
    pub(crate) failure: String,
    /// The question for a person.
    pub(crate) question: String,
}

impl RunDoubt {
    /// The doubt about a run that was cut off when the process or the earlier task ended.
    pub(crate) fn of_run(state: &TaskState, ended: CutOff) -> Self {
        let order = state.task().order();
        let (agent, ended) = (&order.assigned_agent, ended.label());
        let step = match (&order.parent_node, order.map_item) {
            (Some(node), Some(item)) => format!(" for item {item} of node {node}"),
            (Some(node), None) => format!(" for node {node}"),
            (None, _) => String::new(),
        };
        let given = shorten(&given_to(&order.description), QUESTION_CHARACTERS_MAX);
        Self {
            failure: format!(
                "{ended} ended while it was running, and it is unknown what the program did before \
                 that"
            ),
            question: format!(
                "{ended} ended while {agent} was running{step} with {given}, and it is unknown what \
                 it did before that. Run it again, or continue with a result of your own?"
            ),
        }
    }
}

/// The end that cut a run off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutOff {
    /// The process that ran it died.
    Process,
    /// The task that a retry continues ended.
    EarlierTask,
}

impl CutOff {
    fn label(self) -> &'static str {
        match self {
            Self::Process => "The process",
            Self::EarlierTask => "The earlier task",
        }
    }
}

/// The input of a run as a question names it: the arguments of a script, or the text for any other
/// program.
fn given_to(description: &str) -> String {
    let input = serde_json::from_str::<Value>(description).ok();
    let arguments = input.as_ref().and_then(|input| input.get(SCRIPT_ARGUMENTS));
    arguments.map_or_else(|| format!("\"{description}\""), Value::to_string)
}

/// Asks a person about the run of an earlier task, instead of repeating it.
pub(crate) fn ask_about_earlier_run(
    state: &TaskState,
    execution_id: ExecutionId,
    ctx: &mut DecisionContext,
    mut events: Vec<Event>,
) -> Decision {
    let RunDoubt { question, .. } = RunDoubt::of_run(state, CutOff::EarlierTask);
    let subject = ReviewSubject::RunDoubt { execution_id };
    events.extend(open_review(state, ctx, subject, question));
    Decision { events, effects: Vec::new() }
}

/// Ends the execution and opens a review of the doubt.
pub(crate) fn open_doubt_review(
    state: &TaskState,
    ctx: &mut DecisionContext,
    mut events: Vec<Event>,
    doubt: RunDoubt,
) -> Decision {
    let Some(execution) = state.execution() else { return Decision::default() };
    let RunDoubt { failure: message, question } = doubt;
    let failure = AttemptFailure { category: ErrorCategory::SystemError, message };
    events.extend(end_execution(state, ExecutionChange::Fail { failure, retry_at: None }));
    let subject = ReviewSubject::RunDoubt { execution_id: execution.id };
    events.extend(open_review(state, ctx, subject, question));
    Decision { events, effects: Vec::new() }
}

/// The task's error code for a failed run.
pub(crate) fn failure_code(category: ErrorCategory) -> ErrorCode {
    match category {
        ErrorCategory::Transient | ErrorCategory::Permanent | ErrorCategory::AgentError => {
            ErrorCode::AgentFailed
        }
        ErrorCategory::SystemError => ErrorCode::SystemError,
    }
}
