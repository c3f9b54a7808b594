//! One trigger fired in a state of a chart, with its effects.

use std::sync::Arc;

use polity_engine::entropy::Entropy;
use polity_statechart::{
    AgentRef, AgentRequest, Chart, ChartInstance, FieldId, ScalarValue, StateId, WorldChange,
};
use serde_json::{Map, Value, json};

use crate::report::ErrorReport;

/// A trigger to fire.
#[derive(Debug, Clone, Default)]
pub struct ChartFiring {
    /// The trigger.
    pub trigger: String,
    /// The state of the agent; by default the initial one.
    pub state: Option<String>,
    /// The context that guards read: a JSON object or null.
    pub context: Value,
    /// The values of the agent's fields.
    pub fields: Vec<(String, Value)>,
    /// The seed of random draws.
    pub seed: u64,
}

/// The effects of a trigger.
#[derive(Debug, Clone)]
pub struct FiringOutcome {
    /// The state before.
    pub from: String,
    /// The state after; none if no transition fired.
    pub to: Option<String>,
    /// The changed fields with their new values.
    pub fields: Vec<(String, ScalarValue)>,
    /// The changes of the world: name, operation and value.
    pub world: Vec<(String, &'static str, ScalarValue)>,
    /// The lifecycle requests.
    pub requests: Vec<FiredRequest>,
    /// The guards and actions that could not be evaluated.
    pub warnings: Vec<String>,
}

/// A lifecycle request of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredRequest {
    /// The action.
    pub action: &'static str,
    /// The target; none for the agent itself.
    pub agent: Option<String>,
    /// The number of turns of a pause.
    pub turns: Option<u32>,
}

impl FiringOutcome {
    /// The JSON form. Empty lists are omitted.
    pub fn to_json(&self) -> Value {
        let fields: Map<String, Value> =
            self.fields.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
        let world = self.world.iter();
        let world: Vec<Value> = world
            .map(|(name, verb, value)| json!({"name": name, *verb: value.to_json()}))
            .collect();
        let requests = self.requests.iter();
        let requests: Vec<Value> = requests
            .map(|FiredRequest { action, agent, turns }| {
                json!({"action": action, "agent": agent, "turns": turns})
            })
            .collect();
        let mut outcome = json!({"from": self.from, "to": self.to});
        for (name, value, is_empty) in [
            ("fields", json!(fields), fields.is_empty()),
            ("world", json!(world), world.is_empty()),
            ("requests", json!(requests), requests.is_empty()),
            ("warnings", json!(self.warnings), self.warnings.is_empty()),
        ] {
            if !is_empty {
                outcome[name] = value;
            }
        }
        outcome
    }
}

/// Fires a trigger in a new agent of a chart.
pub fn fire_trigger(
    chart: &Arc<Chart>,
    firing: &ChartFiring,
) -> Result<FiringOutcome, ErrorReport> {
    let from = match &firing.state {
        None => chart.initial(),
        Some(name) => state_of(chart, name)?,
    };
    let trigger = chart.trigger(&firing.trigger).ok_or_else(|| {
        let triggers: Vec<_> =
            chart.triggers().map(|trigger| chart.trigger_name(trigger)).collect();
        let message =
            format!("the chart \"{}\" has no trigger \"{}\"", chart.name(), firing.trigger);
        ErrorReport::usage(message).hint(format!("its triggers are {}", triggers.join(", ")))
    })?;
    refuse_no_values(chart, &firing.context)?;
    let mut agent = ChartInstance::new(Arc::clone(chart)).in_state(from);
    for (name, value) in &firing.fields {
        let (field, value) = field_of(chart, name, value)?;
        agent.set_field(field, value).map_err(ErrorReport::usage)?;
    }
    let seed = firing.seed;
    let context = chart.context(&firing.context).with_draws(move |index| {
        let seed = (u128::from(seed) << 64) | u128::from(index);
        let mut entropy = Entropy::from_seed(seed.to_be_bytes());
        // Similar seeds give similar first numbers.
        for _ in 0..8 {
            entropy.fraction();
        }
        entropy.fraction()
    });
    let before = agent.clone();
    let to = agent.fire(trigger, &context);
    let warnings = agent
        .take_eval_errors()
        .into_iter()
        .map(|failure| {
            let (text, place) = chart.describe_site(failure.site);
            let place = place.map_or("action".to_owned(), |place| format!("{place}: guard"));
            format!("{place} \"{text}\": {}", chart.describe_error(&failure.error))
        })
        .collect();
    let (world, requests) = (agent.take_changes(), agent.take_requests());
    Ok(FiringOutcome {
        from: chart.state_name(from).to_owned(),
        to: to.map(|to| chart.state_name(to).to_owned()),
        fields: changed_fields(&before, &agent),
        world: world.iter().map(|change| change_in_parts(chart, change)).collect(),
        requests: requests.iter().map(request_in_parts).collect(),
        warnings,
    })
}

/// Rejects a context in which a name that the chart reads is not a scalar.
fn refuse_no_values(chart: &Chart, context: &Value) -> Result<(), ErrorReport> {
    let mut looked_at =
        chart.context_names().iter().filter_map(|name| Some((name, context.get(name)?)));
    match looked_at.find(|(_, value)| ScalarValue::from_json(value).is_none()) {
        Some((name, value)) => {
            let message = format!("--context: {name} is {value}");
            Err(ErrorReport::usage(message).hint("it must be a number, a text, true or false"))
        }
        None => Ok(()),
    }
}

/// The changed fields with their new values.
fn changed_fields(before: &ChartInstance, after: &ChartInstance) -> Vec<(String, ScalarValue)> {
    let chart = after.chart();
    let fields = chart.fields().iter();
    let changed = fields.filter_map(|field| {
        let id = chart.field(&field.name)?;
        let value = after.field(id)?;
        (before.field(id) != Some(value)).then(|| (field.name.clone(), value.clone()))
    });
    changed.collect()
}

/// The name, operation and value of a world change.
fn change_in_parts(chart: &Chart, change: &WorldChange) -> (String, &'static str, ScalarValue) {
    let (world, verb, value) = match change {
        WorldChange::Set(world, value) => (*world, "set", value.clone()),
        WorldChange::Add(world, number) => (*world, "add", ScalarValue::Number(*number)),
    };
    (chart.world_values()[world.index()].name.clone(), verb, value)
}

fn request_in_parts(request: &AgentRequest) -> FiredRequest {
    let (action, agent, turns) = match request {
        AgentRequest::Pause { who, turns } => ("pause", name_of(who), *turns),
        AgentRequest::Resume { name } => ("resume", Some(&**name), None),
        AgentRequest::Copy { name } => ("copy", name.as_deref(), None),
        AgentRequest::Remove { who } => ("remove", name_of(who), None),
    };
    FiredRequest { action, agent: agent.map(str::to_owned), turns }
}

fn name_of(who: &AgentRef) -> Option<&str> {
    match who {
        AgentRef::Requester => None,
        AgentRef::Named(name) => Some(name),
    }
}

fn state_of(chart: &Chart, name: &str) -> Result<StateId, ErrorReport> {
    chart.state(name).ok_or_else(|| {
        if let Some(inside) = chart.child_names(name) {
            let message = format!(
                "the state \"{name}\" has child states, and an agent is always in one of those"
            );
            let hint = format!("its child states are {}", inside.join(", "));
            return ErrorReport::usage(message).hint(hint);
        }
        let states: Vec<_> = chart.states().map(|state| chart.state_name(state)).collect();
        let message = format!("the chart \"{}\" has no state \"{name}\"", chart.name());
        ErrorReport::usage(message).hint(format!("its states are {}", states.join(", ")))
    })
}

fn field_of(
    chart: &Chart,
    name: &str,
    value: &Value,
) -> Result<(FieldId, ScalarValue), ErrorReport> {
    let field = chart.field(name).ok_or_else(|| {
        let fields: Vec<_> = chart.fields().iter().map(|field| field.name.as_str()).collect();
        let message = format!("the chart \"{}\" has no field \"{name}\"", chart.name());
        ErrorReport::usage(message).hint(format!("its fields are {}", fields.join(", ")))
    })?;
    let value = ScalarValue::from_json(value).ok_or_else(|| {
        ErrorReport::usage(format!("{name} must be a number, a text, true or false"))
    })?;
    Ok((field, value))
}
