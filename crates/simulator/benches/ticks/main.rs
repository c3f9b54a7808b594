//! Benchmarks of ticks, and memory per agent.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::disallowed_methods, reason = "a bench starts what it measures")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use polity_simulator::kernel::{
    AgentSerial, BehaviourId, BehaviourRates, DrawKey, Kernel, RateTable, SimulationSeed,
    TriggerRate,
};
use polity_statechart::Chart;
use rayon::ThreadPool;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// Eight states, a guard that draws for each transition, a timeout after five ticks.
const W1: &str = include_str!("w1.yaml");

/// The same chart with guards that are expressions over fields.
const EXPRESSIONS: &str = include_str!("w1_expressions.yaml");

/// Many different sums, and a world that all agents change.
const MARKET: &str = include_str!("market.yaml");

/// Charts that cover most features.
const CHARTS: [(&str, &str); 5] = [
    (
        "the society of the example",
        include_str!("../../../../examples/11-society/charts/social.yaml"),
    ),
    ("every guard is another expression", include_str!("w1_distinct.yaml")),
    ("histories, entry and exit actions, oracle", include_str!("nested.yaml")),
    ("texts and flags, actions on every way", include_str!("moods.yaml")),
    ("guards without a value, requests", include_str!("faulty.yaml")),
];

/// The rates of triggers, if the chart has them. The first triggers share the rest.
const RATES: [(&str, f64); 9] = [
    ("tick", 1.0),
    ("scare", 0.1),
    ("cheer", 0.05),
    ("feed_ready", 0.5),
    ("sees_post", 0.4),
    ("ignores", 0.2),
    ("decides", 0.5),
    ("compose_done", 0.4),
    ("action_done", 0.6),
];

const TICKS: u32 = 100;

/// The variable with the path of a Python that has Mesa; `cargo xtask bench` installs it.
const PYTHON: &str = "POLITY_BENCH_PYTHON";

const SCRIPT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/python-bench/ticks.py");

/// The target for any chart: millions of agent-ticks per CPU-second, and a multiple of the rate of
/// Mesa with guards that only draw.
const ANY: SpeedTarget = SpeedTarget { least: 50.0, times: Some(60.0) };

/// The target of charts with comparisons and draws.
const SIMPLE: SpeedTarget = SpeedTarget { least: 250.0, times: None };

#[derive(Clone, Copy)]
struct SpeedTarget {
    least: f64,
    times: Option<f64>,
}

fn main() {
    let quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    let (agents, many) = if quick { (10_000, 10_000) } else { (100_000, 1_000_000) };
    let rounds = if quick { 1 } else { 5 };
    let (simple, market) = (mesa(agents, "w1"), mesa(agents, "market"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let (large, watched) = (large(), watched());
    let mut charts = vec![("guards are expressions", EXPRESSIONS, TICKS, ANY)];
    charts.extend(CHARTS.map(|(what, chart)| (what, chart, TICKS, ANY)));
    charts.push(("sums over a world that all change", MARKET, TICKS, ANY));
    charts.push(("a world that all change and look at", watched.as_str(), TICKS, ANY));
    charts.push(("two hundred states", large.as_str(), TICKS, ANY));
    charts.push(("guards are draws", W1, TICKS, SIMPLE));
    charts.push(("guards are draws, ten times as long", W1, 10 * TICKS, SIMPLE));
    // Arguments after `--` select charts.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let is_wanted =
        |what: &str| wanted.is_empty() || wanted.iter().any(|word| what.contains(word.as_str()));
    for (what, chart, ticks, target) in charts.into_iter().filter(|(what, ..)| is_wanted(what)) {
        let best = (0..rounds).map(|_| time(&pool, chart, agents, ticks)).min().unwrap();
        let rate = f64::from(agents) * f64::from(ticks) / best.as_secs_f64() / 1e6;
        let SpeedTarget { least, times } = target;
        let beside = |mesa: Option<f64>, chart: &str| {
            let times = mesa.map(|mesa| rate * 1e6 / mesa);
            times.map_or_else(String::new, |times| format!(", {times:.0} times Mesa {chart}"))
        };
        let mut measured = format!("{rate:.0} M agent-ticks per CPU-second");
        measured += &beside(simple, "with guards that draw");
        if chart == MARKET {
            measured += &beside(market, "with the same chart");
        }
        let wanted = times.map_or_else(String::new, |times| format!(", ≥ {times:.0} times Mesa"));
        report(
            &format!("{agents} agents tick with timeouts and history, {what}"),
            &measured,
            &format!("≥ {least:.0} M{wanted}"),
            rate >= least
                && simple.zip(times).is_none_or(|(mesa, times)| rate * 1e6 >= times * mesa),
        );
    }
    if !is_wanted("memory") {
        return;
    }
    let mut kernel = population(W1, many);
    let began = cpu();
    kernel.ticks(1, TICKS, &pool);
    let seconds = cpu().saturating_sub(began).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "shown without digits")]
    let bytes = kernel.bytes() as f64 / f64::from(many);
    report(
        &format!("memory of {many} agents after {TICKS} ticks, history kept"),
        &format!("{bytes:.0} bytes per agent, {seconds:.2} s of CPU"),
        "≤ 150 bytes besides fields",
        bytes <= 150.0,
    );
}

/// Returns Mesa's rate in agent-ticks per CPU-second for a chart, if Mesa is installed.
fn mesa(agents: u32, chart: &str) -> Option<f64> {
    let python = std::env::var_os(PYTHON)?;
    let output = Command::new(python)
        .arg(SCRIPT)
        .args(["--chart", chart])
        .args(["--agents", &agents.to_string(), "--ticks", &TICKS.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}

fn report(what: &str, measured: &str, target: &str, kept: bool) {
    println!("{}", json!({"what": what, "measured": measured, "target": target, "kept": kept}));
}

/// The market with agents that read the world values of others.
fn watched() -> String {
    let (before, after) = ("agent.goods >= 1 &&", "agent.goods >= world.volume / 1e9 &&");
    assert!(MARKET.contains(before));
    MARKET.replace(before, after)
}

/// A ring of two hundred states, each with two guarded transitions.
fn large() -> String {
    const STATES: usize = 200;
    let names: Vec<String> = (0..STATES).map(|state| format!("s{state}")).collect();
    let mut text = format!(
        "name: large\nstates: [{}]\ninitial: s0\nfields: {{pace: 1}}\ntimeouts:\n  \
         - {{state: '*', threshold: 5, target: s0}}\ntransitions:\n",
        names.join(", ")
    );
    for state in 0..STATES {
        for (step, guard) in [(1, "draw() < 0.2"), (7, "draw() * agent.pace * 2 > 0.9")] {
            let target = (state + step) % STATES;
            text.push_str("  - {trigger: tick, source: ");
            text.push_str(&[&names[state], ", target: ", &names[target], ", guard: "].concat());
            text.push_str(&[guard, &state.to_string(), "}\n"].concat());
        }
    }
    text
}

fn population(chart: &str, agents: u32) -> Kernel {
    let chart = Arc::new(Chart::from_text(chart).unwrap());
    let of = |state| {
        let known =
            RATES.iter().rev().filter_map(|(name, rate)| Some((chart.trigger(name)?, *rate)));
        let mut left = 1.0;
        let rates = known.filter(|(trigger, _)| chart.valid_triggers(state).contains(trigger));
        let rates = rates.map(|(trigger, rate)| {
            let rate = f64::min(rate, left);
            left -= rate;
            TriggerRate { trigger, rate }
        });
        (state, rates.collect())
    };
    let by_state = chart.states().map(of).collect();
    let rates = RateTable::new(&chart, &[BehaviourRates { rates: Vec::new(), by_state }]).unwrap();
    let mut kernel = Kernel::new(Arc::clone(&chart), rates, SimulationSeed(42));
    for serial in 0..u64::from(agents) {
        kernel
            .add(AgentSerial(serial), DrawKey(serial), BehaviourId(0), chart.initial(), &[])
            .unwrap();
    }
    kernel
}

fn time(pool: &ThreadPool, chart: &str, agents: u32, ticks: u32) -> Duration {
    let mut kernel = population(chart, agents);
    let began = cpu();
    kernel.ticks(1, ticks, pool);
    cpu().saturating_sub(began)
}

fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}
