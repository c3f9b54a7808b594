//! Builds steps from events, one at a time.

mod calls;
mod maps;
mod nodes;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::{
    STEP_MESSAGE_CHARACTERS_MAX, StepRecord, StepStatus, ToolCallRecord, TraceLog, shorten,
};
use crate::event::{
    CompensationCause, Event, ExecutionChange, RecordedEvent, TaskCreated, ToolChange,
};
use crate::failure::WithheldReason;
use crate::ids::{TaskId, ToolCallId};
use crate::message::{Message, MessageRole, ToolCall};
use crate::name::Name;
use crate::review::{ReviewSubject, ReviewVerdict};
use crate::run::ProcessExit;
use calls::TracedCalls;
use maps::TracedMaps;
use nodes::TracedNodes;

/// The length of another task's id. A unique prefix identifies a task.
const SHORT_ID_CHARACTERS: usize = 8;

/// The length of a failure in the step of its retry; the step before has the whole text.
const RETRY_CAUSE_CHARACTERS_MAX: usize = 80;

/// The shortest wait for a slot that has a step.
const QUEUE_TIME_SHOWN: SignedDuration = SignedDuration::from_secs(2);

/// Builds steps from events, one at a time.
#[derive(Debug, Clone)]
pub struct TraceBuilder {
    trace: TraceLog,
    agent: Name,
    /// The start of the model call in progress.
    call_since: Option<Timestamp>,
    /// The time of the next attempt, while the task waits for it.
    retry_at: Option<Timestamp>,
    /// The time since which a run waits for a slot.
    queued_at: Option<Timestamp>,
    /// The newest failure of the model or its tools.
    model_failure: ModelFailureTrace,
    /// The tool calls of the newest answer.
    calls: TracedCalls,
    /// The nodes that have begun.
    nodes: TracedNodes,
    /// The maps in progress.
    maps: TracedMaps,
    /// True if a review was just answered, so that resuming is expected.
    was_answered: bool,
    /// True while a review is open.
    has_review: bool,
    /// True for CLI and remote agents, whose failures have no step of their own.
    is_run: bool,
}

/// The part of a model's failure that the step of its retry shows.
#[derive(Debug, Clone, Copy, Default)]
struct ModelFailureTrace {
    /// True if the tools could not be listed.
    of_tools: bool,
    /// The time of the last attempt, if the call is retried for a while.
    retry_until: Option<Timestamp>,
}

impl ModelFailureTrace {
    fn describe_retry(self, failure: &str, at: Timestamp, wait: f64) -> String {
        let what = if self.of_tools { "the tools are" } else { "the model is" };
        let until = self.retry_until.map(|until| {
            let is_today = until.strftime("%F").to_string() == at.strftime("%F").to_string();
            let format = if is_today { "%TZ" } else { "%F %TZ" };
            format!(", until {}", until.strftime(format))
        });
        let failure = shorten(failure, RETRY_CAUSE_CHARACTERS_MAX);
        format!(
            "{what} unavailable ({failure}): retrying in {wait:.1} s{}",
            until.unwrap_or_default()
        )
    }
}

impl TraceBuilder {
    /// Starts with a task's creation; none for any other event.
    pub fn begin(task_id: TaskId, first: &RecordedEvent) -> Option<Self> {
        let Event::TaskCreated(created) = &first.event else { return None };
        let trace = TraceLog {
            task_id,
            steps: Vec::new(),
            sub_agent_sessions: BTreeMap::new(),
            created_at: first.at,
            updated_at: first.at,
        };
        let mut builder = Self {
            trace,
            agent: created.assigned_agent.clone(),
            call_since: None,
            retry_at: None,
            queued_at: None,
            model_failure: ModelFailureTrace::default(),
            calls: TracedCalls::default(),
            nodes: TracedNodes::new(created),
            maps: TracedMaps::default(),
            was_answered: false,
            has_review: false,
            is_run: false,
        };
        builder.apply(first);
        Some(builder)
    }

    /// The steps so far.
    pub fn steps(&self) -> &[StepRecord] {
        &self.trace.steps
    }

    /// The call or the map in progress, if any, and its start.
    pub fn in_progress(&self) -> Option<(String, Timestamp)> {
        match self.call_since {
            Some(since) => Some(("model_call".to_owned(), since)),
            None => self.maps.in_progress().or_else(|| self.calls.in_progress()),
        }
    }

    /// The time of the next attempt, while the task waits for it.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at
    }

    /// Returns the trace. Calls without an answer become steps too, so that a crash does not hide
    /// them.
    pub fn finish(mut self) -> TraceLog {
        if let Some(since) = self.call_since.take() {
            self.step(since, "model_call", StepStatus::Warning, "called; no answer yet".to_owned());
        }
        let open_map = self.maps.in_progress();
        for (id, record, since) in self.calls.take_in_progress() {
            // The step of the map stands for its items.
            if self.maps.has_call(id) {
                continue;
            }
            self.tool_step(since, StepStatus::Warning, "called; no answer yet", record);
        }
        if let Some((message, since)) = open_map {
            self.step(since, "map", StepStatus::Warning, message);
        }
        self.trace
    }

    /// Applies the task's next event.
    pub fn apply(&mut self, recorded: &RecordedEvent) {
        use StepStatus::{Error, Info, Warning};
        let at = recorded.at;
        self.trace.updated_at = at;
        match &recorded.event {
            Event::TaskCreated(created) => self.created(at, created),
            Event::TaskReleased => {
                let message = "the owner process could not continue and released the task";
                self.step(at, "released", Warning, message.to_owned());
            }
            Event::TaskStarted => self.step(at, "started", Info, String::new()),
            Event::TaskPaused => {
                self.was_answered = true;
                let message = "a sub-task waits for a person";
                self.step(at, "paused", Warning, message.to_owned());
            }
            Event::TaskResumed => self.resumed(at),
            Event::RunShared { with } => {
                let message = format!("duplicate of task {with}; its result is used");
                self.step(at, "shared", Info, message);
            }
            Event::TaskImported => {
                let message = "imported from an archive; a person must trust it to continue";
                self.step(at, "imported", Info, message.to_owned());
            }
            Event::TaskTrusted { by } => {
                self.step(at, "trusted", Info, format!("{by} allows its definitions to run"));
            }
            Event::CancelRequested => self.step(at, "cancel_requested", Info, String::new()),
            Event::TaskCompleted { .. } => self.step(at, "completed", Info, String::new()),
            Event::TaskFailed { code, error, .. } => {
                self.call_since = None;
                self.step(at, "failed", Error, format!("{code}: {error}"));
            }
            Event::TaskCancelled => {
                self.call_since = None;
                self.step(at, "cancelled", Warning, String::new());
            }
            Event::CompensationStarted { failure } => self.begin_compensation(at, failure.as_ref()),
            Event::CompensationFailed { error } => {
                self.step(at, "compensation_failed", Error, error.clone());
            }
            Event::ModelCalled { .. } => {
                self.call_since = Some(at);
                self.retry_at = None;
            }
            Event::ModelAnswered { message, usage, duration_ms, is_cut, withheld, .. } => {
                let (status, said) = describe_answer(message, *is_cut, *withheld);
                self.model_step(at, "model_call", status, said, *duration_ms);
                if let Some(step) = self.trace.steps.last_mut() {
                    step.usage = Some(usage.report());
                }
                self.calls.begin(message);
            }
            // The call was lost with its process, and has its step.
            Event::ModelFailed { usage, .. } if self.call_since.is_none() => {
                let mut steps = self.trace.steps.iter_mut().rev();
                if let Some(step) = steps.find(|step| step.step_name == "model_call") {
                    step.usage = Some(usage.report());
                }
            }
            Event::ModelFailed { failure, duration_ms, of_tools, retry_until, usage, .. } => {
                let failed = ModelFailureTrace { of_tools: *of_tools, retry_until: *retry_until };
                self.model_failed(at, failed, failure.to_string(), *duration_ms);
                if let Some(step) = self.trace.steps.last_mut().filter(|_| !usage.is_zero()) {
                    step.usage = Some(usage.report());
                }
            }
            Event::HistoryShortened { kept_from } => {
                let message = format!(
                    "the conversation exceeds the model's context; messages before number {kept_from} \
                     are no longer sent, except the first"
                );
                self.step(at, "shortened", Warning, message);
            }
            Event::MessageAdded { message } => match message.role() {
                MessageRole::Assistant => self.step(at, "answer", Info, summarize(message)),
                MessageRole::User | MessageRole::System | MessageRole::Tool => {
                    let who = if self.is_run { "sent to the agent" } else { "sent to the model" };
                    self.step(at, "message", Warning, format!("{who}: {}", summarize(message)));
                }
            },
            Event::ExecutionChanged { change, .. } => self.apply_execution(at, change),
            Event::ToolChanged { call_id, change } => self.apply_tool(at, *call_id, change),
            Event::NodeChanged { node, change } => self.apply_node(at, node, change),
            Event::StateSet { updates } => {
                let updates = Value::Object(updates.as_map().clone()).to_string();
                let message = shorten(&updates, STEP_MESSAGE_CHARACTERS_MAX);
                self.step(at, "state_set", Info, message);
            }
            Event::ReviewOpened { subject, question, .. } => {
                self.review_opened(at, subject, question);
            }
            Event::ReviewAnswered { verdict, message, by, state_updates } => {
                (self.was_answered, self.has_review) = (true, false);
                let updates = Some(state_updates.as_map()).filter(|updates| !updates.is_empty());
                self.review_answered(at, verdict, message.as_deref(), by, updates);
            }
            // Bookkeeping, shown in other views.
            Event::TaskClaimed { .. } | Event::CheckpointTaken { .. } => {}
            // Not events of a task.
            Event::AgentEnabled | Event::AgentDisabled { .. } | Event::ScheduleChanged { .. } => {}
        }
    }

    fn created(&mut self, at: Timestamp, created: &TaskCreated) {
        let retry = created.retry_of.map(|task| {
            // A UUID has only ASCII characters.
            format!("; retry of {}", &task.to_string()[..SHORT_ID_CHARACTERS])
        });
        let retry = retry.unwrap_or_default();
        let message = format!("assigned to {}{retry}", created.assigned_agent);
        self.step(at, "created", StepStatus::Info, message);
    }

    fn begin_compensation(&mut self, at: Timestamp, failure: Option<&CompensationCause>) {
        // A task that waits for a person has no owner, and a new one is expected.
        self.was_answered |= std::mem::take(&mut self.has_review);
        let why = match failure {
            Some(cause) => format!("{}: {}", cause.code, cause.error),
            None => "the task was cancelled".to_owned(),
        };
        let message = format!("{why}; finished nodes are undone before the task ends");
        self.step(at, "compensation", StepStatus::Warning, message);
    }

    fn review_opened(&mut self, at: Timestamp, subject: &ReviewSubject, question: &str) {
        self.has_review = true;
        let name = match subject {
            ReviewSubject::Approval { .. } => "approval_asked",
            ReviewSubject::Doubt { .. } | ReviewSubject::RunDoubt { .. } => "doubt_asked",
            ReviewSubject::RemoteQuestion { .. } => "question_asked",
            ReviewSubject::Node { node } | ReviewSubject::Checkpoint { node } => {
                self.nodes.asks(node, at);
                "review_asked"
            }
        };
        self.step(at, name, StepStatus::Warning, shorten(question, STEP_MESSAGE_CHARACTERS_MAX));
    }

    fn apply_execution(&mut self, at: Timestamp, change: &ExecutionChange) {
        match change {
            ExecutionChange::Fail { failure, retry_at: Some(retry_at) } => {
                self.retry_at = Some(*retry_at);
                let wait = retry_at.duration_since(at).as_secs_f64();
                let message = if self.is_run {
                    format!("{failure}; to be tried again in {wait:.1} s")
                } else {
                    self.model_failure.describe_retry(&failure.message, at, wait)
                };
                self.step(at, "retry", StepStatus::Warning, message);
            }
            ExecutionChange::Queue { .. } => {
                self.is_run = true;
                self.queued_at = Some(at);
            }
            ExecutionChange::Start { agent, .. } => {
                let waited = self.queued_at.take().map(|since| at.duration_since(since));
                if let Some(waited) = waited.filter(|waited| *waited >= QUEUE_TIME_SHOWN) {
                    let seconds = waited.as_secs_f64();
                    let message = format!("waited {seconds:.1} s for a slot of {agent}");
                    self.step(at, "queued", StepStatus::Info, message);
                }
            }
            ExecutionChange::Run { process_id: Some(id), .. } => {
                self.step(at, "program_started", StepStatus::Info, format!("process {id}"));
            }
            ExecutionChange::Run { process_id: None, remote: Some(task) } => {
                self.step(at, "remote_accepted", StepStatus::Info, task.to_string());
            }
            ExecutionChange::EndRemote { task, refusal } => {
                let (status, said) = match refusal {
                    None => (StepStatus::Info, "cancelled".to_owned()),
                    Some(why) => (StepStatus::Warning, format!("could not be cancelled: {why}")),
                };
                self.step(at, "remote_cancelled", status, format!("{task} {said}"));
            }
            ExecutionChange::Report { report, .. } if report.remote.is_some() => {
                self.is_run = true;
                self.step(at, "remote_answered", StepStatus::Info, report.to_string());
            }
            ExecutionChange::Report { report, .. } => {
                let status = match report.exit {
                    Some(ProcessExit::Code(0)) => StepStatus::Info,
                    Some(ProcessExit::Code(_) | ProcessExit::Signal(_)) | None => {
                        StepStatus::Warning
                    }
                };
                self.step(at, "program_ended", status, report.to_string());
            }
            ExecutionChange::TimeOut => {
                self.step(at, "timed_out", StepStatus::Error, String::new());
            }
            ExecutionChange::Run { process_id: None, remote: None }
            | ExecutionChange::Complete
            | ExecutionChange::Fail { retry_at: None, .. }
            | ExecutionChange::Retry
            | ExecutionChange::Cancel
            | ExecutionChange::CleanUp
            | ExecutionChange::Finish => {}
        }
    }

    fn apply_tool(&mut self, at: Timestamp, id: ToolCallId, change: &ToolChange) {
        use StepStatus::{Error, Info, Warning};
        // A retry makes calls of the task that it continues, whose trace has the request.
        if let ToolChange::Call { tool, .. } | ToolChange::Hold { tool } = change {
            self.calls.ensure(id, tool);
        }
        let Some(call) = self.calls.find(id) else { return };
        match change {
            // The review that follows has a step.
            ToolChange::Hold { .. } => {}
            // The sub-agent's own trace has the reason.
            ToolChange::Wait => call.waits(),
            ToolChange::Call { tool, arguments, .. } => {
                if let Some((record, since)) = call.called(at, tool, arguments.as_ref())
                    && self.maps.shows_attempt(id)
                {
                    let lost = "called; the process ended before the answer came";
                    self.tool_step(since, Warning, lost, record);
                }
            }
            ToolChange::Fail { failure, duration_ms, retry_at } => {
                let record = call.failed(failure.to_string(), *duration_ms);
                let wait = retry_at.duration_since(at).as_secs_f64();
                let message = if wait > 0.0 {
                    format!("{failure}; the next attempt follows in {wait:.1} s")
                } else {
                    format!("{failure}; a fallback tool is called instead")
                };
                if self.maps.shows_attempt(id) {
                    self.tool_step(at, Error, &message, record);
                }
            }
            ToolChange::Doubt => {
                let record = call.failed("in doubt".to_owned(), 0);
                let message = "called; the process ended before the answer came, and it is \
                               unknown whether the call took effect";
                self.tool_step(at, Warning, message, record);
            }
            ToolChange::Answer { content, structured, is_error, duration_ms, .. } => {
                let began = call.began();
                let record = call.answered(content, structured.as_ref(), *is_error, *duration_ms);
                if self.maps.has_call(id) {
                    return self.item_answered(at, id, record);
                }
                let status = if *is_error { Warning } else { Info };
                match self.nodes.keep(id, record, content, began) {
                    Some(record) => self.tool_step(at, status, content, record),
                    None => self.calls.remove(id),
                }
            }
        }
    }

    fn resumed(&mut self, at: Timestamp) {
        if let Some(since) = self.call_since.take() {
            let message = "called; the process ended before the answer came".to_owned();
            self.step(since, "model_call", StepStatus::Warning, message);
        }
        if std::mem::take(&mut self.was_answered) {
            self.step(at, "resumed", StepStatus::Info, String::new());
        } else {
            let message = "the owner process ended; another one continues the task";
            self.step(at, "resumed", StepStatus::Warning, message.to_owned());
        }
    }

    fn review_answered(
        &mut self,
        at: Timestamp,
        verdict: &ReviewVerdict,
        message: Option<&str>,
        by: &str,
        updates: Option<&Map<String, Value>>,
    ) {
        let said = message.map(|message| format!(": {message}")).unwrap_or_default();
        let changes = match verdict {
            ReviewVerdict::Modify { arguments } if !arguments.is_empty() => Some(arguments),
            ReviewVerdict::Modify { .. }
            | ReviewVerdict::Approve
            | ReviewVerdict::Reject
            | ReviewVerdict::Retry
            | ReviewVerdict::SkipWith { .. } => updates,
        };
        let changes = changes.map(|changes| format!("; {}", Value::Object(changes.clone())));
        let told = format!("{verdict} by {by}{said}{}", changes.unwrap_or_default());
        let message = shorten(&told, STEP_MESSAGE_CHARACTERS_MAX);
        self.step(at, "review_answered", StepStatus::Info, message);
    }

    fn model_failed(
        &mut self,
        at: Timestamp,
        failed: ModelFailureTrace,
        message: String,
        duration_ms: u64,
    ) {
        self.model_failure = failed;
        let name = if failed.of_tools { "tools" } else { "model_call" };
        self.model_step(at, name, StepStatus::Error, message, duration_ms);
    }

    fn model_step(
        &mut self,
        at: Timestamp,
        name: &str,
        status: StepStatus,
        message: String,
        duration_ms: u64,
    ) {
        self.call_since = None;
        self.step(at, name, status, message);
        if let Some(step) = self.trace.steps.last_mut() {
            step.duration_ms = duration_ms;
        }
    }

    /// Adds a step for one tool attempt, or for the answer to a call that was not made.
    fn tool_step(
        &mut self,
        at: Timestamp,
        status: StepStatus,
        message: &str,
        record: ToolCallRecord,
    ) {
        let message = format!("{}: {message}", record.name());
        let message = shorten(&message, STEP_MESSAGE_CHARACTERS_MAX);
        self.step(at, "tool_call", status, message);
        if let Some(step) = self.trace.steps.last_mut() {
            step.duration_ms = record.duration_ms;
            step.tool_calls.push(record);
        }
    }

    fn step(&mut self, at: Timestamp, name: &str, status: StepStatus, message: String) {
        self.trace.steps.push(StepRecord {
            step_name: name.to_owned(),
            message,
            timestamp: at,
            status,
            node: None,
            agent: self.agent.clone(),
            tool_calls: Vec::new(),
            duration_ms: 0,
            usage: None,
        });
    }
}

fn elapsed_ms(began: Timestamp, ended: Timestamp) -> u64 {
    u64::try_from(ended.duration_since(began).as_millis()).unwrap_or(0)
}

/// The status and text of the step of a model's answer.
fn describe_answer(
    message: &Message,
    is_cut: bool,
    withheld: Option<WithheldReason>,
) -> (StepStatus, String) {
    let said = summarize(message);
    let reason = match withheld {
        Some(WithheldReason::Refused) => "refused by the model",
        Some(WithheldReason::Filtered) => "stopped by the provider's content filter",
        None if is_cut => "cut off before its end",
        None => return (StepStatus::Info, said),
    };
    (StepStatus::Warning, format!("{reason}: {said}"))
}

/// Returns a message as one short line.
fn summarize(message: &Message) -> String {
    let calls = message.tool_calls();
    if message.content().is_empty() && !calls.is_empty() {
        let names: Vec<_> = calls.iter().map(ToolCall::name).collect();
        return format!("asks for {}", names.join(", "));
    }
    shorten(message.content(), STEP_MESSAGE_CHARACTERS_MAX)
}
