//! The JSON format.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroU32;

use polity_statechart::{AgentTransition, Chart, ScalarValue};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{AgentRow, CheckpointHead, CheckpointTarget, checksum};
use crate::error::ensure;
use crate::kernel::{AgentSerial, AgentSnapshot, BehaviourId};
use crate::population::draw_key::draw_key;
use crate::scenario::Scenario;
use crate::simulation::Simulation;

/// An agent as written, without copies: there may be many of them after every turn.
#[derive(Serialize)]
struct AgentText<'a> {
    name: &'a str,
    state: StateText<'a>,
}

#[derive(Serialize)]
struct StateText<'a> {
    serial: u64,
    turn_added: u64,
    current_state: &'a str,
    ticks_in_state: u32,
    behaviour: Option<&'a str>,
    fields: FieldsText<'a>,
    #[serde(skip_serializing_if = "<[u8]>::is_empty")]
    memories: &'a [u8],
    state_history: HistoryText<'a>,
}

struct FieldsText<'a>(&'a Chart, &'a AgentSnapshot);

impl Serialize for FieldsText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(chart, snapshot) = self;
        let fields = chart.fields().iter().zip(&snapshot.fields);
        serializer.collect_map(
            fields.filter_map(|(field, value)| Some((&field.name, value.as_ref()?.to_json()))),
        )
    }
}

struct HistoryText<'a>(&'a Chart, &'a AgentSnapshot);

impl Serialize for HistoryText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(chart, snapshot) = self;
        serializer.collect_seq(snapshot.history.iter().map(|past| {
            let [from, to] = [past.from, past.to].map(|state| chart.state_name(state));
            (past.tick, from, to, chart.trigger_name(past.trigger))
        }))
    }
}

/// An agent's state as read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the state of an agent")]
struct StateJson {
    serial: u64,
    turn_added: u64,
    current_state: String,
    ticks_in_state: i64,
    behaviour: Option<String>,
    fields: Map<String, Value>,
    #[serde(default)]
    memories: Vec<u8>,
    /// Tick, state before, state after, trigger; oldest first.
    state_history: Vec<(u64, String, String, String)>,
}

/// Writes a checkpoint up to its last field, the checksum.
pub(super) fn write(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    let scenario = simulation.scenario();
    let (mut paused_agents, mut auto_resume) = (Vec::new(), BTreeMap::new());
    writeln!(out, "{{\n\"turn\": {},\n\"agents\": {{", simulation.turn())?;
    for (place, row) in simulation.rows().enumerate() {
        if row.snapshot.paused {
            paused_agents.push(row.name.clone());
            auto_resume.extend(row.auto_resume.map(|turns| (row.name.clone(), turns)));
        }
        if place > 0 {
            out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *out, &row.name)?;
        out.write_all(b": ")?;
        let agent = AgentText { name: &row.name, state: state_text(scenario, &row) };
        serde_json::to_writer(&mut *out, &agent)?;
    }
    out.write_all(b"\n},\n\"paused_agents\": ")?;
    serde_json::to_writer(&mut *out, &paused_agents)?;
    out.write_all(b",\n\"auto_resume\": ")?;
    serde_json::to_writer(&mut *out, &auto_resume)?;
    out.write_all(b",\n\"global_state\": ")?;
    serde_json::to_writer(&mut *out, &CheckpointHead::new(simulation))?;
    Ok(())
}

fn state_text<'a>(scenario: &'a Scenario, row: &'a AgentRow) -> StateText<'a> {
    let (chart, snapshot) = (&*scenario.chart, &row.snapshot);
    let behaviour = scenario.behaviours[usize::from(snapshot.behaviour.0)].name.as_str();
    StateText {
        serial: snapshot.serial.0,
        turn_added: row.turn_added,
        current_state: chart.state_name(snapshot.state),
        ticks_in_state: snapshot.ticks_in_state,
        behaviour: Some(behaviour).filter(|name| !name.is_empty()),
        fields: FieldsText(chart, snapshot),
        memories: &snapshot.last_active,
        state_history: HistoryText(chart, snapshot),
    }
}

/// A checkpoint as read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a checkpoint")]
struct CheckpointJson {
    turn: u64,
    #[serde(deserialize_with = "without_repeats")]
    agents: Map<String, Value>,
    paused_agents: Vec<String>,
    auto_resume: Map<String, Value>,
    global_state: CheckpointHead,
    #[serde(rename = "checksum")]
    _checksum: String,
}

/// Deserializes a mapping and rejects duplicate keys, of which the last would win silently.
fn without_repeats<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    deserializer.deserialize_map(UniqueKeysVisitor)
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("agents by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, value)) = entries.next_entry::<String, Value>()? {
            if map.contains_key(&name) {
                return Err(serde::de::Error::custom(format!(
                    "agent \"{name}\" stands there twice"
                )));
            }
            map.insert(name, value);
        }
        Ok(map)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an agent with name and state")]
struct AgentJson {
    name: String,
    state: StateJson,
}

/// Reads a simulation and returns its turn.
pub(super) fn read(
    bytes: &[u8],
    scenarios: [&Scenario; 2],
    restore: &mut impl CheckpointTarget,
) -> Result<u64, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())?;
    let sealed = checksum::check(text);
    // A truncated file is reported as such.
    parse(bytes).and_then(|document| sealed.and(Ok(document)))?.restore(scenarios, restore)
}

/// Reads a simulation without regard to its checksum, and returns its turn.
#[cfg(feature = "fuzz")]
pub(super) fn read_content(
    bytes: &[u8],
    scenarios: [&Scenario; 2],
    restore: &mut impl CheckpointTarget,
) -> Result<u64, String> {
    parse(bytes)?.restore(scenarios, restore)
}

fn parse(bytes: &[u8]) -> Result<CheckpointJson, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        let problem = if error.is_eof() { "truncated" } else { "damaged" };
        format!("it is {problem}: {}", describe(&error))
    })
}

impl CheckpointJson {
    /// Restores the simulation and returns its turn.
    fn restore(
        self,
        [written, scenario]: [&Scenario; 2],
        restore: &mut impl CheckpointTarget,
    ) -> Result<u64, String> {
        let Self { turn, agents, paused_agents, auto_resume, global_state, _checksum: _ } = self;
        global_state.check_origin(written)?;
        global_state.check(scenario)?;
        let pauses = pauses(&agents, paused_agents, &auto_resume)?;
        let mut rows = Vec::with_capacity(agents.len());
        for (key, agent) in agents {
            let row = agent_row(&key, agent, scenario, &pauses)
                .and_then(|row| row.check(scenario, &global_state).map(|()| row))
                .map_err(|reason| format!("agent \"{key}\": {reason}"))?;
            rows.push(row);
        }
        rows.sort_by_key(|row| row.snapshot.serial);
        let alike = |pair: &&[AgentRow]| pair[0].snapshot.serial == pair[1].snapshot.serial;
        if let Some([first, second]) = rows.windows(2).find(alike) {
            let (first, second) = (&first.name, &second.name);
            return Err(format!("agent \"{second}\": \"{first}\" has the same serial"));
        }
        restore.head(turn, &global_state)?;
        for row in rows {
            let name = row.name.clone();
            restore.agent(row).map_err(|reason| format!("agent \"{name}\": {reason}"))?;
        }
        Ok(turn)
    }
}

/// Describes a JSON error without the names of Rust types.
pub(super) fn describe(error: &serde_json::Error) -> String {
    let words = [
        ("u64", "a whole number of 0 or more"),
        ("i64", "a whole number"),
        ("u32", "a whole number of 0 or more"),
        ("u8", "a whole number from 0 to 255"),
        ("f64", "a number"),
    ];
    words.into_iter().fold(error.to_string(), |message, (name, word)| {
        message.replace(&format!("expected {name}"), &format!("expected {word}"))
    })
}

/// The paused agents, with the number of turns if the pause ends by itself.
type AgentPauses = BTreeMap<String, Option<NonZeroU32>>;

fn pauses(
    agents: &Map<String, Value>,
    paused_agents: Vec<String>,
    auto_resume: &Map<String, Value>,
) -> Result<AgentPauses, String> {
    let mut pauses = AgentPauses::new();
    for name in paused_agents {
        let is_known = agents.contains_key(&name);
        ensure!(is_known, "agent \"{name}\": it is paused, and there is no such agent");
        let is_new = !pauses.contains_key(&name);
        ensure!(is_new, "agent \"{name}\": it stands in paused_agents twice");
        pauses.insert(name, None);
    }
    for (name, turns) in auto_resume {
        let pause = pauses.get_mut(name).ok_or_else(|| {
            format!("agent \"{name}\": it stands in auto_resume, and it is not paused")
        })?;
        let number = turns.as_u64().and_then(|turns| u32::try_from(turns).ok());
        let number = number.and_then(NonZeroU32::new).ok_or_else(|| {
            let most = u32::MAX;
            format!("agent \"{name}\": auto_resume must be a whole number from 1 to {most}, found {turns}")
        })?;
        *pause = Some(number);
    }
    Ok(pauses)
}

fn agent_row(
    key: &str,
    agent: Value,
    scenario: &Scenario,
    pauses: &AgentPauses,
) -> Result<AgentRow, String> {
    let AgentJson { name, state } =
        serde_json::from_value(agent).map_err(|error| describe(&error))?;
    ensure!(name == key, "its name inside is \"{name}\"");
    let chart = &*scenario.chart;
    let ticks_in_state = u32::try_from(state.ticks_in_state).map_err(|_| {
        format!("ticks_in_state must be from 0 to {}, found {}", u32::MAX, state.ticks_in_state)
    })?;
    let known =
        |name: &str| chart.state(name).ok_or_else(|| format!("the chart has no state \"{name}\""));
    let current = known(&state.current_state)?;
    let behaviour = match &state.behaviour {
        None => Some(0),
        Some(name) => scenario.behaviours.iter().position(|behaviour| behaviour.name == *name),
    };
    let behaviour =
        behaviour.and_then(|place| u8::try_from(place).ok()).map(BehaviourId).ok_or_else(|| {
            format!("the scenario has no behaviour \"{}\"", state.behaviour.unwrap_or_default())
        })?;
    let memories = chart.history_defaults().len();
    ensure!(state.memories.len() == memories, "its memories are not those of the chart");
    let mut history = Vec::with_capacity(state.state_history.len());
    for (tick, from, to, trigger) in &state.state_history {
        let trigger = chart
            .trigger(trigger)
            .ok_or_else(|| format!("the chart has no trigger \"{trigger}\""))?;
        let (from, to) = (known(from)?, known(to)?);
        history.push(AgentTransition { from, to, trigger, tick: *tick, context: None });
    }
    let snapshot = AgentSnapshot {
        serial: AgentSerial(state.serial),
        key: draw_key(&name, state.turn_added),
        behaviour,
        state: current,
        ticks_in_state,
        paused: pauses.contains_key(key),
        fields: fields(chart, &state.fields)?,
        last_active: state.memories,
        history,
    };
    let auto_resume = pauses.get(key).copied().flatten();
    Ok(AgentRow { name, turn_added: state.turn_added, auto_resume, snapshot })
}

fn fields(chart: &Chart, written: &Map<String, Value>) -> Result<Vec<Option<ScalarValue>>, String> {
    if let Some(unknown) = written.keys().find(|name| chart.field(name).is_none()) {
        return Err(format!("the chart has no field \"{unknown}\""));
    }
    let fields = chart.fields().iter().map(|field| match written.get(&field.name) {
        None => Ok(None),
        Some(value) => ScalarValue::from_json(value)
            .map(Some)
            .ok_or_else(|| format!("{} must be a number, a text, true or false", field.name)),
    });
    fields.collect()
}
