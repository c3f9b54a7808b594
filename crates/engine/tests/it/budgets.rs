//! Budgets of a task and its sub-agents.

use crate::participants::ScriptedReply::{Ask, Hang, Text};
use crate::participants::{TestModels, for_boss, helpers, part};
use crate::prelude::*;

fn tokens(max: u64) -> Option<Budget> {
    serde_json::from_value(json!({ "max_tokens": max })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn budget_covers_sub_agents_and_is_exceeded_by_at_most_one_call() {
    // Every call uses 10 tokens: one of the boss, then up to eight at once.
    for (max, spent) in [(1, 10), (10, 10), (11, 20), (45, 50), (50, 50), (95, 100)] {
        let fixture = RuntimeFixture::new();
        let runtime = fixture.process(1, &TestModels::new(helpers(8)));
        let create = CreateTask { budget: tokens(max), ..for_boss("a") };
        let mut handle = runtime.create(create).await.unwrap();
        handle.wait().await.unwrap();
        let task = fixture.task(handle.id);
        let usage = task.total_usage;
        let total = usage.input_tokens.unwrap() + usage.output_tokens.unwrap();
        assert_eq!((total, task.error_code), (spent, Some(ErrorCode::Budget)), "{max}");
        let expected =
            format!("the budget of boss is used up: {spent} of {max} tokens (budget.max_tokens)");
        assert_eq!(task.error, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn expensive_sub_agents_stay_within_the_shared_budget() {
    let fixture = RuntimeFixture::new();
    // Each call uses 200 tokens, and the limit allows six.
    let runtime = fixture.process(1, &TestModels::weighing(20, helpers(8).into()));
    let create = CreateTask { budget: tokens(1150), ..for_boss("a") };
    let mut handle = runtime.create(create).await.unwrap();
    handle.wait().await.unwrap();
    let total = fixture.task(handle.id).total_usage;
    assert_eq!((total.input_tokens, total.output_tokens), (Some(1080), Some(120)));
}

#[tokio::test(start_paused = true)]
async fn budget_serializes_model_calls() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new(helpers(8));
    let runtime = fixture.process(1, &models);
    let create = CreateTask { budget: tokens(1_000_000), ..for_boss("a") };
    complete(&runtime, create).await;
    assert_eq!(models.max_concurrent(), 1);
}

#[tokio::test(start_paused = true)]
async fn cost_budget_survives_a_crash() {
    let fixture = RuntimeFixture::new();
    let budget: Option<Budget> = serde_json::from_value(json!({"max_cost_usd": 0.0025})).unwrap();
    let scripts = |helper| {
        TestModels::new([
            ("boss", vec![Ask(vec![part("agent/helper", "x")]), Text("over")]),
            ("helper", vec![Ask(vec![("time/now", json!({"n": 1}))]), helper]),
        ])
    };
    let runtime = fixture.process(1, &scripts(Hang));
    let create = CreateTask { budget, ..for_boss("a") };
    let id = runtime.create(create).await.unwrap().id;
    let answers = |fixture: &RuntimeFixture| {
        fixture.sub_tasks(id).iter().any(|row| row.usage.input_tokens == 9)
    };
    fixture.until("the helper has answered once", answers).await;
    fixture.kill(1, runtime);
    // Two calls have cost $0.0020, so one more may be made.
    let runtime = fixture.process(2, &scripts(Text("SUMMARY")));
    adopt(&runtime, id).await;
    let task = fixture.task(id);
    assert_eq!(task.error_code, Some(ErrorCode::Budget), "{task:?}");
    insta::assert_snapshot!(task.error.unwrap(), @"the budget of boss is used up: $0.0030 of $0.0025 (budget.max_cost_usd)");
    assert!(matches!(fixture.store.messages(id).await.unwrap()[2], Message::Tool { .. }));
}
