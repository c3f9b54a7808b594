//! Decodes a document into a [`ChartSource`] and collects every type error.
//!
//! Missing values stay empty here; the compiler reports them.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use crate::compile::nesting_error;
use crate::error::ChartError;
use crate::source::{
    ChartSource, FieldSource, GuardSource, StateSelector, StateSource, ThresholdSource,
    TimeoutSource, TransitionSource,
};
use crate::value::ScalarValue;

/// The maximum nesting depth of states.
pub const STATE_DEPTH_MAX: usize = 16;

pub(crate) fn decode(document: &Json) -> (ChartSource, Vec<ChartError>) {
    let mut reader = ChartReader { errors: Vec::new() };
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

struct ChartReader {
    errors: Vec<ChartError>,
}

impl ChartReader {
    fn report_type_error(&mut self, location: &str, wanted: &str, found: &Json) {
        let name = location.rsplit('.').next().unwrap_or(location);
        let subject = if name.is_empty() { "a chart" } else { name };
        let message = format!("{subject} must be {wanted}, found {}", describe(found));
        self.errors.push(ChartError::new(location, message));
    }

    /// Returns the mapping at a location and reports every key that is not `allowed`.
    fn mapping<'j>(
        &mut self,
        location: &str,
        json: &'j Json,
        allowed: &[&str],
    ) -> Option<&'j Map<String, Json>> {
        let Json::Object(mapping) = json else {
            self.report_type_error(location, "a mapping", json);
            return None;
        };
        for key in mapping.keys().filter(|key| !allowed.contains(&key.as_str())) {
            let error = ChartError::new(join(location, key), format!("unknown field \"{key}\""));
            self.errors.push(error.suggest_from(key, allowed.iter().copied()));
        }
        Some(mapping)
    }

    fn list<'j>(&mut self, location: &str, json: Option<&'j Json>) -> &'j [Json] {
        match json {
            None | Some(Json::Null) => &[],
            Some(Json::Array(items)) => items,
            Some(other) => {
                self.report_type_error(location, "a list", other);
                &[]
            }
        }
    }

    fn text(&mut self, location: &str, json: Option<&Json>) -> String {
        self.optional_text(location, json).unwrap_or_default()
    }

    fn optional_text(&mut self, location: &str, json: Option<&Json>) -> Option<String> {
        match json {
            None | Some(Json::Null) => None,
            Some(Json::String(text)) => Some(text.clone()),
            Some(other) => {
                self.report_type_error(location, "a text", other);
                None
            }
        }
    }

    /// Decodes one text or a list of texts.
    fn texts(&mut self, location: &str, json: Option<&Json>) -> Vec<String> {
        match json {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::String(text)) => vec![text.clone()],
            Some(Json::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.text(&format!("{location}[{index}]"), Some(item)))
                .collect(),
            Some(other) => {
                self.report_type_error(location, "a text or a list of texts", other);
                Vec::new()
            }
        }
    }

    fn flag(&mut self, location: &str, json: Option<&Json>) -> bool {
        match json {
            None | Some(Json::Null) => false,
            Some(Json::Bool(flag)) => *flag,
            Some(other) => {
                self.report_type_error(location, "true or false", other);
                false
            }
        }
    }

    fn number(&mut self, location: &str, json: Option<&Json>) -> Option<f64> {
        match json {
            None | Some(Json::Null) => None,
            Some(Json::Number(number)) => number.as_f64(),
            Some(other) => {
                self.report_type_error(location, "a number", other);
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
            self.report_type_error("max_history_depth", "a whole number from 1", json);
        }
        depth
    }

    fn states(&mut self, location: &str, json: Option<&Json>, depth: usize) -> Vec<StateSource> {
        let items = self.list(location, json);
        if depth == STATE_DEPTH_MAX && !items.is_empty() {
            self.errors.push(nesting_error(location));
            return Vec::new();
        }
        let states = items.iter().enumerate();
        states
            .map(|(index, item)| self.state(&format!("{location}[{index}]"), item, depth))
            .collect()
    }

    fn state(&mut self, location: &str, json: &Json, depth: usize) -> StateSource {
        if let Json::String(name) = json {
            return StateSource::new(name);
        }
        if !json.is_object() {
            self.report_type_error(location, "a name or a mapping", json);
            return StateSource::default();
        }
        let Some(state) = self.mapping(location, json, &STATE) else {
            return StateSource::default();
        };
        let at = |name: &str| join(location, name);
        StateSource {
            name: self.text(&at("name"), state.get("name")),
            states: self.states(&at("states"), state.get("states"), depth + 1),
            initial: self.optional_text(&at("initial"), state.get("initial")),
            entry: self.texts(&at("entry"), state.get("entry")),
            exit: self.texts(&at("exit"), state.get("exit")),
            history: self.history(&at("history"), state.get("history")),
        }
    }

    fn history(&mut self, location: &str, json: Option<&Json>) -> bool {
        let Some(history) = self.optional_text(location, json) else { return false };
        if history != "shallow" {
            let error = ChartError::new(location, format!("unknown value \"{history}\""));
            self.errors.push(error.suggest_from(&history, ["shallow"]));
        }
        true
    }

    fn transitions(&mut self, json: Option<&Json>) -> Vec<TransitionSource> {
        let items = self.list("transitions", json).iter().enumerate();
        items.map(|(index, item)| self.transition(&format!("transitions[{index}]"), item)).collect()
    }

    fn transition(&mut self, location: &str, json: &Json) -> TransitionSource {
        let Some(transition) = self.mapping(location, json, &TRANSITION) else {
            return TransitionSource::default();
        };
        let at = |name: &str| join(location, name);
        TransitionSource {
            trigger: self.text(&at("trigger"), transition.get("trigger")),
            source: self.state_selector(&at("source"), transition.get("source")),
            target: self.text(&at("target"), transition.get("target")),
            guard: self.optional_text(&at("guard"), transition.get("guard")).map(GuardSource::Text),
            action: self.texts(&at("action"), transition.get("action")),
            oracle: self.flag(&at("oracle"), transition.get("oracle")),
        }
    }

    fn state_selector(&mut self, location: &str, json: Option<&Json>) -> StateSelector {
        let states = self.texts(location, json);
        if states.len() > 1 && states.iter().any(|state| state == "*") {
            self.errors.push(ChartError::new(
                location,
                "\"*\" stands for every state, so it stands alone",
            ));
        }
        if states.iter().any(|state| state == "*") {
            StateSelector::Any
        } else {
            StateSelector::Listed(states)
        }
    }

    fn timeouts(&mut self, json: Option<&Json>) -> Vec<TimeoutSource> {
        let items = self.list("timeouts", json).iter().enumerate();
        items.map(|(index, item)| self.timeout(&format!("timeouts[{index}]"), item)).collect()
    }

    fn timeout(&mut self, location: &str, json: &Json) -> TimeoutSource {
        let empty = Map::new();
        let timeout = self.mapping(location, json, &TIMEOUT).unwrap_or(&empty);
        let at = |name: &str| join(location, name);
        TimeoutSource {
            state: self.state_selector(&at("state"), timeout.get("state")),
            threshold: self.threshold(&at("threshold"), timeout.get("threshold")),
            target: self.text(&at("target"), timeout.get("target")),
            action: self.texts(&at("action"), timeout.get("action")),
        }
    }

    fn threshold(&mut self, location: &str, json: Option<&Json>) -> ThresholdSource {
        match json {
            None | Some(Json::Null) => {
                self.errors.push(ChartError::new(location, "threshold is missing"));
                ThresholdSource::Ticks(1.0)
            }
            Some(Json::String(text)) => {
                if let Some(field) = text.strip_prefix("agent.") {
                    return ThresholdSource::Field(field.to_owned());
                }
                let message = format!("\"{text}\" is not a number of ticks");
                let error = ChartError::new(location, message).allowed("a number, agent.FIELD");
                self.errors.push(error);
                ThresholdSource::Ticks(1.0)
            }
            Some(other) => {
                ThresholdSource::Ticks(self.number(location, Some(other)).unwrap_or(1.0))
            }
        }
    }

    fn fields(&mut self, json: Option<&Json>) -> BTreeMap<String, FieldSource> {
        let Some(json) = json.filter(|json| !json.is_null()) else { return BTreeMap::new() };
        let Json::Object(fields) = json else {
            self.report_type_error("fields", "a mapping", json);
            return BTreeMap::new();
        };
        let fields = fields.iter();
        fields.filter_map(|(name, json)| Some((name.clone(), self.field(name, json)?))).collect()
    }

    fn field(&mut self, name: &str, json: &Json) -> Option<FieldSource> {
        let location = join("fields", name);
        if let Some(default) = ScalarValue::from_json(json) {
            return Some(FieldSource { default, min: None, max: None });
        }
        if !json.is_object() {
            self.report_type_error(&location, "a value or a mapping with its default", json);
            return None;
        }
        let field = self.mapping(&location, json, &FIELD)?;
        let at = join(&location, "default");
        let default = match field.get("default") {
            None => {
                self.errors.push(ChartError::new(&at, "default is missing"));
                return None;
            }
            Some(json) => ScalarValue::from_json(json),
        };
        let Some(default) = default else {
            self.report_type_error(&at, "a number, a text, true or false", &field["default"]);
            return None;
        };
        Some(FieldSource {
            default,
            min: self.number(&join(&location, "min"), field.get("min")),
            max: self.number(&join(&location, "max"), field.get("max")),
        })
    }

    fn world(&mut self, json: Option<&Json>) -> BTreeMap<String, ScalarValue> {
        let Some(json) = json.filter(|json| !json.is_null()) else { return BTreeMap::new() };
        let Json::Object(world) = json else {
            self.report_type_error("world", "a mapping", json);
            return BTreeMap::new();
        };
        let mut values = BTreeMap::new();
        for (name, json) in world {
            match ScalarValue::from_json(json) {
                Some(value) => drop(values.insert(name.clone(), value)),
                None => self.report_type_error(
                    &join("world", name),
                    "a number, a text, true or false",
                    json,
                ),
            }
        }
        values
    }
}

fn join(location: &str, name: &str) -> String {
    if location.is_empty() { name.to_owned() } else { format!("{location}.{name}") }
}

fn describe(json: &Json) -> String {
    match json {
        Json::Null => "nothing".to_owned(),
        Json::Bool(bool) => bool.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => format!("\"{text}\""),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "a mapping".to_owned(),
    }
}
