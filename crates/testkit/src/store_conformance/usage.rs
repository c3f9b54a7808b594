//! Cases of tokens and money.

use polity_model::event::Event;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::usage::{Cost, TOKENS_MAX, Usage, UsageEstimate};
use polity_store::TaskFilter;

use super::{SharedStore, begin, row, run, write};
use crate::task_fixtures::{answered, task_id};

/// Usage is summed by day and agent, independent of tasks.
pub fn spending_is_summed_by_day_and_agent(store: &SharedStore) {
    assert_eq!(store.spending().wait().unwrap(), []);
    for number in 1..=2 {
        begin(store, task_id(number));
        run(store, task_id(number), number);
        write(store, number, 6, Some(1), vec![answered("x"), answered("y")]);
    }
    let rows = store.spending().wait().unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.agent.as_str(), row.calls), ("greeter", 4));
    let tasks = store.task_rows(&TaskFilter::default()).wait().unwrap();
    let mut sum = tasks[0].usage;
    sum += tasks[1].usage;
    assert_eq!(row.usage, sum);
    assert_eq!(row.day.to_string(), tasks[0].created_at.to_string()[..10]);
}

/// A sum with an unreported part is incomplete, and its estimate is added up.
pub fn unreported_usage_stays_unknown(store: &SharedStore) {
    let estimate = UsageEstimate { tokens: 40, cost: Cost::of_tokens(40, 1.0) };
    let unreported = |event| match event {
        Event::ModelAnswered { message, duration_ms, is_cut, withheld, mark, .. } => {
            let usage = Usage { estimate, ..Usage::UNKNOWN };
            Event::ModelAnswered { message, usage, duration_ms, is_cut, withheld, mark }
        }
        other => other,
    };
    begin(store, task_id(1));
    run(store, task_id(1), 1);
    let events = vec![answered("x"), unreported(answered("y")), unreported(answered("z"))];
    write(store, 1, 6, Some(1), events);
    let estimate = UsageEstimate { tokens: 80, cost: Cost::of_tokens(80, 1.0) };
    let known = Usage::reported(Some(7), Some(3), Some(Cost::of_tokens(10, 0.5)));
    let expected = Usage { tokens_unknown: true, cost_unknown: true, estimate, ..known };
    assert_eq!(row(store, 1).usage, expected);
    assert_eq!(store.spending().wait().unwrap()[0].usage, expected);
    assert_eq!(store.task_tree(task_id(1)).wait().unwrap().usage, expected);
}

/// A count beyond the integers of a store ends no task: it is cut, and sums stay at the limit.
pub fn huge_usage_is_stored_at_its_limit(store: &SharedStore) {
    let huge = |event| match event {
        Event::ModelAnswered { message, duration_ms, is_cut, withheld, mark, .. } => {
            let usage = Usage { input_tokens: u64::MAX, cost: Cost::MAX, ..Usage::default() };
            Event::ModelAnswered { message, usage, duration_ms, is_cut, withheld, mark }
        }
        other => other,
    };
    begin(store, task_id(1));
    run(store, task_id(1), 1);
    write(store, 1, 6, Some(1), vec![huge(answered("x"))]);
    write(store, 1, 7, Some(1), vec![huge(answered("y"))]);
    let expected = Usage::reported(Some(TOKENS_MAX), Some(0), Some(Cost::MAX));
    assert_eq!(row(store, 1).usage, expected);
    assert_eq!(store.task_tree(task_id(1)).wait().unwrap().usage, expected);
    let spent = store.spending().wait().unwrap()[0].usage;
    assert!(spent.input_tokens >= TOKENS_MAX && spent.cost == Cost::MAX, "{spent:?}");
}

/// A model call that broke off may have used something.
pub fn usage_of_a_failed_call_counts(store: &SharedStore) {
    let failed = |usage| Event::ModelFailed {
        failure: AttemptFailure { category: ErrorCategory::Transient, message: "cut".into() },
        of_tools: false,
        duration_ms: 1,
        mark: None,
        retry_until: None,
        usage,
    };
    begin(store, task_id(1));
    run(store, task_id(1), 1);
    let reported = Usage::reported(Some(11), Some(6), Some(Cost::of_tokens(17, 1.0)));
    write(store, 1, 6, Some(1), vec![failed(Usage::default())]);
    assert_eq!(store.spending().wait().unwrap(), []);
    write(store, 1, 7, Some(1), vec![failed(reported)]);
    assert_eq!(row(store, 1).usage, reported);
    write(store, 1, 8, Some(1), vec![failed(Usage::UNKNOWN)]);
    let expected = Usage { tokens_unknown: true, cost_unknown: true, ..reported };
    assert_eq!(row(store, 1).usage, expected);
    assert_eq!(store.spending().wait().unwrap()[0].usage, expected);
}
