//! Exports to Mermaid and SCXML, parsed and executed by third-party libraries.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use polity_diagram::chart_to_mermaid;
use polity_engine::entropy::Entropy;
use polity_statechart::{Chart, ChartInstance, FireContext, WorldChange};
use polity_testkit::peers;
use serde_json::{Value, json};

use crate::sandbox::HomeSandbox;

/// The number of random charts in a normal run and in a long run.
const CHARTS: u64 = 150;
const CHARTS_LONG: u64 = 2000;

const EVENTS: usize = 40;

/// Returns the script's reply to each line.
fn run_script(script: &str, lines: &[Value]) -> Vec<Value> {
    let mut command = Command::new("node");
    command.current_dir(peers::charts()).arg(peers::script(&format!("npm-charts/{script}")));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut input = String::new();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{script}: {:?}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let replies: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(replies.len(), lines.len(), "{text}");
    replies
}

/// A seeded random source.
struct RandomChoices(Entropy);

impl RandomChoices {
    fn new(seed: u64) -> Self {
        Self(Entropy::from_seed(
            u128::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes(),
        ))
    }

    /// Returns a number below the limit.
    fn below(&mut self, limit: usize) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let number = (self.0.fraction() * limit as f64) as usize;
        number.min(limit - 1)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// A state of a random chart, with its children.
struct RandomState {
    name: String,
    history: bool,
    inside: Vec<RandomState>,
}

impl RandomState {
    fn random(name: String, depth: usize, dice: &mut RandomChoices) -> Self {
        let count = if depth < 3 && dice.chance(2) { 2 + dice.below(2) } else { 0 };
        let inside: Vec<Self> = (0..count)
            .map(|child| Self::random(format!("{name}{child}"), depth + 1, dice))
            .collect();
        Self { history: !inside.is_empty() && dice.chance(3), name, inside }
    }

    fn write(&self, dice: &mut RandomChoices, text: &mut String) {
        if self.inside.is_empty() && !dice.chance(3) {
            text.push_str(&self.name);
            return;
        }
        write!(text, "{{name: {}", self.name).unwrap();
        if dice.chance(2) {
            write!(text, ", entry: {}", dice.one(&ACTIONS)).unwrap();
        }
        if dice.chance(2) {
            write!(text, ", exit: {}", dice.one(&ACTIONS)).unwrap();
        }
        if !self.inside.is_empty() {
            let initial = &self.inside[dice.below(self.inside.len())].name;
            let history = if self.history { ", history: shallow" } else { "" };
            write!(text, ", initial: {initial}{history}, states: [").unwrap();
            for (index, child) in self.inside.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                child.write(dice, text);
            }
            text.push(']');
        }
        text.push('}');
    }

    /// Returns its name and those of all descendants, with "has history" and "is a leaf".
    fn names(&self) -> Vec<(&str, bool, bool)> {
        let mut names = vec![(self.name.as_str(), self.history, self.inside.is_empty())];
        names.extend(self.inside.iter().flat_map(RandomState::names));
        names
    }
}

const ACTIONS: [&str; 4] = [
    "add agent.n = 1",
    "set agent.n = 0",
    "set agent.m = agent.n * 2 + 1",
    "add world.w = agent.n + 1",
];

const GUARDS: [&str; 6] = [
    "agent.n < 2",
    "agent.n >= 3",
    "agent.m > agent.n",
    "agent.m - agent.n < 1",
    "agent.n == 1 || agent.m == 1",
    "!(agent.n > 1 && agent.m > 1)",
];

const TRIGGERS: [&str; 3] = ["one", "two", "three"];

/// Generates a chart with nested states. Some are invalid.
fn random_chart(seed: u64) -> String {
    let mut dice = RandomChoices::new(seed);
    let dice = &mut dice;
    let states: Vec<RandomState> = (0..2 + dice.below(3))
        .map(|number| RandomState::random(format!("s{number}"), 1, dice))
        .collect();
    let mut text =
        String::from("name: random\nfields: {n: 0, m: 1}\nworld: {w: 0}\nstates: [first");
    for state in &states {
        text.push_str(", ");
        state.write(dice, &mut text);
    }
    text.push_str("]\ninitial: first\ntransitions:\n");
    let names: Vec<(&str, bool, bool)> = states.iter().flat_map(RandomState::names).collect();
    // Every state is reachable.
    let mut before = "first";
    for (name, _, _) in names.iter().filter(|(_, _, is_leaf)| *is_leaf) {
        writeln!(text, "  - {{trigger: next, source: {before}, target: {name}}}").unwrap();
        before = name;
    }
    writeln!(text, "  - {{trigger: next, source: {before}, target: first}}").unwrap();
    for _ in 0..4 + dice.below(8) {
        let (source, _, _) = names[dice.below(names.len())];
        let (target, _, _) = names[dice.below(names.len())];
        // SCXML re-enters a history that leads back to the current state, and Polity does not.
        let leads_back = (source.starts_with(target) || target.starts_with(source))
            && names.iter().any(|(name, history, _)| *history && name.starts_with(target));
        if leads_back {
            continue;
        }
        let trigger = dice.one(&TRIGGERS);
        write!(text, "  - {{trigger: {trigger}, source: {source}, target: {target}").unwrap();
        if !dice.chance(5) {
            write!(text, ", guard: '{}'", dice.one(&GUARDS)).unwrap();
        }
        if dice.chance(2) {
            write!(text, ", action: {}", dice.one(&ACTIONS)).unwrap();
        }
        text.push_str("}\n");
    }
    if dice.chance(2) {
        let (state, _, _) = names[dice.below(names.len())];
        writeln!(text, "timeouts: [{{state: {state}, threshold: 5, target: first}}]").unwrap();
    }
    text
}

/// Returns the state, fields and world after each event, in the script's format.
fn agent_path(chart: &Arc<Chart>, events: &[&str]) -> Value {
    let mut agent = ChartInstance::new(Arc::clone(chart));
    let context: FireContext = chart.context(&Value::Null);
    let mut w = 0.0;
    let snapshot = |agent: &ChartInstance, w: f64| {
        let fields = ["m", "n"].map(|name| {
            let value = agent.field(chart.field(name).unwrap()).unwrap();
            (name, value.to_json())
        });
        let state = chart.state_name(agent.state());
        json!({"states": [state], "agent": BTreeMap::from(fields), "world": {"w": number(w)}})
    };
    let mut path = vec![snapshot(&agent, w)];
    for event in events {
        if let Some(trigger) = chart.trigger(event) {
            agent.fire(trigger, &context);
        }
        for change in agent.take_changes() {
            match change {
                WorldChange::Add(_, more) => w += more,
                WorldChange::Set(..) => panic!("no action sets the world"),
            }
        }
        path.push(snapshot(&agent, w));
    }
    path.into()
}

/// Whole numbers have no decimal point.
fn number(number: f64) -> Value {
    polity_statechart::ScalarValue::Number(number).to_json()
}

#[test]
fn scxml_behaves_alike_in_another_interpreter() {
    let is_long = std::env::var_os("POLITY_TEST_LONG").is_some();
    let wanted = if is_long { CHARTS_LONG } else { CHARTS };
    let mut charts = Vec::new();
    for seed in 0.. {
        let text = random_chart(seed);
        if let Ok(chart) = Chart::from_text(&text) {
            let mut dice = RandomChoices::new(!seed);
            let all = [&TRIGGERS[..], &["next", "next", "timeout"]].concat();
            let events: Vec<&str> = (0..EVENTS).map(|_| dice.one(&all)).collect();
            charts.push((seed, text, Arc::new(chart), events));
        }
        if charts.len() as u64 == wanted {
            break;
        }
    }
    let lines: Vec<Value> = charts
        .iter()
        .map(|(_, _, chart, events)| json!({"scxml": chart.to_scxml(), "events": events}))
        .collect();
    for ((seed, text, chart, events), theirs) in charts.iter().zip(run_script("scxml.cjs", &lines))
    {
        let ours = agent_path(chart, events);
        assert_eq!(ours.as_array().unwrap().len(), theirs.as_array().unwrap().len());
        let steps = ours.as_array().unwrap().iter().zip(theirs.as_array().unwrap());
        let parted = steps.enumerate().find(|(_, (ours, theirs))| ours != theirs);
        if let Some((step, (ours, theirs))) = parted {
            let event = step.checked_sub(1).map(|step| events[step]);
            panic!(
                "chart {seed}, step {step} {event:?}: {ours} and not {theirs}\n{text}\n{}",
                chart.to_scxml()
            );
        }
    }
}

#[test]
fn mermaid_parses_the_exported_charts() {
    let sandbox = HomeSandbox::empty();
    let mut diagrams = Vec::new();
    for (example, command, name, expected) in [
        ("society", "chart", "social", "stateDiagram"),
        ("newsroom", "workflow", "newsroom", "flowchart-v2"),
    ] {
        let home = sandbox.file(example);
        let home = home.to_str().unwrap();
        sandbox.polity(&["init", home, "--example", example]).exits(0);
        let drawn =
            sandbox.polity(&["--home", home, command, "graph", name, "--format", "mermaid"]);
        assert_eq!(drawn.code, 0, "{drawn:?}");
        diagrams.push((drawn.out, expected));
    }
    let charts = (0..CHARTS).filter_map(|seed| Chart::from_text(&random_chart(seed)).ok());
    diagrams.extend(charts.map(|chart| (chart_to_mermaid(&chart), "stateDiagram")));
    assert!(diagrams.len() > 50, "most random charts are valid");
    // Keywords of Mermaid work as names.
    let keywords = "name: words\nstates: [note, end, {name: state, initial: class, states: [class, fork]}]\n\
        initial: note\ntransitions:\n  - {trigger: style, source: note, target: end}\n  \
        - {trigger: click, source: end, target: state}\n  - {trigger: direction, source: class, target: fork, \
        guard: 'draw() < 0.5 && chance(0.25)'}\n";
    diagrams.push((chart_to_mermaid(&Chart::from_text(keywords).unwrap()), "stateDiagram"));
    let lines: Vec<Value> = diagrams.iter().map(|(text, _)| text.as_str().into()).collect();
    for ((text, expected), read) in diagrams.iter().zip(run_script("mermaid.cjs", &lines)) {
        assert_eq!(read, *expected, "{text}");
    }
}
