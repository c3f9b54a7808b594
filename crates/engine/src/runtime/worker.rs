//! A worker: takes one task from where it is to where no more can be done, one step at a time.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_model::event::Event;
use polity_model::failure::{ErrorCategory, Failure};
use polity_model::machine::task::TaskStatus;
use polity_store::CommitError;
use tokio::sync::mpsc;

use super::desk::Signal;
use super::load::{self, Loaded};
use super::{CONFLICTS_MAX, EngineError, Outcome, Shared};
use crate::closure::Closure;
use crate::commands::{
    CancelTask, Canceller, RecordAnswer, RecordFailure, ResumeTask, RetryExecution, StartTask,
};
use crate::decide::{Command, Effect, Rejection, decide};
use crate::driver::{History, ModelFailure, ModelReply, ModelRequest, Toolbox, Unheard};
use crate::state::TaskState;

pub(super) struct Worker {
    shared: Arc<Shared>,
    closure: Closure,
    state: TaskState,
    signals: mpsc::UnboundedReceiver<Signal>,
}

/// Why a worker stopped waiting for an effect.
enum Interrupted {
    /// Someone in this process wants the task to end.
    Cancelled,
    /// Others have changed the task in a way that matters now.
    Changed,
    /// The runtime is gone.
    Abandoned,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        loaded: Loaded,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Self {
        let Loaded { closure, state } = loaded;
        Self { shared, closure, state, signals }
    }

    pub(super) async fn run(mut self) -> Outcome {
        let mut next = Some(match self.state.status() {
            TaskStatus::Pending => Command::StartTask(StartTask),
            TaskStatus::Running
            | TaskStatus::AwaitingHuman
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled => Command::ResumeTask(ResumeTask),
        });
        while let Some(command) = next.take() {
            match self.step(&command).await {
                Ok(None) => {}
                Ok(Some(effect)) => next = Some(self.perform(effect).await?),
                // Someone else has ended it, or put it before a person: nothing is left to do.
                Err(EngineError::Rejected(
                    Rejection::Finished { .. } | Rejection::AwaitingHuman { .. },
                )) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.state.status())
    }

    /// Decides, and makes what was decided durable. Where others were faster, it decides again on
    /// what they left.
    async fn step(&mut self, command: &Command) -> Result<Option<Effect>, EngineError> {
        for _ in 0..CONFLICTS_MAX {
            let mut given = self.shared.given();
            let decision = decide(&self.state, command, &mut given)?;
            match self.shared.write(&mut self.state, &given, decision.events).await {
                Ok(()) => return Ok(decision.effect),
                Err(EngineError::Commit(CommitError::Conflict { .. })) => {
                    self.catch_up().await?;
                }
                Err(EngineError::Commit(CommitError::Fenced { .. })) => {
                    return Err(EngineError::TakenOver(self.state.id()));
                }
                Err(error) => return Err(error),
            }
        }
        Err(EngineError::Contended(self.state.id()))
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        self.shared.catch_up(&mut self.state).await?;
        if self.state.owner() == Some(self.shared.parts.instance) {
            Ok(())
        } else {
            Err(EngineError::TakenOver(self.state.id()))
        }
    }

    async fn perform(&mut self, effect: Effect) -> Result<Command, EngineError> {
        let outcome = match effect {
            Effect::CallModel => self.call_model().await?,
            Effect::WaitUntil(time) => self.wait_until(time).await?,
        };
        match outcome {
            Ok(command) => Ok(command),
            Err(Interrupted::Abandoned) => Err(EngineError::Left(self.state.id())),
            Err(Interrupted::Cancelled) => Ok(cancel()),
            Err(Interrupted::Changed) => {
                self.catch_up().await?;
                Ok(cancel())
            }
        }
    }

    async fn call_model(&mut self) -> Result<Result<Command, Interrupted>, EngineError> {
        let Self { shared, closure, state, signals } = self;
        let limit = closure
            .llm()
            .map_or(Duration::MAX, |llm| Duration::from_secs(llm.llm_config.timeout_seconds.get()));
        let request = ModelRequest {
            closure,
            history: History::whole(state.context().conversation.messages()),
            toolbox: &Toolbox::default(),
            marks: state.marks(),
            progress: &Unheard,
        };
        let began = shared.parts.clock.now();
        let call = tokio::time::timeout(limit, shared.parts.models.call(request));
        let answer = tokio::select! {
            answer = call => answer,
            interrupted = interruption(shared, state, signals) => return interrupted.map(Err),
        };
        let duration_ms = elapsed_ms(began, shared.parts.clock.now());
        Ok(Ok(outcome(answer, limit, duration_ms)))
    }

    async fn wait_until(
        &mut self,
        time: Timestamp,
    ) -> Result<Result<Command, Interrupted>, EngineError> {
        let Self { shared, state, signals, .. } = self;
        let left = time.duration_since(shared.parts.clock.now()).max(SignedDuration::ZERO);
        let sleep = tokio::time::sleep(left.unsigned_abs());
        tokio::select! {
            () = sleep => Ok(Ok(Command::RetryExecution(RetryExecution))),
            interrupted = interruption(shared, state, signals) => interrupted.map(Err),
        }
    }
}

fn cancel() -> Command {
    Command::CancelTask(CancelTask { by: Canceller::Owner })
}

/// Returns when the effect that is being waited for must be given up, and not before.
async fn interruption(
    shared: &Shared,
    state: &TaskState,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
) -> Result<Interrupted, EngineError> {
    loop {
        match signals.recv().await {
            None => return Ok(Interrupted::Abandoned),
            Some(Signal::Cancel) => return Ok(Interrupted::Cancelled),
            Some(Signal::Changed(sequence)) if sequence <= state.sequence() => {}
            Some(Signal::Changed(_)) => {
                let news = load::events_after(&shared.parts.store, state).await?;
                if news.iter().any(|recorded| matters_now(&recorded.event)) {
                    return Ok(Interrupted::Changed);
                }
            }
        }
    }
}

/// Whether an effect must be given up because of what another process wrote. Anything else is taken
/// in when the effect is over.
fn matters_now(event: &Event) -> bool {
    match event {
        Event::CancelRequested | Event::TaskCancelled | Event::TaskClaimed { .. } => true,
        Event::TaskCreated(_)
        | Event::TaskReleased
        | Event::TaskStarted
        | Event::TaskResumed
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { .. }
        | Event::ExecutionChanged { .. }
        | Event::ModelCalled { .. }
        | Event::ModelAnswered { .. }
        | Event::ModelFailed { .. }
        | Event::MessageAdded { .. }
        | Event::CheckpointTaken { .. } => false,
    }
}

fn elapsed_ms(began: Timestamp, ended: Timestamp) -> u64 {
    u64::try_from(ended.duration_since(began).as_millis()).unwrap_or(0)
}

fn outcome(
    answer: Result<Result<ModelReply, ModelFailure>, tokio::time::error::Elapsed>,
    limit: Duration,
    duration_ms: u64,
) -> Command {
    match answer {
        Ok(Ok(reply)) => Command::RecordAnswer(RecordAnswer { reply, duration_ms }),
        Ok(Err(failure)) => {
            Command::RecordFailure(RecordFailure { failure, timed_out: false, duration_ms })
        }
        Err(_) => {
            let message = format!(
                "the model did not answer within {} seconds, the agent's \
                 llm_config.timeout_seconds",
                limit.as_secs()
            );
            let failure = Failure { category: ErrorCategory::Transient, message };
            let failure = ModelFailure::new(failure);
            Command::RecordFailure(RecordFailure { failure, timed_out: true, duration_ms })
        }
    }
}
