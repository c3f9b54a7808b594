use std::sync::Arc;

use insta::assert_snapshot;
use polity_statechart::{
    AgentRef, AgentRequest, Chart, ChartInstance, ChartSource, EVAL_ERRORS_MAX, ErrorSite, FieldId,
    FireContext, TransitionSource, WorldChange,
};
use serde_json::json;

use super::{agent, build, chart, fire, state, trigger};

fn guarded(guard: &str) -> Arc<Chart> {
    let source = ChartSource::new("a", ["x", "y"], "x")
        .field("n", 5.0)
        .field("mood", "calm")
        .field("tired", false)
        .transition(TransitionSource::new("go", ["x"], "y").guard(guard));
    build(&source)
}

/// Returns the value of a guard, or its evaluation error.
fn holds(guard: &str, context: &serde_json::Value) -> Result<bool, String> {
    let chart = guarded(guard);
    let mut agent = agent(&chart);
    let context = chart.context(context).with_draws(|index| 0.25 + 0.5 * f64::from(index));
    let fired = agent.fire(trigger(&chart, "go"), &context).is_some();
    match agent.take_eval_errors().as_slice() {
        [] => Ok(fired),
        [failure] => {
            assert!(!fired, "a guard that fails counts as false");
            assert!(matches!(failure.site, ErrorSite::Guard(_)));
            let site = (guard.to_owned(), Some("transitions[0]"));
            assert_eq!(chart.describe_site(failure.site), site);
            Err(chart.describe_error(&failure.error))
        }
        more => panic!("{more:?}"),
    }
}

#[test]
fn evaluates_guards() {
    for (guard, expected) in [
        ("agent.n < context.score", true),
        ("agent.n < 5 || agent.n >= 5", true),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9", true),
        ("10 / 4 - 1 > 1.4", true),
        ("-agent.n < -4", true),
        ("agent.mood == 'calm' && agent.mood != \"angry\"", true),
        ("agent.mood == context.post.tone", true),
        ("!agent.tired", true),
        ("agent.tired", false),
        ("!(agent.n > 4 && true)", false),
        ("draw() < 0.3", true),
        ("chance(0.2)", false),
        ("chance(0.3) && draw() > 0.7", true),
        ("false && 1 / (agent.n - 5) > 0", false),
        ("true || 1 / (agent.n - 5) > 0", true),
        ("1e3 == 1000.0", true),
    ] {
        let context = json!({"score": 6, "post": {"tone": "calm"}});
        assert_eq!(holds(guard, &context), Ok(expected), "{guard}");
    }
}

#[test]
fn failed_guard_counts_as_false() {
    for (guard, expected) in [
        ("context.score > 1", "the context has no \"score\""),
        ("agent.n / (agent.n - 5) > 1", "division by zero"),
        ("context.word > 1", "\">\" has no meaning for a text and a number"),
        ("context.word == agent.n", "\"==\" has no meaning for a text and a number"),
        ("!context.word", "it must be true or false, and is a text"),
        ("context.word", "it must be true or false, and is a text"),
        ("1e300 * 1e300 > agent.n", "the result is too large for a number"),
        ("agent.n > 1 && context.score > 1", "the context has no \"score\""),
    ] {
        assert_eq!(holds(guard, &json!({"word": "hello"})), Err(expected.to_owned()), "{guard}");
    }
}

#[test]
fn draw_without_source_is_an_error() {
    let mut agent = agent(&guarded("draw() < 2"));
    assert_eq!(fire(&mut agent, "go"), None);
    assert_eq!(agent.take_eval_errors().len(), 1);
}

#[test]
fn supports_rust_guards() {
    let source = ChartSource::new("a", ["x", "y"], "x").field("n", 5.0).transition(
        TransitionSource::new("go", ["x"], "y").guard_with("is_keen", |view| {
            match view.context("score") {
                Some(score) => Ok(Some(score) == view.field("n")),
                None => Err("no score".to_owned()),
            }
        }),
    );
    let source = ChartSource { context: vec!["score".to_owned()], ..source };
    let chart = build(&source);
    let mut agent = agent(&chart);
    let go = trigger(&chart, "go");
    assert_eq!(agent.fire(go, &FireContext::new(&chart)), None);
    assert_eq!(chart.describe_error(&agent.take_eval_errors()[0].error), "no score");
    assert_eq!(agent.fire(go, &chart.context(&json!({"score": 4}))), None);
    assert_eq!(agent.fire(go, &chart.context(&json!({"score": 5}))), chart.state("y"));
}

fn acting(actions: &[&str]) -> ChartInstance {
    let mut transition = TransitionSource::new("go", ["x"], "y");
    transition.action = actions.iter().map(|action| (*action).to_owned()).collect();
    let source = ChartSource::new("a", ["x", "y"], "x").field("n", 5.0).transition(transition);
    let mut source = ChartSource { world: [("likes".to_owned(), 2.0.into())].into(), ..source };
    source.fields.get_mut("n").unwrap().max = Some(10.0);
    let chart = build(&source);
    let mut agent = agent(&chart);
    fire(&mut agent, "go");
    assert_eq!(state(&agent), "y");
    agent
}

#[test]
fn actions_change_fields_and_world_and_make_requests() {
    let mut agent = acting(&[
        "add agent.n = world.likes",
        "set agent.n = agent.n + 1",
        "add world.likes = agent.n",
        "set world.likes = 1",
        "pause 3",
        "pause \"bob\"",
        "resume \"bob\"",
        "copy",
        "copy \"twin\"",
        "remove \"bob\"",
        "remove",
    ]);
    let likes = agent.chart().world("likes").unwrap();
    assert_eq!(agent.field(FieldId::clone(&agent.chart().field("n").unwrap())), Some(&8.0.into()));
    let changes = [WorldChange::Add(likes, 8.0), WorldChange::Set(likes, 1.0.into())];
    assert_eq!(agent.take_changes(), changes);
    let bob = || AgentRef::Named("bob".into());
    assert_eq!(
        agent.take_requests(),
        [
            AgentRequest::Pause { who: AgentRef::Requester, turns: Some(3) },
            AgentRequest::Pause { who: bob(), turns: None },
            AgentRequest::Resume { name: "bob".into() },
            AgentRequest::Copy { name: None },
            AgentRequest::Copy { name: Some("twin".into()) },
            AgentRequest::Remove { who: bob() },
            AgentRequest::Remove { who: AgentRef::Requester },
        ]
    );
}

#[test]
fn failed_action_changes_nothing() {
    let mut agent = acting(&[
        "set agent.n = agent.n * 4",
        "add agent.n = 6",
        "set agent.n = 1 / (agent.n - 5)",
    ]);
    let (chart, errors) = (Arc::clone(agent.chart()), agent.take_eval_errors());
    let reasons: Vec<_> = errors.iter().map(|one| chart.describe_error(&one.error)).collect();
    let range = "the value is not one that \"n\" may have: it must be at most 10";
    assert_eq!(reasons, [range, range, "division by zero"]);
    assert_eq!(agent.field(chart.field("n").unwrap()), Some(&5.0.into()));
}

#[test]
fn threshold_field_stays_above_zero() {
    let chart = chart(
        "name: a\nstates: [x, y]\ninitial: x\nfields: {patience: 2, less: -3}\ntransitions:\n  \
         - {trigger: go, source: x, target: y, action: add agent.patience = agent.less}\n\
         timeouts: [{state: y, threshold: agent.patience, target: x}]\n",
    );
    let (patience, less) = (chart.field("patience").unwrap(), chart.field("less").unwrap());
    let mut agent = agent(&chart);
    let error = agent.set_field(patience, 0.0.into()).unwrap_err();
    assert_snapshot!(error, @"patience must be above 0, because it is a threshold, found 0");
    assert_eq!(agent.set_field(less, (-4.0).into()), Ok(()));
    fire(&mut agent, "go");
    assert_eq!(agent.take_eval_errors().len(), 1);
    assert_eq!(agent.field(patience), Some(&2.0.into()));
}

#[test]
fn guard_before_oracle_candidates_is_evaluated_once() {
    let chart = chart(
        "name: a\nstates: [x, y, z]\ninitial: x\noracle_default: z\ntransitions:\n  \
         - {trigger: go, source: x, target: y, guard: context.score > 1}\n  \
         - {trigger: go, source: x, target: y, oracle: true}\n  \
         - {trigger: go, source: x, target: z, oracle: true}\n",
    );
    let mut agent = agent(&chart);
    fire(&mut agent, "go");
    assert_eq!(agent.state(), chart.state("z").unwrap());
    assert_eq!(agent.take_eval_errors().len(), 1);
}

#[test]
fn eval_errors_are_bounded() {
    let chart = guarded("context.score > 1");
    let mut agent = agent(&chart);
    for _ in 0..EVAL_ERRORS_MAX + 10 {
        fire(&mut agent, "go");
    }
    assert_eq!(agent.take_eval_errors().len(), EVAL_ERRORS_MAX);
    fire(&mut agent, "go");
    assert_eq!(agent.take_eval_errors().len(), 1);
}
