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

    /// Reads a value that may be missing or null, and reports one of another type.
    fn optional<'j, T>(
        &mut self,
        location: &str,
        json: Option<&'j Json>,
        wanted: &str,
        read: impl Fn(&'j Json) -> Option<T>,
    ) -> Option<T> {
        let json = json.filter(|json| !json.is_null())?;
        let value = read(json);
        if value.is_none() {
            self.report_type_error(location, wanted, json);
        }
        value
    }

    /// Decodes the items of a list.
    fn list<T>(
        &mut self,
        location: &str,
        json: Option<&Json>,
        mut decode: impl FnMut(&mut Self, &str, &Json) -> T,
    ) -> Vec<T> {
        let items = self.optional(location, json, "a list", Json::as_array);
        let items = items.into_iter().flatten().enumerate();
        items.map(|(index, item)| decode(self, &format!("{location}[{index}]"), item)).collect()
    }

    fn text(&mut self, location: &str, json: Option<&Json>) -> String {
        self.optional_text(location, json).unwrap_or_default()
    }

    fn optional_text(&mut self, location: &str, json: Option<&Json>) -> Option<String> {
        self.optional(location, json, "a text", Json::as_str).map(str::to_owned)
    }

    /// Decodes one text or a list of texts.
    fn texts(&mut self, location: &str, json: Option<&Json>) -> Vec<String> {
        match json {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::String(text)) => vec![text.clone()],
            Some(Json::Array(_)) => self
                .list(location, json, |reader, location, item| reader.text(location, Some(item))),
            Some(other) => {
                self.report_type_error(location, "a text or a list of texts", other);
                Vec::new()
            }
        }
    }

    fn flag(&mut self, location: &str, json: Option<&Json>) -> bool {
        self.optional(location, json, "true or false", Json::as_bool).unwrap_or(false)
    }

    fn number(&mut self, location: &str, json: Option<&Json>) -> Option<f64> {
        self.optional(location, json, "a number", Json::as_f64)
    }

    fn chart(&mut self, json: &Json) -> ChartSource {
        let Some(chart) = self.mapping("", json, &CHART) else { return ChartSource::default() };
        ChartSource {
            name: self.text("name", chart.get("name")),
            states: self.states("states", chart.get("states"), 0),
            initial: self.text("initial", chart.get("initial")),
            transitions: self.list("transitions", chart.get("transitions"), Self::transition),
            timeouts: self.list("timeouts", chart.get("timeouts"), Self::timeout),
            oracle_default: self.optional_text("oracle_default", chart.get("oracle_default")),
            fields: self.fields(chart.get("fields")),
            world: self.world(chart.get("world")),
            max_history_depth: self.depth(chart.get("max_history_depth")),
            context: Vec::new(),
        }
    }

    fn depth(&mut self, json: Option<&Json>) -> Option<usize> {
        self.optional("max_history_depth", json, "a whole number from 1", |json| {
            json.as_u64().and_then(|depth| usize::try_from(depth).ok())
        })
    }

    fn states(&mut self, location: &str, json: Option<&Json>, depth: usize) -> Vec<StateSource> {
        if depth == STATE_DEPTH_MAX
            && let Some(Json::Array(items)) = json
            && !items.is_empty()
        {
            self.errors.push(nesting_error(location));
            return Vec::new();
        }
        self.list(location, json, |reader, location, item| reader.state(location, item, depth))
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
        if !states.iter().any(|state| state == "*") {
            return StateSelector::Listed(states);
        }
        if states.len() > 1 {
            let message = "\"*\" stands for every state, so it stands alone";
            self.errors.push(ChartError::new(location, message));
        }
        StateSelector::Any
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
        let ticks = match json {
            None | Some(Json::Null) => {
                self.errors.push(ChartError::new(location, "threshold is missing"));
                None
            }
            Some(Json::String(text)) => {
                if let Some(field) = text.strip_prefix("agent.") {
                    return ThresholdSource::Field(field.to_owned());
                }
                let message = format!("\"{text}\" is not a number of ticks");
                let error = ChartError::new(location, message).allowed("a number, agent.FIELD");
                self.errors.push(error);
                None
            }
            number => self.number(location, number),
        };
        ThresholdSource::Ticks(ticks.unwrap_or(1.0))
    }

    fn fields(&mut self, json: Option<&Json>) -> BTreeMap<String, FieldSource> {
        let fields = self.optional("fields", json, "a mapping", Json::as_object);
        let fields = fields.into_iter().flatten();
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
        let Some(json) = field.get("default") else {
            self.errors.push(ChartError::new(&at, "default is missing"));
            return None;
        };
        let default = self.value(&at, json)?;
        Some(FieldSource {
            default,
            min: self.number(&join(&location, "min"), field.get("min")),
            max: self.number(&join(&location, "max"), field.get("max")),
        })
    }

    fn world(&mut self, json: Option<&Json>) -> BTreeMap<String, ScalarValue> {
        let world = self.optional("world", json, "a mapping", Json::as_object);
        let value = |(name, json): (&String, &Json)| {
            Some((name.clone(), self.value(&join("world", name), json)?))
        };
        world.into_iter().flatten().filter_map(value).collect()
    }

    fn value(&mut self, location: &str, json: &Json) -> Option<ScalarValue> {
        let value = ScalarValue::from_json(json);
        if value.is_none() {
            self.report_type_error(location, "a number, a text, true or false", json);
        }
        value
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
