//! Crashes and cancels in the middle of compensations.
//!
//! Each case runs a chain of nodes that can be undone. It completes, fails or is cancelled, in
//! processes that crash at random commits. In the end every finished node was undone once, newest
//! first, unless a second cancel stopped that.

use proptest::prelude::*;

use crate::faults::{adopt_orphans, block_on_paused, check, crash, decide_and_resume, waiting};
use crate::faults_workflows::{check_effects, finish, truthful_answer};
use crate::prelude::*;
use crate::workflow_harness::WorkflowHarness;

/// A chain of nodes, each with a compensation, and the last node.
#[derive(Debug, Clone)]
struct UndoableChain {
    nodes: Vec<(&'static str, Option<&'static str>)>,
    last: &'static str,
    has_on_cancel: bool,
}

#[derive(Debug, Clone)]
struct CancellingProcess {
    /// The time of a cancel of every task.
    cancels_at: Option<u64>,
    /// True if the cancel comes from another process.
    is_other: bool,
    dies: (u32, CrashSide),
}

/// The kinds of nodes, by their fields.
const WORK: [&str; 5] = [
    "type: tool, tool: kit/note, arguments: {text: 'NAME {{ metadata.run }}'}",
    "type: tool, tool: kit/echo, arguments: {text: 'NAME {{ metadata.run }}'}",
    "type: agent, agent: ann",
    "type: workflow, workflow: inner, input: 'NAME {{ metadata.run }}'",
    // Fails, and goes on all the same.
    "type: tool, tool: kit/error, on_error: NEXT, arguments: {text: 'NAME {{ metadata.run }}'}",
];

const UNDO: [&str; 4] = [
    "type: tool, tool: kit/note, arguments: {text: 'undo NAME {{ metadata.run }}'}",
    "type: tool, tool: kit/note, idempotent: true, arguments: {text: 'undo NAME {{ metadata.run }}'}",
    "type: agent, agent: bob",
    "type: tool, tool: kit/error, arguments: {text: 'NAME {{ metadata.run }}'}",
];

const LAST: [&str; 4] = [
    "type: tool, tool: kit/error, arguments: {text: '{{ metadata.run }}'}",
    "type: agent, agent: cid",
    "type: human, question: Good?",
    "type: workflow, workflow: failing, input: '{{ metadata.run }}'",
];

const INNER: &str = "name: inner
entry_point: i0
nodes:
  i0: {type: tool, tool: kit/note, arguments: {text: 'i0 {{ input }}'}, compensate: {type: tool, tool: kit/note, arguments: {text: 'undo i0 {{ input }}'}}}
  i1: {type: agent, agent: dot}
edges: [{from: i0, to: i1}]
";

const FAILING: &str = "name: failing
entry_point: f0
nodes:
  f0: {type: tool, tool: kit/note, arguments: {text: 'f0 {{ input }}'}, compensate: {type: tool, tool: kit/note, arguments: {text: 'undo f0 {{ input }}'}}}
  f1: {type: tool, tool: kit/error, arguments: {text: 'f1 {{ input }}'}}
edges: [{from: f0, to: f1}]
";

impl UndoableChain {
    fn text(&self) -> String {
        let mut nodes = String::new();
        let mut edges = Vec::new();
        for (number, (work, undo)) in self.nodes.iter().enumerate() {
            let undo = undo.map(|undo| format!(", compensate: {{{undo}}}")).unwrap_or_default();
            let name = format!("n{number}");
            let next = number + 1;
            let to = if next < self.nodes.len() { format!("n{next}") } else { "last".into() };
            let node = format!("{work}{undo}").replace("NAME", &name).replace("NEXT", &to);
            writeln!(nodes, "  {name}: {{{node}}}").unwrap();
            edges.push(format!("{{from: {name}, to: {to}}}"));
        }
        writeln!(nodes, "  last: {{{}}}", self.last).unwrap();
        let mut on_cancel = "";
        if self.has_on_cancel {
            nodes.push_str("  stop: {type: tool, tool: kit/echo, arguments: {text: stopped}}\n");
            on_cancel = "on_cancel: stop\n";
        }
        format!(
            "name: chain\nentry_point: n0\n{on_cancel}nodes:\n{nodes}edges: [{}]\n",
            edges.join(", ")
        )
    }
}

fn chain() -> impl Strategy<Value = UndoableChain> {
    let node = (
        prop::sample::select(WORK.to_vec()),
        prop::option::of(prop::sample::select(UNDO.to_vec())),
    );
    (prop::collection::vec(node, 1..5), prop::sample::select(LAST.to_vec()), any::<bool>())
        .prop_map(|(nodes, last, has_on_cancel)| UndoableChain { nodes, last, has_on_cancel })
}

fn process() -> impl Strategy<Value = CancellingProcess> {
    (prop::option::of(0u64..200), any::<bool>(), crash(40))
        .prop_map(|(cancels_at, is_other, dies)| CancellingProcess { cancels_at, is_other, dies })
}

/// Fewer cases, because each runs several workflows.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 10).max(1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn every_finished_node_is_undone_whatever_crashes(
        chain in chain(),
        processes in prop::collection::vec(process(), 1..4)
    ) {
        block_on_paused(history(&chain, &processes));
    }
}

async fn history(chain: &UndoableChain, processes: &[CancellingProcess]) {
    let harness = WorkflowHarness::new(&[&chain.text(), INNER, FAILING]);
    let (mut acknowledged, mut known) = (Vec::new(), Vec::new());
    for (number, process) in (1..).zip(processes) {
        let journal = Arc::clone(&harness.base.store);
        let store = Arc::new(CrashingStore::new(journal, Some(process.dies)));
        run_process(&harness, &store, number, process, &mut known).await;
        store.crash();
        harness.base.leases.end(instance_id(number));
        acknowledged.extend(store.acknowledged());
    }
    let runtime = harness.runtime(99);
    finish(&harness, &runtime).await;
    check(&*harness.base.store, &acknowledged, &known).await;
    check_effects(&harness);
    for row in harness.base.all_tasks() {
        check_undone(&harness, row.id).await;
    }
}

async fn run_process(
    harness: &WorkflowHarness,
    store: &Arc<CrashingStore>,
    number: u64,
    process: &CancellingProcess,
    known: &mut Vec<TaskId>,
) {
    let runtime = harness.runtime_on(store.clone(), number);
    adopt_orphans(&runtime, store, &harness.base.leases).await;
    let mut order = harness.order("k0");
    order.parameters.insert("run".to_owned(), format!("RUN{}.", known.len()).into());
    if let Ok(handle) = runtime.create(order).await {
        known.push(handle.id);
    }
    if let Some(at) = process.cancels_at {
        sleep(at).await;
        for id in &*known {
            // A task that has ended, or a crashed process, refuses the cancel.
            if process.is_other {
                let _ = harness.base.cancel(*id).await;
            } else {
                let _ = runtime.cancel(*id).await;
            }
        }
    }
    sleep(150).await;
    for row in waiting(&**store).await {
        if let Some(verdict) = truthful_answer(harness, &**store, row.id).await {
            decide_and_resume(store, &runtime, row, verdict).await;
        }
    }
    sleep(150).await;
}

/// Checks that a task that failed or was cancelled has undone its finished nodes, newest first.
async fn check_undone(harness: &WorkflowHarness, id: TaskId) {
    let state = harness.base.load(id).await;
    let Some(run) = state.workflow_run() else { return };
    let (events, task) = (harness.base.events(id), harness.base.task(id));
    let is_undone = events.iter().any(|event| matches!(event, Event::CompensationStarted { .. }));
    let (mut finished, mut undone) = (Vec::new(), Vec::new());
    for event in &events {
        let Event::NodeChanged { node, change } = event else { continue };
        let is_end = matches!(change, NodeChange::Finish { .. } | NodeChange::Fail { .. });
        match node.as_str().strip_prefix("compensate_") {
            Some(name) if is_end => undone.push(name.to_owned()),
            None if matches!(change, NodeChange::Finish { .. }) => finished.push(node.to_string()),
            Some(_) | None => {}
        }
    }
    let shown = || format!("{task:?} {events:#?}");
    if task.status == TaskStatus::Completed {
        assert!(!is_undone && undone.is_empty(), "{}", shown());
        return;
    }
    let is_cut = task.error.as_deref().is_some_and(|error| error.contains("a second cancel"));
    if is_cut {
        return;
    }
    let has_undo = |node: &String| {
        let number = run.plan().number(&node.parse().unwrap()).unwrap();
        run.plan().nodes()[number].compensation.is_some()
    };
    let mut expected: Vec<String> = finished.into_iter().filter(has_undo).collect();
    expected.reverse();
    assert_eq!(undone, expected, "{}", shown());
}
