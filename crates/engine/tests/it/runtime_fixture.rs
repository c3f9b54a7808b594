//! A journal with the leases of its processes, and the steps that most tests take on it.

use crate::prelude::*;

/// A journal and the leases of its processes.
pub(crate) struct RuntimeFixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) leases: Arc<TestLeases>,
}

impl RuntimeFixture {
    pub(crate) fn new() -> Self {
        Self::on(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn on(store: Arc<dyn Store>) -> Self {
        Self { store, leases: Arc::default() }
    }

    /// The dependencies of a process with these models.
    pub(crate) fn deps(&self, number: u64, models: Arc<dyn ModelDriver>) -> RuntimeDeps {
        self.deps_on(Arc::clone(&self.store), number, models)
    }

    /// The dependencies of a process with its own view of the journal.
    pub(crate) fn deps_on(
        &self,
        store: Arc<dyn Store>,
        number: u64,
        models: Arc<dyn ModelDriver>,
    ) -> RuntimeDeps {
        runtime_deps(store, models, &self.leases, instance_id(number), number)
    }

    /// Kills a process.
    pub(crate) fn kill(&self, number: u64, runtime: Runtime) {
        drop(runtime);
        self.leases.end(instance_id(number));
    }

    pub(crate) fn row(&self, id: TaskId) -> TaskRow {
        self.store.task_row(id).wait().unwrap().unwrap()
    }

    pub(crate) fn task(&self, id: TaskId) -> Task {
        self.store.task(&self.row(id)).wait().unwrap()
    }

    pub(crate) async fn load(&self, id: TaskId) -> TaskState {
        load_task(&*self.store, id).await.unwrap().state
    }

    pub(crate) fn recorded(&self, id: TaskId) -> Vec<RecordedEvent> {
        self.store.events(&StreamId::Task(id), StreamSequence(0)).wait().unwrap()
    }

    pub(crate) fn events(&self, id: TaskId) -> Vec<Event> {
        self.recorded(id).into_iter().map(|recorded| recorded.event).collect()
    }

    pub(crate) fn all_tasks(&self) -> Vec<TaskRow> {
        self.store.task_rows(&TaskFilter::default()).wait().unwrap()
    }

    pub(crate) async fn orphan_ids(&self) -> Vec<TaskId> {
        let orphans = find_orphans(&*self.store, &*self.leases, Timestamp::UNIX_EPOCH).await;
        orphans.unwrap().resumable.into_iter().map(|row| row.id).collect()
    }

    pub(crate) fn sub_tasks(&self, of: TaskId) -> Vec<TaskRow> {
        let filter = TaskFilter { parent: Some(of), ..TaskFilter::default() };
        let mut rows = self.store.task_rows(&filter).wait().unwrap();
        rows.reverse();
        rows
    }

    /// The texts of the messages, in order.
    pub(crate) fn message_texts(&self, id: TaskId) -> Vec<String> {
        let messages = self.store.messages(id).wait().unwrap();
        messages.iter().map(|message| message.content().to_owned()).collect()
    }

    pub(crate) async fn until(&self, what: &str, look: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if look(self) {
                return;
            }
            sleep(10).await;
        }
        panic!("timed out waiting until {what}");
    }

    /// Answers the open review.
    pub(crate) async fn answer(&self, runtime: &Runtime, id: TaskId, verdict: ReviewVerdict) {
        let checkpoint_id = self.load(id).await.review().unwrap().checkpoint_id;
        runtime.answer(id, answer_review(checkpoint_id, verdict)).await.unwrap();
    }

    /// Cancels a task from a process that runs nothing.
    pub(crate) async fn cancel(&self, id: TaskId) -> Result<CancelOutcome, EngineError> {
        cancel_from_outside(&self.store, &*self.leases, &TokioClock::new(), id).await
    }
}

/// Starts a process.
pub(crate) fn start(deps: RuntimeDeps) -> Runtime {
    polity_store::block_on(Runtime::start(deps)).unwrap()
}

/// Creates tasks, of which two get a slot.
pub(crate) async fn create_all(runtime: &Runtime, count: u32) -> Vec<TaskHandle> {
    let mut handles = Vec::new();
    for number in 0..count {
        handles.push(runtime.create(create_task(&format!("task {number}"))).await.unwrap());
    }
    handles
}

/// Creates a task and waits until it is completed.
pub(crate) async fn complete(runtime: &Runtime, create: CreateTask) -> TaskId {
    let mut handle = runtime.create(create).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    handle.id
}

/// Creates a task and waits until it awaits a review.
pub(crate) async fn pause(runtime: &Runtime, create: CreateTask) -> TaskId {
    let mut handle = runtime.create(create).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    handle.id
}

/// Adopts a task and waits until it ends or pauses.
pub(crate) async fn adopt(runtime: &Runtime, id: TaskId) -> TaskStatus {
    runtime.adopt(id).await.unwrap().wait().await.unwrap()
}

/// An answer without a message or state updates.
pub(crate) fn answer_review(checkpoint_id: CheckpointId, verdict: ReviewVerdict) -> AnswerReview {
    let (by, state_updates) = ("ada".to_owned(), StateUpdates::default());
    AnswerReview { checkpoint_id, verdict, message: None, by, state_updates }
}

pub(crate) async fn sleep(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

pub(crate) fn transient(message: &str) -> AttemptFailure {
    AttemptFailure { category: ErrorCategory::Transient, message: message.to_owned() }
}

pub(crate) fn permanent(message: &str) -> AttemptFailure {
    AttemptFailure { category: ErrorCategory::Permanent, message: message.to_owned() }
}

/// A definition with these fields and more, pinned without a script.
pub(crate) fn pinned_agent(mut agent: Value, more: &Value) -> PinnedAgent {
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    PinnedAgent::alone(Arc::new(AgentDefinition::from_canonical(&agent.to_string()).unwrap()), None)
}
