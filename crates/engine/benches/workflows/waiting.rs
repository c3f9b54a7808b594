//! Many tasks that wait for a person.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_engine::commands::{AnswerReview, CreateTask};
use polity_engine::runtime::load_task;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use polity_model::state::StateUpdates;
use polity_store::{CommitDurability, Store, TaskFilter};
use polity_testkit::bench::{BareDisk, figure};

use crate::fixture::{block_on, folder, open, runtime, workflow};

/// The role of a process that only holds a runtime on a database.
pub(crate) const IDLE: &str = "idle";

const BYTES_MAX: u64 = 10_000_000;
const ANSWER_MAX: Duration = Duration::from_millis(5);

const ASKING: &str = "name: asking\nentry_point: ask\nnodes:\n  \
    ask: {type: human, question: 'May it go on with {{ input }}?'}\n  \
    done: {type: condition, expression: '\"done\"'}\nedges: [{from: ask, to: done}]\n";

pub(crate) fn measure(tasks: u32) {
    let folder = folder();
    let (none, many) = (folder.path().join("none.db"), folder.path().join("many.db"));
    drop(open(&none, CommitDurability::Full));
    fill(&many, tasks);
    let (idle, waiting) = (process(&none), process(&many));
    let answer = answer(&many, folder.path());
    let more = waiting.resident.saturating_sub(idle.resident);
    figure(
        &format!("{tasks} tasks that wait for a person"),
        &format!(
            "{:.1} MB more than none, {} threads as without; answering one takes {:.2} ms beyond \
             the disk",
            mega(more),
            waiting.threads,
            answer.as_secs_f64() * 1e3
        ),
        "≤ 10 MB more, no thread, ≤ 5 ms plus one sync",
        more <= BYTES_MAX && waiting.threads == idle.threads && answer <= ANSWER_MAX,
    );
}

fn mega(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below what a float holds")]
    let bytes = bytes as f64;
    bytes / 1e6
}

fn fill(path: &Path, tasks: u32) {
    block_on(async {
        let store = open(path, CommitDurability::Relaxed);
        let runtime = runtime(&store, 64);
        let asking = workflow("asking", ASKING);
        for number in 0..tasks {
            let create = CreateTask::new(asking.clone(), format!("number {number}"));
            let mut handle = runtime.create(create).await.unwrap();
            assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
        }
    });
}

/// The memory and threads of an idle process.
struct IdleFootprint {
    resident: u64,
    threads: u64,
}

fn process(database: &Path) -> IdleFootprint {
    let program = std::env::current_exe().unwrap();
    let output =
        Command::new(program).arg(IDLE).arg(database).stderr(Stdio::inherit()).output().unwrap();
    let output_text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = output_text.split_whitespace().map(|number| number.parse().unwrap());
    IdleFootprint { resident: numbers.next().unwrap(), threads: numbers.next().unwrap() }
}

/// Holds a runtime on a database for a second, and prints its memory and threads.
pub(crate) fn idle(database: &Path) {
    block_on(async {
        let store = open(database, CommitDurability::Full);
        let _runtime = runtime(&store, 64);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            let digits: String = line.chars().filter(char::is_ascii_digit).collect();
            digits.parse::<u64>().unwrap_or(0)
        };
        println!("{} {}", number("VmRSS:") * 1024, number("Threads:"));
    });
}

/// The median time of an answer beyond one disk sync.
fn answer(database: &Path, folder: &Path) -> Duration {
    let sync = Duration::from_secs_f64(
        1.0 / BareDisk::new(&folder.join("bare"), 256).rate(Duration::from_millis(500)),
    );
    let mut times = block_on(async {
        let store = open(database, CommitDurability::Full);
        let runtime = runtime(&store, 64);
        let mut times = Vec::new();
        for id in waiting(&store, 21) {
            let began = Instant::now();
            let state = load_task(&*store, id).await.unwrap().state;
            let answer = AnswerReview {
                checkpoint_id: state.review().unwrap().checkpoint_id,
                verdict: ReviewVerdict::Approve,
                message: None,
                by: "ada".to_owned(),
                state_updates: StateUpdates::default(),
            };
            runtime.answer(id, answer).await.unwrap();
            times.push(began.elapsed());
        }
        times
    });
    times.sort();
    times[times.len() / 2].saturating_sub(sync)
}

fn waiting(store: &Arc<dyn Store>, count: u32) -> Vec<TaskId> {
    let statuses = vec![TaskStatus::AwaitingHuman];
    let filter = TaskFilter { statuses, limit: Some(count), ..TaskFilter::default() };
    store.task_rows(&filter).wait().unwrap().into_iter().map(|row| row.id).collect()
}
