//! The conformance suite of stores. [`store_conformance!`](macro@crate::store_conformance) makes a
//! test of each case for one store.

mod agents;
mod changes;
mod checkpoints;
mod executions;
mod importing;
mod maps;
mod removing;
mod usage;

use std::sync::{Arc, Barrier};

use jiff::Timestamp;
use polity_model::event::{
    Event, ExecutionChange, JournalPosition, OwnerEpoch, RecordedEvent, ResultRef, StreamId,
    StreamSequence, ToolChange,
};
use polity_model::ids::{CheckpointId, TaskId, ToolCallId};
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;
use polity_model::review::{ReviewSubject, ReviewVerdict};
use polity_model::state::StateUpdates;
use polity_store::{
    Commit, CommitError, CommitReceipt, CommitTicket, DedicatedThread, Store, TaskFilter, TaskRow,
    TaskTree,
};

use crate::task_fixtures::{
    answered, at, changed, claimed, commit, created, created_under, definition, ended_well,
    execution_id, execution_started, forked, instance_id, task_id,
};

pub use agents::*;
pub use changes::*;
pub use checkpoints::*;
pub use executions::*;
pub use importing::*;
pub use maps::*;
pub use removing::*;
pub use usage::*;

/// Makes one test of each case. The argument is an expression that gives a new, empty
/// `Arc<dyn Store>` and a guard that is dropped after it.
#[macro_export]
macro_rules! store_conformance {
    ($make:expr) => {
        $crate::store_conformance!(
            $make,
            sequences_and_positions_have_no_gaps,
            conflict_fails_only_its_own_commit,
            former_owner_is_fenced,
            released_task_keeps_its_epoch,
            task_that_awaits_review_has_no_owner,
            deadline_is_stored_while_the_task_waits,
            forks_are_found_by_their_origin,
            spending_is_summed_by_day_and_agent,
            unreported_usage_stays_unknown,
            huge_usage_is_stored_at_its_limit,
            usage_of_a_failed_call_counts,
            tool_answers_follow_the_order_of_calls,
            illegal_events_are_rejected_without_effect,
            projections_follow_the_events,
            turns_take_checkpoints,
            events_are_read_from_any_sequence,
            tasks_are_listed_newest_first,
            ids_are_found_by_prefix,
            subtasks_belong_to_their_parent,
            answers_of_items_are_no_messages,
            tasks_of_items_are_counted_apart,
            executions_are_found_by_pool_and_agent,
            sealed_input_is_removed_when_its_task_ends,
            remote_cancel_is_recorded_after_the_task_ends,
            paused_task_is_resumed,
            definitions_are_stored_by_digest,
            agent_toggles_have_their_own_streams,
            schedules_have_their_own_streams,
            duplicate_tasks_are_found,
            removal_deletes_all_rows_of_a_task,
            positions_are_never_reused,
            pinned_definitions_are_kept,
            referenced_tasks_are_not_removed,
            refused_removal_unit_is_unchanged,
            fork_needs_its_origin,
            imported_tasks_are_unchanged,
            import_is_atomic,
            large_and_unusual_texts_round_trip,
            concurrent_commits_leave_no_gaps,
            change_feed_delivers_each_commit_once,
            change_feed_wakes_for_a_commit,
            reads_work_in_asynchronous_code
        );
    };
    ($make:expr, $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                let (store, _keep) = $make;
                $crate::store_conformance::$case(&store);
            }
        )*
    };
}

type SharedStore = Arc<dyn Store>;

/// Commits events to a task.
fn write(
    store: &SharedStore,
    number: u64,
    expected: u64,
    epoch: Option<u64>,
    events: Vec<Event>,
) -> CommitReceipt {
    store.commit(commit(task_id(number), expected, epoch, events)).wait().unwrap()
}

fn row(store: &SharedStore, number: u64) -> TaskRow {
    store.task_row(task_id(number)).wait().unwrap().unwrap()
}

fn events_of(store: &SharedStore, number: u64) -> Vec<RecordedEvent> {
    store.events(&StreamId::Task(task_id(number)), StreamSequence(0)).wait().unwrap()
}

fn ids(store: &SharedStore, filter: &TaskFilter) -> Vec<TaskId> {
    store.task_rows(filter).wait().unwrap().iter().map(|row| row.id).collect()
}

fn task_ids(store: &SharedStore) -> Vec<TaskId> {
    ids(store, &TaskFilter::default())
}

/// A review of a call in doubt.
fn review_opened(deadline: Option<Timestamp>) -> Event {
    Event::ReviewOpened {
        checkpoint_id: CheckpointId::from_random_bytes([2; 16]),
        subject: ReviewSubject::Doubt { call_id: ToolCallId::from_random_bytes([1; 16]) },
        question: "What now?".into(),
        deadline,
        default_action: None,
    }
}

fn review_answered() -> Event {
    let (verdict, state_updates) = (ReviewVerdict::Retry, StateUpdates::default());
    Event::ReviewAnswered { verdict, message: None, by: "ada".into(), state_updates }
}

fn begin(store: &SharedStore, task: TaskId) {
    let events = vec![created("Ada"), claimed(instance_id(1), 1)];
    store.commit(commit(task, 0, Some(1), events)).wait().unwrap();
}

fn run(store: &SharedStore, task: TaskId, number: u64) {
    let execution = execution_id(number);
    let events = vec![
        Event::TaskStarted,
        execution_started(execution),
        changed(execution, ExecutionChange::RUN),
        Event::ModelCalled { iteration: 1, checkpoint: None },
    ];
    store.commit(commit(task, 2, Some(1), events)).wait().unwrap();
}

fn complete(store: &SharedStore, task: TaskId, number: u64) {
    let events = ended_well(execution_id(number), "Hello, Ada.");
    store.commit(commit(task, 6, Some(1), events)).wait().unwrap();
}

/// Positions are consecutive over all streams, sequences within each.
pub fn sequences_and_positions_have_no_gaps(store: &SharedStore) {
    let first = write(store, 1, 0, None, vec![created("a"), claimed(instance_id(1), 1)]);
    let second = write(store, 2, 0, None, vec![created("b")]);
    let third = write(store, 1, 2, Some(1), vec![Event::TaskStarted]);
    assert_eq!(first.last_sequence, StreamSequence(2));
    assert_eq!(second.last_sequence, StreamSequence(1));
    assert_eq!(third.last_sequence, StreamSequence(3));
    assert_eq!(second.first_position.0, first.first_position.0 + 2);
    assert_eq!(third.first_position.0, second.first_position.0 + 1);
    assert_eq!(store.last_position().wait().unwrap(), third.first_position);

    let events = events_of(store, 1);
    let sequences: Vec<_> = events.iter().map(|event| event.sequence.0).collect();
    assert_eq!(sequences, [1, 2, 3]);
}

/// One of two commits at the same sequence wins; a third one between them is not affected.
pub fn conflict_fails_only_its_own_commit(store: &SharedStore) {
    begin(store, task_id(1));
    let one = store.commit(commit(task_id(1), 2, Some(1), vec![Event::TaskStarted]));
    let other = store.commit(commit(task_id(1), 2, None, vec![Event::CancelRequested]));
    let unrelated = store.commit(commit(task_id(2), 0, None, vec![created("b")]));
    assert!(one.wait().is_ok());
    let conflict = CommitError::Conflict { expected: StreamSequence(2), actual: StreamSequence(3) };
    assert_eq!(other.wait(), Err(conflict));
    assert!(unrelated.wait().is_ok());
    assert_eq!(events_of(store, 1).len(), 3);
}

/// The owner of an earlier epoch can no longer commit.
pub fn former_owner_is_fenced(store: &SharedStore) {
    begin(store, task_id(1));
    write(store, 1, 2, Some(2), vec![claimed(instance_id(2), 2)]);
    let late = store.commit(commit(task_id(1), 3, Some(1), vec![Event::TaskStarted])).wait();
    assert_eq!(late, Err(CommitError::Fenced { expected: OwnerEpoch(1), actual: OwnerEpoch(2) }));
    let row = row(store, 1);
    assert_eq!(row.status, TaskStatus::Pending);
    assert_eq!(row.owner, Some(instance_id(2)));
    write(store, 1, 3, Some(2), vec![Event::TaskStarted]);
}

/// A released task has no owner, and its next owner has a higher epoch.
pub fn released_task_keeps_its_epoch(store: &SharedStore) {
    begin(store, task_id(1));
    write(store, 1, 2, Some(1), vec![Event::TaskReleased]);
    let row = row(store, 1);
    assert_eq!((row.owner, row.epoch), (None, OwnerEpoch(1)));
    let stale = store.commit(commit(task_id(1), 3, Some(1), vec![claimed(instance_id(2), 1)]));
    assert!(matches!(stale.wait(), Err(CommitError::Illegal { .. })));
    write(store, 1, 3, Some(2), vec![claimed(instance_id(2), 2)]);
}

/// The store enforces the state machines.
pub fn illegal_events_are_rejected_without_effect(store: &SharedStore) {
    let refused = |expected, events| {
        let answer = store.commit(commit(task_id(1), expected, None, events)).wait();
        assert!(matches!(answer, Err(CommitError::Illegal { .. })), "{answer:?}");
    };
    refused(0, vec![]);
    refused(0, vec![Event::TaskStarted]);
    refused(0, vec![created("a"), created("a")]);
    assert_eq!(store.last_position().wait().unwrap(), JournalPosition(0));
    assert_eq!(store.task_row(task_id(1)).wait().unwrap(), None);

    begin(store, task_id(1));
    let before = store.last_position().wait().unwrap();
    refused(2, vec![Event::TaskCompleted { result: ResultRef::LastAnswer }]);
    refused(2, vec![Event::TaskStarted, Event::TaskStarted]);
    refused(2, vec![claimed(instance_id(2), 3)]);
    refused(2, vec![changed(execution_id(1), ExecutionChange::RUN)]);
    assert_eq!(store.last_position().wait().unwrap(), before);
    assert_eq!(row(store, 1).status, TaskStatus::Pending);
}

/// Rows match the events after every commit.
pub fn projections_follow_the_events(store: &SharedStore) {
    let task = task_id(1);
    let row = || store.task_row(task).wait().unwrap().unwrap();
    begin(store, task);
    assert_eq!((row().status, row().started_at), (TaskStatus::Pending, None));
    assert_eq!(store.task(&row()).wait().unwrap().description, "Ada");

    run(store, task, 1);
    assert_eq!(row().status, TaskStatus::Running);
    assert!(row().started_at.is_some());
    assert_eq!(store.executions(task).wait().unwrap()[0].state, ExecutionState::Running);

    complete(store, task, 1);
    let stored = store.task(&row()).wait().unwrap();
    assert_eq!(stored.status, TaskStatus::Completed);
    assert_eq!(stored.result.as_deref(), Some("Hello, Ada."));
    assert_eq!((stored.usage.input_tokens, stored.usage.output_tokens), (Some(7), Some(3)));
    assert!(stored.completed_at.is_some());

    let messages = store.messages(task).wait().unwrap();
    let texts: Vec<_> = messages.iter().map(|m| (m.role().label(), m.content())).collect();
    assert_eq!(texts, [("user", "Ada"), ("assistant", "Hello, Ada.")]);

    let executions = store.executions(task).wait().unwrap();
    assert_eq!(executions.len(), 1);
    assert_eq!(executions[0].state, ExecutionState::Idle);
    assert_eq!(executions[0].state_transitions.len(), 5);

    let checkpoints = store.checkpoints(task).wait().unwrap();
    assert_eq!(checkpoints.len(), 1);
    assert_eq!((checkpoints[0].sequence, checkpoints[0].message_count), (0, 2));
    assert_eq!(checkpoints[0].node, "greeter");
}

/// Streams are read from a sequence, the whole journal from a position.
pub fn events_are_read_from_any_sequence(store: &SharedStore) {
    begin(store, task_id(1));
    begin(store, task_id(2));
    run(store, task_id(1), 1);
    let stream = StreamId::Task(task_id(1));
    let all = store.events(&stream, StreamSequence(0)).wait().unwrap();
    for after in 0..=all.len() {
        let rest = store.events(&stream, StreamSequence(after as u64)).wait().unwrap();
        assert_eq!(rest, all[after..]);
    }
    assert_eq!(events_of(store, 9), []);
    for limit in 0..=all.len() + 1 {
        let newest = store.newest_events(&stream, u32::try_from(limit).unwrap()).wait().unwrap();
        assert_eq!(newest, all.iter().rev().take(limit).cloned().collect::<Vec<_>>());
    }
    assert_eq!(store.newest_events(&StreamId::Task(task_id(9)), 5).wait().unwrap(), []);

    let headers = store.headers_after(JournalPosition(0), 100).wait().unwrap();
    assert_eq!(headers.len(), 8);
    assert!(headers.windows(2).all(|pair| pair[0].position < pair[1].position));
    assert_eq!(store.headers_after(headers[4].position, 2).wait().unwrap(), headers[5..7]);
    assert_eq!(store.headers_after(headers[7].position, 100).wait().unwrap(), []);

    let events = store.events_after(headers[4].position, 2).wait().unwrap();
    let header = |event: &RecordedEvent| (event.position, event.stream.clone(), event.sequence);
    let expected = headers[5..7].iter().map(|one| (one.position, one.stream.clone(), one.sequence));
    assert_eq!(events.iter().map(header).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let of_stream = store.events(&events[0].stream, StreamSequence::default()).wait().unwrap();
    assert!(of_stream.contains(&events[0]));
    assert_eq!(store.events_after(headers[7].position, 100).wait().unwrap(), []);
}

/// Lists are ordered by age and can be filtered.
pub fn tasks_are_listed_newest_first(store: &SharedStore) {
    for number in 1..=4 {
        begin(store, task_id(number));
    }
    run(store, task_id(2), 2);
    run(store, task_id(3), 3);
    complete(store, task_id(3), 3);
    let ids = |filter: TaskFilter| ids(store, &filter);
    assert_eq!(task_ids(store), [task_id(4), task_id(3), task_id(2), task_id(1)]);
    let third = store.task_row(task_id(3)).wait().unwrap().unwrap().created_position;
    let older = ids(TaskFilter { created_before: Some(third), ..TaskFilter::default() });
    assert_eq!(older, [task_id(2), task_id(1)]);
    assert_eq!(
        ids(TaskFilter { limit: Some(2), ..TaskFilter::default() }),
        [task_id(4), task_id(3)]
    );
    let active = vec![TaskStatus::Pending, TaskStatus::Running];
    assert_eq!(
        ids(TaskFilter { statuses: active, ..TaskFilter::default() }),
        [task_id(4), task_id(2), task_id(1)]
    );
    let agent =
        |name: &str| TaskFilter { assigned_agent: Some(name.to_owned()), ..TaskFilter::default() };
    assert_eq!(ids(agent("greeter")).len(), 4);
    assert_eq!(ids(agent("writer")).len(), 0);
}

/// Tool answers are listed in the order of their calls, not of their arrival.
pub fn tool_answers_follow_the_order_of_calls(store: &SharedStore) {
    begin(store, task_id(1));
    run(store, task_id(1), 1);
    let call_id = ToolCallId::from_random_bytes([1; 16]);
    let answer = |ordinal: u32, content: &str| {
        let (content, structured) = (content.to_owned(), None);
        let change = ToolChange::Answer {
            ordinal: Some(ordinal),
            content,
            structured,
            is_error: false,
            duration_ms: 1,
            unsettled: None,
            item: None,
        };
        Event::ToolChanged { call_id, change }
    };
    for (sequence, event) in [(6, answered("calls")), (7, answer(3, "b")), (8, answer(2, "a"))] {
        write(store, 1, sequence, Some(1), vec![event]);
    }
    write(store, 1, 9, Some(1), vec![answered("c")]);
    let texts: Vec<_> =
        store.messages(task_id(1)).wait().unwrap().iter().map(|m| m.content().to_owned()).collect();
    assert_eq!(texts[1..], ["calls", "a", "b", "c"]);
    assert_eq!(row(store, 1).message_count, 5);
}

/// A task that awaits review has no owner.
pub fn task_that_awaits_review_has_no_owner(store: &SharedStore) {
    begin(store, task_id(1));
    run(store, task_id(1), 1);
    write(store, 1, 6, Some(1), vec![review_opened(None)]);
    let row = || row(store, 1);
    assert_eq!((row().status, row().owner), (TaskStatus::AwaitingHuman, None));
    write(store, 1, 7, None, vec![review_answered()]);
    assert_eq!((row().status, row().owner), (TaskStatus::Running, None));
    let twice = store.commit(commit(task_id(1), 8, None, vec![review_answered()])).wait();
    assert!(matches!(twice, Err(CommitError::Illegal { .. })), "{twice:?}");
}

/// Tasks with an expired review are found by time, and only while they wait.
pub fn deadline_is_stored_while_the_task_waits(store: &SharedStore) {
    let overdue = |second| -> Vec<_> {
        let filter = TaskFilter { overdue_at: Some(at(second)), ..TaskFilter::default() };
        ids(store, &filter)
    };
    for (number, deadline) in [(1, Some(at(20))), (2, Some(at(10))), (3, Some(at(15))), (4, None)] {
        begin(store, task_id(number));
        run(store, task_id(number), number);
        write(store, number, 6, Some(1), vec![review_opened(deadline)]);
        let row = row(store, number);
        assert_eq!(row.review_deadline, deadline);
    }
    assert_eq!(overdue(9), []);
    assert_eq!(overdue(10), [task_id(2)]);
    assert_eq!(overdue(99), [task_id(3), task_id(2), task_id(1)]);

    write(store, 1, 7, None, vec![review_answered()]);
    write(store, 2, 7, None, vec![Event::TaskCancelled]);
    write(store, 3, 7, Some(2), vec![claimed(instance_id(2), 2), Event::TaskResumed]);
    for number in 1..=3 {
        let row = row(store, number);
        assert_eq!(row.review_deadline, None);
    }
    assert_eq!(overdue(99), []);
}

/// Forks and origins are found from each other.
pub fn forks_are_found_by_their_origin(store: &SharedStore) {
    begin(store, task_id(1));
    for (number, origin) in [(2, 1), (3, 2), (4, 1)] {
        let events = vec![forked(task_id(origin), 2), claimed(instance_id(1), 1)];
        write(store, number, 0, Some(1), events);
        let row = row(store, number);
        assert_eq!(row.forked_from, Some(task_id(origin)));
    }
    let forks = |number| -> Vec<_> {
        let filter = TaskFilter { forked_from: Some(task_id(number)), ..TaskFilter::default() };
        ids(store, &filter)
    };
    assert_eq!(forks(1), [task_id(4), task_id(2)]);
    assert_eq!(forks(2), [task_id(3)]);
    assert_eq!(forks(3), []);
    assert_eq!(row(store, 1).forked_from, None);
}

/// Ids are found by prefix.
pub fn ids_are_found_by_prefix(store: &SharedStore) {
    begin(store, task_id(1));
    begin(store, task_id(2));
    let text = task_id(1).to_string();
    let find = |prefix: &str| store.task_ids_by_prefix(prefix, 10).wait().unwrap();
    assert_eq!(find(&text), [task_id(1)]);
    assert_eq!(find(&text[..35]), [task_id(1), task_id(2)]);
    assert_eq!(find("0"), []);
    assert_eq!(find("no id at all"), []);
    assert_eq!(store.task_ids_by_prefix("", 1).wait().unwrap().len(), 1);
}

/// Subtasks are found by their parent, and their usage counts towards it.
pub fn subtasks_belong_to_their_parent(store: &SharedStore) {
    begin(store, task_id(1));
    for (number, parent) in [(2, 1), (3, 1), (4, 3)] {
        let first = created_under(Some(task_id(parent)), "a part");
        write(store, number, 0, Some(1), vec![first, claimed(instance_id(1), 1)]);
    }
    let find = |filter: TaskFilter| ids(store, &filter);
    let of = |number| TaskFilter { parent: Some(task_id(number)), ..TaskFilter::default() };
    assert_eq!(find(of(1)), [task_id(3), task_id(2)]);
    assert_eq!(find(of(3)), [task_id(4)]);
    assert_eq!(find(of(4)), []);
    assert_eq!(find(TaskFilter { roots_only: true, ..TaskFilter::default() }), [task_id(1)]);
    let parts = find(TaskFilter { sub_tasks_only: true, ..TaskFilter::default() });
    assert_eq!(parts, [task_id(4), task_id(3), task_id(2)]);
    for number in [1, 3, 4] {
        write(store, number, 2, Some(1), vec![Event::TaskStarted, answered("x")]);
    }
    for (number, tasks, tokens) in [(1, 4, 30), (2, 1, 0), (3, 2, 20), (4, 1, 10)] {
        let TaskTree { task_count: found, usage, .. } =
            store.task_tree(task_id(number)).wait().unwrap();
        assert_eq!((found, usage.total_tokens()), (tasks, tokens));
        let row = row(store, number);
        assert_eq!(store.task(&row).wait().unwrap().total_usage, usage.report());
    }
}

/// A task that is paused with its sub-agents has no owner, and runs again when resumed.
pub fn paused_task_is_resumed(store: &SharedStore) {
    begin(store, task_id(1));
    write(store, 1, 2, Some(1), vec![Event::TaskStarted, Event::TaskPaused]);
    let row = || row(store, 1);
    assert_eq!((row().status, row().owner), (TaskStatus::AwaitingHuman, None));
    write(store, 1, 4, Some(2), vec![claimed(instance_id(2), 2), Event::TaskResumed]);
    assert_eq!((row().status, row().owner), (TaskStatus::Running, Some(instance_id(2))));
}

/// A pinned definition exists after the commit and not before.
pub fn definitions_are_stored_by_digest(store: &SharedStore) {
    let pinned = definition();
    assert_eq!(store.definition(&pinned.digest).wait().unwrap(), None);
    for number in 1..=2 {
        let mut commit = commit(task_id(number), 0, None, vec![created("a")]);
        commit.definitions.push(pinned.clone());
        store.commit(commit).wait().unwrap();
        assert_eq!(store.definition(&pinned.digest).wait().unwrap(), Some(pinned.json.to_string()));
    }
}

/// Texts round-trip exactly.
pub fn large_and_unusual_texts_round_trip(store: &SharedStore) {
    let large = "Zürich \u{1f600} \0 \"quoted\" \u{202e}\n".repeat(50_000);
    let task = task_id(1);
    let events = vec![created(&large), claimed(instance_id(1), 1)];
    store.commit(commit(task, 0, None, events)).wait().unwrap();
    run(store, task, 1);
    store.commit(commit(task, 6, Some(1), vec![answered(&large)])).wait().unwrap();
    let messages = store.messages(task).wait().unwrap();
    assert_eq!(messages.len(), 2);
    assert!(messages.iter().all(|message| message.content() == large));
    let row = store.task_row(task).wait().unwrap().unwrap();
    assert_eq!(store.task(&row).wait().unwrap().description, large);
}

/// Concurrent commits to separate and shared streams all succeed, and leave no gap in any stream or
/// in the journal.
pub fn concurrent_commits_leave_no_gaps(store: &SharedStore) {
    const THREADS: u64 = 8;
    const COMMITS: u64 = 25;
    begin(store, task_id(0));
    run(store, task_id(0), 0);
    let together = Arc::new(Barrier::new(usize::try_from(THREADS).unwrap()));
    let threads: Vec<_> = (1..=THREADS)
        .map(|number| {
            let (store, together) = (Arc::clone(store), Arc::clone(&together));
            std::thread::spawn(move || {
                let thread = DedicatedThread::claim().unwrap();
                together.wait();
                begin(&store, task_id(number));
                run(&store, task_id(number), number);
                for turn in 0..COMMITS {
                    let own = commit(task_id(number), 6 + turn, Some(1), vec![answered("x")]);
                    // Some write on their own thread, and some through the writer.
                    commit_either(&store, &thread, (number + turn) % 2 == 0, own).wait().unwrap();
                    say_in_shared(&store, &thread);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for number in 1..=THREADS {
        let own = events_of(store, number);
        assert_no_gap(&own.iter().map(|event| event.sequence.0).collect::<Vec<_>>(), 6 + COMMITS);
    }
    let shared = events_of(store, 0);
    let sequences: Vec<_> = shared.iter().map(|event| event.sequence.0).collect();
    assert_no_gap(&sequences, 6 + THREADS * COMMITS);
    let headers = store.headers_after(JournalPosition(0), u32::MAX).wait().unwrap();
    assert_eq!(headers.len() as u64, (6 + COMMITS) * THREADS + 6 + THREADS * COMMITS);
    assert!(headers.windows(2).all(|pair| pair[0].position < pair[1].position));
}

/// Commits on this thread, or through the writer.
fn commit_either(
    store: &SharedStore,
    thread: &DedicatedThread,
    is_inline: bool,
    commit: Commit,
) -> CommitTicket {
    match thread.permit().filter(|_| is_inline) {
        Some(permit) => store.commit_inline(commit, permit),
        None => store.commit(commit),
    }
}

fn say_in_shared(store: &SharedStore, thread: &DedicatedThread) {
    loop {
        let row = events_of(store, 0);
        let expected = row.len() as u64;
        let next = commit(task_id(0), expected, Some(1), vec![answered("y")]);
        match commit_either(store, thread, expected.is_multiple_of(3), next).wait() {
            Ok(_) => return,
            Err(CommitError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

fn assert_no_gap(sequences: &[u64], count: u64) {
    assert_eq!(sequences, (1..=count).collect::<Vec<_>>());
}
