//! The compact format: binary, agent by agent, with a checksum at the end.
//!
//! ```text
//! "polity simulation\n"
//! the head as JSON, the number of agents
//! for each agent: serial, name, turn added, pause, state, ticks, behaviour, fields, last active children, history
//! the SHA-256 of all that
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroU32;

use polity_statechart::{AgentTransition, Chart};

use super::codec::{CheckpointDecoder, CheckpointEncoder, wrong};
use super::{AgentRow, CheckpointHead, CheckpointTarget, StateDigest, json};
use crate::error::ensure;
use crate::kernel::{AgentSerial, AgentSnapshot, BehaviourId};
use crate::population::draw_key::draw_key;
use crate::scenario::Scenario;
use crate::simulation::Simulation;

const MAGIC: &[u8; 18] = b"polity simulation\n";

/// Precedes a missing value.
const UNSET: u8 = 0;
/// Precedes a value.
const SET: u8 = 1;

const ACTIVE: u8 = 0;
const PAUSED: u8 = 1;
const PAUSED_FOR: u8 = 2;

pub(super) fn write(simulation: &Simulation, out: &mut impl Write) -> io::Result<StateDigest> {
    let mut encoder = CheckpointEncoder::new(&mut *out);
    encoder.bytes(MAGIC)?;
    encoder.text(&serde_json::to_string(&CheckpointHead::new(simulation))?)?;
    encoder.number(simulation.len())?;
    let chart = &*simulation.scenario().chart;
    for row in simulation.rows() {
        write_agent(chart, &row, &mut encoder)?;
    }
    let (digest, out) = encoder.finish()?;
    out.write_all(&digest)?;
    Ok(digest)
}

fn write_agent(
    chart: &Chart,
    row: &AgentRow,
    encoder: &mut CheckpointEncoder<impl Write>,
) -> io::Result<()> {
    let AgentRow { name, turn_added, auto_resume, snapshot } = row;
    encoder.number(snapshot.serial.0)?;
    encoder.text(name)?;
    encoder.number(*turn_added)?;
    match (snapshot.paused, auto_resume) {
        (false, _) => encoder.byte(ACTIVE)?,
        (true, None) => encoder.byte(PAUSED)?,
        (true, Some(turns)) => {
            encoder.byte(PAUSED_FOR)?;
            encoder.number(turns.get().into())?;
        }
    }
    encoder.byte(snapshot.state.get())?;
    encoder.number(snapshot.ticks_in_state.into())?;
    encoder.byte(snapshot.behaviour.0)?;
    for field in &snapshot.fields {
        match field {
            None => encoder.byte(UNSET)?,
            Some(value) => {
                encoder.byte(SET)?;
                encoder.value(value)?;
            }
        }
    }
    encoder.bytes(&snapshot.last_active)?;
    encoder.number(snapshot.history.len() as u64)?;
    let mut before = 0;
    for AgentTransition { from, to, trigger, tick, .. } in &snapshot.history {
        encoder.number(tick - before)?;
        before = *tick;
        encoder.byte(to.get())?;
        let code = chart.arrival_code(*to, *from, *trigger);
        encoder.byte(code.ok_or_else(|| wrong("a transition is none of the chart"))?)?;
    }
    Ok(())
}

/// Reads a simulation and returns its turn.
pub(super) fn read(
    input: impl Read,
    [written, scenario]: [&Scenario; 2],
    restore: &mut impl CheckpointTarget,
) -> Result<u64, String> {
    let mut decoder = CheckpointDecoder::new(input);
    let mut magic = [0; MAGIC.len()];
    decoder.bytes(&mut magic).map_err(|error| describe(&error, "its first bytes"))?;
    ensure!(&magic == MAGIC, "it is not the checkpoint of a simulation");
    let of_head = |error: io::Error| describe(&error, "its head");
    let head: CheckpointHead = serde_json::from_str(&decoder.text().map_err(of_head)?)
        .map_err(|error| format!("its head is damaged: {}", json::describe(&error)))?;
    head.check_origin(written)?;
    head.check(scenario)?;
    let turn = head.tick / scenario.kernel_ticks();
    restore.head(turn, &head)?;
    let count = decoder.number().map_err(of_head)?;
    let mut last = None;
    for number in 1..=count {
        let row = read_agent(&mut decoder, scenario)
            .map_err(|error| describe(&error, &format!("agent {number} of {count}")))?;
        let name = row.name.clone();
        let broken = |reason: String| format!("agent \"{name}\": {reason}");
        let is_next = last.is_none_or(|last| row.snapshot.serial > last);
        ensure!(is_next, "agent \"{name}\": it stands in the wrong place");
        last = Some(row.snapshot.serial);
        row.check(scenario, &head).map_err(broken)?;
        restore.agent(row).map_err(broken)?;
    }
    let (digest, mut rest) = decoder.finish();
    let mut written = [0; 32];
    rest.read_exact(&mut written).map_err(|error| describe(&error, "its checksum"))?;
    ensure!(written == digest, "it is damaged: its checksum is another one");
    match rest.read(&mut [0]) {
        Ok(0) => Ok(turn),
        Ok(_) => Err("it is damaged: something stands behind its end".to_owned()),
        Err(error) => Err(describe(&error, "its end")),
    }
}

fn read_agent(
    decoder: &mut CheckpointDecoder<impl Read>,
    scenario: &Scenario,
) -> io::Result<AgentRow> {
    let chart = &*scenario.chart;
    let serial = AgentSerial(decoder.number()?);
    let name = decoder.text()?;
    let turn_added = decoder.number()?;
    let (paused, auto_resume) = match decoder.byte()? {
        ACTIVE => (false, None),
        PAUSED => (true, None),
        PAUSED_FOR => {
            let turns = u32::try_from(decoder.number()?).ok().and_then(NonZeroU32::new);
            (true, Some(turns.ok_or_else(|| wrong("auto_resume is not a number above 0"))?))
        }
        _ => return Err(wrong("it is neither paused nor not paused")),
    };
    let state_of = |number: u8| {
        let state = chart.states().nth(usize::from(number));
        state.ok_or_else(|| wrong(&format!("the chart has no state {number}")))
    };
    let state = state_of(decoder.byte()?)?;
    let ticks_in_state = u32::try_from(decoder.number()?).unwrap_or(u32::MAX);
    let behaviour = BehaviourId(decoder.byte()?);
    let mut fields = Vec::with_capacity(chart.fields().len());
    for _ in chart.fields() {
        fields.push(match decoder.byte()? {
            UNSET => None,
            SET => Some(decoder.value()?),
            _ => return Err(wrong("a field is neither set nor not set")),
        });
    }
    let mut last_active = vec![0; chart.history_defaults().len()];
    decoder.bytes(&mut last_active)?;
    let count = decoder.number()?;
    if count > chart.max_history_depth() as u64 {
        return Err(wrong("it remembers more than max_history_depth transitions"));
    }
    let mut history = Vec::new();
    let mut tick = 0u64;
    for _ in 0..count {
        tick = tick.saturating_add(decoder.number()?);
        let (to, code) = (state_of(decoder.byte()?)?, decoder.byte()?);
        let (from, trigger) = chart
            .decode_arrival(to, code)
            .ok_or_else(|| wrong("it remembers a transition that the chart does not have"))?;
        history.push(AgentTransition { from, to, trigger, tick, context: None });
    }
    let key = draw_key(&name, turn_added);
    let snapshot = AgentSnapshot {
        serial,
        key,
        behaviour,
        state,
        ticks_in_state,
        paused,
        fields,
        last_active,
        history,
    };
    Ok(AgentRow { name, turn_added, auto_resume, snapshot })
}

fn describe(error: &io::Error, place: &str) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => format!("it is truncated: it ends within {place}"),
        ErrorKind::InvalidData => format!("{place} is damaged: {error}"),
        _ => format!("{place} cannot be read: {error}"),
    }
}
