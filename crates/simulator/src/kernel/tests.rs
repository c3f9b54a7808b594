//! Tests of all execution paths against a reference.

mod charts;
mod reference;
mod world;

use std::sync::Arc;

use insta::assert_snapshot;
use polity_statechart::{
    AgentRef, AgentRequest, Chart, ChartSource, FieldId, ScalarRef, ScalarValue, TransitionSource,
};
use proptest::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use self::charts::random_chart;
use self::reference::{ErrorCounts, ReferencePopulation, behaviour, note};
use super::draws::philox::TriggerDraw;
use super::tables::simd_plan::SimdTest;
use super::*;

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

fn chart(text: &str) -> Arc<Chart> {
    Arc::new(Chart::from_text(text).unwrap_or_else(|errors| panic!("{errors}\n{text}")))
}

fn rates(chart: &Chart, rates: &[(&str, f64)]) -> RateTable {
    let rates = rates
        .iter()
        .map(|(name, rate)| TriggerRate { trigger: chart.trigger(name).unwrap(), rate: *rate });
    RateTable::uniform(chart, &rates.collect::<Vec<_>>()).unwrap()
}

fn snapshots(kernel: &Kernel) -> Vec<AgentSnapshot> {
    kernel.slots().map(|slot| kernel.snapshot(slot)).collect()
}

/// Adds an agent in the initial state.
fn add(
    kernel: &mut Kernel,
    serial: u64,
    behaviour: u8,
    fields: &[(FieldId, ScalarValue)],
) -> Result<AgentSlot, KernelError> {
    let initial = kernel.chart().initial();
    kernel.add(AgentSerial(serial), DrawKey(serial), BehaviourId(behaviour), initial, fields)
}

fn fill(kernel: &mut Kernel, agents: u64) {
    for serial in 0..agents {
        let behaviour = behaviour(&kernel.rates, serial);
        add(kernel, serial, behaviour, &[]).unwrap();
    }
}

/// Returns a population with the rate of one trigger.
fn population(chart: &Arc<Chart>, rate: (&str, f64), agents: u64) -> Kernel {
    let mut kernel = Kernel::new(Arc::clone(chart), rates(chart, &[rate]), SimulationSeed(3));
    fill(&mut kernel, agents);
    kernel
}

/// The execution path of a test.
#[derive(Debug, Clone, Copy)]
enum ExecutionPath {
    /// The best path for the chart.
    Best,
    /// The batched path.
    Lists,
    /// The batched path with look-up tables.
    CaseTables,
}

const EXECUTION_PATHS: [ExecutionPath; 3] =
    [ExecutionPath::Best, ExecutionPath::Lists, ExecutionPath::CaseTables];

fn kernel_by(by: ExecutionPath, chart: &Arc<Chart>, rates: RateTable, seed: u64) -> Kernel {
    let mut kernel = Kernel::new(Arc::clone(chart), rates, SimulationSeed(seed));
    let event_table = match by {
        ExecutionPath::Best => return kernel,
        ExecutionPath::Lists => EventTable::new(chart, &kernel.rates),
        ExecutionPath::CaseTables => EventTable::in_tables(chart, &kernel.rates),
    };
    kernel.ticking = TickProgram { plan: None, event_table, purpose: DrawPurpose::Guard };
    for trigger in chart.triggers() {
        let event_table = EventTable::of_trigger(chart, trigger);
        let program = TickProgram { plan: None, event_table, purpose: DrawPurpose::Round };
        kernel.fired.insert(trigger, program);
    }
    kernel
}

#[test]
fn random_charts_cover_all_paths() {
    let plans: Vec<(Option<SimdPlan>, TriggerDraw)> = (0..60)
        .map(|shape| {
            let (text, rates) = random_chart(shape * 7_919);
            let chart = chart(&text);
            (SimdPlan::new(&chart, &rates.table(&chart)), TriggerDraw::of(&chart))
        })
        .collect();
    let planned = || plans.iter().filter_map(|(plan, trigger)| Some((plan.as_ref()?, trigger)));
    assert!(planned().filter(|(plan, _)| plan.effects.is_empty()).count() > 10);
    assert!(planned().filter(|(plan, _)| !plan.effects.is_empty()).count() > 5);
    assert!(planned().filter(|(plan, _)| plan.draws_triggers).count() > 3);
    let (left, last) = (TriggerDraw::Spare, TriggerDraw::LAST);
    let by_last = |test: &SimdTest| matches!(test, SimdTest::Draw { draw, .. } if *draw == last);
    let is_left = |(plan, trigger): &(&SimdPlan, &TriggerDraw)| {
        **trigger == left && plan.tests.iter().any(by_last)
    };
    assert!(planned().filter(is_left).count() > 10);
    assert!(plans.iter().filter(|(plan, _)| plan.is_none()).count() > 20);
}

/// Each case costs as much as many smaller ones.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 4).max(1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn all_paths_match_the_reference(
        shape in any::<u64>(),
        seed in any::<u64>(),
        agents in prop_oneof![1..150_u64, 150..1100_u64],
        ticks in 1..260_u32,
        rounds in prop::sample::select(vec![None, Some("go"), Some("swap"), Some("next")]),
    ) {
        let (text, rates) = random_chart(shape);
        let chart = chart(&text);
        let rounds = rounds.and_then(|name| chart.trigger(name));
        let ticks = if agents > 150 { ticks % 60 + 1 } else { ticks };
        let mut reference = ReferencePopulation::new(&chart, rates.table(&chart), SimulationSeed(seed), agents);
        for tick in 1..=ticks {
            reference.tick(tick);
            if let Some(trigger) = rounds.filter(|_| tick % 3 == 0) {
                reference.fire_all(trigger, tick);
            }
        }
        reference.exit(ticks);
        let pool = pool(2);
        for by in EXECUTION_PATHS {
            let mut kernel = kernel_by(by, &chart, rates.table(&chart), seed);
            fill(&mut kernel, agents);
            for first in (1..=ticks).step_by(3) {
                let count = (ticks + 1 - first).min(3);
                kernel.ticks(first, count, &pool);
                if let Some(trigger) = rounds.filter(|_| count == 3) {
                    kernel.fire_all(trigger, first + 2, &pool);
                }
            }
            let all: Vec<AgentSlot> = kernel.slots().collect();
            kernel.exit(&all, ticks);
            prop_assert_eq!(&snapshots(&kernel), &reference.snapshots(), "{:?} {}", by, text);
            prop_assert_eq!(&kernel.world, &reference.world);
            prop_assert_eq!(&kernel.take_requests(), &reference.requests);
            let mut failures = ErrorCounts::new();
            for KernelWarning { text, reason, count, serial, tick, .. } in kernel.take_warnings() {
                note(&mut failures, (text, reason), count, (tick, serial));
            }
            prop_assert_eq!(&failures, &reference.failures, "{:?} {}", by, text);
        }
    }

    #[test]
    fn threads_and_batches_do_not_change_results(shape in any::<u64>(), seed in any::<u64>()) {
        let (text, rates) = random_chart(shape);
        let chart = chart(&text);
        let mut ends = Vec::new();
        for (threads, piece) in [(1, 60), (2, 7), (4, 1)] {
            let pool = pool(threads);
            let mut kernel = Kernel::new(Arc::clone(&chart), rates.table(&chart), SimulationSeed(seed));
            fill(&mut kernel, 2500);
            for first in (1..=60).step_by(piece) {
                let count = (61 - first).min(u32::try_from(piece).unwrap());
                kernel.ticks(first, count, &pool);
            }
            let requests = kernel.take_requests();
            ends.push((snapshots(&kernel), kernel.world.clone(), requests, kernel.take_warnings()));
        }
        prop_assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{}", text);
    }
}

/// A chart whose agents diverge after a few ticks.
const RESTLESS: &str = "
name: restless
states: [a, b, c]
initial: a
transitions:
  - {trigger: go, source: a, target: b, guard: chance(0.4)}
  - {trigger: go, source: b, target: c, guard: chance(0.6)}
  - {trigger: go, source: c, target: a}
  - {trigger: round_ends, source: '*', target: a}
timeouts:
  - {state: [a, b], threshold: 3, target: c}
";

#[test]
fn lifecycle_changes_do_not_affect_other_agents() {
    let chart = chart(RESTLESS);
    let pool = pool(1);
    let start = || {
        let mut kernel = population(&chart, ("go", 0.7), 40);
        kernel.ticks(1, 20, &pool);
        kernel
    };
    let mut plain = start();
    plain.ticks(21, 20, &pool);
    let mut changed = start();
    changed.pause(AgentSlot(3));
    changed.remove(AgentSlot(7));
    add(&mut changed, 100, 0, &[]).unwrap();
    changed.ticks(21, 20, &pool);
    for slot in changed.slots().filter(|slot| slot.0 != 3 && slot.0 < 40) {
        assert_eq!(changed.snapshot(slot), plain.snapshot(slot));
    }
    assert_ne!(changed.snapshot(AgentSlot(3)), plain.snapshot(AgentSlot(3)));
}

#[test]
fn paused_agent_keeps_its_state() {
    let chart = chart(RESTLESS);
    let pool = pool(1);
    for by in EXECUTION_PATHS {
        let mut kernel = kernel_by(by, &chart, rates(&chart, &[("go", 0.7)]), 3);
        fill(&mut kernel, 5);
        kernel.ticks(1, 20, &pool);
        kernel.pause(AgentSlot(2));
        let before = kernel.snapshot(AgentSlot(2));
        assert!(before.paused);
        kernel.ticks(21, 200, &pool);
        kernel.fire_all(chart.trigger("round_ends").unwrap(), 220, &pool);
        assert_eq!(kernel.snapshot(AgentSlot(2)), before);
        kernel.resume(AgentSlot(2));
        kernel.ticks(221, 20, &pool);
        assert_ne!(kernel.snapshot(AgentSlot(2)), before);
    }
}

#[test]
fn restored_population_continues_unchanged() {
    let chart = chart(RESTLESS);
    let pool = pool(1);
    for stop in [1, 30, 97, 300] {
        let mut first = population(&chart, ("go", 0.7), 1100);
        first.ticks(1, stop, &pool);
        let mut second = population(&chart, ("go", 0.7), 0);
        second.resume_at(stop);
        for snapshot in snapshots(&first) {
            second.restore(snapshot).unwrap();
        }
        assert_eq!(snapshots(&second), snapshots(&first));
        second.ticks(stop + 1, 150, &pool);
        first.ticks(stop + 1, 150, &pool);
        assert_eq!(snapshots(&second), snapshots(&first));
    }
}

/// Returns a ring of states, each with two guarded transitions per trigger.
fn large_ring(states: usize, triggers: usize) -> Arc<Chart> {
    let names: Vec<String> = (0..states).map(|state| format!("s{state}")).collect();
    let mut source = ChartSource::new("ring", names.iter().map(String::as_str), "s0");
    for (state, trigger) in (0..states).flat_map(|state| (0..triggers).map(move |one| (state, one)))
    {
        for (step, guard) in [(1 + trigger, "draw() < 0.2"), (2 + trigger, "draw() > 0.4")] {
            let (trigger, guard) = (format!("go{trigger}"), format!("{guard}{state}{trigger}"));
            let target = &names[(state + step) % states];
            let transition = TransitionSource::new(&trigger, [names[state].as_str()], target);
            source = source.transition(transition.guard(&guard));
        }
    }
    Arc::new(Chart::build(&source).unwrap())
}

#[test]
fn large_charts_match_the_reference() {
    let pool = pool(1);
    for (states, triggers, has_plan, has_tables) in [
        (20, 1, true, false),
        (50, 1, false, true),
        (200, 1, false, true),
        (20, 7, false, false),
        (12, 30, false, true),
    ] {
        let chart = large_ring(states, triggers);
        let names: Vec<String> = (0..triggers).map(|trigger| format!("go{trigger}")).collect();
        let share = 0.9 / f64::from(u32::try_from(triggers).unwrap());
        let shares: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), share)).collect();
        let mut reference =
            ReferencePopulation::new(&chart, rates(&chart, &shares), SimulationSeed(3), 500);
        reference.run(150);
        let mut expected = reference.snapshots();
        expected.remove(7);
        let program =
            Kernel::new(Arc::clone(&chart), rates(&chart, &shares), SimulationSeed(3)).ticking;
        assert_eq!(program.plan.is_some(), has_plan, "{states}, {triggers}");
        assert_eq!(program.event_table.has_tables(), has_tables, "{states}, {triggers}");
        for by in [ExecutionPath::Best, ExecutionPath::Lists] {
            let mut kernel = kernel_by(by, &chart, rates(&chart, &shares), 3);
            fill(&mut kernel, 500);
            kernel.pause(AgentSlot(7));
            kernel.ticks(1, 150, &pool);
            assert_eq!(
                kernel.state(AgentSlot(7)),
                chart.initial(),
                "a paused agent stays in its initial state"
            );
            let mut ends = snapshots(&kernel);
            ends.remove(7);
            assert!(ends == expected, "{states}, {triggers}");
        }
    }
}

#[test]
fn rejects_invalid_snapshots() {
    let text = "name: n\nstates: [a, {name: b, initial: c, history: shallow, states: [c, d]}]\n\
                initial: a\nfields: {n: {default: 1, max: 2}}\ntransitions:\n  \
                - {trigger: go, source: a, target: b}\n  - {trigger: go, source: c, target: d}\n  \
                - {trigger: go, source: d, target: a}\n";
    let chart = chart(text);
    let mut kernel = population(&chart, ("go", 1.0), 1);
    kernel.ticks(1, 4, &pool(1));
    let snapshot = kernel.snapshot(AgentSlot(0));
    assert_eq!(snapshot.last_active, [1]);
    let restore = |kernel: &mut Kernel, change: fn(&mut AgentSnapshot)| {
        let mut snapshot = snapshot.clone();
        change(&mut snapshot);
        kernel.restore(snapshot)
    };
    let changes: [fn(&mut AgentSnapshot); 7] = [
        |snapshot| snapshot.last_active[0] = 2,
        |snapshot| snapshot.last_active.clear(),
        |snapshot| snapshot.fields.push(None),
        |snapshot| snapshot.fields[0] = Some(ScalarValue::Number(3.0)),
        |snapshot| drop(snapshot.history.remove(1)),
        |snapshot| snapshot.history[0].tick = 9,
        |snapshot| snapshot.behaviour = BehaviourId(1),
    ];
    let errors = changes.map(|change| {
        let mut other = population(&chart, ("go", 1.0), 0);
        let error = restore(&mut other, change).unwrap_err();
        assert!(other.is_empty());
        error.to_string()
    });
    assert_snapshot!(errors.join("\n"), @r#"
    its fields, or the states it last left, are not those of the chart
    its fields, or the states it last left, are not those of the chart
    its fields, or the states it last left, are not those of the chart
    n must be at most 2, found 3
    the history does not lead step by step to the state "d"
    the history does not lead step by step to the state "d"
    there is no behaviour 1
    "#);
    kernel.remove(AgentSlot(0));
    let back = restore(&mut kernel, |snapshot| snapshot.fields[0] = None).unwrap();
    assert_eq!(kernel.snapshot(back), snapshot, "a missing field has the chart's default");
}

#[test]
fn ticks_may_be_far_apart() {
    let chart = chart(RESTLESS);
    let pool = pool(1);
    let mut kernel = population(&chart, ("go", 1.0), 70);
    let ticks: Vec<u32> = (1..400).map(|number| number * 100_003).collect();
    let mut expected = vec![Vec::new(); 70];
    for tick in ticks {
        let before: Vec<_> = kernel.slots().map(|slot| kernel.state(slot)).collect();
        kernel.tick(tick, &pool);
        for (slot, before) in kernel.slots().zip(before) {
            if kernel.state(slot) != before {
                expected[slot.0 as usize].push((before, kernel.state(slot), u64::from(tick)));
            }
        }
    }
    for (slot, expected) in kernel.slots().zip(expected) {
        let history = kernel.history(slot);
        let history: Vec<_> = history.iter().map(|one| (one.from, one.to, one.tick)).collect();
        assert_eq!(history, expected[expected.len() - 50..]);
    }
}

#[test]
fn rust_guards_work_in_populations() {
    let source = ChartSource::new("a", ["x", "y"], "x").field("n", 5.0).transition(
        TransitionSource::new("go", ["x"], "y").guard_with("is_seven", |view| {
            match view.field("n") {
                Some(ScalarRef::Number(8.0)) => Err("eight is too much".to_owned()),
                n => Ok(n == Some(ScalarRef::Number(7.0))),
            }
        }),
    );
    let chart = Arc::new(Chart::build(&source).unwrap());
    let mut kernel = population(&chart, ("go", 1.0), 0);
    let n = chart.field("n").unwrap();
    for (serial, number) in (0..).zip([5.0, 7.0, 8.0]) {
        add(&mut kernel, serial, 0, &[(n, ScalarValue::Number(number))]).unwrap();
    }
    kernel.ticks(1, 3, &pool(1));
    assert_eq!(kernel.counts(), [2, 1]);
    let warnings = kernel.take_warnings();
    assert_eq!((warnings.len(), warnings[0].count), (1, 3));
    assert_eq!(
        (warnings[0].text.as_str(), warnings[0].reason.as_str()),
        ("is_seven", "eight is too much")
    );
}

#[test]
fn behaviours_have_their_own_rates() {
    let chart = chart(RESTLESS);
    let rate = |name: &str, rate: f64| TriggerRate { trigger: chart.trigger(name).unwrap(), rate };
    let lively = BehaviourRates { rates: vec![rate("go", 1.0)], by_state: Vec::new() };
    let stuck = BehaviourRates {
        rates: vec![rate("go", 1.0)],
        by_state: vec![(chart.state("c").unwrap(), Vec::new())],
    };
    let rates = RateTable::new(&chart, &[lively, stuck]).unwrap();
    for by in EXECUTION_PATHS {
        let mut kernel = kernel_by(by, &chart, rates.clone(), 3);
        for serial in 0..100 {
            add(&mut kernel, serial, u8::from(serial % 2 == 1), &[]).unwrap();
        }
        kernel.ticks(1, 100, &pool(1));
        for slot in kernel.slots() {
            let is_stuck = kernel.behaviour(slot) == BehaviourId(1);
            assert_eq!(kernel.history(slot).len() <= 2, is_stuck, "stuck agents end in c");
        }
    }
}

#[test]
fn compacting_keeps_order_and_history() {
    let chart = chart(RESTLESS);
    let pool = pool(2);
    let new = || {
        let mut kernel = population(&chart, ("go", 0.7), 3000);
        kernel.ticks(1, 150, &pool);
        kernel
    };
    let (mut kernel, mut untouched) = (new(), new());
    assert_eq!(kernel.compact(), None);
    for slot in (0..3000).filter(|slot| slot % 3 != 0) {
        kernel.remove(AgentSlot(slot));
    }
    assert_eq!(kernel.len(), 1000);
    let moved = kernel.compact().unwrap();
    assert_eq!(moved[0], Some(AgentSlot(0)));
    assert_eq!(moved[1], None);
    assert_eq!(moved[2997], Some(AgentSlot(999)));
    kernel.ticks(151, 150, &pool);
    untouched.ticks(151, 150, &pool);
    for slot in 0..1000 {
        assert_eq!(kernel.snapshot(AgentSlot(slot)), untouched.snapshot(AgentSlot(slot * 3)));
    }
}

#[test]
fn fire_all_fires_once_per_agent() {
    let chart = chart(RESTLESS);
    let pool = pool(1);
    let mut kernel = population(&chart, ("go", 1.0), 100);
    kernel.ticks(1, 9, &pool);
    let before: Vec<_> = kernel.slots().map(|slot| kernel.history(slot).len()).collect();
    let away: Vec<_> = kernel.slots().map(|slot| kernel.state(slot) != chart.initial()).collect();
    kernel.fire_all(chart.trigger("round_ends").unwrap(), 10, &pool);
    assert_eq!(kernel.counts(), [100, 0, 0]);
    for ((slot, before), away) in kernel.slots().zip(before).zip(away) {
        let history = kernel.history(slot);
        assert_eq!(history.len(), before + usize::from(away));
        assert!(!away || history.last().unwrap().tick == 10);
    }
}

#[test]
fn requests_come_in_agent_order() {
    let chart = chart(
        "name: asking\nstates: [a, b]\ninitial: a\ntransitions:\n  \
         - {trigger: go, source: a, target: b, guard: chance(0.5), action: pause 2}\n  \
         - {trigger: go, source: b, target: a, action: [copy, remove]}\n",
    );
    let pool = pool(4);
    let mut kernel = population(&chart, ("go", 1.0), 3000);
    kernel.ticks(1, 1, &pool);
    let first = kernel.take_requests();
    assert!(first.is_sorted_by_key(|(slot, _)| *slot));
    assert!((1300..1700).contains(&first.len()));
    let pause = AgentRequest::Pause { who: AgentRef::Requester, turns: Some(2) };
    assert!(first.iter().all(|(_, request)| *request == pause));
    kernel.ticks(2, 1, &pool);
    let second = kernel.take_requests();
    let copies = second.iter().filter(|(_, request)| *request == AgentRequest::Copy { name: None });
    assert_eq!(copies.count(), first.len());
    assert!(kernel.take_requests().is_empty());
}

#[test]
fn counts_and_explains_failed_guards() {
    let chart = chart(
        "name: failing\nstates: [a, b]\ninitial: a\nfields: {n: 5}\ntransitions:\n  \
         - {trigger: go, source: a, target: b, guard: context.score > 1}\n  \
         - {trigger: go, source: a, target: b, guard: 1 / (agent.n - 5) > 1}\n",
    );
    let mut kernel = population(&chart, ("go", 1.0), 2000);
    kernel.ticks(1, 10, &pool(2));
    let warnings = kernel.take_warnings();
    let listed: Vec<_> = warnings
        .iter()
        .map(|warning| (warning.location.as_deref(), warning.reason.as_str(), warning.count))
        .collect();
    assert_eq!(
        listed,
        [
            (Some("transitions[0]"), "the context has no \"score\"", 20_000),
            (Some("transitions[1]"), "division by zero", 20_000),
        ]
    );
    assert_eq!((warnings[0].serial, warnings[0].tick), (AgentSerial(0), 1));
    assert_eq!(kernel.counts(), [2000, 0]);
    assert!(kernel.take_warnings().is_empty());
}

#[test]
fn rejects_invalid_rates_fields_and_behaviours() {
    let chart = chart(
        "name: a\nstates: [x]\ninitial: x\nfields: {n: {default: 1, max: 2}}\ntransitions:\n  - {trigger: go, source: x, target: x}\n",
    );
    let go = chart.trigger("go").unwrap();
    let refused = |rates: &[f64]| {
        let rates: Vec<TriggerRate> =
            rates.iter().map(|rate| TriggerRate { trigger: go, rate: *rate }).collect();
        RateTable::uniform(&chart, &rates).unwrap_err().to_string()
    };
    assert_snapshot!(refused(&[1.5]), @r#"the rate of "go" must be from 0 to 1, found 1.5"#);
    assert_snapshot!(refused(&[0.75, 0.75]), @r#"the rates in state "x" add up to 1.5; the maximum is 1"#);
    let mut kernel = population(&chart, ("go", 1.0), 0);
    let wrong = [(chart.field("n").unwrap(), ScalarValue::Number(3.0))];
    let error = add(&mut kernel, 0, 0, &wrong).unwrap_err();
    assert_snapshot!(error, @"n must be at most 2, found 3");
    let error = add(&mut kernel, 0, 7, &[]).unwrap_err();
    assert_snapshot!(error, @"there is no behaviour 7");
    assert!(kernel.is_empty());
    kernel.ticks(1, 300, &pool(1));
    assert_eq!(kernel.counts(), [0], "nobody is no problem");
}

#[test]
fn history_of_quiet_agents_is_small() {
    let chart = chart(
        "name: quiet\nstates: [x, y]\ninitial: x\ntransitions:\n  \
         - {trigger: go, source: x, target: y}\n  - {trigger: go, source: y, target: x}\n",
    );
    for rate in [0.003, 0.01, 0.1] {
        let mut kernel = population(&chart, ("go", rate), BLOCK as u64);
        for first in (1..6_000).step_by(500) {
            kernel.ticks(first, 500, &pool(1));
            let bytes = kernel.bytes() / BLOCK;
            assert!(bytes <= 150, "{bytes} bytes for an agent after {first} ticks at {rate}");
        }
    }
}

#[test]
fn visits_match_histories() {
    let transitions: Vec<String> = (0..12)
        .map(|to| format!("{{trigger: next, source: '*', target: s{to}, guard: chance(0.1)}}"))
        .collect();
    let names: Vec<String> = (0..12).map(|state| format!("s{state}")).collect();
    let many_ways = format!(
        "{{name: a, initial: s0, states: [{}], transitions: [{}], max_history_depth: 500}}",
        names.join(", "),
        transitions.join(", ")
    );
    for shape in 0..40 {
        let (text, table) = random_chart(shape * 104_729);
        let text = text.replace("max_history_depth: ", "max_history_depth: 500 # ");
        let text = if shape == 0 { many_ways.clone() } else { text };
        let chart = chart(&text);
        let pool = pool(2);
        let table = if shape == 0 { rates(&chart, &[("next", 0.9)]) } else { table.table(&chart) };
        let mut kernel = Kernel::new(Arc::clone(&chart), table, SimulationSeed(shape));
        kernel.count_visits();
        fill(&mut kernel, 1100);
        kernel.ticks(1, 110, &pool);
        kernel.pause(AgentSlot(3));
        kernel.fire_all(chart.trigger("next").unwrap(), 111, &pool);
        let mut listed = vec![0; chart.states().len()];
        for slot in kernel.slots() {
            kernel.history(slot).iter().for_each(|past| listed[past.to.index()] += 1);
        }
        assert_eq!(kernel.take_visits(), listed, "{text}");
        assert!(kernel.take_visits().iter().all(|visits| *visits == 0));
    }
}
