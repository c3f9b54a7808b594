//! Checks of initial states and initial world values against the chart.

use polity_statechart::{Chart, FieldId, ScalarValue, StateId, WorldId};
use serde_json::{Map, Value};

use super::{BEHAVIOUR, STATE};
use crate::kernel::BehaviourId;
use crate::scenario::{AgentStart, Behaviour};

/// A problem with a value, without its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::scenario) enum ValueProblem {
    Unknown { what: &'static str, found: String, allowed: Vec<String> },
    Other(String),
}

impl ValueProblem {
    pub(in crate::scenario) fn describe(&self, location: &str) -> String {
        match self {
            Self::Unknown { what, found, allowed } if allowed.is_empty() => {
                format!("{location}: there is no {what} \"{found}\"")
            }
            Self::Unknown { what, found, allowed } => {
                let allowed = allowed.join(", ");
                format!("{location}: there is no {what} \"{found}\"; allowed: {allowed}")
            }
            Self::Other(message) => format!("{location}: {message}"),
        }
    }
}

pub(super) fn unknown(
    what: &'static str,
    found: &str,
    allowed: impl Iterator<Item = String>,
) -> ValueProblem {
    ValueProblem::Unknown { what, found: found.to_owned(), allowed: allowed.collect() }
}

/// Resolves the start of an agent, or returns all problems by key.
pub(in crate::scenario) fn start(
    chart: &Chart,
    behaviours: &[Behaviour],
    initial: &Map<String, Value>,
) -> Result<AgentStart, Vec<(String, ValueProblem)>> {
    let mut start =
        AgentStart { state: chart.initial(), fields: Vec::new(), behaviour: BehaviourId(0) };
    let mut problems = Vec::new();
    for (key, value) in initial {
        let taken = match (key.as_str(), value) {
            (STATE, Value::String(name)) => state_of(chart, name).map(|state| start.state = state),
            (BEHAVIOUR, Value::String(name)) => {
                behaviour_of(behaviours, name).map(|behaviour| start.behaviour = behaviour)
            }
            (STATE | BEHAVIOUR, _) => Err(ValueProblem::Other("must be a text".to_owned())),
            (name, value) => field_of(chart, name, value).map(|field| start.fields.push(field)),
        };
        problems.extend(taken.err().map(|problem| (key.clone(), problem)));
    }
    if problems.is_empty() { Ok(start) } else { Err(problems) }
}

/// Finds a field and checks its value.
fn field_of(
    chart: &Chart,
    name: &str,
    value: &Value,
) -> Result<(FieldId, ScalarValue), ValueProblem> {
    let field = chart.field(name).ok_or_else(|| {
        unknown("field", name, chart.fields().iter().map(|field| field.name.clone()))
    })?;
    let value = value_of(value)?;
    chart.check_field(field, &value).map_err(ValueProblem::Other)?;
    Ok((field, value))
}

pub(super) fn state_of(chart: &Chart, name: &str) -> Result<StateId, ValueProblem> {
    chart.state(name).ok_or_else(|| {
        if let Some(inside) = chart.child_names(name) {
            return ValueProblem::Other(format!(
                "\"{name}\" has child states; name one of them: {}",
                inside.join(" or ")
            ));
        }
        unknown("state", name, chart.states().map(|state| chart.state_name(state).to_owned()))
    })
}

fn behaviour_of(behaviours: &[Behaviour], name: &str) -> Result<BehaviourId, ValueProblem> {
    let location = behaviours.iter().skip(1).position(|behaviour| behaviour.name == name);
    let found = location.and_then(|location| u8::try_from(location + 1).ok()).map(BehaviourId);
    found.ok_or_else(|| {
        let names = behaviours.iter().skip(1).map(|behaviour| behaviour.name.clone());
        unknown("behaviour", name, names)
    })
}

/// Finds a world value and checks its initial value.
pub(super) fn world_of(
    chart: &Chart,
    name: &str,
    value: &Value,
) -> Result<(WorldId, ScalarValue), ValueProblem> {
    let world = chart.world(name).ok_or_else(|| {
        let worlds = chart.world_values().iter().map(|world| world.name.clone());
        unknown("value of the world", name, worlds)
    })?;
    let value = value_of(value)?;
    chart.check_world(world, &value).map_err(ValueProblem::Other)?;
    Ok((world, value))
}

fn value_of(json: &Value) -> Result<ScalarValue, ValueProblem> {
    let no_value = || ValueProblem::Other("must be a number, a text, true or false".to_owned());
    ScalarValue::from_json(json).ok_or_else(no_value)
}
