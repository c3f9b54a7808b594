//! Conversions between JSON and CEL values.

use std::collections::HashMap;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::common::value::Val;
use cel::objects::Key;
use cel::{ExecutionError, Value};
use polity_model::value::excerpt;
use serde_json::{Map, Number, Value as Json};

use super::bounded::CHARGE;

pub(super) fn from_json<'v>(value: &'v Json) -> Box<dyn Val + 'v> {
    match value {
        Json::Null => Box::new(CelNull),
        Json::Bool(value) => Box::new(CelBool::from(*value)),
        Json::Number(number) => from_number(number),
        Json::String(text) => Box::new(CelString::from(text.as_str())),
        Json::Array(items) => {
            Box::new(CelList::from(items.iter().map(from_json).collect::<Vec<_>>()))
        }
        Json::Object(entries) => {
            let entries: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = entries
                .iter()
                .map(|(key, value)| (CelMapKey::from(key.as_str()), from_json(value)))
                .collect();
            Box::new(CelMap::from(entries))
        }
    }
}

/// Whole numbers are signed if possible: CEL does not mix signed and unsigned ones.
fn from_number<'v>(number: &Number) -> Box<dyn Val + 'v> {
    if let Some(whole) = number.as_i64() {
        Box::new(CelInt::from(whole))
    } else if let Some(whole) = number.as_u64() {
        Box::new(CelUInt::from(whole))
    } else {
        Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN)))
    }
}

pub(super) fn to_json(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => (*value).into(),
        Value::UInt(value) => (*value).into(),
        Value::Float(value) => Number::from_f64(*value)
            .map(Json::Number)
            .ok_or_else(|| format!("gives {value}, which is not a number that can be kept"))?,
        Value::String(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(to_json).collect::<Result<_, _>>()?,
        Value::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| Ok((key_text(key), to_json(value)?)));
            Json::Object(entries.collect::<Result<Map<_, _>, String>>()?)
        }
        Value::Bytes(_) => return Err("gives bytes, which have no JSON form".to_owned()),
        other => return Err(format!("gives {:?}, which has no JSON form", other.type_of())),
    })
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Int(key) => key.to_string(),
        Key::Uint(key) => key.to_string(),
        Key::Bool(key) => key.to_string(),
        Key::String(key) => key.as_ref().clone(),
    }
}

/// A value's type, in the words of people who write definitions.
pub(super) fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "a mapping",
    }
}

/// Why an expression has no value.
pub(super) fn in_words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => {
            format!("there is no \"{}\"; ask has(...) first if it may be absent", excerpt(key))
        }
        ExecutionError::NoSuchOverload(overload) => {
            let name = overload.function().trim_matches(['_', '@']).replace("_:_", ":");
            let types = overload.argument_types().join(" and ");
            format!("\"{name}\" does not work with {types}")
        }
        ExecutionError::UndeclaredReference(name) => format!("there is no \"{}\"", excerpt(name)),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "divides by zero".to_owned()
        }
        // The message names the limit.
        ExecutionError::FunctionError { function, message } if function == CHARGE => {
            message.clone()
        }
        ExecutionError::FunctionError { function, message } => {
            format!("{function}: {}", excerpt(message))
        }
        ExecutionError::IndexOutOfBounds(_) => "reads beyond the end of a list".to_owned(),
        other => excerpt(&other.to_string()),
    }
}
