//! Crashes at every commit of random workflows.
//!
//! Each case runs a small random workflow in a few processes, one after the other. Each crashes at a
//! random commit. A reviewer answers truthfully, so the outcome equals that of a run without crashes.

use proptest::prelude::*;

use crate::faults::{
    adopt_orphans, block_on_paused, check, crash, decide, decide_and_resume, finish_orphans,
    retry_request, waiting, waits_or_has_ended,
};
use crate::note_calls::calls;
use crate::prelude::*;
use crate::workflow_harness::{WorkflowHarness, comparable, end};
use crate::workflow_programs::{output_of_script, text_of_script};

/// Marks the effects of one task, to distinguish tasks.
const MARK: &str = "RUN";

/// A random node.
#[derive(Debug, Clone)]
enum RandomNode {
    Agent(&'static str),
    /// May not be repeated.
    Note,
    /// May be repeated, because the tool says so.
    Echo,
    /// May be repeated, because the node says so.
    Idempotent,
    /// A script, and true if it may be repeated.
    Script(bool),
    Condition(&'static str),
    Human,
    Sub(&'static str),
    /// The kind of its step, the number of items, `max_parallel` and `on_item_error`.
    Map(Box<RandomNode>, usize, u32, &'static str),
    Parallel(&'static str, Vec<RandomNode>),
}

/// An edge to a node from an earlier one.
#[derive(Debug, Clone)]
struct IncomingEdge {
    from: usize,
    edge: &'static str,
}

#[derive(Debug, Clone)]
struct RandomWorkflow {
    nodes: Vec<(RandomNode, Vec<IncomingEdge>)>,
    /// A loop edge: source, target and limit.
    back: Option<(usize, usize, u32)>,
    pauses: Option<usize>,
}

#[derive(Debug, Clone)]
struct WorkflowProcess {
    creates: bool,
    /// True if it cancels all its tasks at the end. They are retried.
    cancels: bool,
    /// The answers to open reviews, in rounds; none is a truthful answer.
    answers: Vec<Option<ReviewVerdict>>,
    lost: u32,
    dies: (u32, CrashSide),
}

fn simple() -> impl Strategy<Value = RandomNode> {
    prop_oneof![
        3 => prop::sample::select(vec!["ann", "bob", "cid"]).prop_map(RandomNode::Agent),
        1 => Just(RandomNode::Agent("asker")),
        3 => Just(RandomNode::Note),
        1 => Just(RandomNode::Echo),
        1 => Just(RandomNode::Idempotent),
        2 => any::<bool>().prop_map(RandomNode::Script),
        1 => prop::sample::select(vec!["'metadata.run == \"\" ? \"k9\" : \"k0\"'", "input"]).prop_map(RandomNode::Condition),
        1 => Just(RandomNode::Human),
        1 => prop::sample::select(vec!["sub", "asks"]).prop_map(RandomNode::Sub),
    ]
}

fn map() -> impl Strategy<Value = RandomNode> {
    let step = simple().prop_filter("a map asks no one", |step| !matches!(step, RandomNode::Human));
    let policy = prop::sample::select(vec!["fail", "collect"]);
    (step, 0usize..6, 1u32..4, policy).prop_map(|(step, items, most, policy)| {
        RandomNode::Map(Box::new(step), items, most, policy)
    })
}

fn kind() -> impl Strategy<Value = RandomNode> {
    let join = prop::sample::select(vec!["all", "all", "any", "first"]);
    prop_oneof![
        5 => simple(),
        2 => map(),
        2 => (join, prop::collection::vec(prop_oneof![4 => simple(), 1 => map()], 1..4))
            .prop_map(|(join, branches)| RandomNode::Parallel(join, branches)),
    ]
}

fn flow() -> impl Strategy<Value = RandomWorkflow> {
    let edges = vec!["", "", "", "", "condition: 'true'", "condition: 'false'", "key", "no key"];
    let incoming = (0usize..6, prop::sample::select(edges))
        .prop_map(|(from, edge)| IncomingEdge { from, edge });
    let node = (kind(), prop::collection::vec(incoming, 1..3));
    let back = prop::option::of((0usize..6, 0usize..6, 1u32..3));
    let pauses = prop::option::weighted(0.2, 0usize..6);
    (prop::collection::vec(node, 1..6), back, pauses)
        .prop_map(|(nodes, back, pauses)| RandomWorkflow { nodes, back, pauses })
}

fn process() -> impl Strategy<Value = WorkflowProcess> {
    let verdict = prop_oneof![
        4 => Just(None),
        1 => Just(Some(ReviewVerdict::Approve)),
        1 => Just(Some(ReviewVerdict::Reject)),
        1 => Just(Some(ReviewVerdict::Retry)),
    ];
    let answers = prop::collection::vec(verdict, 1..5);
    let cancels = prop::bool::weighted(0.3);
    (any::<bool>(), cancels, answers, 0u32..2, crash(30)).prop_map(
        |(creates, cancels, answers, lost, dies)| WorkflowProcess {
            creates,
            cancels,
            answers,
            lost,
            dies,
        },
    )
}

impl RandomWorkflow {
    /// True if its outcome does not depend on timing.
    fn is_fixed(&self) -> bool {
        let is_fixed =
            |kind: &RandomNode| !matches!(kind, RandomNode::Parallel("any" | "first", _));
        self.nodes.iter().all(|(kind, _)| is_fixed(kind))
            && !self.loops_beside_others()
            && !self.reads_keys_of_scripts()
    }

    /// True if a node without a routing key of its own routes by key, and a script may set the key
    /// of the State at the same time.
    fn reads_keys_of_scripts(&self) -> bool {
        let is_script = |kind: &RandomNode| matches!(kind, RandomNode::Script(_));
        let has_script = self.nodes.iter().any(|(kind, _)| match kind {
            RandomNode::Parallel(_, branches) => branches.iter().any(is_script),
            other => is_script(other),
        });
        let has_key = |node: usize| {
            let kind = &self.nodes[node].0;
            matches!(kind, RandomNode::Condition(_) | RandomNode::Human) || is_script(kind)
        };
        has_script
            && self.nodes.iter().enumerate().skip(1).any(|(number, (_, incoming))| {
                let by_key = incoming.iter().filter(|incoming| incoming.edge.ends_with("key"));
                by_key.map(|incoming| incoming.from % number).any(|from| !has_key(from))
            })
    }

    /// The nodes that lead to a node.
    fn before(&self, node: usize) -> Vec<usize> {
        let incoming = self.nodes[node].1.iter().filter(|_| node > 0);
        incoming.map(|incoming| incoming.from % node).collect()
    }

    /// The loop edge: source, target and limit.
    fn back(&self) -> Option<(usize, usize, u32)> {
        let (from, to, times) = self.back?;
        let (from, to) = (from % self.nodes.len(), to % self.nodes.len());
        Some((from.max(to), from.min(to), times))
    }

    /// True if a node of the loop runs in parallel to the source of the loop edge. Its progress before
    /// the restart depends on timing.
    fn loops_beside_others(&self) -> bool {
        let Some((from, to, _)) = self.back() else { return false };
        let count = self.nodes.len();
        let behind = |start: usize| {
            let mut behind = vec![false; count];
            behind[start] = true;
            for node in start + 1..count {
                behind[node] = self.before(node).iter().any(|before| behind[*before]);
            }
            behind
        };
        let (in_loop, after_it) = (behind(to), behind(from));
        (0..count).any(|node| in_loop[node] && !after_it[node] && !behind(node)[from])
    }

    fn text(&self) -> String {
        let mut nodes = String::new();
        let mut edges = String::new();
        for (number, (kind, incoming)) in self.nodes.iter().enumerate() {
            let name = format!("n{number}");
            writeln!(nodes, "  {name}: {}", node(&name, kind)).unwrap();
            if let RandomNode::Parallel(_, branches) = kind {
                for (branch, kind) in branches.iter().enumerate() {
                    let name = format!("n{number}b{branch}");
                    writeln!(nodes, "  {name}: {}", node(&name, kind)).unwrap();
                }
            }
            let mut met = Vec::new();
            for IncomingEdge { from, edge } in incoming.iter().filter(|_| number > 0) {
                let from = from % number;
                if met.contains(&from) {
                    continue;
                }
                met.push(from);
                let edge = match (*edge, &self.nodes[from].0) {
                    // A person gives these keys only.
                    ("key", RandomNode::Human) => "approved",
                    ("no key", RandomNode::Human) => "modified",
                    (edge, _) => edge,
                };
                let line = match edge {
                    "approved" => format!("{{from: n{from}, to: {{approve: {name}}}}}"),
                    "modified" => format!("{{from: n{from}, to: {{modify: {name}}}}}"),
                    "key" => format!("{{from: n{from}, to: {{k0: {name}}}}}"),
                    "no key" => format!("{{from: n{from}, to: {{k9: {name}}}}}"),
                    "" => format!("{{from: n{from}, to: {name}}}"),
                    condition => format!("{{from: n{from}, to: {name}, {condition}}}"),
                };
                writeln!(edges, "  - {line}").unwrap();
            }
        }
        let count = self.nodes.len();
        if let Some((from, to, times)) = self.back() {
            writeln!(
                edges,
                "  - {{from: n{from}, to: n{to}, condition: 'true', max_loops: {times}}}"
            )
            .unwrap();
        }
        let pauses = self.pauses.map(|node| format!("n{}", node % count)).unwrap_or_default();
        let edges = if edges.is_empty() { "  []\n".to_owned() } else { edges };
        format!(
            "name: flow\nentry_point: n0\ncheckpoints: [{pauses}]\nnodes:\n{nodes}edges:\n{edges}"
        )
    }
}

fn node(name: &str, kind: &RandomNode) -> String {
    let call = |tool: &str, more: &str| {
        format!(
            "{{type: tool, tool: kit/{tool}, arguments: {{text: '{name} {{{{ metadata.run }}}}'}}, outputs: [o_{name}]{more}}}"
        )
    };
    match kind {
        RandomNode::Agent(agent) => {
            format!(
                "{{type: agent, agent: {agent}, input: '{name} {{{{ metadata.run }}}} {{{{ last }}}}'}}"
            )
        }
        RandomNode::Note => call("note", ""),
        RandomNode::Echo => call("echo", ""),
        RandomNode::Idempotent => call("note", ", idempotent: true"),
        RandomNode::Script(again) => format!(
            "{{type: script, file: steps/note.sh, arguments: {{text: '{name} {{{{ metadata.run }}}}', again: {again}}}, idempotent: {again}}}"
        ),
        RandomNode::Condition(expression) => {
            format!("{{type: condition, expression: {expression}}}")
        }
        RandomNode::Human => format!("{{type: human, question: 'What of {name}?'}}"),
        RandomNode::Sub(workflow) => format!(
            "{{type: workflow, workflow: {workflow}, input: '{name} {{{{ metadata.run }}}}'}}"
        ),
        RandomNode::Map(step, items, most, policy) => {
            let step = node(&format!("{name} {{{{ item }}}}"), step);
            // The step of a map declares no outputs.
            let step = step.replace(&format!(", outputs: [o_{name} {{{{ item }}}}]"), "");
            let items: Vec<_> = (0..*items).map(|item| format!("i{item}")).collect();
            format!(
                "{{type: map, over: [{}], max_parallel: {most}, on_item_error: {policy}, node: {step}, outputs: [o_{name}]}}",
                items.join(", ")
            )
        }
        RandomNode::Parallel(join, branches) => {
            let names: Vec<_> =
                (0..branches.len()).map(|number| format!("{name}b{number}")).collect();
            format!("{{type: parallel, join: {join}, branches: [{}]}}", names.join(", "))
        }
    }
}

const SUB: &str = "name: sub
entry_point: s0
nodes:
  s0: {type: tool, tool: kit/note, arguments: {text: 's0 {{ input }}'}}
  s1: {type: agent, agent: dot}
edges: [{from: s0, to: s1}]
";
const ASKS: &str = "name: asks
entry_point: a0
nodes:
  a0: {type: human, question: 'And here?'}
  a1: {type: agent, agent: eve}
edges: [{from: a0, to: a1}]
";

fn harness(flow: &RandomWorkflow) -> WorkflowHarness {
    WorkflowHarness::new(&[&flow.text(), SUB, ASKS])
}

/// Fewer cases, because each runs several workflows.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 10).max(1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn workflow_outcome_is_unchanged_by_random_crashes(
        flow in flow(),
        processes in prop::collection::vec(process(), 1..4)
    ) {
        block_on_paused(history(&flow, &processes));
    }
}

async fn history(flow: &RandomWorkflow, processes: &[WorkflowProcess]) {
    let harness = harness(flow);
    let mut acknowledged = Vec::new();
    let mut known = Vec::new();
    for (number, process) in (1..).zip(processes) {
        let journal = Arc::clone(&harness.base.store);
        let store = Arc::new(CrashingStore::new(journal, Some(process.dies)));
        run_process(&harness, &store, number, process, &mut known).await;
        store.crash();
        harness.base.leases.end(instance_id(number));
        acknowledged.extend(store.acknowledged());
    }
    let runtime = harness.runtime(99);
    let id = runtime.create(order(&harness, known.len())).await.unwrap().id;
    known.push(id);
    finish(&harness, &runtime).await;
    retry_cancelled(&harness, &runtime, &mut known).await;
    check(&*harness.base.store, &acknowledged, &known).await;
    check_effects(&harness);
    check_ends(flow, &harness, processes, &known).await;
    check_fork(flow, &harness, &runtime, id).await;
    check(&*harness.base.store, &acknowledged, &known).await;
    check_effects(&harness);
}

/// Carries out the orders of a process until it crashes or has finished.
async fn run_process(
    harness: &WorkflowHarness,
    store: &Arc<CrashingStore>,
    number: u64,
    process: &WorkflowProcess,
    known: &mut Vec<TaskId>,
) {
    let runtime = harness.runtime_on(store.clone(), number);
    harness.tools.lose(process.lost);
    adopt_orphans(&runtime, store, &harness.base.leases).await;
    if (process.creates || number == 1)
        && let Ok(handle) = runtime.create(order(harness, known.len())).await
    {
        known.push(handle.id);
    }
    for answer in &process.answers {
        sleep(150).await;
        for row in waiting(&**store).await {
            let verdict = match answer {
                Some(verdict) => Some(verdict.clone()),
                None => truthful_answer(harness, &**store, row.id).await,
            };
            if let Some(verdict) = verdict {
                decide_and_resume(store, &runtime, row, verdict).await;
            }
        }
        if store.has_crashed() {
            return;
        }
    }
    if process.cancels {
        for id in known.iter() {
            let _ = runtime.cancel(*id).await;
        }
    }
    sleep(100).await;
}

/// Retries the tasks that were cancelled, and puts their retries in their places.
async fn retry_cancelled(harness: &WorkflowHarness, runtime: &Runtime, known: &mut [TaskId]) {
    for id in known.iter_mut() {
        if harness.base.row(*id).status == TaskStatus::Cancelled {
            *id = runtime.retry(retry_request(*id)).await.unwrap().id;
        }
    }
    finish(harness, runtime).await;
}

/// The truthful answer: an interrupted call was made if its effect exists; all else is approved.
pub(crate) async fn truthful_answer(
    harness: &WorkflowHarness,
    store: &dyn Store,
    id: TaskId,
) -> Option<ReviewVerdict> {
    let state = load_task(store, id).await.ok()?.state;
    match &state.review()?.subject {
        ReviewSubject::Doubt { call_id } => {
            let call = state.calls().get(*call_id)?;
            let text = call.arguments()["text"].as_str().unwrap().to_owned();
            Some(if is_made(harness, &text) {
                ReviewVerdict::SkipWith { result: text }
            } else {
                ReviewVerdict::Retry
            })
        }
        ReviewSubject::RunDoubt { .. } => {
            let text = text_of_script(&state.task().order().description)?;
            let result = output_of_script(&text);
            Some(if is_made(harness, &text) {
                ReviewVerdict::SkipWith { result }
            } else {
                ReviewVerdict::Retry
            })
        }
        ReviewSubject::Approval { .. }
        | ReviewSubject::RemoteQuestion { .. }
        | ReviewSubject::Node { .. }
        | ReviewSubject::Checkpoint { .. } => Some(ReviewVerdict::Approve),
    }
}

/// True if a text was recorded more often than calls with it were answered.
fn is_made(harness: &WorkflowHarness, text: &str) -> bool {
    let effects = harness.tools.notes().iter().filter(|effect| *effect == text).count();
    let answered = calls(harness).into_iter().filter(|call| call.is_answered && call.text == text);
    effects > answered.count()
}

fn order(harness: &WorkflowHarness, run: usize) -> CreateTask {
    let mut order = harness.order("k0");
    order.parameters.insert("run".to_owned(), format!("{MARK}{run}.").into());
    order
}

/// Finishes all tasks in a process without crashes, with answers to every review.
pub(crate) async fn finish(harness: &WorkflowHarness, runtime: &Runtime) {
    let store = &*harness.base.store;
    for _ in 0..80 {
        finish_orphans(&harness.base, runtime, waits_or_has_ended).await;
        sleep(500).await;
        for row in waiting(store).await {
            if let Some(verdict) = truthful_answer(harness, store, row.id).await {
                decide(store, runtime, row.id, verdict).await;
            }
        }
        if harness.base.all_tasks().iter().all(|row| row.status.is_final()) {
            return;
        }
    }
    for row in harness.base.all_tasks().iter().filter(|row| !row.status.is_final()) {
        println!("{} is {}: {:#?}", row.id, row.status, harness.base.events(row.id));
    }
    panic!("not everything comes to an end");
}

/// Checks that unrepeatable calls had at most one effect, plus one per retry verdict, and that
/// checkpoint numbers have no gaps.
pub(crate) fn check_effects(harness: &WorkflowHarness) {
    let mut allowed: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for call in calls(harness) {
        let sum = allowed.entry(call.text).or_insert(Some(0));
        *sum = sum.zip(call.allowed).map(|(sum, more)| sum + more);
    }
    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    for text in harness.tools.notes() {
        *effects.entry(text).or_default() += 1;
    }
    for (text, times) in effects {
        let most = allowed.get(&text).copied().unwrap_or(Some(0));
        assert!(most.is_none_or(|most| times <= most), "{text} {times} times, not {most:?}");
    }
    for row in harness.base.all_tasks() {
        let numbers = harness.checkpoint_numbers(row.id).into_iter();
        assert!(numbers.zip(0..).all(|(number, expected)| number == expected));
    }
}

/// The outcome of a task, without its mark.
async fn outcome(harness: &WorkflowHarness, id: TaskId) -> (TaskStatus, String) {
    let task = harness.base.task(id);
    let all = format!("{} {}", end(&task), comparable(&harness.state(id).await));
    let mut parts = all.split(MARK);
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        text.push_str(part.split_once('.').unwrap().1);
    }
    (task.status, text)
}

/// Checks that every task ends as in a run without crashes.
async fn check_ends(
    flow: &RandomWorkflow,
    harness: &WorkflowHarness,
    processes: &[WorkflowProcess],
    known: &[TaskId],
) {
    let is_truthful = processes.iter().flat_map(|process| &process.answers).all(Option::is_none);
    if !flow.is_fixed() || !is_truthful {
        return;
    }
    let uncrashed = self::harness(flow);
    let runtime = uncrashed.runtime(1);
    let id = runtime.create(order(&uncrashed, 0)).await.unwrap().id;
    finish(&uncrashed, &runtime).await;
    let (status, expected) = outcome(&uncrashed, id).await;
    for id in known {
        let (found, text) = outcome(harness, *id).await;
        assert_eq!(found, status, "{:#?}", harness.base.events(*id));
        // The first of several failures ends the task.
        if status == TaskStatus::Completed {
            assert_eq!(text, expected, "{:#?}", harness.base.events(*id));
        }
    }
}

/// Checks that forks from checkpoints of a task have the same outcome.
async fn check_fork(
    flow: &RandomWorkflow,
    harness: &WorkflowHarness,
    runtime: &Runtime,
    id: TaskId,
) {
    let first = outcome(harness, id).await;
    let checkpoints = harness.checkpoints(id);
    let step = (checkpoints.len() / 3).max(1);
    for (at, node) in checkpoints.into_iter().step_by(step) {
        let fork =
            runtime.fork(ForkRequest::new(id, at, StateUpdates::default())).await.unwrap().id;
        finish(harness, runtime).await;
        let forked = outcome(harness, fork).await;
        if flow.is_fixed() && first.0 == TaskStatus::Completed {
            assert_eq!(forked, first, "at {at}, {node}: {:#?}", harness.base.events(fork));
        }
    }
}
