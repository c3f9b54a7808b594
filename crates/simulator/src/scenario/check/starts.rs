//! How agents begin, and the world, held against the chart.

use polity_statechart::{Chart, FieldId, ScalarValue, StateId, WorldId};
use serde_json::{Map, Value};

use super::{BEHAVIOUR, STATE};
use crate::kernel::BehaviourId;
use crate::scenario::{Behaviour, Start};

/// What is wrong with a value, before it is said where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::scenario) enum Fault {
    Unknown { what: &'static str, found: String, allowed: Vec<String> },
    Other(String),
}

impl Fault {
    pub(in crate::scenario) fn in_words(&self, place: &str) -> String {
        match self {
            Self::Unknown { what, found, allowed } if allowed.is_empty() => {
                format!("{place}: there is no {what} \"{found}\"")
            }
            Self::Unknown { what, found, allowed } => {
                format!("{place}: there is no {what} \"{found}\"; allowed: {}", allowed.join(", "))
            }
            Self::Other(message) => format!("{place}: {message}"),
        }
    }
}

/// How an agent begins; or all that is wrong, and with which keys.
pub(in crate::scenario) fn start(
    chart: &Chart,
    behaviours: &[Behaviour],
    initial: &Map<String, Value>,
) -> Result<Start, Vec<(String, Fault)>> {
    let mut start = Start { state: chart.initial(), fields: Vec::new(), behaviour: BehaviourId(0) };
    let mut faults = Vec::new();
    for (key, value) in initial {
        let taken = match (key.as_str(), value) {
            (STATE, Value::String(name)) => state_of(chart, name).map(|state| start.state = state),
            (BEHAVIOUR, Value::String(name)) => {
                behaviour_of(behaviours, name).map(|behaviour| start.behaviour = behaviour)
            }
            (STATE | BEHAVIOUR, _) => Err(Fault::Other("must be a text".to_owned())),
            (name, value) => field_of(chart, name, value).map(|field| start.fields.push(field)),
        };
        faults.extend(taken.err().map(|fault| (key.clone(), fault)));
    }
    if faults.is_empty() { Ok(start) } else { Err(faults) }
}

/// The field of a name, with the value as the chart has it.
fn field_of(chart: &Chart, name: &str, value: &Value) -> Result<(FieldId, ScalarValue), Fault> {
    let field = chart.field(name).ok_or_else(|| {
        let fields = chart.fields().iter().map(|field| field.name.clone());
        Fault::Unknown { what: "field", found: name.to_owned(), allowed: fields.collect() }
    })?;
    let value = value_of(value)?;
    chart.check_field(field, &value).map_err(Fault::Other)?;
    Ok((field, value))
}

pub(super) fn state_of(chart: &Chart, name: &str) -> Result<StateId, Fault> {
    chart.state(name).ok_or_else(|| {
        if let Some(inside) = chart.child_names(name) {
            return Fault::Other(format!(
                "\"{name}\" has others inside, and agents are in those: name {}",
                inside.join(" or ")
            ));
        }
        let states = chart.states().map(|state| chart.state_name(state).to_owned());
        Fault::Unknown { what: "state", found: name.to_owned(), allowed: states.collect() }
    })
}

fn behaviour_of(behaviours: &[Behaviour], name: &str) -> Result<BehaviourId, Fault> {
    let place = behaviours.iter().skip(1).position(|behaviour| behaviour.name == name);
    place.and_then(|place| u8::try_from(place + 1).ok()).map(BehaviourId).ok_or_else(|| {
        let allowed = behaviours.iter().skip(1).map(|behaviour| behaviour.name.clone()).collect();
        Fault::Unknown { what: "behaviour", found: name.to_owned(), allowed }
    })
}

/// The value of the world of a name, as the chart has it.
pub(super) fn world_of(
    chart: &Chart,
    name: &str,
    value: &Value,
) -> Result<(WorldId, ScalarValue), Fault> {
    let world = chart.world(name).ok_or_else(|| {
        let worlds = chart.world_values().iter().map(|world| world.name.clone());
        Fault::Unknown {
            what: "value of the world",
            found: name.to_owned(),
            allowed: worlds.collect(),
        }
    })?;
    let value = value_of(value)?;
    chart.check_world(world, &value).map_err(Fault::Other)?;
    Ok((world, value))
}

fn value_of(json: &Value) -> Result<ScalarValue, Fault> {
    let no_value = || Fault::Other("must be a number, a text, true or false".to_owned());
    ScalarValue::from_json(json).ok_or_else(no_value)
}
