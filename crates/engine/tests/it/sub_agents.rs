//! Agents that hand work to others: apart, side by side, after a crash, before a person, and ended
//! together.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polity_engine::closure::Closure;
use polity_engine::commands::{AnswerReview, CreateTask};
use polity_engine::driver::{
    AskedArguments, AskedTool, BoxFuture, ModelFailure, ModelReply, ModelRequest, Models, NotReady,
};
use polity_engine::runtime::{Parts, Runtime, TaskHandle, load, orphans};
use polity_model::definition::{Budget, Limits, Price};
use polity_model::failure::{ErrorCategory, ErrorCode, Failure};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;
use polity_model::review::Verdict;
use polity_model::task::Task;
use polity_model::usage::{Cost, Usage};
use polity_store::{MemoryStore, Store, TaskFilter, TaskRow};
use polity_testkit::lives::instance_id;
use polity_testkit::runtime::{Register, boss, parts};
use polity_testkit::tools::{ActingTools, ToolAct};
use serde_json::{Value, json};

/// What a model says, by who it is and what it was told last.
#[derive(Debug, Clone)]
enum Say {
    Text(&'static str),
    /// Calls, each a tool with what it is called with.
    Ask(Vec<(&'static str, Value)>),
    Fail,
    Hang,
}

fn part(tool: &'static str, what: &str) -> (&'static str, Value) {
    (tool, json!({"task_description": what}))
}

type Lines = BTreeMap<&'static str, Vec<Say>>;

/// Models that each follow their own lines, and remember all that they were shown.
struct Cast {
    lines: Lines,
    /// What was shown, by conversation.
    shown: Mutex<BTreeMap<String, Vec<String>>>,
    at_once: Mutex<(u32, u32)>,
    /// How many times ten tokens each call uses.
    weight: u64,
}

impl Cast {
    fn new(lines: impl IntoIterator<Item = (&'static str, Vec<Say>)>) -> Arc<Self> {
        let lines = lines.into_iter().collect();
        let (shown, at_once) = (Mutex::default(), Mutex::default());
        Arc::new(Self { lines, shown, at_once, weight: 1 })
    }

    fn shown(&self) -> BTreeMap<String, Vec<String>> {
        self.shown.lock().unwrap().clone()
    }

    fn at_once_most(&self) -> u32 {
        self.at_once.lock().unwrap().1
    }
}

impl Models for Cast {
    fn ready(&self, _closure: &Closure) -> Result<(), NotReady> {
        Ok(())
    }

    fn price(&self, _closure: &Closure) -> Option<Price> {
        Some(Price::FREE)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        let said: Vec<String> =
            request.history.iter().map(|message| message.content().to_owned()).collect();
        self.shown.lock().unwrap().insert(request.place.session.to_owned(), said);
        let agent = request.closure.agent.name.as_str();
        let turn = request.place.turn as usize - 1;
        let line = self.lines[agent].get(turn).cloned().unwrap_or(Say::Text("done"));
        Box::pin(async move {
            {
                let mut at_once = self.at_once.lock().unwrap();
                at_once.0 += 1;
                at_once.1 = at_once.1.max(at_once.0);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.at_once.lock().unwrap().0 -= 1;
            let usage = Usage {
                input_tokens: 9 * self.weight,
                output_tokens: self.weight,
                cost: Cost::of_tokens(10 * self.weight, 100.0),
            };
            let reply = |content: &str, tool_calls| {
                let content = content.to_owned();
                Ok(ModelReply { content, tool_calls, usage, is_cut: false, mark: None })
            };
            match line {
                Say::Text(text) => reply(text, Vec::new()),
                Say::Ask(calls) => reply("", calls.into_iter().map(asked).collect()),
                Say::Fail => {
                    let (category, message) = (ErrorCategory::Permanent, "no such model".into());
                    Err(ModelFailure::new(Failure { category, message }))
                }
                Say::Hang => std::future::pending().await,
            }
        })
    }
}

fn asked((tool, arguments): (&'static str, Value)) -> AskedTool {
    let (server, tool) = tool.split_once('/').unwrap();
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let (server, tool) = (server.to_owned(), tool.to_owned());
    AskedTool { server, tool, arguments: AskedArguments::Object(arguments), signature: None }
}

struct Stage {
    store: Arc<dyn Store>,
    owners: Arc<Register>,
}

impl Stage {
    fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), owners: Arc::default() }
    }

    fn process(&self, number: u64, models: &Arc<Cast>) -> Runtime {
        self.limited(number, models, |limits| limits)
    }

    fn parts_of_process(&self, number: u64, models: &Arc<Cast>) -> Parts {
        let (store, models) = (Arc::clone(&self.store), Arc::clone(models) as Arc<dyn Models>);
        parts(store, models, &self.owners, instance_id(number), number)
    }

    fn limited(&self, number: u64, models: &Arc<Cast>, limit: fn(Limits) -> Limits) -> Runtime {
        let parts = self.parts_of_process(number, models);
        let limits = limit(parts.limits);
        Runtime::start(Parts { limits, ..parts }).unwrap()
    }

    fn kill(&self, number: u64, runtime: Runtime) {
        drop(runtime);
        self.owners.died(instance_id(number));
    }

    fn task(&self, id: TaskId) -> Task {
        self.store.task(&self.store.task_row(id).unwrap().unwrap()).unwrap()
    }

    fn parts(&self, of: TaskId) -> Vec<TaskRow> {
        let filter = TaskFilter { parent: Some(of), ..TaskFilter::default() };
        let mut rows = self.store.task_rows(&filter).unwrap();
        rows.reverse();
        rows
    }

    fn said(&self, id: TaskId) -> Vec<String> {
        let messages = self.store.messages(id).unwrap();
        messages.iter().map(|message| message.content().to_owned()).collect()
    }

    async fn until(&self, what: &str, look: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if look(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain until {what}");
    }

    async fn answer(&self, runtime: &Runtime, id: TaskId, verdict: Verdict) {
        let state = load(&self.store, id).await.unwrap().state;
        let checkpoint_id = state.review().unwrap().checkpoint_id;
        let answer = AnswerReview { checkpoint_id, verdict, message: None, by: "ada".to_owned() };
        runtime.answer(id, answer).await.unwrap();
    }
}

async fn give(runtime: &Runtime, what: &str) -> TaskHandle {
    runtime.create(CreateTask::new(boss(), what)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn nothing_leaks_either_way() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "CANARY-DOWN")]), Say::Text("over")]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "deeper")]), Say::Text("SUMMARY")]),
        ("helper", vec![Say::Text("CANARY-BELOW")]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut create = CreateTask::new(boss(), "CANARY-ABOVE");
    create.parameters.insert("secret".to_owned(), "CANARY-PARAMETER".into());
    let mut handle = runtime.create(create).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    let shown = cast.shown();
    let sessions: Vec<&str> = shown.keys().map(String::as_str).collect();
    assert_eq!(sessions, ["boss", "boss/1.1/deputy", "boss/1.1/deputy/1.1/helper"]);
    assert_eq!(shown["boss"], ["CANARY-ABOVE", "", "SUMMARY"]);
    assert_eq!(shown["boss/1.1/deputy"], ["CANARY-DOWN", "", "CANARY-BELOW"]);
    assert_eq!(shown["boss/1.1/deputy/1.1/helper"], ["deeper"]);
    let deputy = &stage.parts(handle.id)[0];
    let task = stage.task(deputy.id);
    assert_eq!((task.parent_task_id, task.parameters.len()), (Some(handle.id), 0));
    assert_eq!(stage.said(deputy.id), ["CANARY-DOWN", "", "CANARY-BELOW", "SUMMARY"]);
}

#[tokio::test(start_paused = true)]
async fn sub_agents_of_one_turn_work_side_by_side_and_need_no_place_of_their_own() {
    let stage = Stage::new();
    let helpers = (0..8).map(|number| part("agent/helper", &number.to_string())).collect();
    let cast = Cast::new([("boss", vec![Say::Ask(helpers)]), ("helper", vec![])]);
    let one = |limits| Limits { concurrent_tasks: NonZeroU32::MIN, ..limits };
    let runtime = stage.limited(1, &cast, one);
    let mut first = give(&runtime, "a").await;
    let mut second = give(&runtime, "b").await;
    assert_eq!(first.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(cast.at_once_most(), 8);
    assert_eq!(second.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!((stage.parts(first.id).len(), stage.parts(second.id).len()), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn more_sub_agents_than_the_limit_allows_are_not_called_and_the_model_is_told() {
    let stage = Stage::new();
    let helpers = (0..4).map(|number| part("agent/helper", &number.to_string())).collect();
    let cast = Cast::new([("boss", vec![Say::Ask(helpers)]), ("helper", vec![])]);
    let two = NonZeroU32::new(2).unwrap();
    let runtime = stage.limited(1, &cast, |limits| Limits {
        sub_agent_fan_out: NonZeroU32::new(2).unwrap(),
        ..limits
    });
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(stage.parts(handle.id).len(), two.get() as usize);
    let refused = "error: at most 2 sub-agents are called at once (limits.sub_agent_fan_out); ask \
                   for this one again";
    assert_eq!(stage.said(handle.id)[2..6], ["done", "done", refused, refused]);
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_is_too_long_is_refused_before_anything_is_spent() {
    let stage = Stage::new();
    let cast = Cast::new([]);
    let runtime =
        stage.limited(1, &cast, |limits| Limits { sub_agent_depth: NonZeroU32::MIN, ..limits });
    let refused = runtime.create(CreateTask::new(boss(), "a")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "work could be handed on over 2 steps (boss -> deputy -> helper); limits.sub_agent_depth \
         allows 1"
    );
    assert_eq!(stage.store.last_position().unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_parent_learns_why_a_sub_agent_failed_and_goes_another_way() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")]), Say::Text("by myself, then")]),
        ("helper", vec![Say::Fail]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    let told = "error: helper failed (model_rejected): no such model";
    assert_eq!(stage.said(handle.id)[2..], [told, "by myself, then"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_parent_cancels_its_sub_agents_to_the_last() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "x"), part("agent/helper", "y")])]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "z")])]),
        ("helper", vec![Say::Hang]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let all = |stage: &Stage| stage.store.task_rows(&TaskFilter::default()).unwrap();
    stage.until("all are at work", |stage| all(stage).len() == 4).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    // When the parent is told to be over, so are its parts.
    assert!(all(&stage).iter().all(|row| row.status == TaskStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_that_someone_cancels_is_an_answer_to_its_parent() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Say::Hang]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    stage.until("it is at work", |stage| cast_at_work(stage, handle.id)).await;
    runtime.cancel(stage.parts(handle.id)[0].id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(stage.said(handle.id)[2], "error: helper was cancelled");
}

fn cast_at_work(stage: &Stage, id: TaskId) -> bool {
    stage.parts(id).iter().any(|row| row.status == TaskStatus::Running)
}

#[tokio::test(start_paused = true)]
async fn a_crash_resumes_parent_and_sub_agents_where_they_were() {
    let stage = Stage::new();
    let lines = || [("boss", vec![Say::Ask(vec![part("agent/deputy", "x")])])];
    let stuck =
        [("deputy", vec![Say::Ask(vec![part("agent/helper", "y")])]), ("helper", vec![Say::Hang])];
    let runtime = stage.process(1, &Cast::new(lines().into_iter().chain(stuck)));
    let id = give(&runtime, "a").await.id;
    let all = |stage: &Stage| stage.store.task_rows(&TaskFilter::default()).unwrap();
    stage.until("all are at work", |stage| all(stage).len() == 3).await;
    stage.kill(1, runtime);
    // One of them is resumed, and the others go on with it.
    let left = orphans(&*stage.store, &*stage.owners).unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    let cast = Cast::new(lines().into_iter().chain([("deputy", vec![]), ("helper", vec![])]));
    let runtime = stage.process(2, &cast);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(all(&stage).len(), 3, "no sub-agent was opened twice");
    assert!(all(&stage).iter().all(|row| row.status == TaskStatus::Completed));
    let said: Vec<String> = stage.said(stage.parts(id)[0].id);
    assert_eq!(said, ["x", "", "done", "done"]);
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_whose_parent_has_ended_ends_with_it() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Say::Hang]),
    ]);
    let runtime = stage.process(1, &cast);
    let handle = give(&runtime, "a").await;
    stage.until("it is at work", |stage| cast_at_work(stage, handle.id)).await;
    stage.kill(1, runtime);
    let runtime = stage.process(2, &cast);
    // Whoever ends the parent from outside ends what it has handed out.
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(stage.task(stage.parts(handle.id)[0].id).status, TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_parent_waits_with_its_sub_agent_for_a_person_and_holds_nothing() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "x")]), Say::Text("all done")]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let rows = stage.store.task_rows(&TaskFilter::default()).unwrap();
    for row in &rows {
        assert_eq!((row.status, row.owner), (TaskStatus::AwaitingHuman, None));
    }
    assert_eq!(orphans(&*stage.store, &*stage.owners).unwrap(), []);
    stage.kill(1, runtime);
    let runtime = stage.process(2, &cast);
    // Without an answer, resuming it only finds that it waits.
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let deputy = stage.parts(handle.id)[0].id;
    let helper = stage.parts(deputy)[0].id;
    stage.answer(&runtime, helper, Verdict::Approve).await;
    let left = orphans(&*stage.store, &*stage.owners).unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [handle.id]);
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(stage.task(handle.id).result.as_deref(), Some("all done"));
    assert_eq!(stage.store.task_rows(&TaskFilter::default()).unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn while_one_sub_agent_waits_for_a_person_the_others_work_on() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let boss = Say::Ask(vec![part("agent/helper", "x"), part("agent/deputy", "y")]);
    let cast = Cast::new([
        ("boss", vec![boss, Say::Text("both done")]),
        ("deputy", vec![Say::Hang]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let id = handle.id;
    let named = |stage: &Stage, agent: &str| {
        stage.parts(id).into_iter().find(|row| row.assigned_agent.as_str() == agent)
    };
    let status = |stage: &Stage, agent: &str| named(stage, agent).map(|row| row.status);
    stage
        .until("one waits", |stage| status(stage, "helper") == Some(TaskStatus::AwaitingHuman))
        .await;
    let helper = named(&stage, "helper").unwrap().id;
    assert_eq!(stage.task(handle.id).status, TaskStatus::Running);
    stage.answer(&runtime, helper, Verdict::Approve).await;
    // The parent's process notices the answer, and goes on with the sub-agent.
    stage.until("it goes on", |stage| status(stage, "helper") == Some(TaskStatus::Completed)).await;
    assert_eq!(stage.task(handle.id).status, TaskStatus::Running);
    runtime.cancel(named(&stage, "deputy").unwrap().id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_far_below_reaches_a_parent_that_is_busy_with_others() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let parts = Say::Ask(vec![part("agent/deputy", "x"), part("agent/helper", "hang")]);
    let cast = Cast::new([
        ("boss", vec![parts]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "delete")]), Say::Text("deleted")]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let id = handle.id;
    let waiting = |stage: &Stage| -> Vec<TaskRow> {
        let rows = stage.store.task_rows(&TaskFilter::default()).unwrap();
        rows.into_iter().filter(|row| row.status == TaskStatus::AwaitingHuman).collect()
    };
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(waiting(&stage).len(), 4);
    let below = |stage: &Stage, agent: &str, of: TaskId| {
        stage.parts(of).into_iter().find(|row| row.assigned_agent.as_str() == agent).unwrap().id
    };
    let deputy = below(&stage, "deputy", id);
    let far_below = below(&stage, "helper", deputy);
    // The one far below is answered, and that is something to do for those above it.
    stage.answer(&runtime, far_below, Verdict::Approve).await;
    let left = orphans(&*stage.store, &*stage.owners).unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(stage.task(deputy).status, TaskStatus::Completed);
    // While the other is being answered and goes on, the whole is taken to its end by its owner.
    stage.answer(&runtime, below(&stage, "helper", id), Verdict::Approve).await;
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_two_steps_below_is_noticed_while_the_top_is_at_work() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    // The boss has something else to wait for: a tool that does not answer in time.
    let hangs = ("files/write", json!({"n": 2}));
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "x"), hangs])]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "delete")]), Say::Text("deleted")]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let parts = stage.parts_of_process(1, &cast);
    let tools = ActingTools::new(&Arc::default(), [ToolAct::Hang], Duration::from_millis(5));
    let runtime = Runtime::start(Parts { tools: Arc::new(tools), ..parts }).unwrap();
    let mut handle = give(&runtime, "a").await;
    let named = |stage: &Stage, agent: &str| {
        let rows = stage.store.task_rows(&TaskFilter::default()).unwrap();
        rows.into_iter().find(|row| row.assigned_agent.as_str() == agent)
    };
    let status = |stage: &Stage, agent: &str| named(stage, agent).map(|row| row.status);
    let waits = Some(TaskStatus::AwaitingHuman);
    stage.until("the deputy waits", |stage| status(stage, "deputy") == waits).await;
    assert_eq!(status(&stage, "boss"), Some(TaskStatus::Running));
    stage.answer(&runtime, named(&stage, "helper").unwrap().id, Verdict::Approve).await;
    // Nobody resumes anything: the one at work notices.
    let done = Some(TaskStatus::Completed);
    stage.until("the deputy is done", |stage| status(stage, "deputy") == done).await;
    assert_eq!(status(&stage, "boss"), Some(TaskStatus::Running));
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_that_waits_for_a_person_is_ended_with_its_parent_even_after_a_crash() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    // The parent is ended, and the process dies before it has ended the sub-agent.
    let parent = load(&stage.store, handle.id).await.unwrap().state;
    let commit = polity_store::Commit {
        stream: parent.stream(),
        expected_sequence: parent.sequence(),
        owner_epoch: None,
        at: parent.task().order().created_at,
        events: vec![polity_model::event::Event::TaskCancelled],
        definitions: Vec::new(),
    };
    stage.store.commit(commit).await.unwrap();
    stage.kill(1, runtime);
    let helper = stage.parts(handle.id)[0].id;
    let left = orphans(&*stage.store, &*stage.owners).unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [helper]);
    let refused = stage.process(2, &cast).adopt(helper).await.unwrap_err();
    assert!(refused.to_string().contains("is already cancelled"), "{refused}");
    assert_eq!(stage.task(helper).status, TaskStatus::Cancelled);
}

fn tokens(max: u64) -> Option<Budget> {
    serde_json::from_value(json!({ "max_tokens": max })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_budget_holds_for_a_task_and_its_sub_agents_and_is_overshot_by_no_more_than_a_call() {
    // Every call uses 10 tokens: one of the boss, then up to eight at once.
    for (max, spent) in [(1, 10), (10, 10), (11, 20), (45, 50), (50, 50), (95, 100)] {
        let stage = Stage::new();
        let helpers = (0..8).map(|number| part("agent/helper", &number.to_string())).collect();
        let cast = Cast::new([("boss", vec![Say::Ask(helpers)]), ("helper", vec![])]);
        let runtime = stage.process(1, &cast);
        let create = CreateTask { budget: tokens(max), ..CreateTask::new(boss(), "a") };
        let mut handle = runtime.create(create).await.unwrap();
        handle.wait().await.unwrap();
        let task = stage.task(handle.id);
        let total = task.total_usage.input_tokens + task.total_usage.output_tokens;
        assert_eq!((total, task.error_code), (spent, Some(ErrorCode::Budget)), "{max}");
        let told =
            format!("the budget of boss is used up: {spent} of {max} tokens (budget.max_tokens)");
        assert_eq!(task.error, Some(told));
    }
}

#[tokio::test(start_paused = true)]
async fn sub_agents_that_use_far_more_than_their_parent_do_not_break_the_limit_together() {
    let stage = Stage::new();
    let helpers = (0..8).map(|number| part("agent/helper", &number.to_string())).collect();
    let lines = [("boss", vec![Say::Ask(helpers)]), ("helper", vec![])];
    let cast = Cast::new(lines);
    // Each call uses 200 tokens, and the limit allows six.
    let cast = Arc::new(Cast { weight: 20, ..Arc::into_inner(cast).unwrap() });
    let runtime = stage.process(1, &cast);
    let create = CreateTask { budget: tokens(1150), ..CreateTask::new(boss(), "a") };
    let mut handle = runtime.create(create).await.unwrap();
    handle.wait().await.unwrap();
    let total = stage.task(handle.id).total_usage;
    assert_eq!(total.input_tokens + total.output_tokens, 1200);
}

#[tokio::test(start_paused = true)]
async fn far_from_its_limit_a_budget_holds_no_one_up() {
    let stage = Stage::new();
    let helpers = (0..8).map(|number| part("agent/helper", &number.to_string())).collect();
    let cast = Cast::new([("boss", vec![Say::Ask(helpers)]), ("helper", vec![])]);
    let runtime = stage.process(1, &cast);
    let create = CreateTask { budget: tokens(100_000), ..CreateTask::new(boss(), "a") };
    let mut handle = runtime.create(create).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(cast.at_once_most(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_cost_budget_goes_on_counting_after_a_crash() {
    let stage = Stage::new();
    let budget: Option<Budget> = serde_json::from_value(json!({"max_cost_usd": 0.0025})).unwrap();
    let lines = |helper| {
        Cast::new([
            ("boss", vec![Say::Ask(vec![part("agent/helper", "x")]), Say::Text("over")]),
            ("helper", vec![Say::Ask(vec![("time/now", json!({"n": 1}))]), helper]),
        ])
    };
    let runtime = stage.process(1, &lines(Say::Hang));
    let create = CreateTask { budget, ..CreateTask::new(boss(), "a") };
    let id = runtime.create(create).await.unwrap().id;
    let answers = |stage: &Stage| stage.parts(id).iter().any(|row| row.usage.input_tokens == 9);
    stage.until("the helper has answered once", answers).await;
    stage.kill(1, runtime);
    // Two calls have cost $0.0020, so one more may be made.
    let runtime = stage.process(2, &lines(Say::Text("SUMMARY")));
    runtime.adopt(id).await.unwrap().wait().await.unwrap();
    let task = stage.task(id);
    assert_eq!(task.error_code, Some(ErrorCode::Budget), "{task:?}");
    assert_eq!(
        task.error.as_deref(),
        Some("the budget of boss is used up: $0.0030 of $0.0025 (budget.max_cost_usd)")
    );
    assert!(matches!(stage.store.messages(id).unwrap()[2], Message::Tool { .. }));
}
