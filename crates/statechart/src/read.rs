//! From a document to a chart as it was written, with all that cannot be read.
//!
//! What is missing stays empty here; the checks that follow ask for it.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use crate::compile::too_deep;
use crate::error::ChartError;
use crate::source::{
    ChartSource, FieldSource, GuardSource, StateSource, States, ThresholdSource, TimeoutSource,
    TransitionSource,
};
use crate::value::Value;

/// How deep states may be nested.
pub const STATE_DEPTH_MAX: usize = 16;

pub(crate) fn read(document: &Json) -> (ChartSource, Vec<ChartError>) {
    let mut reader = Reader { errors: Vec::new() };
    let source = reader.chart(document);
    (source, reader.errors)
}

const CHART: [&str; 9] = [
    "name",
    "states",
    "initial",
    "transitions",
    "timeouts",
    "oracle_default",
    "fields",
    "world",
    "max_history_depth",
];
const STATE: [&str; 6] = ["name", "states", "initial", "entry", "exit", "history"];
const TRANSITION: [&str; 6] = ["trigger", "source", "target", "guard", "action", "oracle"];
const TIMEOUT: [&str; 4] = ["state", "threshold", "target", "action"];
const FIELD: [&str; 3] = ["default", "min", "max"];

struct Reader {
    errors: Vec<ChartError>,
}

impl Reader {
    fn wrong(&mut self, place: &str, wanted: &str, found: &Json) {
        let name = place.rsplit('.').next().unwrap_or(place);
        let subject = if name.is_empty() { "a chart" } else { name };
        let message = format!("{subject} must be {wanted}, found {}", in_words(found));
        self.errors.push(ChartError::new(place, message));
    }

    /// The mapping at a place, in which nothing but `allowed` may stand.
    fn mapping<'j>(
        &mut self,
        place: &str,
        json: &'j Json,
        allowed: &[&str],
    ) -> Option<&'j Map<String, Json>> {
        let Json::Object(mapping) = json else {
            self.wrong(place, "a mapping", json);
            return None;
        };
        for key in mapping.keys().filter(|key| !allowed.contains(&key.as_str())) {
            let error = ChartError::new(join(place, key), format!("unknown field \"{key}\""));
            self.errors.push(error.one_of(key, allowed.iter().copied()));
        }
        Some(mapping)
    }

    fn list<'j>(&mut self, place: &str, json: Option<&'j Json>) -> &'j [Json] {
        match json {
            None | Some(Json::Null) => &[],
            Some(Json::Array(items)) => items,
            Some(other) => {
                self.wrong(place, "a list", other);
                &[]
            }
        }
    }

    fn text(&mut self, place: &str, json: Option<&Json>) -> String {
        self.optional_text(place, json).unwrap_or_default()
    }

    fn optional_text(&mut self, place: &str, json: Option<&Json>) -> Option<String> {
        match json {
            None | Some(Json::Null) => None,
            Some(Json::String(text)) => Some(text.clone()),
            Some(other) => {
                self.wrong(place, "a text", other);
                None
            }
        }
    }

    /// One text, or a list of them.
    fn texts(&mut self, place: &str, json: Option<&Json>) -> Vec<String> {
        match json {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::String(text)) => vec![text.clone()],
            Some(Json::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.text(&format!("{place}[{index}]"), Some(item)))
                .collect(),
            Some(other) => {
                self.wrong(place, "a text or a list of texts", other);
                Vec::new()
            }
        }
    }

    fn flag(&mut self, place: &str, json: Option<&Json>) -> bool {
        match json {
            None | Some(Json::Null) => false,
            Some(Json::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(place, "true or false", other);
                false
            }
        }
    }

    fn number(&mut self, place: &str, json: Option<&Json>) -> Option<f64> {
        match json {
            None | Some(Json::Null) => None,
            Some(Json::Number(number)) => number.as_f64(),
            Some(other) => {
                self.wrong(place, "a number", other);
                None
            }
        }
    }

    fn chart(&mut self, json: &Json) -> ChartSource {
        let Some(chart) = self.mapping("", json, &CHART) else { return ChartSource::default() };
        ChartSource {
            name: self.text("name", chart.get("name")),
            states: self.states("states", chart.get("states"), 0),
            initial: self.text("initial", chart.get("initial")),
            transitions: self.transitions(chart.get("transitions")),
            timeouts: self.timeouts(chart.get("timeouts")),
            oracle_default: self.optional_text("oracle_default", chart.get("oracle_default")),
            fields: self.fields(chart.get("fields")),
            world: self.world(chart.get("world")),
            max_history_depth: self.depth(chart.get("max_history_depth")),
            context: Vec::new(),
        }
    }

    fn depth(&mut self, json: Option<&Json>) -> Option<usize> {
        let json = json.filter(|json| !json.is_null())?;
        let depth = json.as_u64().and_then(|depth| usize::try_from(depth).ok());
        if depth.is_none() {
            self.wrong("max_history_depth", "a whole number from 1", json);
        }
        depth
    }

    fn states(&mut self, place: &str, json: Option<&Json>, depth: usize) -> Vec<StateSource> {
        let items = self.list(place, json);
        if depth == STATE_DEPTH_MAX && !items.is_empty() {
            self.errors.push(too_deep(place));
            return Vec::new();
        }
        let states = items.iter().enumerate();
        states.map(|(index, item)| self.state(&format!("{place}[{index}]"), item, depth)).collect()
    }

    fn state(&mut self, place: &str, json: &Json, depth: usize) -> StateSource {
        if let Json::String(name) = json {
            return StateSource::new(name);
        }
        if !json.is_object() {
            self.wrong(place, "a name or a mapping", json);
            return StateSource::default();
        }
        let Some(state) = self.mapping(place, json, &STATE) else { return StateSource::default() };
        let at = |name: &str| join(place, name);
        StateSource {
            name: self.text(&at("name"), state.get("name")),
            states: self.states(&at("states"), state.get("states"), depth + 1),
            initial: self.optional_text(&at("initial"), state.get("initial")),
            entry: self.texts(&at("entry"), state.get("entry")),
            exit: self.texts(&at("exit"), state.get("exit")),
            history: self.history(&at("history"), state.get("history")),
        }
    }

    fn history(&mut self, place: &str, json: Option<&Json>) -> bool {
        let Some(history) = self.optional_text(place, json) else { return false };
        if history != "shallow" {
            let error = ChartError::new(place, format!("unknown value \"{history}\""));
            self.errors.push(error.one_of(&history, ["shallow"]));
        }
        true
    }

    fn transitions(&mut self, json: Option<&Json>) -> Vec<TransitionSource> {
        let items = self.list("transitions", json).iter().enumerate();
        items.map(|(index, item)| self.transition(&format!("transitions[{index}]"), item)).collect()
    }

    fn transition(&mut self, place: &str, json: &Json) -> TransitionSource {
        let Some(transition) = self.mapping(place, json, &TRANSITION) else {
            return TransitionSource::default();
        };
        let at = |name: &str| join(place, name);
        TransitionSource {
            trigger: self.text(&at("trigger"), transition.get("trigger")),
            source: self.some_states(&at("source"), transition.get("source")),
            target: self.text(&at("target"), transition.get("target")),
            guard: self.optional_text(&at("guard"), transition.get("guard")).map(GuardSource::Text),
            action: self.texts(&at("action"), transition.get("action")),
            oracle: self.flag(&at("oracle"), transition.get("oracle")),
        }
    }

    fn some_states(&mut self, place: &str, json: Option<&Json>) -> States {
        let states = self.texts(place, json);
        if states.len() > 1 && states.iter().any(|state| state == "*") {
            self.errors
                .push(ChartError::new(place, "\"*\" stands for every state, so it stands alone"));
        }
        if states.iter().any(|state| state == "*") { States::Any } else { States::Listed(states) }
    }

    fn timeouts(&mut self, json: Option<&Json>) -> Vec<TimeoutSource> {
        let items = self.list("timeouts", json).iter().enumerate();
        items.map(|(index, item)| self.timeout(&format!("timeouts[{index}]"), item)).collect()
    }

    fn timeout(&mut self, place: &str, json: &Json) -> TimeoutSource {
        let empty = Map::new();
        let timeout = self.mapping(place, json, &TIMEOUT).unwrap_or(&empty);
        let at = |name: &str| join(place, name);
        TimeoutSource {
            state: self.some_states(&at("state"), timeout.get("state")),
            threshold: self.threshold(&at("threshold"), timeout.get("threshold")),
            target: self.text(&at("target"), timeout.get("target")),
            action: self.texts(&at("action"), timeout.get("action")),
        }
    }

    fn threshold(&mut self, place: &str, json: Option<&Json>) -> ThresholdSource {
        match json {
            None | Some(Json::Null) => {
                self.errors.push(ChartError::new(place, "threshold is missing"));
                ThresholdSource::Ticks(1.0)
            }
            Some(Json::String(text)) => {
                if let Some(field) = text.strip_prefix("agent.") {
                    return ThresholdSource::Field(field.to_owned());
                }
                let message = format!("\"{text}\" is not a number of ticks");
                let error = ChartError::new(place, message).allowed("a number, agent.FIELD");
                self.errors.push(error);
                ThresholdSource::Ticks(1.0)
            }
            Some(other) => ThresholdSource::Ticks(self.number(place, Some(other)).unwrap_or(1.0)),
        }
    }

    fn fields(&mut self, json: Option<&Json>) -> BTreeMap<String, FieldSource> {
        let Some(json) = json.filter(|json| !json.is_null()) else { return BTreeMap::new() };
        let Json::Object(fields) = json else {
            self.wrong("fields", "a mapping", json);
            return BTreeMap::new();
        };
        let fields = fields.iter();
        fields.filter_map(|(name, json)| Some((name.clone(), self.field(name, json)?))).collect()
    }

    fn field(&mut self, name: &str, json: &Json) -> Option<FieldSource> {
        let place = join("fields", name);
        if let Some(default) = Value::from_json(json) {
            return Some(FieldSource { default, min: None, max: None });
        }
        if !json.is_object() {
            self.wrong(&place, "a value or a mapping with its default", json);
            return None;
        }
        let field = self.mapping(&place, json, &FIELD)?;
        let at = join(&place, "default");
        let default = match field.get("default") {
            None => {
                self.errors.push(ChartError::new(&at, "default is missing"));
                return None;
            }
            Some(json) => Value::from_json(json),
        };
        let Some(default) = default else {
            self.wrong(&at, "a number, a text, true or false", &field["default"]);
            return None;
        };
        Some(FieldSource {
            default,
            min: self.number(&join(&place, "min"), field.get("min")),
            max: self.number(&join(&place, "max"), field.get("max")),
        })
    }

    fn world(&mut self, json: Option<&Json>) -> BTreeMap<String, Value> {
        let Some(json) = json.filter(|json| !json.is_null()) else { return BTreeMap::new() };
        let Json::Object(world) = json else {
            self.wrong("world", "a mapping", json);
            return BTreeMap::new();
        };
        let mut values = BTreeMap::new();
        for (name, json) in world {
            match Value::from_json(json) {
                Some(value) => drop(values.insert(name.clone(), value)),
                None => self.wrong(&join("world", name), "a number, a text, true or false", json),
            }
        }
        values
    }
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

fn in_words(json: &Json) -> String {
    match json {
        Json::Null => "nothing".to_owned(),
        Json::Bool(bool) => bool.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => format!("\"{text}\""),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "a mapping".to_owned(),
    }
}
