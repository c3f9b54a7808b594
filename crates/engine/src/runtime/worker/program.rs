//! What a worker does for a program: getting a place for it, running it, ending it.

use std::sync::Arc;
use std::time::Duration;

use polity_definition::{AgentDefinition, CliAgent};
use polity_model::execution::AgentExecution;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::machine::execution::ExecutionState;
use polity_model::run::{ResourceUsage, RunReport};
use polity_model::usage::Usage;
use polity_store::ExecutionFilter;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Interrupted, Worker, interruption};
use crate::budget::{BudgetAllowance, CallPermit};
use crate::commands::{BeginRun, RecordProcess, RecordRecoveredRun, RecordRun, SlotWait};
use crate::decide::Command;
use crate::driver::{
    LostRun, PlaceTaken, RunEnd, RunOutcome, RunOverrides, RunProgress, RunRequest,
};
use crate::pinned::Assignee;
use crate::runtime::{EngineError, Shared, load};
use crate::sealed_input::SealedInput;

/// How often to look whether another process has made room.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A run that is over by then tells of its process together with its end, which is one commit less.
const TOLD_AFTER: Duration = Duration::from_millis(20);

type Awaited = Result<Command, Interrupted>;

/// Who is before a task in line, and who has a place.
struct Line {
    before: usize,
    taken: usize,
}

/// A run on a task of its own. Dropping it ends what was started.
struct Running(JoinHandle<RunOutcome>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Worker {
    /// The agent that does the task, if it is a program.
    pub(super) fn program(&self) -> Option<Arc<AgentDefinition>> {
        let Assignee::Agent(pinned) = &self.assignee else { return None };
        pinned.agent.program().map(|_| Arc::clone(&pinned.agent))
    }

    /// Finds out of which pool the program takes a place, and takes one if no one is before it.
    pub(super) async fn prepare_program(&mut self) -> Result<(), EngineError> {
        let Some(agent) = self.program() else { return Ok(()) };
        let Some(cli) = agent.program() else { return Ok(()) };
        // One that was running is looked for first.
        if self.state.execution().is_some_and(AgentExecution::is_active) {
            return Ok(());
        }
        let in_line = self.state.execution().filter(|execution| !execution.is_over());
        let known = in_line.and_then(|execution| execution.pool.clone());
        self.place.pool = known.map_or_else(
            || {
                let working_directory = self.working_directory().cloned();
                let overrides = RunOverrides { working_directory, ..RunOverrides::default() };
                self.shared.parts.programs.pool(&agent, &overrides).into()
            },
            Arc::from,
        );
        self.look_for_twin().await?;
        if self.place.held.is_none() && self.place.twin.is_none() {
            let id = self.state.execution().filter(|execution| !execution.is_over());
            let Line { before, taken } = self.line(id.map(|execution| execution.id)).await?;
            let is_next = before == 0 && taken < cli.max_concurrent_executions.get() as usize;
            if is_next && let Ok(place) = self.take_place(cli) {
                self.place.held = place;
            }
        }
        Ok(())
    }

    fn take_place(&self, cli: &CliAgent) -> Result<Option<PlaceTaken>, String> {
        let places = cli.max_concurrent_executions.get();
        let taken = self.shared.parts.programs.take_place(&self.place.pool, places);
        taken.map_err(|error| format!("{error}; {}", error.hint))
    }

    /// Waits until the program may run.
    pub(super) async fn wait_for_place(&mut self) -> Result<Awaited, EngineError> {
        let agent = self.program();
        let Some(cli) = agent.as_ref().and_then(|agent| agent.program()) else {
            return Ok(Err(Interrupted::Abandoned));
        };
        let began = Instant::now();
        let mut is_admitted = false;
        let limit = Duration::from_secs(cli.queue_timeout_seconds.get());
        let id = self.state.execution().map(|execution| execution.id);
        let shared = Arc::clone(&self.shared);
        loop {
            let room = shared.room.notified();
            let Line { before, taken } = self.line(id).await?;
            let free = (cli.max_concurrent_executions.get() as usize).saturating_sub(taken);
            if before < free {
                match self.take_place(cli) {
                    Ok(Some(place)) => {
                        self.place.held = Some(place);
                        return Ok(Ok(begin(SlotWait::Acquired)));
                    }
                    Ok(None) => {}
                    Err(message) => return Ok(Ok(begin(SlotWait::Unavailable { message }))),
                }
            }
            // Whoever was let in is not sent away because others who came before were taken up.
            let waiting = before.saturating_sub(free);
            if !std::mem::replace(&mut is_admitted, true) && waiting >= cli.queue_limit as usize {
                return Ok(Ok(begin(SlotWait::Full { waiting })));
            }
            if began.elapsed() >= limit {
                return Ok(Ok(begin(SlotWait::TooLong)));
            }
            if self.state.cancel_requested() {
                return Ok(Err(Interrupted::Cancelled));
            }
            let Self { shared, state, signals, .. } = self;
            tokio::select! {
                () = room => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                interrupted = interruption(shared, state, signals) => return Ok(Err(interrupted)),
            }
            // A signal may have been taken in just when there was something else to look at.
            self.catch_up().await?;
        }
    }

    /// Who is before an execution in line; without one, who waits at all.
    async fn line(&self, id: Option<ExecutionId>) -> Result<Line, EngineError> {
        let filter = ExecutionFilter {
            pool: Some(self.place.pool.to_string()),
            open_only: true,
            ..ExecutionFilter::default()
        };
        let store = &self.shared.parts.store;
        let rows = load::blocking(store, move |store| store.execution_rows(&filter)).await?;
        let owners = &self.shared.parts.owners;
        let mut line = Line { before: 0, taken: 0 };
        // The newest come first, so those before it in line come after it here.
        let mut is_before = id.is_none();
        for row in &rows {
            let is_alive = row.owner.is_some_and(|owner| owners.is_alive(owner));
            if Some(row.execution.id) == id {
                is_before = true;
            } else if row.execution.state != ExecutionState::Idle {
                line.taken += usize::from(is_alive);
            } else {
                line.before += usize::from(is_alive && is_before);
            }
        }
        Ok(line)
    }

    /// What the task was given, with its secrets.
    async fn sealed_input(&self) -> Result<SealedInput, EngineError> {
        let order = self.state.task().order();
        let seen = || SealedInput {
            description: order.description.clone(),
            parameters: order.parameters.clone(),
            ..SealedInput::default()
        };
        if !order.has_private {
            return Ok(seen());
        }
        let id = order.id;
        let text =
            load::blocking(&self.shared.parts.store, move |store| store.sealed_input(id)).await?;
        let lost = || EngineError::Broken {
            task: id,
            reason: "what it was given has secrets in it, and is not there any more".to_owned(),
        };
        text.and_then(|text| serde_json::from_str(&text).ok()).ok_or_else(lost)
    }

    fn working_directory(&self) -> Option<&String> {
        self.state.task().order().working_directory.as_ref()
    }

    /// Runs the program to its end.
    pub(super) async fn run_program(&mut self) -> Result<Awaited, EngineError> {
        let (Some(agent), Some(execution)) = (self.program(), self.state.execution()) else {
            return Ok(Err(Interrupted::Abandoned));
        };
        let (execution_id, attempt) = (execution.id, execution.retry_count);
        let sealed_input = self.sealed_input().await?;
        let overrides = sealed_input.overrides(self.working_directory());
        let place = match self.place.held.clone() {
            Some(place) => place,
            None => match self.take_place_again(&agent, &overrides).await {
                Ok(place) => place,
                Err(interrupted) => return Ok(Err(interrupted)),
            },
        };
        // What it will use is not known before it is over, as with a call of a model.
        let allowance = self.allowance.clone();
        let _permit = match self.permitted(&allowance).await {
            Ok(permit) => permit,
            Err(outcome) => return Ok(outcome),
        };
        let (stop, stopped) = watch::channel(false);
        let (tell, mut told) = watch::channel(None);
        let (shared, task) = (Arc::clone(&self.shared), self.state.id());
        let session = Arc::clone(&self.session);
        let mut running = Running(tokio::spawn(async move {
            let progress = Told { shared: Arc::clone(&shared), task, started: tell };
            let request = RunRequest {
                agent: &agent,
                session: &session,
                execution_id,
                attempt,
                input: &sealed_input.description,
                parameters: &sealed_input.parameters,
                overrides: &overrides,
                place: &place,
                stop: &stopped,
                progress: &progress,
            };
            shared.parts.programs.run(request).await
        }));
        let mut is_told = false;
        let ended = loop {
            let Self { shared, state, signals, .. } = self;
            tokio::select! {
                biased;
                ended = &mut running.0 => break ended,
                process = started(&mut told), if !is_told => {
                    is_told = true;
                    if let Some(process_id) = process {
                        self.step(&Command::RecordProcess(RecordProcess { process_id })).await?;
                    }
                    // Someone may have asked for the end meanwhile.
                    if self.state.cancel_requested() {
                        stop.send_replace(true);
                    }
                }
                interrupted = interruption(shared, state, signals) => match interrupted {
                    Interrupted::Abandoned => return Ok(Err(Interrupted::Abandoned)),
                    Interrupted::Changed | Interrupted::Cancelled => {
                        self.catch_up().await?;
                        stop.send_replace(true);
                    }
                },
            }
        };
        match ended {
            Ok(outcome) => {
                self.allowance.spend(outcome.usage);
                Ok(Ok(Command::RecordRun(RecordRun { outcome })))
            }
            Err(panic) => Err(EngineError::Panicked { task, panic: panic.to_string() }),
        }
    }

    /// Leave to run the program, where a budget asks for it; or what becomes of the task without.
    async fn permitted<'a>(
        &mut self,
        allowance: &'a BudgetAllowance,
    ) -> Result<Option<CallPermit<'a>>, Awaited> {
        if !allowance.is_limited() {
            return Ok(None);
        }
        let Self { shared, state, signals, .. } = self;
        tokio::select! {
            permit = allowance.permit() => permit.map(Some).map_err(|over| {
                let failure = AttemptFailure { category: ErrorCategory::Permanent, message: over };
                let (report, usage) = (RunReport::default(), Usage::default());
                let outcome = RunOutcome { end: RunEnd::Failed(failure), report, usage };
                Ok(Command::RecordRun(RecordRun { outcome }))
            }),
            interrupted = interruption(shared, state, signals) => Err(Err(interrupted)),
        }
    }

    /// A place for a task that was taken over between two tries. It is not in line any more: no one
    /// else gets a place while it counts as one that has one.
    async fn take_place_again(
        &mut self,
        agent: &AgentDefinition,
        overrides: &RunOverrides,
    ) -> Result<PlaceTaken, Interrupted> {
        let known = self.state.execution().and_then(|execution| execution.pool.clone());
        let programs = &self.shared.parts.programs;
        self.place.pool = known.unwrap_or_else(|| programs.pool(agent, overrides)).into();
        let Some(cli) = agent.program() else { return Err(Interrupted::Abandoned) };
        loop {
            match self.take_place(cli) {
                Ok(Some(place)) => {
                    self.place.held = Some(place.clone());
                    return Ok(place);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "there is no place for a program yet"),
            }
            let Self { shared, state, signals, .. } = self;
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                interrupted = interruption(shared, state, signals) => return Err(interrupted),
            }
        }
    }

    /// Looks for what became of a run whose owner is gone.
    pub(super) async fn look_for_run(&mut self) -> Result<Awaited, EngineError> {
        let (Some(agent), Some(execution)) = (self.program(), self.state.execution()) else {
            return Ok(Err(Interrupted::Abandoned));
        };
        let (execution_id, attempt) = (execution.id, execution.retry_count);
        let sealed_input = self.sealed_input().await?;
        let run = LostRun {
            agent: &agent,
            session: &self.session,
            execution_id,
            attempt,
            input: &sealed_input.description,
            parameters: &sealed_input.parameters,
            overrides: &sealed_input.overrides(self.working_directory()),
        };
        let outcome = self.shared.parts.programs.found(run).await;
        Ok(Ok(Command::RecordRecoveredRun(RecordRecoveredRun { outcome })))
    }

    /// What was written down about runs, so that they could be found after a crash, is needed no
    /// more once what came of them is in the journal.
    pub(super) fn forget_program(&self) {
        if let Some(execution) = self.state.execution().filter(|_| self.state.is_program()) {
            let attempts = execution.retry_count + 1;
            self.shared.parts.programs.forget(execution.id, attempts);
        }
    }

    /// Makes room for the next one. A program that is to be tried again keeps its place until then.
    pub(super) fn leave_place(&mut self) {
        self.place.held = None;
        self.shared.room.notify_waiters();
    }
}

/// The process, once it has run for a while.
async fn started(told: &mut watch::Receiver<Option<u32>>) -> Option<u32> {
    let process = told.wait_for(Option::is_some).await.ok().and_then(|process| *process);
    tokio::time::sleep(TOLD_AFTER).await;
    process
}

fn begin(wait: SlotWait) -> Command {
    Command::BeginRun(BeginRun { wait })
}

/// Passes on what a program says while it says it.
struct Told {
    shared: Arc<Shared>,
    task: TaskId,
    started: watch::Sender<Option<u32>>,
}

impl RunProgress for Told {
    fn started(&self, process_id: u32) {
        self.started.send_replace(Some(process_id));
    }

    fn output(&self, piece: &str) {
        self.shared.publish_text(self.task, piece);
    }

    fn usage(&self, _: ResourceUsage) {}
}
