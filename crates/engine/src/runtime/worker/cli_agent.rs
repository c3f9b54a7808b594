//! Effects for CLI agents: taking a slot, running the process, stopping it.

use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::{AgentDefinition, CliAgent, ScriptSource};
use polity_model::execution::AgentExecution;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::machine::execution::ExecutionState;
use polity_model::run::{ResourceUsage, RunReport};
use polity_model::usage::Usage;
use polity_store::{ExecutionFilter, Slot, SlotError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Worker;
use super::interruption::{EffectOutcome, Interruption, interruption};
use crate::budget::{BudgetAllowance, CallPermit};
use crate::commands::{BeginRun, RecordProcess, RecordRecoveredRun, RecordRun, SlotWait};
use crate::decide::Command;
use crate::driver::{
    LostRun, RunEnd, RunOutcome, RunOverrides, RunProgress, RunRequest, TracedStep, TracedStepKind,
    traced,
};
use crate::pinned::Assignee;
use crate::runtime::liveness::OwnerLiveness;
use crate::runtime::scheduler::WorkerActivity;
use crate::runtime::slot_lines::LinePlace;
use crate::runtime::{EngineError, RuntimeInner};
use crate::sealed_input::SealedInput;

/// The interval at which slots of other processes are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A check takes at most one part in this many of a waiting task's time, however long the queue is.
const CHECK_SHARE: u32 = 20;

/// The number of tasks in line, beyond the number of slots, that check the queue. The order of a line
/// may differ a little from that of the journal.
const CHECKING_BEYOND_SLOTS: usize = 2;

/// The interval at which tasks far back in line check the queue, for each task in the line. The line
/// of one process is only nearly in the order of the queue.
const FAR_CHECK_INTERVAL_PER_TASK: Duration = Duration::from_millis(20);

/// The time after which a process is recorded. A run that is over by then saves a commit.
const RECORD_PROCESS_AFTER: Duration = Duration::from_millis(20);

/// The position of a task in the queue of its pool.
struct QueuePosition {
    /// The number of tasks ahead.
    ahead: usize,
    /// The number of slots taken.
    taken: usize,
}

/// A run in a task of its own. Dropping it kills the process tree.
struct RunTask(JoinHandle<RunOutcome>);

impl Drop for RunTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Worker {
    /// The agent of the task, if it is a CLI agent.
    pub(super) fn cli_agent(&self) -> Option<Arc<AgentDefinition>> {
        let Assignee::Agent(pinned) = &self.assignee else { return None };
        pinned.agent.program().map(|_| Arc::clone(&pinned.agent))
    }

    /// The pinned script that the agent of the task runs.
    fn pinned_script(&self) -> Option<Arc<ScriptSource>> {
        match &self.assignee {
            Assignee::Agent(pinned) => pinned.step.clone(),
            Assignee::Workflow(_) => None,
        }
    }

    /// Determines the slot pool, and takes a slot if no other task is ahead.
    pub(super) async fn prepare_slot(&mut self) -> Result<(), EngineError> {
        let Some(agent) = self.cli_agent() else { return Ok(()) };
        let Some(cli) = agent.program() else { return Ok(()) };
        // An active run is recovered first.
        if self.state.execution().is_some_and(AgentExecution::is_active) {
            return Ok(());
        }
        let queued = self.state.execution().filter(|execution| !execution.is_over());
        let known = queued.and_then(|execution| execution.pool.clone());
        self.slot.pool = known.map_or_else(
            || {
                let working_directory = self.working_directory().cloned();
                let overrides = RunOverrides { working_directory, ..RunOverrides::default() };
                self.inner.deps.programs.slot_pool(&agent, &overrides).into()
            },
            Arc::from,
        );
        self.find_original().await?;
        if self.slot.held.is_none() && self.slot.duplicate_of.is_none() {
            let slots = cli.max_concurrent_executions.get() as usize;
            if self.inner.slot_lines.length(&self.slot.pool) > slots {
                return Ok(());
            }
            let queued = self.state.execution().filter(|execution| !execution.is_over());
            let position = self.queue_position(queued.map(|execution| execution.id)).await?;
            if position.ahead == 0
                && position.taken < slots
                && let Ok(slot) = self.take_slot(cli).await
            {
                self.slot.held = slot;
            }
        }
        Ok(())
    }

    async fn take_slot(&self, cli: &CliAgent) -> Result<Option<Slot>, SlotError> {
        let size = cli.max_concurrent_executions.get();
        self.inner.deps.slots.acquire(&self.slot.pool, size).await
    }

    /// Waits for a slot.
    pub(super) async fn wait_for_slot(&mut self) -> Result<EffectOutcome, EngineError> {
        let agent = self.cli_agent();
        let Some(cli) = agent.as_ref().and_then(|agent| agent.program()) else {
            return Ok(Err(Interruption::Abandoned));
        };
        let began = Instant::now();
        let seconds_max = cli.queue_timeout_seconds.map(NonZeroU64::get);
        let deadline = seconds_max.map(|seconds| began + Duration::from_secs(seconds));
        let mut is_admitted = cli.queue_limit.is_none();
        let id = self.state.execution().map(|execution| execution.id);
        let inner = Arc::clone(&self.inner);
        let slots = cli.max_concurrent_executions.get() as usize;
        let age = (self.state.task().order().created_at, self.state.id());
        let place = inner.slot_lines.join(&self.slot.pool, age);
        loop {
            if is_admitted
                && let Some(interrupted) = self.wait_in_line(&place, slots, deadline).await
            {
                return Ok(Err(interrupted));
            }
            let freed = inner.slot_freed.notified();
            let asked = Instant::now();
            let QueuePosition { ahead, taken } = self.queue_position(id).await?;
            let check_interval = CHECK_INTERVAL.max(asked.elapsed() * CHECK_SHARE);
            let free = slots.saturating_sub(taken);
            if ahead < free {
                match self.take_slot(cli).await {
                    Ok(Some(slot)) => {
                        self.slot.held = Some(slot);
                        return Ok(Ok(begin(SlotWait::Acquired)));
                    }
                    Ok(None) => {}
                    Err(error) => {
                        let message = error.to_string();
                        return Ok(Ok(begin(SlotWait::Unavailable { message })));
                    }
                }
            }
            // An admitted task is not refused later because older ones are adopted.
            let waiting = ahead.saturating_sub(free);
            if let Some(limit) = cli.queue_limit
                && !std::mem::replace(&mut is_admitted, true)
                && waiting >= limit as usize
            {
                return Ok(Ok(begin(SlotWait::Full { limit })));
            }
            if let Some(seconds) = seconds_max
                && began.elapsed() >= Duration::from_secs(seconds)
            {
                return Ok(Ok(begin(SlotWait::TooLong { seconds })));
            }
            if self.state.cancel_requested() {
                return Ok(Err(Interruption::Cancelled));
            }
            let Self { inner, state, signals, .. } = self;
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(check_interval) => {}
                interrupted = interruption(inner, state, signals) => return Ok(Err(interrupted)),
            }
            // The select may have consumed a signal.
            self.catch_up().await?;
        }
    }

    /// Waits until the task is among the first in line, or until it checks the queue in any case.
    async fn wait_in_line(
        &mut self,
        place: &LinePlace,
        slots: usize,
        deadline: Option<Instant>,
    ) -> Option<Interruption> {
        let Self { inner, state, signals, .. } = self;
        let waiting = u32::try_from(inner.slot_lines.length(place.pool())).unwrap_or(u32::MAX);
        let check_at = Instant::now() + FAR_CHECK_INTERVAL_PER_TASK.saturating_mul(waiting);
        let check_at = deadline.map_or(check_at, |deadline| deadline.min(check_at));
        let mut interrupted = pin!(interruption(inner, state, signals));
        loop {
            let moved = inner.slot_lines.moved();
            if place.is_among_first(slots + CHECKING_BEYOND_SLOTS) {
                return None;
            }
            tokio::select! {
                () = moved => {}
                () = tokio::time::sleep_until(check_at) => return None,
                interrupted = &mut interrupted => return Some(interrupted),
            }
        }
    }

    /// The queue position of an execution; without one, that of a new execution.
    async fn queue_position(&self, id: Option<ExecutionId>) -> Result<QueuePosition, EngineError> {
        let filter = ExecutionFilter {
            pool: Some(self.slot.pool.to_string()),
            open_only: true,
            ..ExecutionFilter::default()
        };
        let deps = &self.inner.deps;
        let rows = deps.store.execution_rows(&filter).await?;
        let owners = rows.iter().map(|row| row.owner).collect();
        let owners = OwnerLiveness::of(&*deps.leases, owners).await;
        let mut position = QueuePosition { ahead: 0, taken: 0 };
        // Rows are newest first, so those ahead come after it.
        let mut is_ahead = id.is_none();
        for row in &rows {
            let is_alive = owners.is_alive(row.owner);
            if Some(row.execution.id) == id {
                is_ahead = true;
            } else if row.execution.state != ExecutionState::Idle {
                position.taken += usize::from(is_alive);
            } else {
                position.ahead += usize::from(is_alive && is_ahead);
            }
        }
        Ok(position)
    }

    /// The unmasked input of the task. None if it is lost.
    async fn sealed_input(&self) -> Result<Option<SealedInput>, EngineError> {
        let order = self.state.task().order();
        let plain = || SealedInput {
            description: order.description.clone(),
            parameters: order.parameters.clone(),
            ..SealedInput::default()
        };
        if !order.has_private {
            return Ok(Some(plain()));
        }
        let text = self.inner.deps.store.sealed_input(order.id).await?;
        // The parser's error could repeat a secret.
        let broken = || EngineError::Broken {
            task: order.id,
            reason: "its sealed input cannot be parsed".to_owned(),
        };
        let parse = |text: String| serde_json::from_str(&text).map_err(|_| broken());
        text.map(parse).transpose()
    }

    fn working_directory(&self) -> Option<&String> {
        self.state.task().order().working_directory.as_ref()
    }

    /// Runs the CLI agent to its end.
    pub(super) async fn run_cli_agent(&mut self) -> Result<EffectOutcome, EngineError> {
        let (Some(agent), Some(execution)) = (self.cli_agent(), self.state.execution()) else {
            return Ok(Err(Interruption::Abandoned));
        };
        let script = self.pinned_script();
        let (execution_id, attempt) = (execution.id, execution.retry_count);
        let Some(sealed_input) = self.sealed_input().await? else {
            return Ok(Ok(Command::RecordRun(RecordRun { outcome: lost_input() })));
        };
        let overrides = sealed_input.overrides(self.working_directory());
        let slot = if let Some(slot) = self.slot.held.clone() {
            slot
        } else {
            self.park(WorkerActivity::Parked);
            let taken = self.retake_slot(&agent, &overrides).await;
            match self.unpark(taken).await {
                Ok(slot) => slot,
                Err(interrupted) => return Ok(Err(interrupted)),
            }
        };
        // Its usage is unknown until it ends. A script uses no model.
        let allowance = self.allowance.clone();
        let is_script = agent.program().is_some_and(|cli| cli.script.is_some());
        let _permit = if is_script {
            None
        } else {
            match self.budget_permit(&allowance).await {
                Ok(permit) => permit,
                Err(outcome) => return Ok(outcome),
            }
        };
        let (stop, stopped) = watch::channel(false);
        let (started_sender, mut process_started) = watch::channel(None);
        let (inner, task) = (Arc::clone(&self.inner), self.state.id());
        let session = Arc::clone(&self.session);
        let mut running = RunTask(tokio::spawn(async move {
            let started = started_sender;
            let progress = RunReporter { inner: Arc::clone(&inner), task, started };
            let request = RunRequest {
                agent: &agent,
                session: &session,
                execution_id,
                attempt,
                input: &sealed_input.description,
                parameters: &sealed_input.parameters,
                overrides: &overrides,
                script: script.as_deref(),
                slot: &slot,
                stop: &stopped,
                progress: &progress,
            };
            let work = TracedStep { task, kind: TracedStepKind::Work };
            let run = inner.deps.programs.run(request);
            traced(inner.deps.trace_contexts.as_ref(), work, run).await
        }));
        let mut is_recorded = false;
        let ended = loop {
            let Self { inner, state, signals, .. } = self;
            tokio::select! {
                biased;
                ended = &mut running.0 => break ended,
                process = started(&mut process_started), if !is_recorded => {
                    is_recorded = true;
                    if let Some(process_id) = process {
                        self.step(&Command::RecordProcess(RecordProcess { process_id })).await?;
                    }
                    // A cancel may have been requested meanwhile.
                    if self.state.cancel_requested() {
                        stop.send_replace(true);
                    }
                }
                interrupted = interruption(inner, state, signals) => match interrupted {
                    Interruption::Abandoned => return Ok(Err(Interruption::Abandoned)),
                    Interruption::Changed | Interruption::Cancelled => {
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

    /// The budget's permit for a run, or the outcome without one.
    async fn budget_permit<'a>(
        &mut self,
        allowance: &'a BudgetAllowance,
    ) -> Result<Option<CallPermit<'a>>, EffectOutcome> {
        if !allowance.is_limited() {
            return Ok(None);
        }
        let Self { inner, state, signals, .. } = self;
        tokio::select! {
            permit = allowance.permit() => permit.map(Some).map_err(|over| {
                let failure = AttemptFailure { category: ErrorCategory::Permanent, message: over };
                let (report, usage) = (RunReport::default(), Usage::default());
                let outcome = RunOutcome { end: RunEnd::Failed(failure), report, usage };
                Ok(Command::RecordRun(RecordRun { outcome }))
            }),
            interrupted = interruption(inner, state, signals) => Err(Err(interrupted)),
        }
    }

    /// Takes a slot for a task that was adopted between two attempts. It is not queued again: it
    /// counts as running, so no other task gets its slot.
    async fn retake_slot(
        &mut self,
        agent: &AgentDefinition,
        overrides: &RunOverrides,
    ) -> Result<Slot, Interruption> {
        let known = self.state.execution().and_then(|execution| execution.pool.clone());
        let programs = &self.inner.deps.programs;
        self.slot.pool = known.unwrap_or_else(|| programs.slot_pool(agent, overrides)).into();
        let Some(cli) = agent.program() else { return Err(Interruption::Abandoned) };
        loop {
            match self.take_slot(cli).await {
                Ok(Some(slot)) => {
                    self.slot.held = Some(slot.clone());
                    return Ok(slot);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "there is no place for a program yet"),
            }
            let Self { inner, state, signals, .. } = self;
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                interrupted = interruption(inner, state, signals) => return Err(interrupted),
            }
        }
    }

    /// Recovers the outcome of a run whose owner died.
    pub(super) async fn recover_run(&mut self) -> Result<EffectOutcome, EngineError> {
        let (Some(agent), Some(execution)) = (self.cli_agent(), self.state.execution()) else {
            return Ok(Err(Interruption::Abandoned));
        };
        let (execution_id, attempt) = (execution.id, execution.retry_count);
        let Some(sealed_input) = self.sealed_input().await? else {
            let outcome = Some(lost_input());
            return Ok(Ok(Command::RecordRecoveredRun(RecordRecoveredRun { outcome })));
        };
        let run = LostRun {
            agent: &agent,
            session: &self.session,
            execution_id,
            attempt,
            input: &sealed_input.description,
            parameters: &sealed_input.parameters,
            overrides: &sealed_input.overrides(self.working_directory()),
        };
        let outcome = self.inner.deps.programs.recover(run).await;
        Ok(Ok(Command::RecordRecoveredRun(RecordRecoveredRun { outcome })))
    }

    /// Removes the recovery files of runs whose outcome is in the journal.
    pub(super) fn forget_runs(&self) {
        if let Some(execution) = self.state.execution().filter(|_| self.state.is_program()) {
            let attempts = execution.retry_count + 1;
            self.inner.deps.programs.forget(execution.id, attempts);
        }
    }

    /// Frees the slot. A run that is retried keeps it until then.
    pub(super) fn free_slot(&mut self) {
        self.slot.held = None;
        self.inner.slot_freed.notify_waiters();
    }
}

/// The outcome of a run whose unmasked input is lost. It cannot be repeated with the masked one.
fn lost_input() -> RunOutcome {
    let message = "the input of this task contained secrets and is lost: backups and copies of the \
                   database do not contain it; start the task again with `polity run`";
    let failure =
        AttemptFailure { category: ErrorCategory::SystemError, message: message.to_owned() };
    let (report, usage) = (RunReport::default(), Usage::default());
    RunOutcome { end: RunEnd::Failed(failure), report, usage }
}

/// The process id, once the process has run for a while.
async fn started(process_started: &mut watch::Receiver<Option<u32>>) -> Option<u32> {
    let process = process_started.wait_for(Option::is_some).await.ok().and_then(|process| *process);
    tokio::time::sleep(RECORD_PROCESS_AFTER).await;
    process
}

fn begin(wait: SlotWait) -> Command {
    Command::BeginRun(BeginRun { wait })
}

/// Publishes the output of a run, and reports its process id.
struct RunReporter {
    inner: Arc<RuntimeInner>,
    task: TaskId,
    started: watch::Sender<Option<u32>>,
}

impl RunProgress for RunReporter {
    fn started(&self, process_id: u32) {
        self.started.send_replace(Some(process_id));
    }

    fn output(&self, piece: &str) {
        self.inner.journal.publish_text(self.task, piece);
    }

    fn usage(&self, _: ResourceUsage) {}
}
