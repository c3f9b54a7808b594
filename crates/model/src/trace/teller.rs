//! Tells events as steps, one by one as they come.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    STEP_MESSAGE_CHARACTERS_MAX, StepRecord, StepStatus, ToolCallRecord, TraceLog, shorten,
};
use crate::event::{Event, ExecutionChange, Recorded};
use crate::ids::{TaskId, ToolCallId};
use crate::message::Message;
use crate::name::Name;
use crate::usage::Usage;

/// Tells events as steps, one by one as they come.
#[derive(Debug, Clone)]
pub struct TraceTeller {
    trace: TraceLog,
    agent: Name,
    /// When the model call that is under way began.
    call_since: Option<Timestamp>,
    /// When the next try is, while the task waits for it.
    retry_at: Option<Timestamp>,
    /// The calls of the newest answer: the id, and where the record stands.
    open_calls: Vec<(ToolCallId, usize, usize)>,
}

impl TraceTeller {
    /// Begins with a task's creation; nothing comes out of any other event.
    pub fn begin(task_id: TaskId, first: &Recorded) -> Option<Self> {
        let Event::TaskCreated(created) = &first.event else { return None };
        let trace = TraceLog {
            task_id,
            steps: Vec::new(),
            sub_agent_sessions: BTreeMap::new(),
            created_at: first.at,
            updated_at: first.at,
        };
        let mut teller = Self {
            trace,
            agent: created.assigned_agent.clone(),
            call_since: None,
            retry_at: None,
            open_calls: Vec::new(),
        };
        teller.tell(first);
        Some(teller)
    }

    /// The steps so far.
    pub fn steps(&self) -> &[StepRecord] {
        &self.trace.steps
    }

    /// When the model call that is under way began, if one is.
    pub fn call_since(&self) -> Option<Timestamp> {
        self.call_since
    }

    /// When the next try is, while the task waits for it.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at
    }

    /// The trace. A call that has no answer yet is a step too, or a crash would hide its last act.
    pub fn finish(mut self) -> TraceLog {
        if let Some(since) = self.call_since.take() {
            let message = "called; no answer yet".to_owned();
            self.step(since, "model_call", StepStatus::Warning, message);
        }
        self.trace
    }

    /// Goes on with the task's next event.
    pub fn tell(&mut self, recorded: &Recorded) {
        use StepStatus::{Error, Info, Warning};
        let at = recorded.at;
        self.trace.updated_at = at;
        match &recorded.event {
            Event::TaskCreated(created) => {
                self.step(at, "created", Info, format!("given to {}", created.assigned_agent));
            }
            Event::TaskReleased => {
                let message = "the process that ran the task could not go on and let go of it";
                self.step(at, "released", Warning, message.to_owned());
            }
            Event::TaskStarted => self.step(at, "started", Info, String::new()),
            Event::TaskResumed => {
                self.interrupted_call(at);
                let message = "the process that ran the task was gone; another goes on with it";
                self.step(at, "resumed", Warning, message.to_owned());
            }
            Event::CancelRequested => self.step(at, "cancel_requested", Info, String::new()),
            Event::TaskCompleted { .. } => self.step(at, "completed", Info, String::new()),
            Event::TaskFailed { code, error, .. } => {
                self.step(at, "failed", Error, format!("{code}: {error}"));
            }
            Event::TaskCancelled => {
                self.call_since = None;
                self.step(at, "cancelled", Warning, String::new());
            }
            Event::ModelCalled { .. } => {
                self.call_since = Some(at);
                self.retry_at = None;
            }
            Event::ModelAnswered { message, usage, duration_ms, .. } => {
                self.model_call(at, Info, told(message), *duration_ms, Some(*usage));
                self.asked_for(message);
            }
            Event::ModelFailed { failure, duration_ms, .. } => {
                self.model_call(at, Error, failure.to_string(), *duration_ms, None);
            }
            Event::MessageAdded { message } => {
                self.answered(message);
                self.step(at, "message", Warning, told(message));
            }
            Event::ExecutionChanged { change, .. } => self.tell_execution(at, change),
            // These say how, not what: the task's other records tell of them.
            Event::TaskClaimed { .. } | Event::CheckpointTaken { .. } => {}
        }
    }

    fn tell_execution(&mut self, at: Timestamp, change: &ExecutionChange) {
        match change {
            ExecutionChange::Fail { retry_at: Some(retry_at), .. } => {
                self.retry_at = Some(*retry_at);
                let wait = retry_at.duration_since(at).as_secs_f64();
                let message = format!("to be tried again in {wait:.1} s");
                self.step(at, "retry", StepStatus::Warning, message);
            }
            ExecutionChange::TimeOut => {
                self.step(at, "timed_out", StepStatus::Error, String::new());
            }
            ExecutionChange::Start { .. }
            | ExecutionChange::Run
            | ExecutionChange::Complete
            | ExecutionChange::Fail { retry_at: None, .. }
            | ExecutionChange::Retry
            | ExecutionChange::Cancel
            | ExecutionChange::CleanUp
            | ExecutionChange::Finish => {}
        }
    }

    fn interrupted_call(&mut self, at: Timestamp) {
        if let Some(since) = self.call_since.take() {
            let message = "called; the process ended before the answer came".to_owned();
            self.step(since, "model_call", StepStatus::Warning, message);
            self.trace.updated_at = at;
        }
    }

    fn model_call(
        &mut self,
        at: Timestamp,
        status: StepStatus,
        message: String,
        duration_ms: u64,
        usage: Option<Usage>,
    ) {
        self.call_since = None;
        self.step(at, "model_call", status, message);
        if let Some(step) = self.trace.steps.last_mut() {
            step.duration_ms = duration_ms;
            step.usage = usage.map(|usage| usage.report());
        }
    }

    /// The tools that a model asked for belong to the step in which it did.
    fn asked_for(&mut self, message: &Message) {
        let Some(step) = self.trace.steps.last_mut() else { return };
        for call in message.tool_calls() {
            step.tool_calls.push(ToolCallRecord {
                server: call.server.clone(),
                tool: call.tool.clone(),
                arguments: call.arguments.clone(),
                result: None,
                error: None,
                duration_ms: 0,
            });
        }
        let index = self.trace.steps.len() - 1;
        self.open_calls = message
            .tool_calls()
            .iter()
            .enumerate()
            .map(|(place, call)| (call.id, index, place))
            .collect();
    }

    /// The answer to a call that could not be made is why it could not.
    fn answered(&mut self, message: &Message) {
        let Message::Tool { tool_call_id, content, .. } = message else { return };
        let open = self.open_calls.iter().find(|(id, ..)| id == tool_call_id);
        if let Some((_, step, place)) = open {
            let call = self.trace.steps.get_mut(*step).and_then(|s| s.tool_calls.get_mut(*place));
            if let Some(call) = call {
                call.error = Some(content.clone());
            }
        }
    }

    fn step(&mut self, at: Timestamp, name: &str, status: StepStatus, message: String) {
        self.trace.steps.push(StepRecord {
            step_name: name.to_owned(),
            message,
            timestamp: at,
            status,
            agent: self.agent.clone(),
            tool_calls: Vec::new(),
            duration_ms: 0,
            usage: None,
        });
    }
}

/// A message in one short line.
fn told(message: &Message) -> String {
    let calls = message.tool_calls();
    if message.content().is_empty() && !calls.is_empty() {
        let names: Vec<_> =
            calls.iter().map(|call| format!("{}/{}", call.server, call.tool)).collect();
        return format!("asks for {}", names.join(", "));
    }
    shorten(message.content(), STEP_MESSAGE_CHARACTERS_MAX)
}
